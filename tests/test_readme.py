"""What the README shows is true, and what it links to is there."""

import re
import runpy
import struct
from pathlib import Path
from xml.etree import ElementTree

import front_pictures
import preview_picture
import pytest
from same_outputs import CURVES, comparable

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
FRONT = (ROOT / "docs" / "site" / "front.md").read_text(encoding="utf-8")


def test_the_example_prints_what_the_readme_says(tmp_path, monkeypatch, capsys):
    code, output = re.search(r"```python\n(.*?)```\n\s*```\n(.*?)```", README, re.DOTALL).groups()
    (tmp_path / "quad_form.py").write_text(code)
    monkeypatch.chdir(tmp_path)
    runpy.run_path("quad_form.py", run_name="__main__")
    assert capsys.readouterr().out.rstrip() == output.rstrip()


def test_every_picture_has_alt_text():
    tags = re.findall(r"<img [^>]*>", README)
    assert len(tags) >= 2
    assert [tag for tag in tags if not re.search(r'alt="[^"]{20,}"', tag)] == []


CLAIMS = ["leads back to x", "2 paths are missing", "cut off", "no path", "wrong"]


@pytest.mark.parametrize("tag", re.findall(r"<img [^>]*>", README))
def test_a_picture_shows_what_its_words_say(tag):
    """And the other way round, for what tells a wrong Function from a right one."""
    file, told = re.search(r'src="([^"]+)".*alt="([^"]+)"', tag).groups()
    root = ElementTree.fromstring((ROOT / file).read_text(encoding="utf-8"))
    shown = [e.text or "" for e in root.iter() if e.tag.endswith("}text")]
    shown = " ".join(" ".join(shown).split())
    for claim in CLAIMS:
        assert claim not in told or claim in shown
    assert ("cut off" in told, "missing" in told) == ("cut off" in shown, "are missing" in shown)
    for number in re.findall(r"\d+\.\d+", told):
        assert re.search(rf"\b{re.escape(number)}\b", shown), number
    for function in re.findall(r"\b(?:Square|Exp|SinhBad|Sinh|CubeBackward|Cube)\b", told):
        assert re.search(rf"\b{function}\b", shown)


def test_the_front_pictures_are_those_of_today():
    made = front_pictures.drawn()
    for name, svg in made.items():
        stored = (ROOT / "docs" / "pictures" / name).read_text(encoding="utf-8")
        assert comparable(stored) == comparable(svg)
    for name in ("sinh_squared.svg", "sinhbad_squared.svg"):
        assert f'src="docs/pictures/{name}"' in README


def test_the_two_graphs_are_read_beside_each_other_on_github():
    """In a column of 830 px, less what their table's frame and margins take, letters of 12 px."""
    widths = []
    for name in ("sinh_squared.svg", "sinhbad_squared.svg"):
        svg = (ROOT / "docs" / "pictures" / name).read_text(encoding="utf-8")
        root = ElementTree.fromstring(svg)
        wide, units = float(root.get("width")), float(root.get("viewBox").split()[2])
        letters = min(map(float, re.findall(r'font-size="([\d.]+)"', svg)))
        assert letters * wide / units >= 12
        widths.append(wide)
    assert sum(widths) <= 830 - 2 * 27


def test_the_words_for_the_trained_curves_are_their_numbers():
    """u at x = 1.5, in the picture's alternative text on the website's front page."""
    curves = {curve["label"]: curve for curve in front_pictures.trained()[CURVES]}
    at = {}
    for label, curve in curves.items():
        place = curve["x"].split().index("1.5")
        at[label] = f"{float(curve['y'].split()[place]):.2f}"
    (told,) = re.findall('src="../pictures/trained.svg" alt="(.*?)"', FRONT)
    right, wrong = re.findall(r"is (\d\.\d\d)", told)
    assert at["trained with sinh"] == at["sinh(x) / sinh(3), the solution"] == right
    assert at["trained with SinhBad"] == wrong != right


def test_the_picture_beside_links_was_made_of_what_the_front_page_shows_today():
    png = preview_picture.PICTURE.read_bytes()
    assert struct.unpack(">II", png[16:24]) == preview_picture.SIZE
    made_of = preview_picture.digest(preview_picture.page())
    assert b"tEXtSource\0" + made_of.encode() in png, "`make preview` draws it"
