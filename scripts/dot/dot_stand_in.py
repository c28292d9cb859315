"""`dot` where Graphviz is not installed, so that a plain torchviz call draws too."""

import runpy


def main():
    runpy.run_module("lessons_src.graph_layout", run_name="__main__", alter_sys=True)
