"""The page of `bilm project` in a browser, as a person uses it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bilm.analysis import project, write_picture
from tests.browser import Page, chromium
from tests.hand_made import two_senses

pytestmark = [pytest.mark.browser, pytest.mark.slow]

FOUND = "#found h2"


@pytest.fixture(scope="module")
def driver():
    driver = chromium()
    yield driver
    driver.quit()


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    occurrences = two_senses()
    sentences = list(occurrences.sentences)
    sentences[8] = ("</script>", "<b>", "bank", "苹果", '"&quot;')
    occurrences = replace(occurrences, sentences=sentences)
    path = tmp_path_factory.mktemp("page") / "bank.html"
    write_picture(path, occurrences, project(occurrences), title="bank")
    return path


@pytest.fixture
def page(driver, path):
    return Page(driver, path)


def shown(page):
    """The number of dots that are not faded, by colour, for each panel."""
    return page.script(
        """[...document.querySelectorAll('.panel')].map(panel => {
            const counts = {};
            for (const dot of panel.querySelectorAll('path:not(.off)')) {
                const fill = dot.getAttribute('fill');
                counts[fill] = (counts[fill] || 0) + 1;
            }
            return counts;
        })"""
    )


MONEY, RIVER = {"var(--c0)": 8}, {"var(--c1)": 8}


def test_the_page_loads_without_complaints_and_without_a_network(page, path):
    assert page.complaints() == []
    assert page.requests() == [path.as_uri()]
    assert [text.partition(":")[0] for text in page.texts("figcaption")] == ["layer 1", "layer 2"]
    assert shown(page) == [MONEY | RIVER] * 2
    assert page.texts(".legend button") == ["money 8", "river 8"]
    # Typical sentences are shown before anything is selected.
    assert page.texts("#typical h3") == ["money 8 of 16, 50%", "river 8 of 16, 50%"]
    assert len(page.texts("#typical li")) == 6 and page.texts(FOUND) == []


def test_the_menu_enlarges_a_layer(page):
    width = page.box("figure:first-child .panel")[2]
    (option,) = [o for o in page.all("option") if o.text == "layer 2"]
    option.click()
    assert [text.partition(":")[0] for text in page.texts("figcaption")] == ["layer 2"]
    assert page.box(".panel")[2] > 1.4 * width
    page.all("option")[0].click()
    assert len(page.texts("figcaption")) == 2 and page.complaints() == []


def test_a_search_lists_sentences_or_says_that_there_are_none(page):
    (field,) = page.all("input")
    field.send_keys("MUDDY")
    assert page.texts(FOUND) == ["8 sentences"]
    assert shown(page) == [RIVER] * 2
    assert "birch muddy bank birch ." in [" ".join(t.split()) for t in page.texts("#found li")]
    assert page.texts("#typical h3") == []
    field.send_keys(" nowhere")
    assert page.texts(FOUND) == ["No selected sentence contains “muddy nowhere”."]
    assert shown(page) == [{}] * 2 and page.texts("#found li") == []
    assert page.complaints() == []


def test_the_legend_selects_a_cluster(page):
    money, river = page.all(".legend button")
    river.click()
    assert shown(page) == [RIVER] * 2 and page.texts(FOUND) == ["8 sentences"]
    assert [b.get_attribute("aria-pressed") for b in (money, river)] == ["false", "true"]
    money.click()
    assert shown(page) == [MONEY] * 2
    money.click()
    assert shown(page) == [MONEY | RIVER] * 2 and page.texts(FOUND) == []


def test_a_rectangle_selects_the_same_occurrences_in_all_panels(page):
    left, top, width, height = page.box("figure:first-child .panel")
    page.drag((left + 2, top + 2), (left + width / 2, top + height - 2))
    assert page.texts(FOUND) == ["8 sentences"]
    first = shown(page)
    assert first in ([MONEY] * 2, [RIVER] * 2)
    left, top, width, height = page.box("figure:first-child .panel")
    page.drag((left + width / 2, top + 2), (left + width - 2, top + height - 2))
    assert shown(page) == ([RIVER] * 2 if first == [MONEY] * 2 else [MONEY] * 2)
    # A click removes the selection rectangle.
    page.drag((left + 5, top + 5), (left + 5, top + 5))
    assert shown(page) == [MONEY | RIVER] * 2
    assert page.complaints() == []


def test_a_dot_shows_its_sentence_and_its_neighbours(page):
    left, top, width, height = page.box("figure:first-child .panel")
    points = page.script("data.panels[0].points.slice(0, 2)")
    place = [(value + 30) / 1060 * width for value in points]
    page.point((left + place[0], top + place[1]))
    (text,) = page.texts("#tip")
    first, label, *near = text.splitlines()
    assert (first, label) == ("birch muddy bank birch .", "river")
    assert len(near) == 3 and near[0] == "1.00 maple muddy bank maple ."
    page.point((left - 20, top + height / 2))
    assert page.texts("#tip") == []


def test_arrow_keys_move_between_dots(page):
    page.script("document.querySelector('.panel').focus()")
    labels = set()
    for key in ("ArrowRight", "ArrowLeft", "ArrowDown", "ArrowUp"):
        for _ in range(40):
            page.script(
                f"""document.activeElement.dispatchEvent(
                    new KeyboardEvent('keydown', {{key: '{key}', bubbles: true}}))"""
            )
        (text,) = page.texts("#tip")
        labels.add(text.splitlines()[1])
    # The ends of the picture are in both clusters.
    assert labels == {"money", "river"}
    page.script("document.activeElement.blur()")
    assert page.texts("#tip") == []


def test_marks_of_html_in_a_text_are_text(page):
    (field,) = page.all("input")
    field.send_keys("<b>")
    assert page.texts(FOUND) == ["1 sentence"]
    assert [" ".join(text.split()) for text in page.texts("#found li")] == [
        '</script> <b> bank 苹果 "&quot;'
    ]
    assert page.complaints() == []


@pytest.mark.parametrize("dark", [False, True])
def test_a_phone_and_a_dark_screen(driver, path, dark):
    page = Page(driver, path, width=390, dark=dark)
    assert page.script("document.documentElement.scrollWidth") == 390
    assert page.box("figure:first-child .panel")[2] > 340
    back = page.script("getComputedStyle(document.body).backgroundColor")
    assert back == ("rgb(24, 26, 27)" if dark else "rgb(255, 255, 255)")
