// The search reads a leading - as "without this word": drop those of flags such as --heldout_every.
document.addEventListener("input", ({ target }) => {
  if (target.matches(".md-search__input")) target.value = target.value.replace(/^-+/, "");
}, true);
