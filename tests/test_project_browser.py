"""The page of `bilm project` in a browser, as a person uses it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bilm.analysis import project, write_picture
from tests.browser import Page, chromium
from tests.hand_made import two_senses

pytestmark = [pytest.mark.browser, pytest.mark.slow]

BLUE, ORANGE, FAINT = "#0072B2", "#D55E00", "#e4e4e4"
HINT = "Draw a rectangle in a panel, or search: the lines are listed here."


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


def layers_shown(page):
    return [text.partition(":")[0] for text in page.texts() if text.startswith("layer ")]


def test_the_page_loads_without_complaints_and_without_a_network(page, path):
    assert page.complaints() == []
    assert page.requests() == [path.as_uri()]
    assert layers_shown(page) == ["layer 0", "layer 1", "layer 2"]
    assert len({cell[2:] for cell in page.cells().values()}) == 1
    assert HINT in page.texts()
    assert page.dots(BLUE) == page.dots(ORANGE) == 24 and page.dots(FAINT) == 0


def test_the_menu_enlarges_a_layer(page):
    small = page.cells()["panel2_cell"][2]
    page.choose("layer", "layer 2")
    assert layers_shown(page) == ["layer 2"]
    (cell,) = page.cells().values()
    assert cell[2] > 2 * small
    assert page.dots(BLUE) == page.dots(ORANGE) == 8
    page.choose("layer", "all layers")
    assert len(page.cells()) == 3 and page.complaints() == []


def test_a_search_marks_dots_and_lists_their_lines(page):
    page.type("search", "MUDDY")
    page.until(lambda: "8 lines:" in page.texts())
    texts = page.texts()
    assert "birch muddy" in texts and "birch ." in texts and HINT not in texts
    assert not [text for text in texts if "savings" in text]
    assert (page.dots(BLUE), page.dots(ORANGE), page.dots(FAINT)) == (0, 24, 24)
    page.type("search", " nowhere")
    page.until(lambda: page.dots(FAINT) == 48)
    assert page.complaints() == []


def test_a_rectangle_marks_the_same_occurrences_in_all_panels(page):
    left, top, width, height = page.cells()["panel1_cell"]
    right_side = (left + width / 2, top + 2), (left + width - 2, top + height - 2)
    left_side = (left + 2, top + 2), (left + width / 2, top + height - 2)
    page.drag(*left_side)
    page.until(lambda: "8 lines:" in page.texts())
    counts = (page.dots(BLUE), page.dots(ORANGE), page.dots(FAINT))
    assert counts in {(24, 0, 24), (0, 24, 24)}
    assert HINT not in page.texts()
    # In one panel after the other: there is one rectangle.
    left, *_ = page.cells()["panel1_cell"]
    page.drag((left - 6, top - 6), (left - 5, top - 5))
    page.drag(*right_side)
    page.until(lambda: (page.dots(BLUE), page.dots(ORANGE)) == (counts[1], counts[0]))
    assert page.complaints() == []


def test_a_tooltip_has_the_sentence_and_the_neighbours(page):
    left, top, width, height = page.cells()["panel0_cell"]
    # All vectors of layer 0 are equal: one dot in the middle, the last drawn on top.
    text = page.point((left + width / 2, top + height / 2))
    assert "larch savings [bank] larch ." in text and "label money" in text
    assert "nearest 0.00" in text and "second" in text and "third" in text


def test_marks_of_html_in_a_text_are_text(page):
    page.type("search", "<b>")
    page.until(lambda: "1 line:" in page.texts())
    assert "&lt;/script&gt; &lt;b&gt;" in page.texts()
    assert page.complaints() == []
