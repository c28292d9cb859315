"""survey/COMPILED.md, from the rows of results.csv."""

import re
from collections import Counter
from pathlib import Path

from . import table
from .look import BACKENDS, NOT_RUN, RAISES, RIGHT, WRONG
from .second import SETTINGS

PAGE = Path(__file__).parent.parent / "COMPILED.md"
PINS = PAGE.parent.parent / "constraints.txt"

# The page shows the first ten of these that are wrong: five of those that the default backend gets
# wrong too, then what everybody has met.
KNOWN = [
    "mm",
    "bmm",
    "linalg.cholesky",
    "linalg.svdvals",
    "nn.functional.pairwise_distance",
    "exp",
    "tanh",
    "softmax",
    "nn.functional.cross_entropy",
    "sqrt",
    "sigmoid",
    "linalg.inv",
    "linalg.solve",
    "reciprocal",
    "rsqrt",
]


def write():
    PAGE.write_text(page(table.read()), encoding="utf-8")


def page(rows):
    versions = sorted({row["torch"] for row in rows}, key=table.release)
    shown = shown_of(versions)
    sections = [HEAD.strip(), in_short(rows, shown), ABOUT.strip()]
    sections += [known(rows, versions, shown), counts(rows, versions)]
    sections += [changes(rows, versions), everything(rows, shown), CHECK.strip()]
    return "\n\n".join(sections) + "\n"


def three_lines(row):
    """The program that reproduces a row."""
    name, setting, backend = row["operation"], row["setting"], row["backend"]
    return (
        "from survey.compiled import second_derivative\n\n"
        f'print(second_derivative("{name}", "{setting}"))\n'
        f'print(second_derivative("{name}", "{setting}", "{backend}"))\n'
    )


def shown_of(versions):
    """The version that the course is executed with, or else the newest."""
    pinned = re.search(r"^torch==(\S+)", PINS.read_text(encoding="utf-8"), re.MULTILINE)
    version = pinned[1].partition("+")[0] if pinned else ""
    return version if version in versions else versions[-1]


def in_short(rows, shown):
    asked, wrong = table.of(rows, shown, "aot_eager"), table.wrong(rows, shown, "aot_eager")
    text = f"{len(wrong)} of {len(asked)} operations of torch {shown} are silently wrong when they "
    text += "are compiled with `aot_eager`"
    if table.of(rows, shown, "inductor"):
        default = table.wrong(rows, shown, "inductor")
        text += f", {len(default)} of these with the default backend too"
    return f"**{text}.**"


def known(rows, versions, shown):
    """Ten rows of the version that is shown."""
    by = {(row["torch"], row["operation"], row["backend"]): row for row in rows}
    lines = ["## Ten that everybody knows", "", KNOWN_TEN.format(shown).strip(), ""]
    lines += ["| operation | silently wrong in | expected | got | `aot_eager` | default backend |"]
    lines += ["|---|---|---:|---:|---|---|"]
    for name in [n for n in KNOWN if n in table.wrong(rows, shown, "aot_eager")][:10]:
        row = by[shown, name, "aot_eager"]
        settings = ", ".join(setting for setting in SETTINGS if row[setting] == WRONG)
        told = [per_version(by, versions, name, backend) for backend in BACKENDS]
        cells = [f"`{name}`", settings, row["expected"], row["got"], *told]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def per_version(by, versions, name, backend):
    """ "wrong", or where versions differ "2.11 wrong, 2.13 raises"."""
    met = {v: by.get((v, name, backend)) for v in versions}
    words = {v.rpartition(".")[0]: table.reading(row) for v, row in met.items() if row}
    if len(words) == len(versions) and len(set(words.values())) == 1:
        return next(iter(words.values()))
    return ", ".join(f"{version} {word}" for version, word in words.items()) or "not asked"


def counts(rows, versions):
    lines = ["## What came out", ""]
    lines += ["| torch | backend | operations | silently wrong | raises | right | not run |"]
    lines += ["|---|---|---:|---:|---:|---:|---:|"]
    where = ["| torch | backend | " + " | ".join(f"`{setting}`" for setting in SETTINGS) + " |"]
    where += ["|---|---|" + "---:|" * len(SETTINGS)]
    for version in versions:
        for backend in BACKENDS:
            asked = table.of(rows, version, backend)
            if asked:
                met = Counter(map(table.reading, asked))
                numbers = [met.total(), *(met[each] for each in (WRONG, RAISES, RIGHT, NOT_RUN))]
                lines.append(numbered(version, backend, numbers))
                wrong = [sum(row[setting] == WRONG for row in asked) for setting in SETTINGS]
                where.append(numbered(version, backend, wrong))
    return "\n".join(lines) + f"\n\n{COUNTED.strip()}\n\n" + "\n".join(where)


def numbered(version, backend, numbers):
    return f"| {version} | {backend} | " + " | ".join(map(str, numbers)) + " |"


def changes(rows, versions):
    lines = ["## What changed from one version to the next", ""]
    if len(versions) == 1:
        lines.append(f"Only {versions[0]} has been asked so far.")
    for before, after in zip(versions, versions[1:], strict=False):
        for backend in BACKENDS:
            told = changed(rows, before, after, backend)
            if told is not None:
                lines.append(f"- {before} to {after}, {backend}: {told or 'the same ones'}.")
    return "\n".join(lines)


def changed(rows, before, after, backend):
    """Which operations became silently wrong, or are it no longer; None where nobody was asked."""
    old, new = (
        {row["operation"]: table.reading(row) for row in table.of(rows, version, backend)}
        for version in (before, after)
    )
    if not old or not new:
        return None
    was, now = ({name for name in each if each[name] == WRONG} for each in (old, new))
    told = {f"now {word}": set() for word in (RAISES, RIGHT, NOT_RUN)}
    for name in (was - now) & new.keys():
        told[f"now {new[name]}"].add(name)
    told["silently wrong, and not before"] = (now - was) & old.keys()
    told["silently wrong, and not asked before"] = now - old.keys()
    return "; ".join(f"{words}: {names(which)}" for words, which in told.items() if which)


def everything(rows, version):
    wrong, default = (table.wrong(rows, version, backend) for backend in BACKENDS)
    lines = [f"## All that are silently wrong, on torch {version}", ""]
    if table.of(rows, version, "inductor"):
        lines += [f"With the default backend too, {len(default)}: {names(default)}.", ""]
        lines += [f"With `aot_eager` alone, {len(wrong - default)}: {names(wrong - default)}."]
    else:
        lines += [f"With `aot_eager`, {len(wrong)}: {names(wrong)}."]
        lines += ["", "The default backend has not been asked yet."]
    return "\n".join(lines)


def names(which):
    return ", ".join(f"`{name}`" for name in sorted(which)) or "none"


HEAD = """
<!-- Written by `make compiled`, not by hand. -->
# torch's own operations, compiled and differentiated twice

`torch.compile` supports no second derivative through what it compiled. Mostly PyTorch says so:
"torch.compile with aot_autograd does not currently support double backward". This table counts
where that error does not come, and a wrong number comes instead.
"""

ABOUT = """
Asked were the operations of the list that PyTorch's own tests run over (`op_db`) which can be
differentiated twice in float64 by its word: each alone in `torch.compile`, on the CPU, with the
first sample of the list, in five settings. For each setting the operation was compiled anew, and
nothing was differentiated before.

| setting | what is differentiated twice |
|---|---|
| `alone` | f(x) |
| `beside` | f(x) + x² |
| `before` | f(x + (x - x0)²/2), where x0 is x as a constant: something precedes f |
| `after` | y + (y - y0)²/2 with y = f(x), where y0 is y as a constant: something follows f |
| `both` | before and after |

The second derivative is a Hessian-vector product, compared in all entries. Truth is eager autograd,
believed only where finite differences of eager's own first derivative say the same, along two
directions; where they do not, the operation "could not be run".

**What this does not say.** Not that a compiled model is wrong. Where the second pass meets the
compiled backward on its way to x, PyTorch raises: where the region keeps x itself, as a net with
trained weights does that is applied to x of shape (N, C). Silent are regions whose first derivative
looks like a constant to autograd, because it uses results and intermediates that the region kept,
with something else in the formula that leads to x: a frozen net, an activation, a loss or a matrix
function compiled by itself; and with trained weights whatever makes something of x first, such as
net(2x), with both backends. And not that all others are safe: one sample was tried of each, by all
arguments together, and by one of them alone `true_divide` or `pow` can be silent, too; two
operations compiled together keep other things.
Inside `with torch.compiler.set_stance("force_eager"):` an operation runs as it is, not compiled.
"""

KNOWN_TEN = """
The numbers are those of torch {} with `aot_eager`: the entry of the Hessian-vector product that is
farthest off, in the first of the settings named. The last two columns say what the versions do.
"""

COUNTED = """
An operation is silently wrong if it is so in one setting or more; it raises if it raises in one,
with whatever text, and is wrong in none. "Not run" are those about which the first sample tells
nothing; `results.csv` says why for each. `inductor` is the default backend. It is asked only about
the operations that `aot_eager` gets wrong on the same torch.

In which settings they are silently wrong:
"""

CHECK = """
## How to check a row

Three lines for `.venv/bin/python`, started in this project's folder, with the operation, the
setting and the backend of the row. They print the second derivative, not compiled and compiled:

```python
from survey.compiled import second_derivative

print(second_derivative("tanh", "beside"))
print(second_derivative("tanh", "beside", "aot_eager"))
```

`.venv/bin/python -m survey.compiled --verify` runs these lines for each wrong row of the installed
torch. `survey/compiled/REPORT.md` has programs without anything of ours. `make compiled` asks
again and writes this page and `survey/compiled/results.csv`. Another torch is asked by its own
Python, as `python -m survey.compiled aot_eager`, with NumPy and expecttest beside it. The default
backend needs a C++ compiler.
"""
