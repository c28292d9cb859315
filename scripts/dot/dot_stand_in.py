"""`dot` where Graphviz is not installed, so that a plain torchviz call draws too."""

import os
import runpy
import sys
from importlib.util import find_spec


def main():
    leave_path(os.path.dirname(sys.executable))
    (tool,) = find_spec("double_backward").submodule_search_locations
    # By its path: as a module of the package it would import torch first.
    runpy.run_path(os.path.join(tool, "graphs", "layout.py"), run_name="__main__")


def leave_path(folder):
    """Take our own folder off the PATH: the layout looks there for a real `dot` and must not
    find this one, which would start itself without end."""
    folders = os.environ.get("PATH", os.defpath).split(os.pathsep)
    os.environ["PATH"] = os.pathsep.join(
        other for other in folders if os.path.realpath(other) != os.path.realpath(folder)
    )
