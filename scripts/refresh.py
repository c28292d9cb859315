"""Execute the notebooks and store their outputs: `make refresh`, or `make refresh LESSON=2`.

Then write the minutes, the translated lessons and the copies in notebooks/colab/. Once
pyproject.toml names the repository, also put badges into the README and the lessons that open the
copies on GitHub, and the address into CITATION.cff.

What would differ from run to run is left out, and an output that is the same as the stored one by
the rules of same_outputs.py is not written, so that refreshing on another machine changes nothing.
To store one all the same, clear it in the notebook first. A notebook in which something unexpected
happens is left as it was. The pictures of front_pictures.py are written to docs/pictures/.
"""

import os
import sys
import tempfile
from pathlib import Path

import front_pictures
import nbformat
from editions import address, cheat_sheet, colab, minutes, translated
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError
from nbformat.v4 import new_output
from own_settings import keep_apart
from same_outputs import ADDRESS, HTML, PICTURE, differences

ROOT = Path(__file__).resolve().parent.parent
NOTEBOOKS = ROOT / "notebooks"
PICTURES = ROOT / "docs" / "pictures"
CITATION = ROOT / "CITATION.cff"
KERNEL = {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"}


def main(lessons, repository=""):
    every = sorted(NOTEBOOKS.glob("[0-9]_*.ipynb"))
    paths = [path for path in every if not lessons or path.name.split("_")[0] in lessons]
    if not paths:
        sys.exit(f"No lesson {' '.join(lessons)} in notebooks/: try `make refresh LESSON=1`.")
    with tempfile.TemporaryDirectory() as folder:
        keep_apart(Path(folder))  # stored outputs must not depend on one's own settings
        problems = [problem for path in paths if (problem := refresh(path, repository))]
    for name, svg in front_pictures.drawn().items():
        write_picture(PICTURES / name, svg)
    minutes.main()
    translated.main()
    cheat_sheet.main()
    colab.write_copies()
    if repository:
        for page in colab.READMES:
            text = page.read_text(encoding="utf-8")
            write_whole(page, colab.put_badges_into_readme(text, colab.LESSONS, repository))
        citation = CITATION.read_text(encoding="utf-8")
        write_whole(CITATION, address.put_into_citation(citation, repository))
    sys.exit("\n".join(problems) or None)


def refresh(path, repository=""):
    """Execute one notebook and write it back; return what went wrong, or None."""
    before = path.read_text(encoding="utf-8")
    notebook = nbformat.reads(before, as_version=4)
    stored = {cell.get("id"): cell.get("outputs", []) for cell in notebook.cells}
    try:
        execute(notebook, path.parent)
    except (CellExecutionError, CellTimeoutError, DeadKernelError) as error:
        return f"{path.name} is left as it was: {str(error).strip()}"
    for number, cell in enumerate(notebook.cells):
        if "raises-exception" in cell.metadata.get("tags", []) and not raised(cell):
            return f"{path.name} is left as it was: cell {number} should raise and does not."
    strip(notebook)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            keep_what_is_the_same(stored.get(cell.id, []), cell)
    if repository:
        colab.put_badge_into_lesson(notebook, path, repository)
    after = nbformat.writes(notebook) + "\n"
    if after != before:
        write_whole(path, after)
    print(f"{path.name}: {'refreshed' if after != before else 'unchanged'}", flush=True)
    return None


def execute(notebook, folder):
    """Run every cell in the environment's own kernel; an untagged error is raised here."""
    client = NotebookClient(
        notebook,
        kernel_name="python3",
        resources={"metadata": {"path": str(folder)}},
        timeout=120,
        record_timing=False,
        coalesce_streams=True,
    )
    # Encrypted, because a kernel that is not says so on the terminal.
    client.execute(transport_encryption="auto")


def raised(cell):
    return any(output.output_type == "error" for output in cell.outputs)


def strip(notebook):
    """Keep what the reader needs, drop what names a version, a time or a random id."""
    kept = {key: value for key, value in notebook.metadata.items() if key == "minutes"}
    notebook.metadata = {"kernelspec": KERNEL, "language_info": {"name": "python"}} | kept
    notebook.nbformat, notebook.nbformat_minor = 4, 5
    addresses = {}
    seen = set()
    for number, cell in enumerate(notebook.cells):
        if cell.get("id") in seen | {None}:
            cell.id = f"cell-{number}"
        seen.add(cell.id)
        cell.metadata.pop("execution", None)
        for output in cell.get("outputs", []):
            rename_addresses(output, addresses)
            if PICTURE in output.get("data", {}):
                # Made anew for whoever runs the cell. Stored, it would be shown in place of the
                # picture by what cleans HTML first, and takes the SVG out of it.
                output.data.pop(HTML, None)


def keep_what_is_the_same(stored, cell):
    if stored and not differences(stored, cell.outputs):
        for output in stored:
            if output.output_type == "execute_result":
                output.execution_count = cell.execution_count
        cell.outputs = stored


def rename_addresses(output, addresses):
    """Replace each memory address in the output's texts by the order in which it appeared."""

    def name(match):
        return addresses.setdefault(match[0], f"address{len(addresses) + 1}")

    for texts in (output, output.get("data", {})):
        for key, text in texts.items():
            if isinstance(text, str) and key in ("text", "text/plain", "image/svg+xml"):
                texts[key] = ADDRESS.sub(name, text)


def write_picture(path, svg):
    """Keep what is stored where another Graphviz draws the same in other places."""
    if path.exists():
        both = (path.read_text(encoding="utf-8"), svg)
        stored, fresh = ([new_output("display_data", {PICTURE: each})] for each in both)
        if not differences(stored, fresh):
            return
    write_whole(path, svg)


def write_whole(path, text):
    """Replace the file in one step: a killed refresh leaves the old one."""
    temporary = path.with_name(path.name + ".refreshing")
    temporary.write_text(text, encoding="utf-8", newline="\n")
    os.replace(temporary, path)


if __name__ == "__main__":
    main(sys.argv[1:], address.repository())
