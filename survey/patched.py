"""Programs of reports, run with a changed copy of the package: does the change mend the number?"""

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from .listed import CALLS

PATCHES = Path(__file__).parent / "patches"


def patch_of(each):
    """Where the change for a documented call is, if there is one."""
    return PATCHES / f"{each.name}.patch"


def printed(each, patch=None):
    """What the report's program prints, by its words, "got" and "expected".

    Args:
        patch: file with a change of the package, which is made in a copy of it.
    """
    from .reports import program

    with tempfile.TemporaryDirectory() as folder:
        if patch:
            package = CALLS[each.function].at.split(".")[0]
            spec = importlib.util.find_spec(package)
            copied = Path(next(iter(spec.submodule_search_locations)))
            shutil.copytree(copied, Path(folder) / package)
            change(Path(folder), patch)
        run = [
            sys.executable,
            "-W",
            "ignore",
            "-c",
            STANDS_IN.format(each.function) + program(each),
        ]
        path = os.pathsep.join([folder, str(PATCHES.parent.parent)])
        said = subprocess.run(
            run, env=os.environ | {"PYTHONPATH": path}, check=True, capture_output=True, text=True
        ).stdout
    return dict(line.split() for line in said.splitlines()[-2:])


def change(folder, patch):
    """Make the change as a page shows it: without CR, so in files without CR."""
    text = Path(patch).read_text(encoding="utf-8")
    for name in re.findall(r"(?m)^--- a/(\S+)", text):
        file = folder / name
        file.write_bytes(file.read_bytes().replace(b"\r\n", b"\n"))
    command = ["patch", "--quiet", "-p1", "-d", folder]
    subprocess.run(command, check=True, capture_output=True, input=text.encode())


# For what a package imports and the survey's environment does not have.
STANDS_IN = """\
from survey import CALLS
CALLS[{!r}].ready()
"""
