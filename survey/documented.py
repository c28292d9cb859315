"""Documented calls of published packages whose second derivative is a wrong number.

Each is a program in `documented/`, as a user would type it: f, a number that depends on x. Its
docstring says what it is, which Function stands behind it, where it goes wrong, what to call
instead, and what it needs that its package does not tell pip. The lines below `INSTEAD` compute
the same by that. The programs in `first_order/` are those whose first derivative is wrong already.
"""

import ast
import re
import warnings
from dataclasses import dataclass
from pathlib import Path

import torch

from .listed import CALLS

HERE = Path(__file__).parent
INSTEAD = "\n# Instead\n"
OURS = re.compile(r"^from survey\.by_hand import .*\n\n", re.M)
# The best known packages first.
ORDER = (
    "gpytorch_matern",
    "torch_checkpoint",
    "torchdiffeq_adjoint",
    "torch_harmonics_conv",
    "linear_operator_inv_quad",
    "gpytorch_log_normal_cdf",
    "zuko_unaf",
    "entmax_loss",
    "finufft_type2",
    "roma_procrustes",
    "xitorch_quad",
)
# Reachable by default first, then on request, deprecated, applied nowhere.
FIRST_ORDER = (
    "pypose_adjt",
    "iunets_cayley",
    "iunets_exp",
    "normflows_logdet",
    "wavelets_inverse",
    "wavelets_inverse_1d",
    "memcnn_affine",
    "deepinv_spline",
)


@dataclass(frozen=True)
class Documented:
    """A documented call.

    Attributes:
        name: of its file.
        title: what is differentiated.
        call: the public call.
        function: the name of the Function behind it, as the survey lists it.
        order: of the derivative that is wrong first, 1 or 2.
        where: under which conditions it is wrong.
        why: the mistake as the source shows it, or "".
        thread: address of a public thread about it, or "".
        promise: what the package says of second derivatives, or "".
        instead: what gives the right number, or "".
        torch: the release that its package asks for, where that is not the survey's; or "".
        needs: what pip has to be told besides the package and torch, or "".
        cost: what the change takes or leaves, or "".
        tests: which of the package's own tests were seen to pass with the change, or "".
        program: the lines that a user types.
        code: all lines, as they are executed.
    """

    name: str
    title: str
    call: str
    function: str
    order: int
    where: str
    why: str
    thread: str
    promise: str
    instead: str
    torch: str
    needs: str
    cost: str
    tests: str
    program: str
    code: str

    def numbers(self):
        """Autograd's derivative, that by differences, and the one by what is said instead.

        Returns:
            dict: "got", "expected" and, where something else can be called, "instead"; floats.
        """
        CALLS[self.function].ready()
        before = torch.get_default_dtype()
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                return self._run()
        finally:
            torch.set_default_dtype(before)

    def _run(self):
        from . import by_hand

        torch.set_default_dtype(torch.float64)  # as importing that did, the first time
        names = {"slope": by_hand.by_grad}
        program, _, instead = self.code.partition(INSTEAD)
        exec(compile(program, self.title, "exec"), names)
        f, x, slope = names["f"], names["x"], names["slope"]
        if self.order == 1:
            got = by_hand.by_grad(f, x).item()
            expected = by_hand.differences(f, x, lambda f, x: f())
        else:
            got, expected = by_hand.second(f, x, slope), by_hand.differences(f, x, slope)
        numbers = {"got": got, "expected": expected}
        if self.instead:
            exec(compile(instead, self.title, "exec"), names)
            numbers["instead"] = names["instead"]
        return numbers


def read(path, order):
    code = path.read_text(encoding="utf-8")
    said = ast.get_docstring(ast.parse(code))
    title, _, rest = said.partition("\n\n")
    named = dict(line.split(": ", 1) for line in rest.replace("\n    ", " ").splitlines())
    program = code.partition('"""\n\n')[2].partition(INSTEAD)[0].strip()
    return Documented(
        name=path.stem,
        title=title,
        call=named["Call"],
        function=named["Function"],
        order=order,
        where=named["Where"],
        why=named.get("Why", ""),
        thread=named.get("Thread", ""),
        promise=named.get("Promise", ""),
        instead=named.get("Instead", ""),
        torch=named.get("Torch", ""),
        needs=named.get("Needs", ""),
        cost=named.get("Cost", ""),
        tests=named.get("Tests", ""),
        program=OURS.sub("", program).strip(),
        code=code,
    )


def documented():
    """Those with a wrong second derivative, by the name of their file."""
    return {name: read(HERE / "documented" / f"{name}.py", 2) for name in ORDER}


def first_order():
    """Those with a wrong first derivative, by the name of their file."""
    return {name: read(HERE / "first_order" / f"{name}.py", 1) for name in FIRST_ORDER}
