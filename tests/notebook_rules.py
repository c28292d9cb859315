"""What every notebook of the course keeps to. Each rule yields one sentence per breach."""

import ast
import re

MOST_LINES = 25
RELAXED = ("nbval-ignore-output", "nbval-skip", "NBVAL_IGNORE_OUTPUT", "NBVAL_SKIP")
ABSOLUTE_PATH = re.compile(r"(?<![\w.:/<~])(~|[A-Za-z]:)?[/\\](?:[\w.+ -]+[/\\])+[\w.+-]+")
ADDRESS = re.compile(r"\b0x[0-9a-f]{6,}\b")
TIME = re.compile(r"\d\s*(s|ms|µs|us|ns|secs?|seconds|milliseconds|minutes)\b")
BARE_REPR = re.compile(r"<[^<>]*>\Z")
HTML_BLOCK = re.compile(r"^(?:> ?)?<details>(?:(?!\n(?:> ?)?\n).)*", re.MULTILINE | re.DOTALL)
NAME_AS_TEXT = re.compile(r"\\text\{[^}]*\\_[^}]*\}")  # shown with its backslash
MARKDOWN_IMAGE = re.compile(r"!\[\s*\]\(|<img(?![^>]*\balt=\"[^\"]+)")


def code_cells(notebook):
    return [(n, cell) for n, cell in enumerate(notebook.cells) if cell.cell_type == "code"]


def tags(cell):
    return cell.metadata.get("tags", [])


def texts(output):
    """Every text that one output stores, by MIME type."""
    if output.output_type == "stream":
        return {"text/plain": output.text}
    if output.output_type == "error":
        return {"text/plain": "\n".join([output.evalue, *output.traceback])}
    return {kind: text for kind, text in output.data.items() if isinstance(text, str)}


def executed_in_order(notebook):
    for count, (n, cell) in enumerate(code_cells(notebook), start=1):
        if cell.execution_count != count:
            yield f"cell {n} has the count {cell.execution_count} for {count}: `make refresh`"


def errors_are_announced(notebook):
    for n, cell in code_cells(notebook):
        raised = any(output.output_type == "error" for output in cell.outputs)
        if raised and "raises-exception" not in tags(cell):
            yield f"cell {n} stores an error and is not tagged raises-exception"
        if "raises-exception" in tags(cell) and not raised:
            yield f"cell {n} is tagged raises-exception and stores no error"


def outputs_are_the_same_everywhere(notebook):
    for n, cell in code_cells(notebook):
        for output in cell.outputs:
            for kind, text in texts(output).items():
                if found := ABSOLUTE_PATH.search(text):
                    yield f"cell {n} stores an absolute path: {found.group()}"
                if found := ADDRESS.search(text):
                    yield f"cell {n} stores an address in memory: {found.group()}"
                if kind == "text/plain" and (found := TIME.search(text)):
                    yield f"cell {n} stores a time: {found.group()}"


def pictures_are_told(notebook):
    """A library's own picture comes without our text: then the next cell says it in words."""
    for n, cell in enumerate(notebook.cells):
        if cell.cell_type == "markdown" and MARKDOWN_IMAGE.search(cell.source):
            yield f"cell {n} has a picture without an alternative text"
        below = notebook.cells[n + 1].source if n + 1 < len(notebook.cells) else ""
        if below.startswith("**In words.**"):
            continue
        for output in cell.get("outputs", []):
            data = output.get("data", {})
            twin = data.get("text/plain", "").strip()
            bare = len(twin) < 40 or BARE_REPR.match(twin)
            if bare and any(kind.startswith("image/") for kind in data):
                yield f"cell {n} has a picture and no text that says the same"


def folds_are_read_as_markdown(notebook):
    """Up to an empty line a fold is HTML, where signs of Markdown are shown as they are."""
    for n, cell in enumerate(notebook.cells):
        if cell.cell_type == "markdown":
            for block in HTML_BLOCK.findall(cell.source):
                if "`" in block or "**" in block:
                    yield f"cell {n} has Markdown in the HTML of a fold: {block[:60]}"


def names_in_formulas_are_shown(notebook):
    for n, cell in enumerate(notebook.cells):
        for name in NAME_AS_TEXT.findall(cell.source if cell.cell_type == "markdown" else ""):
            yield f"cell {n} shows the backslash of {name}: it is a name, \\mathrm"


def strictly_compared(notebook):
    for n, cell in code_cells(notebook):
        marks = [mark for mark in RELAXED if mark in tags(cell) or f"# {mark}" in cell.source]
        if marks and not cell.metadata.get("nbval_reason"):
            yield f"cell {n} is {marks[0]} and its metadata hold no nbval_reason"


def outputs_outlive_their_nodes(notebook):
    """Up to PyTorch 2.12 a Function's node has lost what it saved once its output is gone."""
    for n, cell in code_cells(notebook):
        code = "\n".join(line for line in cell.source.splitlines() if line[:1] not in "%!")
        if any(map(saved_of_a_call, ast.walk(ast.parse(code)))):
            yield f"cell {n} asks for what an output's node saved, and gives the output no name"


def saved_of_a_call(node):
    """Whether this is the code `f(x).grad_fn.saved_tensors`."""
    return (
        isinstance(node, ast.Attribute)
        and node.attr == "saved_tensors"
        and isinstance(node.value, ast.Attribute)
        and isinstance(node.value.value, ast.Call)
    )


def cells_are_small(notebook):
    run = 0
    for n, cell in enumerate(notebook.cells):
        run = run + 1 if cell.cell_type == "code" else 0
        if run == 3:
            yield f"cell {n} is the third code cell in a row"
        if cell.cell_type == "code" and len(cell.source.splitlines()) > MOST_LINES:
            yield f"cell {n} has more than {MOST_LINES} lines"


def written_by_refresh(notebook):
    if notebook.metadata.get("language_info") != {"name": "python"}:
        yield "the metadata are not those of `make refresh`"
    ids = [cell.get("id") for cell in notebook.cells]
    if None in ids or len(set(ids)) < len(ids):
        yield "a cell has no id of its own: `make refresh`"


RULES = (
    executed_in_order,
    errors_are_announced,
    outputs_are_the_same_everywhere,
    pictures_are_told,
    folds_are_read_as_markdown,
    names_in_formulas_are_shown,
    strictly_compared,
    outputs_outlive_their_nodes,
    cells_are_small,
    written_by_refresh,
)


def definitions(source):
    """The classes and functions at the top of a piece of code, by name, without docstrings."""
    lines = ["" if line.startswith(("%", "!")) else line for line in source.splitlines()]
    kinds = (ast.ClassDef, ast.FunctionDef)
    found = [node for node in ast.parse("\n".join(lines)).body if isinstance(node, kinds)]
    return {node.name: ast.dump(without_docstrings(node)) for node in found}


def without_docstrings(tree):
    for node in ast.walk(tree):
        if (
            isinstance(node, (ast.ClassDef, ast.FunctionDef))
            and ast.get_docstring(node) is not None
        ):
            node.body = node.body[1:]
    return tree


def inline_code_is_the_modules(notebook, module_source):
    """A cell tagged `variant` may define the module's names otherwise; another cell must not."""
    module, seen = definitions(module_source), set()
    for n, cell in code_cells(notebook):
        if "variant" in tags(cell):
            continue
        for name, code in definitions(cell.source).items():
            if name in module and name in seen:
                yield f"cell {n} defines {name} for the second time"
            if name in module and code != module[name]:
                yield f"cell {n} defines {name} otherwise than the module"
            seen.add(name)
    for name in module:
        if not name.startswith("_") and name not in seen:
            yield f"{name} stands in the module and in no code cell"
