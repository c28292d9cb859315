"""From DOT to SVG, without Graphviz on the machine and with it."""

import os
import re
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from same_outputs import comparable

from double_backward.graphs import layout
from double_backward.graphs.picture import finish
from lessons_src.stepper import arranged

ROOT = Path(__file__).resolve().parent.parent
RUN = [sys.executable, "-P", layout.__file__]


def stand_in(*arguments, text="digraph { a -> b }", path="", cwd=None, modules=ROOT):
    """Run the stand-in with this PATH, and this folder first among those of modules."""
    return subprocess.run(
        [*RUN, *arguments],
        input=text,
        env={**os.environ, "PATH": path, "PYTHONPATH": str(modules)},
        capture_output=True,
        text=True,
        cwd=cwd,
    )


def program(folder, text, name="dot"):
    file = folder / name
    file.write_text(f"#!/bin/sh\n{text}\n")
    file.chmod(file.stat().st_mode | stat.S_IXUSR)
    return file


def test_without_graphviz_the_wheel_draws_and_is_quiet():
    done = stand_in("-Kdot", "-Tsvg")
    assert "<title>a&#45;&gt;b</title>" in done.stdout
    assert (done.returncode, done.stderr) == (0, "")


def test_it_answers_what_the_library_graphviz_asks(tmp_path):
    assert re.search(r"graphviz version \d+\.\d+\.\d+ ", stand_in("-V").stderr)
    (tmp_path / "a.gv").write_text("digraph { a -> b }")
    stand_in("-Kdot", "-Tsvg", "-O", "a.gv", cwd=tmp_path)
    stand_in("-Tpng", "-o", "b.png", "a.gv", cwd=tmp_path)
    printed = stand_in("-Tplain", "a.gv", cwd=tmp_path).stdout
    assert printed.startswith("graph ") and not (tmp_path / "a.gv.plain").exists()
    assert (tmp_path / "a.gv.svg").read_text().rstrip().endswith("</svg>")
    assert (tmp_path / "b.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    "arguments", [["-Kdot", "-Tsvg", "missing.gv"], ["-Tnonsense"], ["-Knone"]]
)
def test_a_mistake_is_a_sentence_and_an_exit_code(arguments):
    done = stand_in(*arguments)
    assert done.returncode == 1
    assert done.stderr.startswith("dot: ") and len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    "problem, advice",
    [
        ("ImportError('libgobject-2.0.so.0: cannot open')", "pygraphviz says libgobject-2.0.so.0"),
        ("ModuleNotFoundError('pygraphviz')", "or pip install pygraphviz"),
    ],
)
def test_what_keeps_the_wheel_from_drawing_is_said(tmp_path, problem, advice):
    (tmp_path / "pygraphviz.py").write_text(f"raise {problem}")
    done = stand_in("-Tsvg", modules=tmp_path)
    assert done.returncode == 1
    assert done.stderr.startswith("No Graphviz here: install the program") and advice in done.stderr


def test_broken_dot_is_an_error():
    assert stand_in("-Tsvg", text="digraph {").returncode == 1


@pytest.mark.skipif(os.name == "nt", reason="the programs of this test are shell scripts")
def test_a_real_dot_is_handed_the_work(tmp_path):
    program(tmp_path, 'echo "real $*"')
    assert stand_in("-Kdot", "-Tsvg", path=str(tmp_path)).stdout == "real -Kdot -Tsvg\n"


@pytest.mark.skipif(os.name == "nt", reason="the programs of this test are shell scripts")
def test_a_stand_in_is_not_taken_for_a_real_dot(tmp_path, monkeypatch):
    one, two, three = (tmp_path / name for name in "123")
    for folder in (one, two, three):
        folder.mkdir()
    program(one, f"# {layout.STAND_IN}")
    program(two, "from dot_stand_in import main")  # as pip writes the script of `scripts/dot`
    monkeypatch.setenv("PATH", os.pathsep.join(map(str, (one, two, three))))
    assert layout.find_dot() is None
    real = program(three, "echo real")
    assert layout.find_dot() == str(real)


@pytest.mark.skipif(os.name == "nt", reason="the programs of this test are shell scripts")
@pytest.mark.parametrize(
    "behaviour, sentence",
    [
        ("echo 'Error: out of memory' >&2; exit 1", "No picture: Error: out of memory"),
        ("kill -SEGV $$", "No picture: no reason given"),
        ("echo something else", "wrote no SVG"),
    ],
)
def test_a_dot_that_fails_is_a_sentence(tmp_path, monkeypatch, behaviour, sentence):
    program(tmp_path, behaviour)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with pytest.raises(layout.LayoutError, match=re.escape(sentence)):
        layout.to_svg("digraph { a }")


@pytest.mark.parametrize("version", ["2.43", "16.1"])
def test_pictures_of_two_graphviz_versions_compare_equal(monkeypatch, version):
    """The stored pictures were drawn by these versions from the DOT text beside them."""
    monkeypatch.setenv("PATH", "")
    stored = (ROOT / "tests" / f"test_graph_layout_{version}.svg").read_text()
    ours = layout.to_svg((ROOT / "tests" / "test_graph_layout.dot").read_text())
    assert ours != stored
    assert comparable(ours) == comparable(stored)
    both = [arranged(["one", "two"], [finish(svg, "title", "words")] * 2) for svg in (ours, stored)]
    assert both[0] != both[1] and comparable(both[0]) == comparable(both[1])


@pytest.mark.parametrize(
    "old, new",
    [
        ("<title>n1&#45;&gt;n3</title>", "<title>n1&#45;&gt;n4</title>"),
        (">SinhBad<", ">Sinh<"),
        ('fill="orange"', 'fill="white"'),
        ('stroke-dasharray="5,2"', ""),
        (">grad_x leads back to x<", "><"),
        ("0.3678794411714423", "0.3678794411714424"),
    ],
)
def test_the_comparison_sees_what_matters(old, new):
    stored = (ROOT / "tests" / "test_graph_layout_2.43.svg").read_text() + "0.3678794411714423"
    assert old in stored
    assert comparable(stored.replace(old, new)) != comparable(stored)


@pytest.mark.filterwarnings("ignore:distutils")
def test_two_runs_of_a_plain_torchviz_picture_compare_equal():
    torch = pytest.importorskip("torch")
    torchviz = pytest.importorskip("torchviz")
    x = torch.ones(2, requires_grad=True)
    outs = [(x * x).sum(), (x * x).sum()]
    pictures = [layout.to_svg(torchviz.make_dot(out).source) for out in outs]
    assert pictures[0] != pictures[1]
    assert comparable(pictures[0]) == comparable(pictures[1])
    assert "MulBackward0" in comparable(pictures[0])
