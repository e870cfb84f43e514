"""Pictures of occurrences: what is in them, and what they are written as."""

from __future__ import annotations

import re
import sys
from dataclasses import replace

import numpy as np
import pytest

from bilm import InputError
from bilm.analysis import draw, project, write_picture
from tests.hand_made import two_senses

pytest.importorskip("altair")
pytest.importorskip("vl_convert")
pytest.importorskip("sklearn")

BLUE, ORANGE, GREY = "#0072B2", "#D55E00", "#a0a0a0"


@pytest.fixture(scope="module")
def projected():
    occurrences = two_senses()
    return occurrences, project(occurrences)


def svg_of(tmp_path, occurrences, projection, **settings):
    path = tmp_path / "picture.svg"
    write_picture(path, occurrences, projection, **settings)
    return path.read_text(encoding="utf-8")


def texts(svg):
    return re.findall(r"<(?:text|tspan)[^>]*>([^<]+)</", svg)


def dots(svg, colour):
    return len(re.findall(rf'<path [^>]*fill="{colour}" stroke-width="0"', svg))


def test_an_svg_has_a_dot_for_each_occurrence_in_each_panel(projected, tmp_path):
    svg = svg_of(tmp_path, *projected, title="bank")
    assert dots(svg, BLUE) == dots(svg, ORANGE) == 3 * 8
    found = texts(svg)
    assert {"bank", "money", "river", "layer 0: all vectors are equal"} <= set(found)
    first, second = 100 * projected[1].variance[1]
    assert f"layer 1: {first:.0f} % + {second:.0f} % of the variance" in found
    assert any(text.startswith("16 occurrences, each of them a dot") for text in found)
    assert "Layer 0 knows no context: 1 vector, one for each word" in " ".join(found)


def test_panels_have_one_size(projected, tmp_path):
    svg = svg_of(tmp_path, *projected)
    frames = re.findall(r'd="(M0\.5,0\.5h(\d+)v(\d+)h-\d+Z)" stroke', svg)
    assert len(frames) == 3 and len(set(frames)) == 1 and frames[0][1] == frames[0][2]


def test_a_picture_is_png_and_its_size_is_said(projected, tmp_path):
    path = tmp_path / "picture.png"
    size = write_picture(path, *projected)
    content = path.read_bytes()
    assert content[:8] == b"\x89PNG\r\n\x1a\n" and len(content) == size
    width, height = np.frombuffer(content[16:24], ">u4")
    assert 1700 < width < 1900 and height < width / 2


def test_one_layer_is_drawn_large(projected, tmp_path):
    occurrences, _ = projected
    svg = svg_of(tmp_path, occurrences, project(occurrences, "tsne", layers=["top"], perplexity=4))
    assert 'd="M0.5,0.5h620v620h-620Z"' in svg
    assert {"bank", "layer 2"} <= set(texts(svg))
    assert "t-SNE with perplexity 4:" in " ".join(texts(svg))


def test_what_colours_tell(projected, tmp_path):
    occurrences, projection = projected
    svg = svg_of(tmp_path, occurrences, projection, colour="word")
    assert dots(svg, BLUE) == 48 and "river" not in texts(svg)
    groups = [0] * 4 + [3] * 10 + [-1] * 2
    svg = svg_of(tmp_path, occurrences, projection, colour="group", groups=groups)
    assert [dots(svg, colour) for colour in (BLUE, ORANGE, GREY)] == [30, 12, 6]
    assert {"group 3", "group 0", "unlabelled"} <= set(texts(svg))
    # Groups are drawn where there are no labels.
    plain = replace(occurrences, labels=None)
    assert dots(svg_of(tmp_path, plain, projection, groups=groups), GREY) == 6
    some = replace(occurrences, labels=["river"] * 8 + [""] * 8)
    assert dots(svg_of(tmp_path, some, projection), GREY) == 24


def test_many_labels_have_shapes_and_the_smallest_are_others(tmp_path):
    occurrences = replace(two_senses(20), labels=[f"label {k}" for k in range(40)])
    svg = svg_of(tmp_path, occurrences, project(occurrences, layers=[1]))
    assert dots(svg, BLUE) == 5 and dots(svg, GREY) == 5 and "others" in texts(svg)
    shapes = set(re.findall(r'd="([^"]+)"[^>]*stroke-width="0"', svg))
    assert len(shapes) == 5


def test_a_chart_is_altairs_own(projected):
    chart = draw(*projected, title="bank").to_dict()
    assert chart["title"]["text"] == "bank" and len(chart["vconcat"][0]["hconcat"]) == 3
    rows = chart["data"]["values"].splitlines()
    assert rows[0].split("\t") == ["k", "l", "w", "r", *"x0 y0 n0 x1 y1 n1 x2 y2 n2".split()]
    first = dict(zip(rows[0].split("\t"), rows[1].split("\t"), strict=True))
    assert (first["k"], first["l"], first["w"], first["r"]) == (
        "river",
        "birch muddy",
        "bank",
        "birch .",
    )
    # Coordinates fill a square; the nearest in layer 1 is the next in line, of the same sense.
    assert max(abs(int(row.split("\t")[7])) for row in rows[1:]) == 1000
    assert first["n1"].split(",")[0] == "1"


def test_a_page_is_one_file_without_addresses_to_load_from(projected, tmp_path):
    occurrences, projection = projected
    sentences = list(occurrences.sentences)
    sentences[0] = ("</script><script>alert(1)", "<b>", "bank", "苹果", '"quoted"')
    path = tmp_path / "page.html"
    size = write_picture(
        path, replace(occurrences, sentences=sentences), projection, title="<bank>"
    )
    page = path.read_text(encoding="utf-8")
    assert path.stat().st_size == size < 1_500_000
    assert "<title>&lt;bank&gt;</title>" in page
    assert "</script><script>alert" not in page and "苹果" in page
    outside = re.sub(r"(?s)(<script[^>]*>).*?</script>", r"\1", page)
    assert re.findall(r'(?:src|href)="([^"]*)"', outside) == ["data:,"]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"colour": "sense"}, "colour: 'word', 'label' or 'group' is expected, not 'sense'"),
        ({"colour": "group"}, "colour: the occurrences have no groups"),
        ({"groups": [1, 2]}, "groups: 16 are expected, not 2"),
    ],
)
def test_what_cannot_be_drawn(projected, settings, message):
    with pytest.raises(InputError, match=message):
        draw(*projected, **settings)


def test_what_does_not_fit(projected, tmp_path):
    occurrences, projection = projected
    with pytest.raises(InputError, match="it has 16 occurrences, and 4 are to be drawn"):
        draw(occurrences.select(np.arange(4)), projection)
    with pytest.raises(InputError, match="colour: the occurrences have no labels"):
        draw(replace(occurrences, labels=None), projection, colour="label")
    with pytest.raises(InputError, match=r"a file name that ends in .html, .png, .svg is expected"):
        write_picture(tmp_path / "picture.pdf", occurrences, projection)


@pytest.mark.parametrize("ending", ["png", "svg"])
def test_a_character_without_a_font_is_an_error(projected, tmp_path, ending):
    path = tmp_path / f"picture.{ending}"
    # A private character, which no font of a usual machine has.
    message = (
        r"No font of this machine has .* \(U\+F0F8E\), which would be drawn as boxes: install Noto"
    )
    with pytest.raises(InputError, match=message):
        write_picture(path, *projected, title="bank \U000f0f8e")
    many = "".join(chr(0xF0F80 + k) for k in range(8))
    with pytest.raises(InputError, match="and 3 more, which would be drawn as boxes"):
        write_picture(path, *projected, title=many)
    assert not path.exists()
    # A page is drawn with the fonts of whoever opens it.
    write_picture(tmp_path / "page.html", *projected, title="bank \U000f0f8e")


def test_other_alphabets_are_drawn_or_named(projected, tmp_path):
    occurrences, projection = projected
    svg = svg_of(tmp_path, occurrences, projection, title="Grüße — naïve")
    assert "Grüße — naïve" in texts(svg)
    try:
        svg = svg_of(tmp_path, occurrences, projection, title="苹果")
    except InputError as error:
        assert "fonts-noto-cjk" in str(error)
    else:
        assert "苹果" in texts(svg) and "Noto Sans CJK SC" in svg


@pytest.mark.parametrize("module", ["altair", "vl_convert"])
def test_packages_that_are_missing_are_named(projected, tmp_path, monkeypatch, module):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(InputError, match=f"needs the Python module {module}: "):
        write_picture(tmp_path / "picture.png", *projected)
