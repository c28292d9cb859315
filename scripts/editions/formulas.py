r"""Formulas, drawn when a page is made: no page brings the script of 2 MB that draws them.

In a page they stand as Sphinx writes them, `<span class="math">\(x\)</span>`, with `\[x\]` where
one has a line of its own. Each is a picture then, and for a screen reader MathML.
"""

import html
import json
import re
import subprocess
import sys
from pathlib import Path

from said import spoken

from .packages import package

PROGRAM = Path(__file__).with_suffix(".js")
STYLE = PROGRAM.with_suffix(".css")
WRITTEN = re.compile(
    r'(<(span|div) class="math[^"]*"[^>]*>)\s*\\([(\[])(.*?)\\[)\]](?=</\2>)', re.DOTALL
)

# What begins no line: a browser would break one between a picture and it.
FOLLOWED = re.compile(
    r'(<span class="math[^"]*"[^>]*><mjx-container(?:(?!<span).)*?</mjx-container></span>)'
    r"([,.;:?)，。；：、？）])",
    re.DOTALL,
)


def marked(formula, displayed):
    """HTML of a formula that is not drawn yet."""
    start, end = (r"\[", r"\]") if displayed else (r"\(", r"\)")
    return f'<span class="math">{start}{html.escape(formula)}{end}</span>'


def with_formulas(pages: list[str]) -> list[str]:
    """The pages, with every formula drawn; by one run of MathJax, which takes a second to start."""
    asked = dict.fromkeys(asked_by(found) for page in pages for found in WRITTEN.finditer(page))
    drawings = dict(zip(asked, drawn(list(asked)), strict=True))
    made = [WRITTEN.sub(lambda found: found[1] + drawings[asked_by(found)], page) for page in pages]
    return [FOLLOWED.sub(r'<span class="unbroken">\1\2</span>', page) for page in made]


def asked_by(found):
    return html.unescape(found[4]), found[3] == "["


def drawn(formulas):
    """A list of HTML."""
    if not formulas:
        return []
    command = ["node", PROGRAM, package("mathjax", "es5", "node-main.js")]
    done = subprocess.run(
        command, input=json.dumps(formulas), capture_output=True, encoding="utf-8"
    )
    if done.returncode:
        reason = (done.stderr.strip() or spoken("nothing")).splitlines()[0]
        sys.exit(spoken("MathJax cannot be started: {}", reason))
    drawings = json.loads(done.stdout)
    for (formula, _), drawing in zip(formulas, drawings, strict=True):
        if "merror" in drawing:
            reason = html.unescape(drawing.split("mjx-error=")[1])[:60]
            sys.exit(spoken("{} is no formula: {}", formula, reason))
    return drawings
