"""survey/COMPILED.md, from the rows of results.csv."""

import re
from collections import Counter
from pathlib import Path

from . import table
from .look import BACKENDS, WRONG
from .nets import BY, NETS, forms
from .operations import ALL, SAMPLES
from .second import SETTINGS

PAGE = Path(__file__).parent.parent / "COMPILED.md"
PINS = PAGE.parent.parent / "constraints.txt"
REPORT = Path(__file__).with_name("REPORT.md")
PROGRAM = re.compile(r"```python\n(.*?)```\n+```\n(.*?)```", re.DOTALL)  # and what it prints

RULE = """\
What is compiled is one operation to autograd, and what it made and keeps comes back without a
graph. It raises where the second pass comes to its backward: something follows that is not linear
in its result, or a tensor that it keeps leads to what you ask for. Otherwise what it should add is
missing, and nothing tells you."""

KINDS = "real", "complex"
# The page shows the first ten of these that are wrong: five of those that the default backend gets
# wrong too, then what everybody has met.
KNOWN = [
    "mm",
    "matmul",
    "linalg.cholesky",
    "linalg.svdvals",
    "nn.functional.pairwise_distance",
    "exp",
    "tanh",
    "pow",
    "softmax",
    "nn.functional.cross_entropy",
    "div.no_rounding_mode",
    "sqrt",
    "sigmoid",
    "linalg.inv",
    "linalg.solve",
]


def write():
    PAGE.write_text(page(table.read()), encoding="utf-8")


def page(rows):
    versions = sorted({row["torch"] for row in rows}, key=table.release)
    shown = shown_of(versions)
    sections = [head(), in_short(rows, versions, shown), CURE.strip()]
    sections += [nets(rows, shown), ABOUT.format(SAMPLES).strip(), known(rows, shown)]
    sections += [counts(rows, versions), everything(rows, shown), CHECK.strip()]
    return "\n\n".join(sections) + "\n"


def head():
    """The sentence, behind the last of the report's programs, with which most will meet it."""
    program, printed = PROGRAM.findall(REPORT.read_text(encoding="utf-8"))[-1]
    return HEAD.format(program=program, printed=printed, rule=RULE).strip()


def three_lines(row):
    """The program that reproduces a row."""
    sample = table.samples_of(row)[0]
    which = {"kind": row["kind"], "sample": sample, "by": row["by"]}
    if row["kind"] == "net":
        del which["kind"]
    else:
        which["sample"] = int(sample)
        plain = {"kind": "real", "sample": 0, "by": ALL}
        which = {key: value for key, value in which.items() if value != plain[key]}
    given = "".join(f", {key}={value!r}".replace("'", '"') for key, value in which.items())
    name, setting = row["operation"], row["setting"]
    return (
        "from survey.compiled import second_derivative\n\n"
        f'print(second_derivative("{name}", "{setting}"{given}))\n'
        f'print(second_derivative("{name}", "{setting}", "{row["backend"]}"{given}))\n'
    )


def shown_of(versions):
    """The version that the course is executed with, or else the newest."""
    pinned = re.search(r"^torch==(\S+)", PINS.read_text(encoding="utf-8"), re.MULTILINE)
    version = pinned[1].partition("+")[0] if pinned else ""
    return version if version in versions else versions[-1]


def in_short(rows, versions, shown):
    """The numbers of the page's head."""
    silent, asked_nets = silent_nets(rows, shown)
    lines = [f"On torch {shown}, silently wrong in at least one of five simple formulas:", ""]
    lines.append(
        f"- {silent} of {asked_nets} cases of ten small nets, by x with frozen and with trained "
        "weights, with the default backend;"
    )
    for kind in KINDS:
        asked = table.by_operation(table.of(rows, shown, "aot_eager", kind))
        wrong, default = (table.wrong(table.of(rows, shown, each, kind)) for each in BACKENDS)
        lines.append(
            f"- with {kind} numbers, {len(wrong)} of {len(asked)} operations of PyTorch by some "
            "argument, each compiled by itself with `aot_eager`"
            + (f"; {len(default)} of these with the default backend too" if default else "")
            + ";"
        )
    return "\n".join(lines).removesuffix(";") + f".\n\n{elsewhere(rows, versions, shown)}"


def elsewhere(rows, versions, shown):
    """The same count of operations for the other versions."""
    told = []
    for version in versions:
        if version != shown:
            real, imaginary = (table.of(rows, version, "aot_eager", kind) for kind in KINDS)
            which = f"on torch {version}{least(of_cases(real))}"
            told.append(f"{which}: {share(real)} and {share(imaginary)}")
    return f"With `aot_eager`, real and complex, {'; '.join(told)}." if told else ""


def share(rows):
    return f"{len(table.wrong(rows))} of {len(table.by_operation(rows))}"


def silent_nets(rows, shown):
    """How many (net, what it is given, frozen or trained) are silent with the default backend."""
    asked = [r for r in table.of(rows, shown, "inductor", "net") if r["by"] in list(BY)[:2]]
    numbers = Counter(table.reading(row) for row in asked for _ in table.samples_of(row))
    return numbers[WRONG], numbers.total()


def nets(rows, shown):
    """A row for each net and what it is given."""
    lines = ["## Small nets", "", NETS_ARE.format(shown).strip(), ""]
    lines += [f"- {by}: {said}" for by, said in BY.items()] + [""]
    lines += ["| net | compiled | " + " | ".join(BY) + " |", "|---|---|" + "---|" * len(BY)]
    said = {
        (row["operation"], sample, row["by"], row["backend"]): words_of(row)
        for backend in BACKENDS
        for row in table.of(rows, shown, backend, "net")
        for sample in table.samples_of(row)
    }
    for name in NETS:
        for given in forms(name):
            cells = []
            for by in BY:
                both = [said.get((name, given, by, backend), "") for backend in BACKENDS]
                cells.append(both[0] if both[0] == both[1] else " / ".join(both))
            shape = {"x": "net(x)", "2 x": "net(2 x)", "view": "net(x[None])"}[given]
            lines.append(f"| {name} | {shape} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def words_of(row):
    return {WRONG: "**silent**"}.get(table.reading(row), table.reading(row))


def known(rows, shown):
    """Ten rows of the version that is shown."""
    lines = ["## Ten that everybody knows", "", KNOWN_TEN.format(shown).strip(), ""]
    lines += ["| operation | by | silently wrong in | expected | got | default backend |"]
    lines += ["|---|---|---|---:|---:|---|"]
    wrong, default = (first_wrong(table.of(rows, shown, each, "real")) for each in BACKENDS)
    for name in [n for n in KNOWN if n in wrong][:10]:
        row = wrong[name]
        settings = ", ".join(setting for setting in SETTINGS if row[setting] == WRONG)
        told = "wrong" if name in default else "raises"
        cells = [f"`{name}`", row["by"], settings, row["expected"], row["got"], told]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def first_wrong(rows):
    """Name -> its first row that is wrong."""
    found = {}
    for row in rows:
        if table.reading(row) == WRONG:
            found.setdefault(row["operation"], row)
    return found


def counts(rows, versions):
    lines = ["## What came out", "", "| " + " | ".join(COLUMNS) + " |"]
    lines += ["|---|---|---|" + "---:|" * len(COLUMNS[3:])]
    for version in versions:
        for backend in BACKENDS:
            for kind in KINDS:
                asked = table.of(rows, version, backend, kind)
                if asked:
                    worst = Counter(map(table.worst, table.by_operation(asked).values()))
                    numbers = [len(table.cases(asked)), worst.total()]
                    numbers += [worst[each] for each in table.READINGS]
                    cells = [version, backend, kind, *map(str, numbers)]
                    lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + f"\n\n{COUNTED.strip()}"


def of_cases(rows):
    """(kind, operation or net, by, sample) -> reading."""
    return {key[2:]: table.reading(row) for key, row in table.cases(rows).items()}


def least(cases):
    """How many samples of each operation were asked, if fewer than on the version shown."""
    numbers = [int(sample) for kind, *_, sample in cases if kind != "net"]
    asked = max(numbers, default=SAMPLES) + 1
    return f", {asked} of {SAMPLES} samples" if asked < SAMPLES else ""


def everything(rows, version):
    real, imaginary = (table.of(rows, version, "aot_eager", kind) for kind in KINDS)
    wrong, of_complex = table.wrong(real), table.wrong(imaginary) - table.wrong(real)
    too = table.wrong(table.of(rows, version, "inductor", "real"))
    complex_too = table.wrong(table.of(rows, version, "inductor", "complex"))
    by, by_complex = (
        {name: arguments(each) for name, each in table.by_operation(some).items()}
        for some in (real, imaginary)
    )
    lines = [f"## All that are silently wrong, on torch {version}", "", BY_WHICH.strip(), ""]
    lines += [f"With the default backend too, {len(too)}: {names(too, by)}.", ""]
    lines += [f"With `aot_eager` alone, {len(wrong - too)}: {names(wrong - too, by)}.", ""]
    both, alone = of_complex & complex_too, of_complex - complex_too
    lines += ["With complex numbers alone, and the default backend too, "
              f"{len(both)}: {names(both, by_complex)}.", ""]  # fmt: skip
    lines += [f"With complex numbers and `aot_eager` alone, {len(alone)}: "
              f"{names(alone, by_complex)}."]  # fmt: skip
    return "\n".join(lines)


def arguments(rows):
    """By which it is wrong, "(2, all)"; "" where it is so by each that was asked."""
    bad = {row["by"] for row in rows if table.reading(row) == WRONG}
    return f" ({', '.join(sorted(bad))})" if bad != {row["by"] for row in rows} else ""


def names(which, by=None):
    return ", ".join(f"`{name}`{by[name] if by else ''}" for name in sorted(which)) or "none"


COLUMNS = ("torch", "backend", "asked of", "cases", "operations", "silently wrong", "raises",
           "other error", "not run", "never compiled", "right")  # fmt: skip

HEAD = """
<!-- Written by `make compiled`, not by hand. -->
# Compiled, and differentiated twice

`torch.compile` supports no second derivative through what it compiled, and mostly says so:
"torch.compile with aot_autograd does not currently support double backward". This page is about
where that error does not come, and a wrong number comes instead. The second derivative of
net(2x) + x², without and with `torch.compile`, by its default backend:

```python
{program}```

```
{printed}```

The net's share is missing from the second line: 2 is what x² gives.

**{rule}**

What that means for most nets (the table of ten has each):

- You ask for x, as for a force or a curvature. Compiled as a whole, net(x) with
  trained weights keeps x itself and raises; net(2x), or a net with frozen weights, keeps other
  tensors and is silent.
- You ask for weights, as in a gradient penalty. What is compiled keeps the net's Parameters, and
  raises.
- Something follows that is not linear, as the square in a loss: it raises.
- Nothing else leads to x, no x² beside the net and nothing before it: there is no number, and
  autograd says so.
"""

CURE = """
Inside `with torch.compiler.set_stance("force_eager"):` nothing that was compiled is used, and the
number is right.
"""

NETS_ARE = """
Each of the ten was compiled with both backends on torch {}; where they differ, it is `aot_eager` /
default. "Silent" is in at least one of the five settings below, in float64, with x of shape (3, 3).
The weights are the net's own Parameters.
"""

ABOUT = """
## How it was asked

The operations are those of the list that PyTorch's own tests run over (`op_db`) which can be
differentiated twice in float64 by its word, and of each the first {} samples of the list; with
complex numbers too where it takes them. Each was compiled on the CPU in a small function that calls
it, and differentiated by each of its differentiable arguments alone, the others constant, and by
all together. By `2` is by the second argument, by `1.2` by the second tensor of a list. Five
settings:

| setting | what is differentiated twice |
|---|---|
| `alone` | f(x) |
| `beside` | f(x) + x²; where weights are asked for, (sum of x and weights)² |
| `before` | f(x + (x - x0)²/2), x0 is x as a constant: something precedes f, but no Parameter |
| `after` | y + (y - y0)²/2 with y = f(x), where y0 is y as a constant: something follows f |
| `both` | before and after |

The second derivative is a Hessian-vector product, compared in all entries. Truth is eager autograd,
believed only where finite differences of eager's own first derivative say the same, along two
directions; where they do not, it "could not be run". Nothing was differentiated before, other than
with `create_graph=True`: after a plain `backward()` a compiled function refuses more.

Each row of `survey/compiled/results.csv` also says what was seen when it was made: whether a
compiled backward keeps the very argument, and in which settings its `grad_out` leads there. The
sentence above is tested against all rows; one is otherwise, `linalg.pinv.singular` by both
arguments, where what is kept differs from setting to setting.

**What this does not say.** That all others are safe: other samples, other shapes, and two
operations compiled together keep other things. `torch.autograd.grad(..., x)` asks for x alone;
`.backward()` asks for everything that requires grad, and is refused more often.
"""

KNOWN_TEN = """
The numbers are those of torch {} with `aot_eager`: the entry of the Hessian-vector product that is
farthest off, in the first of the settings named.
"""

COUNTED = """
An operation is silently wrong if it is so by one argument, sample and setting or more; else it
raises if it raises in one, because of double backward or since nothing leads to x. "Never
compiled": Dynamo made no graph of it, it ran as it is. "Not run" are those about which nothing can
be said. `results.csv` has the text of each other error, and why something was not run. A case is a
sample and an argument.
`inductor` is the default backend. It is asked about what `aot_eager` gets wrong on the same torch:
the first such sample for each argument. For complex numbers it makes no code, and says so in a
warning ("Torchinductor does not support code generation for complex operators"): it then runs the
operations as they are, inside what it compiled.
"""

BY_WHICH = """
In brackets: by which arguments, where it is not by each of them.
"""

CHECK = """
## How to check a row

Three lines for `.venv/bin/python`, started in this project's folder, with the operation, the
setting, the backend, and where the row has them the kind, the sample and the argument. They print
the second derivative, not compiled and compiled:

```python
from survey.compiled import second_derivative

print(second_derivative("pow", "beside", by="2"))
print(second_derivative("pow", "beside", "aot_eager", by="2"))
```

`.venv/bin/python -m survey.compiled --verify` runs these lines for each wrong row of the installed
torch. `survey/compiled/REPORT.md` has programs without anything of ours. `make compiled` asks
again and writes this page and `survey/compiled/results.csv`. Another torch is asked by its own
Python, as `python -m survey.compiled aot_eager`, with NumPy and expecttest beside it. The default
backend needs a C++ compiler.
"""
