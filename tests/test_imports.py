"""The structure of the package, read from its syntax trees: imports go one way."""

from __future__ import annotations

import ast
import functools
import os
import subprocess
import sys
from pathlib import Path

import pytest

import bilm

ROOT = Path(bilm.__file__).parent
# A part imports only from the lines above it, never from another part of its own line.
LINES = (
    ("core",),
    ("errors", "progress", "terminal"),
    ("files",),
    ("data",),
    ("inference",),
    ("training", "use"),
    ("vectors",),
    ("elmo", "model"),
    ("analysis",),
    ("cli",),
    ("__main__",),
)
RANK = {part: rank for rank, line in enumerate(LINES) for part in line}
FRAMEWORKS = {"tensorflow", "keras"}
# Parts without tensors, and parts without file access.
NO_TENSORS = {"data", "errors"}
NO_FILES = {"core"}
# Modules that every part may import, and the entry point: not in the drawing of docs/reading.md.
NOT_DRAWN = {"errors", "progress", "terminal", "__main__"}
# Parts that talk to a person at a terminal.
MAY_PRINT = {"cli", "terminal", "__main__"}


def part_of(path):
    """The first name below bilm, or "" for bilm/__init__.py, which imports from all parts."""
    first = path.relative_to(ROOT).parts[0].removesuffix(".py")
    return "" if first == "__init__" else first


def name_of(path):
    return str(path.relative_to(ROOT))


SOURCES = sorted(ROOT.rglob("*.py"))
PARTS = [path for path in SOURCES if part_of(path)]


@functools.cache
def tree_of(path):
    return ast.parse(path.read_text(encoding="utf-8"))


def imported(tree):
    """Dotted names of all modules imported anywhere in a tree."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative imports hide where a name is from"
            if node.module == "bilm":
                yield from (f"bilm.{alias.name}" for alias in node.names)
            else:
                yield node.module


def calls(tree):
    """Source text of the called expressions."""
    return [ast.unparse(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)]


def test_imports_go_one_way():
    for path in PARTS:
        part = part_of(path)
        assert part in RANK, f"{part} has no place in the order of imports"
        for name in imported(tree_of(path)):
            if not name.startswith("bilm."):
                continue
            other = name.split(".")[1]
            # `from bilm import name` would import from bilm/__init__.py, which is above all parts.
            assert other in RANK, f"{path} imports {name}: say which part it is from"
            assert other == part or RANK[other] < RANK[part], f"{path} imports {name}"


def parts_used():
    """The parts that each part imports, except those that every part may import."""
    used = {part: set() for line in LINES for part in line if part not in NOT_DRAWN}
    for path in PARTS:
        if part_of(path) in used:
            names = [n.split(".")[1] for n in imported(tree_of(path)) if n.startswith("bilm.")]
            used[part_of(path)] |= {n for n in names if n in used and n != part_of(path)}
    return used


def reached(part, used):
    """All parts that a part imports, directly or indirectly."""
    return used[part].union(*(reached(other, used) for other in used[part]))


def test_the_drawing_of_the_imports():
    """docs/reading.md has an arrow for each import that other arrows do not imply."""
    used = parts_used()
    arrows = {
        f"{part} --> {other}"
        for part, others in used.items()
        for other in others
        if not any(other in reached(between, used) for between in others)
    }
    page = (ROOT.parent / "docs" / "reading.md").read_text(encoding="utf-8")
    drawn = page.partition("the drawing.\n\n```text\n")[2].partition("\n```")[0].splitlines()
    assert "\n".join(drawn) == "\n".join(sorted(arrows))
    assert len(arrows) > len(used) / 2


def test_no_tensors_or_files_where_they_do_not_belong():
    for path in PARTS:
        part = part_of(path)
        names = {name.split(".")[0] for name in imported(tree_of(path))}
        if part in NO_TENSORS:
            assert not names & FRAMEWORKS, path
        if part in NO_FILES:
            assert not names & {"h5py", "pathlib", "io"}, path


def test_weights_are_read_and_written_in_one_place():
    """Outside `files`, h5py is only used for files of vectors."""
    users = {part_of(path) for path in SOURCES if "h5py" in set(imported(tree_of(path)))}
    assert users <= {"files", "use", "vectors"}


def test_keras_is_imported_where_its_backend_is_checked():
    users = {name_of(path) for path in SOURCES if "keras" in set(imported(tree_of(path)))}
    assert users == {"core/keras_backend.py"}


def test_a_backend_of_kerass_settings_that_is_not_installed(tmp_path):
    """Keras reads its backend from a settings file; importing Keras then fails."""
    (tmp_path / "keras.json").write_text('{"backend": "of_no_name"}', encoding="utf-8")
    (tmp_path / "model.ckpt-1.index").touch()  # a checkpoint, which TensorFlow reads
    environment = {**os.environ, "KERAS_HOME": str(tmp_path)}
    environment.pop("KERAS_BACKEND", None)
    done = subprocess.run(
        [sys.executable, "-m", "bilm", "info", str(tmp_path)],
        env=environment,
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stdout) == (1, "")
    message = "bilm: error: bilm needs the TensorFlow backend of Keras, and Keras cannot be import"
    assert done.stderr.splitlines()[-1].startswith(message) and "Traceback" not in done.stderr
    assert "KERAS_BACKEND=tensorflow in the environment chooses it." in done.stderr


def test_no_asserts_or_global_seeds():
    for path in SOURCES:
        tree = tree_of(path)
        assert not any(isinstance(node, ast.Assert) for node in ast.walk(tree)), path
        has_random = "random" in set(imported(tree))
        for call in calls(tree):
            assert call.split(".")[-1] not in {"seed", "set_seed", "set_random_seed"}, (path, call)
            if call.startswith("np.random."):
                assert call.startswith(("np.random.default_rng", "np.random.Generator")), call
            # The functions of `random` share a global state; a `random.Random` has its own.
            if has_random and call.startswith("random."):
                assert call.startswith("random.Random"), (path, call)


def test_the_library_is_quiet():
    """It never prints, reads input, exits or configures logging."""
    forbidden = {"print", "input", "exit", "quit", "sys.exit", "os._exit", "logging.basicConfig"}
    for path in SOURCES:
        tree = tree_of(path)
        if part_of(path) in MAY_PRINT:
            continue
        # A counting process exits when its parent does.
        allowed = {"os._exit"} if path.name == "prefetch.py" else set()
        assert not (forbidden - allowed) & set(calls(tree)), path
        raised = [ast.unparse(node) for node in ast.walk(tree) if isinstance(node, ast.Raise)]
        assert not [text for text in raised if "SystemExit" in text], path


def test_tensorflow_is_not_loaded_before_it_is_needed():
    modules = "bilm, bilm.data, bilm.core.options, bilm.cli, bilm.inference.layers"
    program = f"import sys, {modules}; print('tensorflow' in sys.modules or 'keras' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.strip() == "False", done.stderr


def test_public_names_are_where_they_always_were():
    """The original's import paths, and the names in `bilm` itself."""
    paths = {
        "data": "Batcher BidirectionalLMDataset LMDataset TokenBatcher UnicodeCharsVocabulary "
        "Vocabulary _get_batch",
        "elmo": "ELMo weight_layers",
        "model": "BidirectionalLanguageModel dump_bilm_embeddings dump_token_embeddings",
        "training": "LanguageModel dump_weights load_options_latest_checkpoint load_vocab test "
        "train",
    }
    for module, names in paths.items():
        home = __import__(f"bilm.{module}", fromlist=["_"])
        for name in names.split():
            assert hasattr(home, name), f"bilm.{module}.{name}"
    for name in bilm.__all__:
        assert getattr(bilm, name) is not None
    assert "test" not in bilm.__all__ and callable(bilm.test)
    with pytest.raises(AttributeError, match="'bilm' has no attribute 'nothing'"):
        _ = bilm.nothing


# The tests themselves

TESTS = sorted(Path(__file__).parent.rglob("*.py"))
# Names from named tuples, Keras and the original program.
NOT_PRIVATE = {"_replace", "_asdict", "_keras_mask", "_get_batch"}


def is_private(name):
    return name.startswith("_") and not name.endswith("__") and name not in NOT_PRIVATE


def names_taken(tree):
    """Names that a test uses of modules and objects, by import, attribute access or patching."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.Attribute):
            if not (isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")):
                yield node.attr
        elif isinstance(node, ast.Call):
            yield from names_patched(node)


def names_patched(call):
    """Names passed to getattr, setattr, delattr or patch.object."""
    if ast.unparse(call.func).split(".")[-1] not in ("getattr", "setattr", "delattr", "object"):
        return
    for argument in call.args[:2]:
        if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
            yield argument.value.split(".")[-1]


def test_tests_use_public_names_only():
    for path in TESTS:
        tree = ast.parse(path.read_text(encoding="utf-8"))
        assert not [name for name in names_taken(tree) if is_private(name)], path
        calls_made = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
        patched = [name for call in calls_made for name in names_patched(call)]
        assert not [name for name in patched if name.isupper()], f"{path}: a constant is patched"
