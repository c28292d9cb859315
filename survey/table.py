"""results.csv and RESULTS.md, from the answers."""

import csv
from collections import Counter
from pathlib import Path

from .listed import CALLS

HERE = Path(__file__).parent
CSV = HERE / "results.csv"
PAGE = HERE / "RESULTS.md"

RIGHT = "right"
WRONG = "silently wrong"
GUARDED = "guarded"
LOUD = "error or NaN"
SURROGATE = "surrogate"
OTHER = "first derivative"
READINGS = {
    RIGHT: "the second derivative is right in all four settings",
    WRONG: "a number, no error, and not the second derivative, in at least one setting",
    GUARDED: "declared `@once_differentiable`: no second derivative is promised",
    LOUD: "differentiating twice raises an error, or gives NaN, and never a wrong number",
    SURROGATE: "backward is no derivative of forward, by design, and is itself derived rightly",
    OTHER: "backward gives no derivative of forward, undeclared, or depends on layout or grad_out",
}
FIELDS = [
    "package",
    "version",
    "function",
    "reading",
    "verdict",
    "cause",
    "surrogate",
    "setting",
    "expected",
    "got",
    "reference",
    "agrees",
    "seconds",
]


def row_of(name, answer, version):
    """A row of the table, all values text, from what `one.look_at` said."""
    entry = CALLS[name]
    number = telling(answer["numbers"])
    reading = reading_of(answer["verdict"], entry.surrogate)
    return {
        "package": entry.package,
        "version": version,
        "function": entry.function,
        "reading": reading,
        "verdict": answer["verdict"],
        "cause": answer["cause"],
        "surrogate": "by design" if entry.surrogate else "",
        "setting": number.get("setting", ""),
        "expected": digits(number.get("expected")),
        "got": digits(number.get("got")) or ("raises" if number.get("error") else ""),
        "reference": answer["reference"],
        "agrees": agrees(reading, answer["numbers"]),
        "seconds": str(round(answer["seconds"])),
    }


def reading_of(verdict, surrogate):
    if verdict == "surrogate_gradient":
        return SURROGATE if surrogate else OTHER
    return {
        "supported": RIGHT,
        "silently_wrong": WRONG,
        "once_differentiable": GUARDED,
        "raises": LOUD,
        "not_finite": LOUD,
        "first_derivative_wrong": OTHER,
        "layout_dependent": OTHER,
        "not_checked": "",
    }[verdict]


def telling(numbers):
    """The first wrong number, else the first that raises, else the first."""
    wrong = [n for n in numbers if n.get("wrong")]
    raised = [n for n in numbers if n.get("error")]
    return (wrong or raised or numbers)[0]


def agrees(reading, numbers):
    """Whether the second opinion comes to the same; "" where it has nothing to say."""
    wrong = any(n.get("wrong") for n in numbers)
    raised = any(n.get("error") for n in numbers)
    same = {
        RIGHT: not wrong and not raised,
        SURROGATE: not wrong,
        WRONG: wrong,
        GUARDED: wrong or raised,
        LOUD: not wrong,
    }
    return {True: "yes", False: "no"}.get(same.get(reading), "")


def digits(number):
    """Three digits: what is the same on every machine."""
    if number is None:
        return ""
    return "0" if abs(number) < 1e-6 else format(number, ".3g")


def write(rows):
    with CSV.open("w", newline="", encoding="utf-8") as file:
        table = csv.DictWriter(file, FIELDS, lineterminator="\n")
        table.writeheader()
        table.writerows(rows)
    PAGE.write_text(page(rows), encoding="utf-8")


def read():
    with CSV.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def differences(old, new):
    """Sentences: what differs between two runs, apart from seconds and a last digit."""
    before = {row["function"]: row for row in old}
    for row in new:
        was = before.get(row["function"])
        for key in FIELDS[:-1]:
            if was and was[key] != row[key] and not near(was[key], row[key]):
                yield f"{row['function']}: {key} was {was[key]!r}, is {row[key]!r}"


def near(a, b):
    try:
        return abs(float(a) - float(b)) <= 0.02 * max(abs(float(a)), abs(float(b)))
    except ValueError:
        return False


def counts(rows):
    """Reading -> number of rows."""
    return Counter(row["reading"] for row in rows)


def wrong_rows(rows):
    """The silently wrong ones that are no surrogates by design: README's K."""
    return [row for row in rows if row["reading"] == WRONG and not row["surrogate"]]


KINDS = {
    "keeps what forward computed": (
        "intermediate_saved",
        "intermediate_on_ctx",
        "input_copy_saved",
    ),
    "backward is not followed": ("untracked_backward", "grad_out_path_cut"),
}


def kinds(rows):
    """Kind of mistake -> number of silently wrong rows that are no surrogates; the rest: other."""
    kind_of = {cause: kind for kind, causes in KINDS.items() for cause in causes}
    return Counter(kind_of.get(row["cause"], "other") for row in wrong_rows(rows))


def page(rows):
    wrong, met = wrong_rows(rows), counts(rows)
    packages = len({row["package"] for row in rows})
    lines = [HEAD.format(functions=len(rows), packages=packages, wrong=len(wrong)).strip(), ""]
    lines += ["## What came out", "", "| reading | Functions | what it means |", "|---|---:|---|"]
    for reading, meaning in READINGS.items():
        lines.append(f"| {reading} | {met[reading]} | {meaning} |")
    lines += [
        "",
        f"Of the {met[WRONG]} silently wrong ones, {met[WRONG] - len(wrong)} are surrogates "
        "by design: for them nobody may want a second derivative, and they are left out below.",
        "",
        f"What the other {len(wrong)} have in common:",
        "",
        "| first cause that `diagnose` names | Functions |",
        "|---|---:|",
    ]
    for cause, number in Counter(row["cause"] or "cause_unknown" for row in wrong).most_common():
        lines.append(f"| `{cause}` | {number} |")
    guarded = [row for row in rows if row["reading"] == GUARDED]
    leaking = [row for row in guarded if row["got"] not in ("raises", row["expected"])]
    lines += [
        "",
        f"Of the {len(guarded)} guarded ones, {len(leaking)} give a wrong number without "
        "an error in at least one setting: the guard raises only where `grad_out` itself "
        "requires grad (lesson 4).",
        "",
    ]
    lines += [
        "## Every Function",
        "",
        "| Function | package | reading | cause | setting | expected | got | by | agrees |",
        "|---|---|---|---|---|---:|---:|---|---|",
    ]
    order = [WRONG, OTHER, LOUD, GUARDED, SURROGATE, RIGHT]
    for row in sorted(
        rows,
        key=lambda r: (
            order.index(r["reading"]),
            bool(r["surrogate"]),
            r["package"],
            r["function"],
        ),
    ):
        cells = [
            f"`{row['package']}:{row['function'].rsplit('.', 1)[1]}`",
            f"{row['package']} {row['version']}",
        ]
        said = row["reading"] + (
            ", surrogate" if row["surrogate"] and row["reading"] != SURROGATE else ""
        )
        cells += [
            said,
            row["cause"],
            row["setting"],
            row["expected"],
            row["got"],
            row["reference"],
            row["agrees"],
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


HEAD = """
<!-- Written by `make survey`, not by hand. -->
# Published Functions, differentiated twice

{functions} custom autograd Functions of {packages} published packages, each called with small,
realistic inputs, each put through `diagnose`. {wrong} of them, surrogates left aside, give a wrong
second derivative without an error. (One of the list, `torch:spectral_norm`, is no Function but a
parametrisation that computes under `no_grad`, with the same effect.)

This is no list of bugs. Hardly any of these packages promises a second derivative, and for
training by first derivatives, which is what they are made for, nothing is wrong here. The list is
for those who take one of them into a gradient penalty, a force loss, a PINN or a Hessian-vector
product.

## How to read a row, and check it

`make survey` fetches the packages at the versions below into an environment of their own,
`.survey`, and writes this page and `results.csv`. One row again, by hand, is three lines for
`.survey/bin/python`, with the name in the row's first column:

```python
from survey import diagnose, call

fn, inputs = call("gpytorch:RBFCovariance")
print(diagnose(fn, *inputs))
```

`reading` and `cause` are what `diagnose` says. `expected` and `got` are a second opinion that uses
nothing of it (`survey/compare.py`): one number uᵀHv with fixed u and v, H the second derivative of
a loss made from fn `alone`, or with a `graph after` it, a `graph before` it, or `both`; the first
setting where the two differ is shown. `got` is autograd through the Function. `expected` is by
`formula`, autograd through plain PyTorch operations that compute the same, or by `differences`,
central differences of the Function's own first derivative. `agrees` says whether the second
opinion comes to the same as `diagnose`.
"""
