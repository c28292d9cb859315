"""What counts as the same output: noise of the last digits does, a change that is seen does not."""

import copy
from pathlib import Path

import nbformat
import numpy as np
import pytest
import refresh
import same_outputs
from matplotlib import pyplot as plt
from nbformat.v4 import new_code_cell, new_output
from same_outputs import CURVES, differences
from torch_wordings import WORDINGS, as_stored

from lessons_src.plots import show

ROOT = Path(__file__).resolve().parent.parent
LESSONS = ROOT / "notebooks"
GRAPHVIZ = (ROOT / "tests" / "test_graph_layout_2.43.svg").read_text(encoding="utf-8")
X = np.linspace(0, 3, 200)


def plotted(curve, label="trained", color="black", ylabel="u"):
    figure, axes = plt.subplots(figsize=(6, 3.2), layout="constrained")
    axes.plot(X, curve, color=color, label=label)
    axes.set_ylabel(ylabel)
    axes.legend()
    return [new_output("display_data", show(figure, "A curve.")._repr_mimebundle_())]


def noise(size):
    return size * np.random.default_rng(0).choice([-1, 1], len(X))


def test_a_picture_is_the_same_after_noise():
    assert differences(plotted(np.sinh(X)), plotted(np.sinh(X) + noise(1e-7))) == []


def test_no_point_is_left_out_of_a_long_curve():
    (output,) = plotted(np.sinh(X))
    assert output["data"]["image/svg+xml"].count("\nL ") > len(X)


@pytest.mark.parametrize(
    "changed",
    [
        {"curve": np.sinh(X) + 1e-3 * (X > 1)},
        {"label": "Trained"},
        {"color": "red"},
        {"ylabel": "v"},
        {"curve": np.sinh(X) * 1.1},
    ],
    ids=["a curve", "a name in the legend", "a colour", "a label", "the ticks"],
)
def test_a_change_that_is_seen_is_a_difference(changed):
    stored = plotted(np.sinh(X))
    fresh = plotted(**{"curve": np.sinh(X)} | changed)
    assert differences(stored, fresh)
    for output in stored + fresh:  # and the picture alone says so too, but for a curve's 0.1 px
        output["data"].pop(CURVES)
    assert bool(differences(stored, fresh)) or "curve" in changed


def test_the_message_names_the_curve_and_the_number():
    (message,) = differences(plotted(np.sinh(X)), plotted(np.sinh(X) + 1e-3 * (X[7] == X)))[:1]
    assert message.startswith("curve 'trained': y[7] is ") and message.endswith("1e-05 is allowed")


@pytest.mark.parametrize(
    "old, new", [([1.0], [1.0, 2.0]), ([1.0], [np.nan]), ([np.inf], [-np.inf])]
)
def test_another_number_of_points_and_what_is_not_finite(old, new):
    def output(values):
        curve = {"label": "a", "x": "0", "y": " ".join(map(str, values))}
        return [new_output("display_data", {CURVES: [curve]})]

    assert differences(output(old), output(new))
    assert differences(output(new), output(new)) == []


def test_pixels_are_counted_by_the_version_of_matplotlib(monkeypatch):
    stored = plotted(np.sinh(X))
    moved = copy.deepcopy(stored)
    picture = stored[0]["data"]["image/svg+xml"]
    place = picture.index(' x="', picture.index("<text ")) + 4
    end = picture.index('"', place)
    for shift, pinned, elsewhere in [(0.005, True, True), (0.9, False, True), (1.6, False, False)]:
        number = float(picture[place:end]) + shift
        moved[0]["data"]["image/svg+xml"] = picture[:place] + str(number) + picture[end:]
        for version, same in [(same_outputs.pinned("matplotlib"), pinned), ("3.9.0", elsewhere)]:
            monkeypatch.setattr(same_outputs, "version", lambda package, v=version: v)
            assert (differences(stored, moved) == []) is same


def test_the_way_matplotlib_3_9_names_a_font_is_the_same():
    stored = plotted(np.sinh(X))
    fresh = copy.deepcopy(stored)
    picture = stored[0]["data"]["image/svg+xml"]  # as 3.9 writes it, or as later ones do
    new = picture.replace("font: 10px ", "font-size: 10px; font-family: ")
    old = new.replace("font-size: 10px; font-family: ", "font: 10px ")
    assert old != new
    stored[0]["data"]["image/svg+xml"] = new
    fresh[0]["data"]["image/svg+xml"] = old
    assert differences(stored, fresh) == []


def stream(text, name="stdout"):
    return new_output("stream", name=name, text=text)


def test_texts_differ_by_one_character():
    assert differences([stream("1.6487\n")], [stream("1.6488\n")])
    assert differences([stream("a")], [stream("a", "stderr")])
    assert differences([stream("a")], []) and differences([], [stream("a")])
    error = {"ename": "RuntimeError", "traceback": []}
    assert differences(
        [new_output("error", evalue="no", **error)], [new_output("error", evalue="No", **error)]
    )


@pytest.mark.parametrize("address", [139872361, 1011407552, 140213346581904])
def test_an_address_low_in_memory_is_one(address):
    """Python from Debian keeps its objects low, where addresses have fewer digits."""
    assert (
        differences([stream("<title>address1</title>")], [stream(f"<title>{address}</title>")])
        == []
    )


def test_addresses_and_pieces_of_a_stream_do_not_differ():
    pieces = [stream("<at 0x7f0123456789>\n"), stream("b\n", "stderr"), stream("c\n")]
    assert differences([stream("<at address1>\nc\n"), stream("b\n", "stderr")], pieces) == []


def test_a_picture_by_graphviz_keeps_its_edges():
    stored = [new_output("display_data", {"image/svg+xml": GRAPHVIZ})]
    for old, new, same in [
        ("<title>n1&#45;&gt;n3</title>", "<title>n1&#45;&gt;n4</title>", False),
        ('x="', 'x="1', True),
    ]:
        fresh = [new_output("display_data", {"image/svg+xml": GRAPHVIZ.replace(old, new)})]
        assert (differences(stored, fresh) == []) is same


@pytest.mark.parametrize("last, before, first, after", WORDINGS)
def test_each_version_may_use_its_own_words_only(last, before, first, after):
    stored = [stream(f"it says: {after} so")]
    assert differences(stored, [stream(f"it says: {before} so")], torch=last + ".1") == []
    assert differences(stored, stored, torch=first + ".0+cpu") == []
    assert differences(stored, [stream(f"it says: {before} so")], torch=first + ".0")


def test_words_of_a_later_version_are_brought_back(monkeypatch):
    monkeypatch.setattr("torch_wordings.WORDINGS", [("2.13", "early", "2.14", "late")])
    assert as_stored("late", torch="2.15.0") == "early"
    assert as_stored("late", torch="2.13.0") == "late"


DISTURBED = """
import lessons_src.boundary_problem, torch
quiet_train = lessons_src.boundary_problem.train
def train(function, residual, **options):
    torch.manual_seed(0)
    def disturbed(x):
        return function(x) * (1 + {size} * torch.randn(x.shape, dtype=x.dtype))
    return quiet_train(disturbed, residual, **options)
lessons_src.boundary_problem.train = train
"""
MOVED = """
import lessons_src.boundary_problem
quiet_train = lessons_src.boundary_problem.train
def train(*args, **options):
    trial, loss = quiet_train(*args, **options)
    return lambda x: trial(x) + 1e-3 * (x > 1), loss
lessons_src.boundary_problem.train = train
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "lesson, change, same",
    [
        ("3_saving_intermediates", DISTURBED.format(size=1e-15), True),
        ("4_what_not_to_do", MOVED, False),
    ],
    ids=["noise of 1e-15 in the training", "a curve moved by 1e-3"],
)
def test_a_trained_curve(lesson, change, same):
    notebook = nbformat.read(LESSONS / f"{lesson}.ipynb", as_version=4)
    stored = copy.deepcopy(notebook.cells)
    notebook.cells.insert(0, new_code_cell(change))
    refresh.execute(notebook, LESSONS)
    found = []
    for old, new in zip(stored, notebook.cells[1:], strict=True):
        found += differences(old.get("outputs", []), new.get("outputs", []))
    assert (found == []) is same, found
    assert same or any(sentence.startswith("curve 'trained") for sentence in found)
