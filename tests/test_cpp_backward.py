"""Lesson 5 shows a backward in C++ as text; here that very text is compiled and used."""

import ctypes
import re
import shutil
import subprocess
from pathlib import Path

import nbformat
import numpy as np
import pytest
import torch
from formulas import points, wrong_formulas
from torch.autograd import grad, gradcheck, gradgradcheck

from lessons_src import untracked_backward as lesson

LESSON = Path(__file__).parent.parent / "notebooks" / "5_untracked_backward.ipynb"
COMPILER = shutil.which("c++") or shutil.which("g++") or shutil.which("clang++")


def shown_in_lesson(language):
    """The code block of that language in the lesson's text; there is one."""
    text = "\n".join(cell.source for cell in nbformat.read(LESSON, as_version=4).cells)
    (block,) = re.findall(rf"^```{language}\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    return block


@pytest.mark.skipif(COMPILER is None, reason="no C++ compiler on the PATH")
def test_the_cube_with_its_backward_in_cpp(tmp_path, monkeypatch):
    (tmp_path / "cube.cpp").write_text(shown_in_lesson("cpp"))
    command = [COMPILER, "-O2", "-shared", "-fPIC", "cube.cpp", "-o", "libcube.so"]
    subprocess.run(command, cwd=tmp_path, check=True)
    monkeypatch.chdir(tmp_path)
    names = {"ctypes": ctypes, "np": np}
    exec(shown_in_lesson("python"), names)
    monkeypatch.setattr(lesson, "cube_backward", names["cube_backward"])
    x = points()
    assert gradcheck(lesson.CubeNumPy.apply, x) and gradgradcheck(lesson.CubeNumPy.apply, x)
    assert wrong_formulas(lesson.CubeNumPy.apply, lambda x: x**3) == []
    single = x.detach().float().requires_grad_()
    (grad_x,) = grad(lesson.CubeNumPy.apply(single).sum(), single)
    assert torch.allclose(grad_x, 3 * single**2) and grad_x.dtype == torch.float32
