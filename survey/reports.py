"""A text for the authors of each documented call, ready to be sent, and the program in it.

`python -m survey.reports NAME` prints the one of documented/NAME.py or first_order/NAME.py.
"""

import re
import sys

from . import published
from .listed import CALLS
from .patched import patch_of
from .table import GUARDED


def of_all(rows, numbers):
    """Name -> its report, of what its package applies somewhere."""
    from .documented import documented, first_order

    row_of = {row["function"]: row for row in rows}
    folders = published.read()
    return {
        name: report(each, numbers[name], row_of[CALLS[each.function].function], rows, folders)
        for name, each in (documented() | first_order()).items()
        if not row_of[CALLS[each.function].function]["apart"].startswith("applied nowhere")
    }


def report(each, found, row, rows, folders):
    address = published.link(row["source"], row["package"], row["version"], folders)
    text = [
        TITLES[each.order].format(each.call),
        f"It is the backward of `{row['function']}`, [{row['source']}]({address}).",
        f"```python\n{program(each)}```",
        f"```\ngot {found['got']}\nexpected {found['expected']}\n```",
        f"{MEANT[each.order]} {seen_with(each, found, row)}: `{install(each, rows)}`.",
        f"**Where.** {sentence(each.where)}",
        f"**Cause.** {cause(each, row)}",
        cure(found, row, patch_of(each)),
    ]
    if each.cost:
        text.append(f"**What the change costs.** {sentence(each.cost)}")
    if each.tests:
        text.append(f"**Its own tests.** {OWN_TESTS.format(*each.tests.rsplit(', ', 1))}")
    if each.instead:
        text.append(f"**Until then.** {sentence(each.instead)[:-1]} gives {found['instead']}.")
    if each.thread:
        text.append(f"**Related.** {each.thread}")
    return "\n\n".join(text) + "\n"


def program(each):
    """The program as it is run: f and x, then autograd's number and the one by differences."""
    backward = "\nslope = by_backward" in each.program
    lines = re.sub(r"\nslope = .*|(?<=create_graph=True\)), x, slope", "", each.program)
    lines = lines.replace("from survey.by_hand import by_backward, second\n\n", "")
    *imports, rest = re.split(r"(?m)(?<=\n)\n", lines, maxsplit=1)
    end = BY_BACKWARD if backward else ENDS[each.order]
    return f"{imports[0].rstrip()}\n{DOUBLE}{rest}{end}"


def seen_with(each, found, row):
    """The versions that printed the numbers, and the torch of the wheel where that is another."""
    package = [f"{row['package']} {row['version']}"] * (row["package"] != "torch")
    built = [f"its wheel built for torch {each.torch}"] * bool(each.torch)
    return ", ".join([found["with"], *package, *built])


def install(each, rows):
    """What the program needs, as pip is told."""
    version = {row["package"]: row["version"].partition("+")[0] for row in rows}
    packages = dict.fromkeys(("torch", CALLS[each.function].package))
    version |= {"torch": each.torch or version["torch"]}
    pins = [f"{package}=={version[package]}" for package in packages]
    return " ".join(["pip install", *pins, each.needs]).strip()


def cause(each, row):
    """As the source shows it, or what `diagnose` finds first: the tensor, or the step and line."""
    said = (found["message"] for found in row["findings"] if found["kind"] == "cause")
    return sentence(each.why or next(said, "not known"))


def sentence(text):
    return f"{text[0].upper()}{text[1:].rstrip('.')}."


def cure(found, row, patch):
    if patch.exists():
        change = patch.read_bytes().decode()
        ends = f" {CRLF}" if "\r\n" in change else ""
        change = change.replace("\r\n", "\n")
        return (
            f"**A change that mends it.** With it the program prints `got {found['patched']}`."
            f"{ends}\n\n```diff\n{change}```"
        )
    return GUARD if row["reading"] == GUARDED else DECLARE


CRLF = (
    "The lines of the published file end in CRLF, which a diff on a page cannot show: "
    "`sed -i 's/\\r$//'` on it first."
)
OWN_TESTS = "Of {}, in its source, all {} pass with the change, as without it."
TITLES = {  # the order of the derivative that is wrong first
    1: "# The gradient through `{}` is a wrong number, without an error",
    2: "# The second derivative through `{}` is a wrong number, without an error",
}
MEANT = {
    1: "`got` is autograd's gradient, `expected` differences of the value. On",
    2: "`got` is what autograd gives, `expected` differences of the first derivative. On",
}
DOUBLE = "\ntorch.set_default_dtype(torch.float64)\n\n"
ENDS = {
    1: """


print(f"got {torch.autograd.grad(f(), x)[0].item():.3f}")

x.data += 1e-3
above = f().item()
x.data -= 2e-3
print(f"expected {(above - f().item()) / 2e-3:.3f}")
""",
    2: """


def slope():
    return torch.autograd.grad(f().sum(), x, create_graph=True)[0].sum()


print(f"got {torch.autograd.grad(slope(), x)[0].sum().item():.3f}")

x.data += 1e-3
above = slope().item()
x.data -= 2e-3
print(f"expected {(above - slope().item()) / 2e-3:.3f}")
""",
}
BY_BACKWARD = """


def slope():
    x.grad = None
    f().backward(create_graph=True)
    return x.grad


first = slope()
x.grad = None
first.backward()
print(f"got {x.grad.item():.3f}")

x.data += 1e-3
above = slope().item()
x.data -= 2e-3
print(f"expected {(above - slope().item()) / 2e-3:.3f}")
"""
DECLARE = """\
**A cure.** None was tried. Where a second derivative is not meant to be supported,
`@once_differentiable` turns most of the wrong numbers into errors."""
GUARD = """\
**A cure.** None is known for this package: it declares `@once_differentiable`, which is meant to
raise here, and does by `.backward(create_graph=True)`. `torch.autograd.grad` goes past the guard,
which is a gap in PyTorch."""


if __name__ == "__main__":
    from . import table
    from .__main__ import read_numbers

    made = of_all(table.read(), read_numbers())
    if sys.argv[1:] and {*sys.argv[1:]} <= {*made}:
        print(*(made[name] for name in sys.argv[1:]), sep="\n", end="")
    else:
        sys.exit(f"Which report? {', '.join(made)}")
