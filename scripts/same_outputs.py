"""Are two outputs of a cell the same? The tests of the notebooks and `make refresh` go by this.

- Text: character by character, but for addresses in memory and what another version of torch
  words otherwise (torch_wordings.py).
- The data of a curve: in its own units, to `CURVE`.
- A picture by matplotlib: its elements, labels, ticks, colours and titles exactly; its coordinates
  to `PIXELS`, or to `PIXELS_ELSEWHERE` with another version of matplotlib than the pinned one.
- The steps of a picture: exactly.
- The HTML of a picture is not compared where the picture itself is, from which it was made.
- A picture by Graphviz: titles, labels, edges, order and colours exactly; what depends on the
  version of Graphviz and on the fonts of the machine is taken out or put in one order.
"""

import difflib
import json
import math
import re
import xml.etree.ElementTree as xml
from collections import defaultdict
from importlib.metadata import version

from torch_wordings import as_stored, pinned

CURVES = "application/vnd.lessons.curves+json"
STEPS = "application/vnd.lessons.steps+json"
CURVE = 1e-5
PIXELS = 0.01
PIXELS_ELSEWHERE = 1.5
PICTURE, HTML = "image/svg+xml", "text/html"
NOT_COMPARED = {"image/png", "image/jpeg"}  # what some front ends add to an SVG

# Where an object lies in memory, another in every process: torchviz names its nodes so, and a bare
# repr shows it. `make refresh` stores addressN in its place.
ADDRESS = re.compile(r"\b0x[0-9a-f]{6,}\b|(?<![.\d])\d{9,}\b")
STORED_ADDRESS = re.compile(r"\baddress\d+\b")
GRAPHVIZ = [
    # the header and the comments
    (r"<\?xml[\s\S]*?(?=<svg)", ""),
    (r"<!--[\s\S]*?-->\s*", ""),
    # the size of the page, and of the ground below several pictures
    (r"<svg [^>]*>", "<svg>"),
    (r'<rect width="\d+" height="\d+" fill="white"/>', "<rect>"),
    # a graph's place and name; several in one picture have no ids
    (r'(<g (?:id="graph\d+" )?class="graph") [^>]*>(?:\s*<title>[^<]*</title>)?', r"\1>"),
    # coordinates
    (r'(?<= )(?:d|points|x|y|cx|cy|rx|ry)="[-+\d., MCLe]*"', "where"),
    # spellings that changed between versions
    (r'<text xml:space="preserve"', "<text"),
    (r'stroke="transparent"', 'stroke="none"'),
]
# A cell's border, which up to Graphviz 14 comes after the cell's text, and in 16 before it.
BORDER = re.compile(r'((?:<text .*\n)+)(<(?:path|polygon) fill="none" .*\n)')
# In a picture by matplotlib: names made from what is drawn, and attributes that are coordinates.
HASH = re.compile(r"\b[A-Za-z][0-9a-f]{10}\b")
PLACES = {"d", "x", "y", "cx", "cy", "r", "width", "height", "transform", "viewBox", "points"}
NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?")


def differences(stored, fresh, torch=None):
    """What differs between two lists of outputs of one cell, in sentences; [] if nothing does.

    `torch` is the version that printed the fresh ones, by default the one installed here.
    """
    stored, fresh = by_kind(stored), by_kind(fresh)
    found = []
    for kind in sorted(stored.keys() | fresh.keys()):
        if len(stored[kind]) != len(fresh[kind]):
            found.append(f"{kind}: {len(stored[kind])} stored, {len(fresh[kind])} now")
            found += [str(content)[:2000] for content in (fresh[kind] or stored[kind])]
        for old, new in zip(stored[kind], fresh[kind], strict=False):
            if kind == CURVES:
                found += curve_differences(old, new)
            elif kind == STEPS:
                old, new = (json.dumps(data, indent=1, sort_keys=True) for data in (old, new))
                found += text_differences(old, new, kind)
            elif kind == PICTURE and drawn_by_matplotlib(old) and drawn_by_matplotlib(new):
                found += plot_differences(old, new)
            else:
                found += text_differences(old, as_stored(new, torch), kind)
    return found


def by_kind(outputs):
    """The contents of a cell's outputs by kind: a stream's name, "error" or a MIME type.

    As nbval does, only the order among contents of one kind counts, and a stream is one text.
    """
    found = defaultdict(list)
    for output in outputs:
        if output["output_type"] == "stream":
            found[output["name"]] = ["".join(found[output["name"]]) + output["text"]]
        elif output["output_type"] == "error":
            found["error"].append(f"{output['ename']}: {output['evalue']}")
        else:
            without = NOT_COMPARED | ({HTML} if PICTURE in output["data"] else set())
            for kind, content in output["data"].items():
                if kind not in without:
                    found[kind].append(content)
    return found


def text_differences(stored, fresh, kind):
    stored, fresh = comparable(stored), comparable(fresh)
    if stored == fresh:
        return []
    lines = difflib.ndiff(stored.splitlines(), fresh.splitlines())
    return [f"{kind} (- stored, + now):", *(line for line in lines if line[0] != " ")]


def comparable(text):
    """The text without what may differ: addresses, and in an SVG by Graphviz what it decides."""
    if "<svg" in text:
        for pattern, replacement in GRAPHVIZ:
            text = re.sub(pattern, replacement, text)
        moved = 1
        while moved:
            text, moved = BORDER.subn(r"\2\1", text)
    return ADDRESS.sub("ADDRESS", STORED_ADDRESS.sub("ADDRESS", text))


def curve_differences(stored, fresh):
    """Both as `lessons_src.plots` writes them: a list of {"label", "x", "y"}."""
    labels = [[curve["label"] for curve in curves] for curves in (stored, fresh)]
    if labels[0] != labels[1]:
        return [f"curves: {labels[0]} stored, {labels[1]} now"]
    found = []
    for old, new in zip(stored, fresh, strict=True):
        for axis in "xy":
            before, now = ([float(n) for n in curve[axis].split()] for curve in (old, new))
            if len(before) != len(now):
                found.append(f"curve {old['label']!r}: {len(before)} points stored, {len(now)} now")
            elif apart := farthest(before, now, CURVE):
                number, a, b = apart
                found.append(
                    f"curve {old['label']!r}: {axis}[{number}] is {a} stored, {b} now; "
                    f"{CURVE} is allowed"
                )
    return found


def farthest(stored, fresh, allowed):
    """(place, stored, fresh) where two lists of numbers differ most, or None within `allowed`.

    What is not finite is equal to its like alone.
    """

    def distance(pair):
        _, a, b = pair
        if math.isfinite(a) and math.isfinite(b):
            return abs(a - b)
        return 0.0 if str(a) == str(b) else math.inf

    triples = ((n, *pair) for n, pair in enumerate(zip(stored, fresh, strict=True)))
    worst = max(triples, key=distance, default=None)
    return worst if worst and distance(worst) > allowed else None


def drawn_by_matplotlib(svg):
    return 'id="figure_1"' in svg


def plot_differences(stored, fresh):
    same_version = version("matplotlib") == pinned("matplotlib")
    pixels = PIXELS if same_version else PIXELS_ELSEWHERE
    (skeleton, places), (fresh_skeleton, fresh_places) = map(read_plot, (stored, fresh))
    if skeleton != fresh_skeleton:
        lines = difflib.ndiff(skeleton, fresh_skeleton)
        return ["plot (- stored, + now):", *(line for line in lines if line[0] != " ")]
    if apart := farthest(places, fresh_places, pixels):
        return [f"plot: a coordinate is {apart[1]} stored, {apart[2]} now; {pixels} is allowed"]
    return []


def read_plot(svg):
    """(what must be equal, line by line; the coordinates) of a picture by matplotlib."""
    names = {}
    svg = HASH.sub(lambda match: names.setdefault(match[0], f"name{len(names)}"), svg)
    # Up to matplotlib 3.9 | from 3.10.
    svg = re.sub(r"font: ([\d.]+px) ", r"font-size: \1; font-family: ", svg)
    skeleton, places = [], []
    for element in xml.fromstring(svg).iter():
        line = [element.tag, (element.text or "").strip()]
        for name, value in sorted(element.items()):
            if name in PLACES:
                places += map(float, NUMBER.findall(value))
                value = " ".join(NUMBER.sub("#", value).split())
            line.append(f"{name}={value}")
        skeleton.append(" ".join(line))
    return skeleton, places
