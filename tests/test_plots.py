import xml.etree.ElementTree as xml

from chinese import HAN, english_in
from matplotlib import pyplot as plt

from lessons_src.plots import show


def picture():
    figure, axes = plt.subplots()
    axes.plot([0, 1], [1, 0])
    axes.set_xlabel("x (dimensionless)")
    return show(figure, 'A line that falls from 1 to 0, "quoted" & <bracketed>.')


def test_the_words_are_the_twin_of_the_picture():
    plot = picture()
    bundle = plot._repr_mimebundle_()
    root = xml.fromstring(bundle["image/svg+xml"])
    assert bundle["text/plain"] == root.get("aria-label") == plot.description == repr(plot)
    assert root[0].tag.endswith("title") and root[0].text == plot.description


def test_the_words_are_in_the_readers_language(monkeypatch):
    monkeypatch.setenv("COURSE_LANGUAGE", "zh_CN")
    figure, _ = plt.subplots()
    words = "u over x from 0 to 3, rising from 0 to 1. The trained curve lies on SciPy's."
    bundle = show(figure, words)._repr_mimebundle_()
    root = xml.fromstring(bundle["image/svg+xml"])
    assert bundle["text/plain"] == root.get("aria-label") == root[0].text
    assert HAN.search(root[0].text) and not english_in(root[0].text)


def test_text_stays_text_and_nothing_changes_from_run_to_run():
    first, second = picture().svg, picture().svg
    assert first == second
    assert "x (dimensionless)" in first


def test_the_figure_is_closed():
    before = plt.get_fignums()
    picture()
    assert plt.get_fignums() == before
