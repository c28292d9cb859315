"""What the README shows is true, and what it links to is there."""

import re
from pathlib import Path

import nbformat

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_example_prints_what_the_readme_says(capsys):
    code, output = re.search(r"```python\n(.*?)```\n\s*```\n(.*?)```", README, re.DOTALL).groups()
    exec(code, {"__name__": "__main__"})
    assert capsys.readouterr().out.rstrip() == output.rstrip()


def test_every_link_and_picture_is_there():
    targets = re.findall(r"\]\(([^)#]+)\)", README) + re.findall(r'src="([^"]+)"', README)
    local = [target for target in targets if not target.startswith("https://")]
    assert len(local) >= 10
    assert [target for target in local if not (ROOT / target).exists()] == []


def test_every_picture_has_alt_text():
    tags = re.findall(r"<img [^>]*>", README)
    assert len(tags) >= 7
    assert [tag for tag in tags if not re.search(r'alt="[^"]{20,}"', tag)] == []


def test_the_minutes_are_those_of_the_lessons():
    rows = re.findall(r"^\| (\d) \|.*?\| (\d+) \((\d+)\) \|", README, re.MULTILINE)
    assert [number for number, _, _ in rows] == list("12345")
    for number, core, whole in rows:
        (path,) = (ROOT / "notebooks").glob(f"{number}_*.ipynb")
        first = nbformat.read(path, as_version=4).cells[0].source
        assert f"**About {core} minutes, {whole} with the exercises.**" in first


def test_a_picture_is_the_first_of_its_lesson():
    for path in (ROOT / "notebooks").glob("[0-9]_*.ipynb"):
        outputs = [
            o for cell in nbformat.read(path, as_version=4).cells for o in cell.get("outputs", [])
        ]
        svgs = [o.data["image/svg+xml"] for o in outputs if "image/svg+xml" in o.get("data", {})]
        assert (ROOT / "pictures" / f"{path.stem}.svg").read_text(encoding="utf-8") == svgs[0]
