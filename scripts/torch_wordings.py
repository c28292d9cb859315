"""What torch says otherwise from one version to the next, where a lesson or ERRORS.md quotes it."""

import re
from importlib.metadata import version
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

# (the last version that says it so, what it says, the next version, what that says): patterns for
# re.sub in both directions, so groups and no other special characters.
WORDINGS = [
    (
        "2.12",
        "One of the differentiated Tensors appears",
        "2.13",
        "The differentiated Tensor at index 0 appears",
    ),
    ("2.12", r"which is output 0 of MulBackward0,", "2.13", r"which is output 0 of Mul,"),
    ("2.12", r"which is output 0 of ExpBackward,", "2.13", r"which is output 0 of Exp,"),
]


def as_stored(text, torch=None):
    """`text`, printed by a version of torch (by default the installed one), as the lessons' one
    would have said it."""
    said_by, stored_by = release(torch or version("torch")), release(pinned("torch"))
    for last, before, first, after in WORDINGS:
        if said_by <= release(last) and release(first) <= stored_by:
            text = text.replace(before, after)
        elif release(first) <= said_by and stored_by <= release(last):
            text = text.replace(after, before)
    return text


def release(version):
    """(2, 13) of "2.13.0+cpu"."""
    return tuple(int(number) for number in re.findall(r"\d+", version)[:2])


def pinned(package):
    """The version that constraints.txt holds, by which the stored outputs were printed."""
    pins = (ROOT / "constraints.txt").read_text(encoding="utf-8")
    return re.search(rf"^{re.escape(package)}==(\S+)$", pins, re.MULTILINE)[1]
