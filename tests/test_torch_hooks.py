"""The private hooks of torch: in one module, all there, and missed in words."""

import ast
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest
import torch

import double_backward
from double_backward import _torch

TOOL = Path(double_backward.__file__).parent
# Our own, those that Python documents, and what it calls for `python -m`.
NOT_TORCH = {"_replace", "_getframe", "_current_frames", "_exit", "_asdict", "_run_module_as_main"}


def test_this_torch_has_all():
    assert _torch.missing() == []


@pytest.mark.parametrize("name", _torch.NAMES)
def test_one_that_is_gone_is_named(name, monkeypatch):
    gone = name + "_gone"
    monkeypatch.setattr(_torch, "NAMES", {**_torch.NAMES, gone: "to be missed"})
    (said,) = _torch.missing()
    assert said.startswith(f"torch {torch.__version__} has no {gone} (to be missed)")


def test_an_attribute_of_nodes_that_is_gone_is_named(monkeypatch):
    monkeypatch.setattr(_torch, "OF_A_NODE", {"_gone": "its class"})
    assert "has no grad_fn._gone (its class)" in _torch.missing()[0]


@pytest.mark.slow
def test_the_tool_says_what_it_misses_where_it_is_imported():
    program = (
        "import torch._C._functorch as private; del private.maybe_get_bdim\n"
        "from double_backward import diagnose"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert "has no torch._C._functorch.maybe_get_bdim (along which dimension)" in done.stderr


def test_every_import_of_the_module_is_in_its_table():
    tree = ast.parse(Path(_torch.__file__).read_text(encoding="utf-8"))
    imports = [n for n in ast.walk(tree) if isinstance(n, ast.ImportFrom)]
    private = [i for i in imports if "._" in i.module or "_C" in i.module]
    names = {f"{i.module}.{alias.name}" for i in private for alias in i.names}
    assert len(names) > 10
    listed = [name for name in names if any(known.startswith(name) for known in _torch.NAMES)]
    same_module = {known.rpartition(".")[0] for known in _torch.NAMES}
    assert [n for n in names - {*listed} if n.rpartition(".")[0] not in same_module] == []


@pytest.mark.parametrize(
    "path", [p for p in TOOL.rglob("*.py") if p.name != "_torch.py"], ids=lambda p: p.stem
)
def test_no_other_module_names_one(path):
    assert list(private_names(ast.parse(path.read_text(encoding="utf-8")))) == []


def test_a_private_name_is_noticed():
    code = "from torch._C import x\ntorch._C.y()\nnode._forward_cls\nself._own\nt._version"
    assert list(private_names(ast.parse(code))) == ["torch._C", "_forward_cls", "_version", "_C"]


def private_names(tree):
    """Imports from private modules of torch, and private attributes of what is not ours."""
    own = {n.name for n in ast.walk(tree) if isinstance(n, (ast.FunctionDef, ast.ClassDef))}
    own |= {n.id for n in ast.walk(tree) if isinstance(n, ast.Name)}
    own |= {
        n.attr
        for n in ast.walk(tree)
        if isinstance(n, ast.Attribute) and isinstance(n.ctx, ast.Store)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("torch."):
            yield from [node.module] if "._" in node.module else []
        elif isinstance(node, ast.Attribute) and node.attr[:1] == "_" and node.attr[:2] != "__":
            ours = node.attr in own | NOT_TORCH or is_own(node.value)
            yield from [] if ours else [node.attr]


def is_own(value):
    return isinstance(value, ast.Name) and value.id in ("self", "cls", "other")


@pytest.mark.slow
def test_the_module_can_be_run():
    done = subprocess.run([sys.executable, "-m", "double_backward._torch"], capture_output=True)
    assert (done.returncode, done.stderr) == (0, b"")
    assert import_module("double_backward._torch").TESTED


def test_zeros_without_memory_are_written_out_inside_a_mode():
    """Such as a tangent that is 0: torch may read their memory there, and end Python."""
    with _torch.Watching():
        zeros = torch._efficientzerotensor((3,))
    assert not zeros._is_zerotensor() and zeros.tolist() == [0, 0, 0]
