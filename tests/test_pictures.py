"""Pictures of occurrences: their contents and file formats."""

from __future__ import annotations

import html
import json
import re
from dataclasses import replace

import numpy as np
import pytest

from bilm import InputError
from bilm.analysis import (
    Context,
    Occurrences,
    cluster_occurrences,
    draw,
    project,
    typical_occurrences,
    write_picture,
)
from bilm.analysis.contexts import line_markup
from tests.hand_made import two_senses

pytest.importorskip("matplotlib")
pytest.importorskip("sklearn")

BLUE, ORANGE, GREY = "#0072b2", "#d55e00", "#a0a0a0"


@pytest.fixture(scope="module")
def projected():
    occurrences = two_senses()
    return occurrences, project(occurrences)


def svg_of(tmp_path, occurrences, projection, **settings):
    path = tmp_path / "picture.svg"
    write_picture(path, occurrences, projection, **settings)
    return path.read_text(encoding="utf-8")


def page_of(tmp_path, occurrences, projection, **settings):
    path = tmp_path / "page.html"
    size = write_picture(path, occurrences, projection, **settings)
    assert path.stat().st_size == size
    return path.read_text(encoding="utf-8")


def data_of(page):
    return json.loads(
        re.search(r'<script type="application/json" id="data">(.*?)</script>', page)[1]
    )


def texts(svg):
    return [html.unescape(text) for text in re.findall(r"<(?:text|tspan)[^>]*>([^<]+)</", svg)]


def dots(figure, colour):
    """The number of dots of a colour in all panels of a figure."""
    from matplotlib.colors import to_hex

    return sum(
        len(drawn.get_offsets())
        for axes in figure.axes
        for drawn in axes.collections
        if to_hex(drawn.get_facecolor()[0]) == colour
    )


def test_every_panel_has_a_dot_for_each_occurrence(projected, tmp_path):
    figure = draw(*projected, title="bank")
    assert dots(figure, BLUE) == dots(figure, ORANGE) == 2 * 8
    assert len(figure.axes) == 2 and all(axes.collections for axes in figure.axes)
    found = texts(svg_of(tmp_path, *projected, title="bank"))
    assert {"bank", "money (8)", "river (8)"} <= set(found)
    first, second = 100 * projected[1].variance[0]
    assert f"layer 1: {first:.0f} % + {second:.0f} % of the variance" in found
    assert not [text for text in found if text.startswith("layer 0")]
    assert any(text.startswith("16 occurrences, one dot each per panel. PCA") for text in found)


@pytest.mark.parametrize("n_layers", [1, 2, 4, 5])
def test_no_panel_is_empty(n_layers):
    occurrences = two_senses()
    vectors = np.repeat(occurrences.vectors[:, 1:2], n_layers, axis=1)
    occurrences = replace(occurrences, vectors=vectors)
    figure = draw(occurrences, project(occurrences, layers=range(n_layers)))
    assert len(figure.axes) == n_layers and dots(figure, BLUE) == 8 * n_layers


def test_a_png_has_twice_the_pixels(projected, tmp_path):
    path = tmp_path / "picture.png"
    size = write_picture(path, *projected)
    content = path.read_bytes()
    assert content[:8] == b"\x89PNG\r\n\x1a\n" and len(content) == size
    width, height = np.frombuffer(content[16:24], ">u4")
    assert width == 1780 and 1000 < height < 1200


def test_one_layer_is_drawn_large(projected):
    occurrences, _ = projected
    figure = draw(occurrences, project(occurrences, "tsne", layers=["top"], perplexity=4))
    assert figure.axes[0].get_title(loc="left") == "layer 2"
    assert "t-SNE, perplexity 4:" in figure.get_supxlabel()
    equal = draw(occurrences, project(occurrences, layers=[0]))
    assert equal.axes[0].get_title(loc="left") == "layer 0: all vectors are equal"


def test_colours_show_labels_clusters_or_words(projected, tmp_path):
    occurrences, projection = projected
    figure = draw(occurrences, projection, colour="word")
    assert (dots(figure, BLUE), dots(figure, ORANGE)) == (32, 0)
    clusters = ["money loan"] * 4 + ["river side"] * 10 + [""] * 2
    clustered = replace(occurrences, clusters=clusters)
    figure = draw(clustered, projection, colour="cluster")
    assert [dots(figure, colour) for colour in (BLUE, ORANGE, GREY)] == [20, 8, 4]
    (legend,) = figure.legends
    names = [text.get_text() for text in legend.get_texts()]
    assert names == ["river side (10)", "money loan (4)", "unlabelled (2)"]
    # Clusters are only drawn if there are no labels.
    plain = replace(clustered, labels=None)
    assert dots(draw(plain, projection), GREY) == 4
    some = replace(occurrences, labels=["river"] * 8 + [""] * 8)
    assert dots(draw(some, projection), GREY) == 16


def test_many_labels_have_shapes_and_the_rarest_are_others(tmp_path):
    occurrences = replace(two_senses(20), labels=[f"label {k}" for k in range(40)])
    figure = draw(occurrences, project(occurrences, layers=[1]))
    assert dots(figure, BLUE) == 5 and dots(figure, GREY) == 5
    shapes = {drawn.get_paths()[0].vertices.tobytes() for drawn in figure.axes[0].collections}
    assert len(shapes) == 5
    assert figure.legends[0].get_texts()[-1].get_text() == "others (5)"


@pytest.mark.parametrize("length", [3, 60, 200])
def test_the_whole_legend_is_in_the_picture(length):
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    labels = [f"{k} {'word ' * (length // 5)}"[:length].strip() for k in range(20)]
    occurrences = replace(two_senses(10), labels=labels)
    figure = draw(occurrences, project(occurrences))
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    (legend,) = figure.legends
    assert len(legend.get_texts()) == 20
    for text in legend.get_texts():
        box = text.get_window_extent(canvas.get_renderer())
        assert box.x0 >= 0 and box.x1 <= figure.bbox.x1 and box.y1 <= figure.bbox.y1
    assert min(axes.get_window_extent().height for axes in figure.axes) > 200


def test_labels_that_begin_with_an_underscore_are_in_the_legend(projected):
    occurrences, projection = projected
    labels = [f"_{k % 2}" for k in range(len(occurrences))]
    figure = draw(replace(occurrences, labels=labels), projection)
    shown = [text.get_text().split()[0] for text in figure.legends[0].get_texts()]
    assert sorted(shown) == ["_0", "_1"]


@pytest.mark.parametrize("ending", ["svg", "png", "html"])
def test_control_characters_and_formulas_are_drawn_as_text(projected, tmp_path, ending):
    occurrences, projection = projected
    labels = ["a\x1b[31m\x07\0b\u202e"] * 8 + [r"$\frac{$ \ud800"] * 8
    path = tmp_path / f"picture.{ending}"
    write_picture(path, replace(occurrences, labels=labels), projection, title="x\x08 $y_2$")
    content = path.read_bytes()
    assert not set(content) & {0x1B, 7, 0, 8} or ending == "png"
    if ending != "png":
        label = rb"a\u001b[31m\u0007\u0000b\u202e"
        assert (label.replace(b"\\", b"\\\\") if ending == "html" else label) in content
        assert rb"x\u0008 $y_2$" in content


def test_the_data_of_a_page(projected, tmp_path):
    occurrences, projection = projected
    data = data_of(page_of(tmp_path, occurrences, projection))
    assert [(kind["name"], kind["n"]) for kind in data["kinds"]] == [("money", 8), ("river", 8)]
    assert [kind["style"] for kind in data["kinds"]] == [0, 1] and data["what"] == "labels"
    assert data["rows"][0] == [1, "birch muddy", "bank", "birch .", "ltr"]
    assert len(data["panels"]) == 2
    # Coordinates are scaled to 0 to 1000.
    points = np.array(data["panels"][0]["points"]).reshape(16, 2)
    assert points.min() == 0 and points.max() == 1000


def test_a_page_lists_the_neighbours_that_bilm_neighbours_finds(projected, tmp_path):
    occurrences, _ = projected
    sentences = list(occurrences.sentences)
    sentences[1] = sentences[0]  # a copy of the sentence is not its neighbour
    occurrences = replace(occurrences, sentences=sentences)
    for layer in (0, 1, 2):
        page = page_of(tmp_path, occurrences, project(occurrences, layers=[layer]))
        (panel,) = data_of(page)["panels"]
        for number, near in enumerate(panel["near"]):
            expected = occurrences.neighbours(number, 3, layer)
            assert near[::2] == [other for _, other in expected]
            assert near[1::2] == [round(100 * cosine) for cosine, _ in expected]
        assert 1 not in panel["near"][0][::2]
        if layer == 0:
            assert panel["near"][0][1::2] == [100, 100, 100]


def test_a_page_lists_typical_sentences_of_each_cluster(projected, tmp_path):
    occurrences, projection = projected
    names = ["river west north"] * 8 + ["money loan credit"] * 8
    occurrences = replace(occurrences, labels=None, clusters=names)
    page = page_of(tmp_path, occurrences, projection)
    assert '<html lang="en">' in page and '<meta name="viewport" content="width=device' in page
    assert "Point at a dot" in page and "layer 0" not in page
    data = data_of(page)
    assert data["what"] == "clusters"
    for kind, before in zip(data["kinds"], ("savings", "muddy"), strict=True):
        shown = [data["rows"][number] for number in kind["typical"]]
        assert len(shown) == 3 and all(before in row[1] and row[2] == "bank" for row in shown)


def test_typical_sentences_are_of_the_layer_of_the_clusters(projected, tmp_path):
    """In layer 2 the occurrences of a cluster spread from 0 to 10, in layer 1 from 0 to 1."""
    occurrences, projection = projected
    clusters = ["river"] * 8 + ["money"] * 8
    for layer in (1, 2):
        of_layer = replace(occurrences, labels=None, clusters=clusters, clusters_layer=layer)
        data = data_of(page_of(tmp_path, of_layer, projection))
        directions = occurrences.directions(layer)[8:]
        cosines = directions @ directions.mean(axis=0)
        assert data["kinds"][0]["typical"][0] == 8 + int(np.argmax(cosines))


def test_typical_sentences_on_a_page_are_those_of_the_clusters(tmp_path):
    """With two words, whose vectors are centred apart, as for clustering."""
    rng = np.random.default_rng(4)
    vectors = rng.normal(size=(60, 1, 12)) + np.repeat([0, 9], 30)[:, np.newaxis, np.newaxis]
    vectors[::3, :, 0] += 6
    sentences = [(f"a{k}", "bank" if k < 30 else "play", f"b{k}") for k in range(60)]
    positions = np.array([(k, 1) for k in range(60)])
    occurrences = Occurrences(sentences, positions, vectors.astype(np.float32))
    names = np.full(60, "", object)
    expected = {}
    for word, rows in (("bank", np.arange(30)), ("play", np.arange(30, 60))):
        uses = occurrences.select(rows)
        clusters = cluster_occurrences(uses, n_clusters=2)
        names[rows] = [f"{word} {k}" for k in clusters.of]
        for k in range(2):
            expected[f"{word} {k}"] = rows[typical_occurrences(uses, clusters, k, 3)].tolist()
    occurrences = replace(occurrences, clusters=names.tolist())
    data = data_of(page_of(tmp_path, occurrences, project(occurrences, layers=[0])))
    assert {kind["name"]: kind["typical"] for kind in data["kinds"]} == expected


def test_sentences_have_a_direction(projected, tmp_path):
    occurrences, projection = projected
    sentences = list(occurrences.sentences)
    sentences[0] = ("IBM", "קנתה", "bank", "את", "החברה")
    rows = data_of(page_of(tmp_path, replace(occurrences, sentences=sentences), projection))["rows"]
    assert [row[4] for row in rows] == ["rtl"] + ["ltr"] * 15
    arabic = line_markup(Context(None, ("ذهب", "إلى", "البنك"), 2))
    assert arabic.startswith('<li dir="rtl">') and "<b>البنك</b>" in arabic


def test_a_page_is_one_file_without_addresses_to_load_from(projected, tmp_path):
    occurrences, projection = projected
    sentences = list(occurrences.sentences)
    sentences[0] = ("</script><script>alert(1)", "<b>", "bank", "苹果", '"quoted"')
    occurrences = replace(occurrences, sentences=sentences, labels=['"><script>'] * 16)
    page = page_of(tmp_path, occurrences, projection, title="<bank>")
    assert len(page) < 100_000
    assert "<title>&lt;bank&gt;</title>" in page
    assert "<script>alert" not in page and '\\"><script>' not in page and "苹果" in page
    outside = re.sub(r"(?s)(<script[^>]*>).*?</script>", r"\1", page)
    assert re.findall(r'(?:src|href)="([^"]*)"', outside) == ["data:,"]
    assert re.findall(r"https?://[^\"' )]*", page) == ["http://www.w3.org/2000/svg"]


def test_arguments_that_do_not_fit(projected, tmp_path):
    occurrences, projection = projected
    for colour in ("sense", "cluster"):
        with pytest.raises(InputError, match=f"colour must be 'label' or 'word', got '{colour}'"):
            draw(*projected, colour=colour)
    with pytest.raises(InputError, match="one point per occurrence, 4, got 16"):
        draw(occurrences.select(np.arange(4)), projection)
    with pytest.raises(InputError, match=r"must end in .html, .png, .svg, got .*picture.pdf"):
        write_picture(tmp_path / "picture.pdf", occurrences, projection)


@pytest.mark.parametrize("ending", ["png", "svg"])
def test_a_character_without_a_font_is_an_error(projected, tmp_path, ending):
    path = tmp_path / f"picture.{ending}"
    # A private-use character, which is in no common font.
    with pytest.raises(InputError, match=r"fonts must have all .* \(U\+F0F8E\): install Noto"):
        write_picture(path, *projected, title="bank \U000f0f8e")
    many = "".join(chr(0xF0F80 + k) for k in range(8))
    with pytest.raises(InputError, match="and 3 more: install Noto"):
        write_picture(path, *projected, title=many)
    assert not path.exists()
    # A page uses the browser's fonts.
    write_picture(tmp_path / "page.html", *projected, title="bank \U000f0f8e")
