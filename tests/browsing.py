"""What the pages' tests ask in the browser, and what they should find there."""

import io
import itertools
import re
import unicodedata

import pypdf
from editions import packages

AXE = """async rules => {
    const found = await axe.run(document, rules);
    return found.violations.map(v => [v.id, v.nodes.map(n => n.html.slice(0, 150)).slice(0, 3)])
}"""
# Levels A and AA, and that headings come in order.
RULES = {
    "preload": False,  # a page from disk may not read its own style sheets
    "runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"],
    "rules": {"heading-order": {"enabled": True}},
}
ACCEPTED = {}  # axe's rule: why a violation of it is none here
TYPESET = """() => ({
    shown: [...document.querySelectorAll('mjx-container')].filter(m =>
        m.querySelector('svg path, svg use, svg rect')).length,
    wrong: document.querySelectorAll('[data-mml-node="merror"]').length,
    left: [...document.querySelectorAll('p, li, td')].map(p => p.innerText).filter(t =>
        /\\$[^$]+\\$/.test(t)),
})"""
PICTURES = """() => [...document.images].filter(i => i.complete && i.naturalWidth > 0).length"""

# Pieces of text that a fold holds; a formula is a picture, and so is a stepper on paper.
FOLDED = """[...document.querySelectorAll("details")].flatMap(fold => {
    const walk = document.createTreeWalker(fold, NodeFilter.SHOW_TEXT), found = [];
    while (walk.nextNode())
        if (!walk.currentNode.parentElement.closest(`mjx-container, svg, .stepper, .headerlink`))
            found.push(walk.currentNode.data);
    return found;
})"""


def formulas(notebook):
    text = "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")
    text = re.sub(r"`[^`]*`", "", text)
    return len(re.findall(r"\$\$[^$]+\$\$|\$[^$\n]+\$", text))


def pictures(notebook):
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    return sum("image/svg+xml" in output.get("data", {}) for output in outputs)


def violations(page, *more):
    """What axe finds, by these rules and `more`."""
    page.add_script_tag(path=packages.package("axe-core", "axe.min.js"))
    named = RULES["rules"] | {name: {"enabled": True} for name in more}
    rules = RULES | {"rules": named}
    return [found for found in page.evaluate(AXE, rules) if found[0] not in ACCEPTED]


def printed(page, paper="A4"):
    """The sheets, with the margins that a browser prints, each as its text."""
    margin = dict.fromkeys(("top", "right", "bottom", "left"), "0.4in")
    sheets = pypdf.PdfReader(io.BytesIO(page.pdf(format=paper, margin=margin))).pages
    return [sheet.extract_text() for sheet in sheets]


def lost(page, sheets, least=50):
    """The pieces of the page's folds that are on no sheet; `least` as many it has in all."""
    paper, pieces = [squeezed(sheet) for sheet in sheets], page.evaluate(FOLDED)
    assert len(pieces) >= least
    return [piece for piece in pieces if not is_on(paper, squeezed(piece))]


def is_on(paper, piece):
    """On one sheet, or the end of it on the sheet after the beginning."""
    return piece in "".join(paper) or any(
        piece[:cut] in sheet and piece[cut:] in after
        for sheet, after in itertools.pairwise(paper)
        for cut in range(1, len(piece))
    )


def squeezed(*texts):
    """Without spaces and line ends, and without what paper writes in one sign, such as fi."""
    return unicodedata.normalize("NFKC", "".join("".join(texts).split()))
