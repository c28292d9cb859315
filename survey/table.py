"""results.csv: a row for each Function or operator, from the answers; and what is counted in it.

findings.csv beside it: all that `diagnose` found of each, a line for each, in the report's order.
"""

import csv
import datetime
from collections import Counter
from math import isfinite
from pathlib import Path

from .listed import CALLS
from .places import places
from .reached import KNOWN, Known

HERE = Path(__file__).parent
CSV, FINDINGS = HERE / "results.csv", HERE / "findings.csv"

RIGHT = "right"
WRONG = "silently wrong"
BACKWARD = "wrong by .backward() alone"
GUARDED = "guarded"
LOUD = "error or NaN"
SURROGATE = "surrogate"
FIRST = "first derivative wrong"
READINGS = {
    FIRST: "backward does not return the derivative of forward, undeclared",
    WRONG: "a number, no error, and not the second derivative, in at least one setting, by all "
    "arguments or by some",
    BACKWARD: "`torch.autograd.grad` raises, with the reason; by `.backward(create_graph=True)` a "
    "number that is not the second derivative, without an error",
    LOUD: "differentiating twice raises an error, or gives NaN, and by no argument a wrong number",
    GUARDED: "declared `@once_differentiable`: no second derivative is promised",
    RIGHT: "the second derivative is right in all four settings",
    SURROGATE: "backward is no derivative of forward, by design",
}
FIELDS = [
    "package",
    "version",
    "kind",
    "function",
    "reading",
    "verdict",
    "cause",
    "surrogate",
    "apart",
    "setting",
    "route",
    "expected",
    "got",
    "reference",
    "agrees",
    "arguments",
    "source",
    "reached",
    "date",
    "seconds",
]
# kind: "cause", or else the severity; about: the class of the Function that it is about.
OF_A_FINDING = ["function", "code", "kind", "about", "message"]
# Of a run that stores nothing: calls without an answer.
FAILED, OF_A_FAILURE = "failed.csv", ["function", "version", "why"]


def row_of(name, answer, version):
    """A row of the table, from what `one.look_at` said: text, and a list of findings."""
    entry = CALLS[name]
    known = KNOWN.get(name, Known())
    reading = reading_of(answer, entry.surrogate)
    number = answer["first"] if reading == FIRST and wrong(answer["first"]) else telling(answer)
    where = places(entry.at)
    expected, got = (digits(number.get(key)) for key in ("expected", "got"))
    if wrong(number) and expected == got:
        expected, got = (digits(number[key], 5) for key in ("expected", "got"))
    return {
        "package": entry.package,
        "version": version,
        "kind": entry.kind,
        "function": entry.function,
        "reading": reading,
        "verdict": answer["verdict"],
        "cause": known.cause or answer["cause"],
        "surrogate": "by design" if entry.surrogate else "",
        "apart": known.apart,
        "setting": number.get("setting", ""),
        "route": number.get("route", ""),
        "expected": expected,
        "got": got or ("raises" if number.get("error") else ""),
        "reference": answer["reference"],
        "agrees": agrees(reading, answer),
        "arguments": answer["arguments"],
        "source": where.defined,
        "reached": known.by or "; ".join(where.applied),
        "date": str(datetime.date.today()),
        "seconds": str(round(answer["seconds"])),
        "findings": [finding_of(entry.function, each) for each in answer["findings"]],
    }


def finding_of(function, said):
    return {
        "function": function,
        "code": said["code"],
        "kind": "cause" if said["cause"] else said["severity"],
        "about": said["function"],
        "message": said["message"],
    }


def reading_of(answer, surrogate):
    """A wrong first derivative outranks all else; then what a user meets."""
    verdict = answer["verdict"]
    routes = {number["route"] for number in answer["numbers"] if wrong(number)}
    if surrogate and verdict not in ("silently_wrong", "supported"):
        return SURROGATE
    if not surrogate and (
        wrong(answer["first"]) or verdict in ("surrogate_gradient", "first_derivative_wrong")
    ):
        return FIRST
    if routes == {"backward"}:
        return BACKWARD
    if routes and verdict in ("raises", "not_finite"):  # so by all arguments, a number by some
        return WRONG
    return {
        "supported": RIGHT,
        "wrong_in_forward_mode": RIGHT,  # by backward, which the survey asks for
        "layout_dependent": RIGHT,  # in the layout that its user hands in; the row names the rest
        "silently_wrong": WRONG,
        "once_differentiable": GUARDED,
        "raises": LOUD,
        "not_finite": LOUD,
        "not_checked": "",
    }[verdict]


def wrong(number):
    return bool(number and number.get("wrong"))


def telling(answer):
    """The first wrong number that is silent; else the first that raises, or is NaN; else the
    largest."""
    numbers = answer["numbers"]
    silent = [n for n in numbers if wrong(n)]
    noticed = [n for n in numbers if n.get("error") or not isfinite(n.get("got") or 0)]
    largest = sorted(numbers, key=lambda n: -abs(n.get("expected") or 0))
    return (silent or noticed or largest)[0]


def agrees(reading, answer):
    """Whether the second opinion comes to the same; "" where it has nothing to say."""
    numbers = answer["numbers"]
    silent = any(wrong(n) for n in numbers)
    raised = any(n.get("error") for n in numbers)
    same = {
        RIGHT: not silent and not raised,
        WRONG: silent,
        BACKWARD: silent,
        GUARDED: silent or raised,
        LOUD: not silent,
        FIRST: wrong(answer["first"]),
    }
    return {True: "yes", False: "no"}.get(same.get(reading), "")


def digits(number, digits=3):
    """Three digits: what is the same on every machine."""
    if number is None:
        return ""
    return "0" if abs(number) < 1e-6 else format(number, f".{digits}g")


def write(rows, folder=HERE):
    write_lines(folder / CSV.name, FIELDS, rows)
    findings = [each for row in rows for each in row["findings"]]
    write_lines(folder / FINDINGS.name, OF_A_FINDING, findings)


def write_lines(path, fields, lines):
    with path.open("w", newline="", encoding="utf-8") as file:
        table = csv.DictWriter(file, fields, lineterminator="\n", extrasaction="ignore")
        table.writeheader()
        table.writerows(lines)


def read(folder=HERE):
    findings = read_lines(folder / FINDINGS.name)
    return [
        row | {"findings": [each for each in findings if each["function"] == row["function"]]}
        for row in read_lines(folder / CSV.name)
    ]


def read_lines(path):
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def differences(old, new):
    """Sentences: what differs between two runs, apart from dates, seconds and a last digit.

    Of the findings their codes are compared, in any order; messages may change.
    """
    before = {row["function"]: row for row in old}
    for row in new:
        was = before.get(row["function"])
        if not was:
            continue
        pairs = {key: (was[key], row[key]) for key in FIELDS[:-2]}
        pairs["first cause"] = first_cause(was), first_cause(row)
        for key, (a, b) in pairs.items():
            if a != b and not near(a, b):
                yield f"{row['function']}: {key} was {a!r}, is {b!r}"
        a, b = set(codes(was)), set(codes(row))
        if a != b:
            changed = (f"{'-' if code in a else '+'}{code}" for code in sorted(a ^ b))
            yield f"{row['function']}: findings {' '.join(changed)}"


def first_cause(row):
    """What `diagnose` itself names first; "cause" in the table may be what the source shows."""
    return next((each["code"] for each in row["findings"] if each["kind"] == "cause"), "")


def codes(row):
    """Of all findings, each once, in the report's order."""
    return list(dict.fromkeys(each["code"] for each in row["findings"]))


def near(a, b):
    try:
        return abs(float(a) - float(b)) <= 0.02 * max(abs(float(a)), abs(float(b)))
    except ValueError:
        return False


def counts(rows):
    """Reading -> number of rows."""
    return Counter(row["reading"] for row in rows)


def counted(rows):
    """The rows that stand for what a user meets: no surrogates, nothing set apart."""
    return [row for row in rows if not row["surrogate"] and not row["apart"]]


def read_as(rows, reading):
    """The counted rows with that reading."""
    return [row for row in counted(rows) if row["reading"] == reading]


KINDS = {
    "keeps what forward computed": (
        "intermediate_saved",
        "intermediate_on_ctx",
        "input_copy_saved",
    ),
    "backward is not followed": (
        "untracked_backward",
        "grad_out_path_cut",
        "numpy_in_backward",
        "second_function_gradient",
    ),
}


def kinds(rows):
    """Kind of mistake -> number of silently wrong rows; the rest: other."""
    kind_of = {cause: kind for kind, causes in KINDS.items() for cause in causes}
    return Counter(kind_of.get(row["cause"], "other") for row in read_as(rows, WRONG))
