"""`dot` where Graphviz is not installed, so that a plain torchviz call draws too."""

import os
import runpy
import sys


def main():
    leave_path(os.path.dirname(sys.executable))
    runpy.run_module("lessons_src.graph_layout", run_name="__main__", alter_sys=True)


def leave_path(folder):
    """Take our own folder off the PATH: the layout looks there for a real `dot` and must not
    find this one, which would start itself without end."""
    folders = os.environ.get("PATH", os.defpath).split(os.pathsep)
    os.environ["PATH"] = os.pathsep.join(
        other for other in folders if os.path.realpath(other) != os.path.realpath(folder)
    )
