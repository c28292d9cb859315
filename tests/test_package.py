"""What is installed as `double_backward`: the tool, without the course."""

import ast
from pathlib import Path

import double_backward

ROOT = Path(__file__).resolve().parent.parent
MODULES = sorted((ROOT / "double_backward").rglob("*.py"))


def imports(path):
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            yield node.module


def test_the_tool_never_imports_the_course():
    assert len(MODULES) > 20
    named = {(path.name, name) for path in MODULES for name in imports(path)}
    assert [each for each in named if each[1].split(".")[0] == "lessons_src"] == []


def test_dir_lists_the_tools_and_each_can_be_imported():
    assert set(double_backward.__all__) < set(dir(double_backward))
    for name in double_backward.__all__:
        assert getattr(double_backward, name).__name__ == name
