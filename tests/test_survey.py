"""The survey's list and its stored results, without fetching any package."""

import ast
import csv
import inspect
import io
import json
import re
import shutil
import subprocess
import tarfile
import textwrap
from collections import Counter
from pathlib import Path

import pytest
import torch
from made_functions import of_inputs

from survey import (
    CALLS,
    conditions,
    differ,
    environment,
    newest,
    page,
    patched,
    published,
    reports,
    table,
)
from survey import __main__ as main
from survey.compare import compare
from survey.documented import documented, first_order
from survey.places import places
from survey.reached import KNOWN, Known

ROOT = Path(__file__).resolve().parent.parent
SURVEY = ROOT / "survey"
ROWS = table.read()
NUMBERS = main.read_numbers()


def versions():
    """Package -> version, as `make survey` installs them; torch is the course's own."""
    lines = (SURVEY / "packages.txt").read_text(encoding="utf-8").splitlines()
    lines += (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pins = [line.partition("==") for line in lines if "==" in line]
    surveyed = {call.package for call in CALLS.values()}
    return {name: version.split()[0] for name, _, version in pins if name in surveyed}


def test_every_call_names_its_function_once():
    functions = [call.function for call in CALLS.values()]
    assert [name for name, number in Counter(functions).items() if number > 1] == []
    assert [
        name for name in functions if not re.fullmatch(r"[A-Za-z_]\w*((\.\w+)+|::\w+)", name)
    ] == []


def test_every_package_is_pinned_once_and_used():
    pinned = re.findall(r"^([^#\s=]+)==\S+$", (SURVEY / "packages.txt").read_text(), re.MULTILINE)
    assert len(pinned) == len(set(pinned))
    assert {*pinned, "torch"} == {call.package for call in CALLS.values()}


def test_the_results_are_those_of_the_list():
    assert {row["function"] for row in ROWS} == {call.function for call in CALLS.values()}
    assert len(ROWS) == len(CALLS)
    assert {row["function"]: row["kind"] for row in ROWS} == {
        call.function: call.kind for call in CALLS.values()
    }
    surrogates = {call.function for call in CALLS.values() if call.surrogate}
    assert {row["function"] for row in ROWS if row["surrogate"]} == surrogates


def test_the_results_are_of_the_pinned_versions():
    pinned = versions()
    assert {row["package"]: row["version"].split("+")[0] for row in ROWS} == pinned


def test_every_row_says_what_a_row_can_say():
    assert {row["reading"] for row in ROWS} <= set(table.READINGS)
    assert {row["reference"] for row in ROWS} == {"formula", "differences"}
    assert {row["agrees"] for row in ROWS} <= {"yes", "no", ""}
    assert all(re.fullmatch(r".+\.py:\d+", row["source"]) for row in ROWS)


def apart(row):
    """Whether a row's two numbers are not the same; what raises, or is no number, is neither."""
    try:
        expected, got = float(row["expected"]), float(row["got"])
    except ValueError:
        return False
    return abs(expected - got) > 1e-3 * abs(expected)


def derived(row):
    """The reading that follows from a row's own verdict and numbers."""
    number = {"wrong": apart(row), "route": row["route"]}
    first = row["setting"] == "first"
    said = {"first": number if first else None, "numbers": [] if first else [number]}
    return table.reading_of(said | {"verdict": row["verdict"]}, bool(row["surrogate"]))


def agreed(row):
    """What the second opinion comes to, by a row's own numbers."""
    number = {"wrong": apart(row), "error": row["got"] in ("raises", "nan")}
    return table.agrees(row["reading"], {"first": number, "numbers": [number]})


def test_a_row_is_read_as_its_own_columns_say():
    """Both ways: the reading follows from them, and they are such as it stands for."""
    for row in ROWS:
        assert (row["reading"], row["agrees"]) == (derived(row), agreed(row)), row
        wrong = row["reading"] in (table.WRONG, table.BACKWARD, table.FIRST)
        promised = not row["surrogate"] and row["reading"] != table.GUARDED
        assert apart(row) >= wrong and apart(row) <= (wrong or not promised), row
        assert (row["reading"] == table.LOUD) <= (row["got"] in ("raises", "nan")), row
        assert (row["reading"] == table.BACKWARD) == (row["route"] == "backward"), row
        assert (row["reading"] == table.FIRST) == (row["setting"] == "first"), row


@pytest.mark.parametrize(
    "column, other", [("reading", table.RIGHT), ("verdict", "supported"), ("got", "expected")]
)
def test_a_row_that_does_not_follow_is_noticed(column, other):
    row = next(row for row in ROWS if row["reading"] == table.WRONG)
    changed = row | {column: row.get(other, other)}
    assert derived(changed) != changed["reading"] or not apart(changed)


def returned_by(call):
    """How many things a call makes, 3 with a formula; None where another function makes them."""
    if "reference" in (known := inspect.getclosurevars(call.how).nonlocals):
        return 3 if known["reference"] else 2
    made = ast.parse(textwrap.dedent(inspect.getsource(call.how))).body[0].body[-1]
    things = isinstance(made, ast.Return) and getattr(made.value, "elts", None)
    return len(things) if things else None


def test_a_row_says_what_its_call_and_what_is_known_of_it_say():
    told = 0
    for name, row in named_rows().items():
        known = KNOWN.get(name, Known())
        assert row["apart"] == known.apart and row["reached"] == (known.by or row["reached"]), row
        if count := returned_by(CALLS[name]):
            assert row["reference"] == ("formula" if count == 3 else "differences"), row
            told += 1
    assert told > 200


def misplaced(rows):
    """Of rows whose packages are installed here those whose line is not that of the class, or that
    name something else that applies it."""
    calls = {call.function: call for call in CALLS.values()}
    for row in rows:
        call = calls[row["function"]]
        found, known = places(call.at), KNOWN.get(call.name, Known())
        said = found.defined, known.by or "; ".join(found.applied)
        if said != (row["source"], row["reached"]):
            yield row


def test_the_line_of_a_row_is_that_of_its_class():
    """Of torch's, which are here."""
    rows = [row for row in ROWS if row["package"] == "torch"]
    assert rows and [*misplaced(rows)] == []
    file, line = rows[0]["source"].split(":")
    moved = rows[0] | {"source": f"{file}:{int(line) + 1}"}
    elsewhere = rows[0] | {"reached": "Other.forward"}
    assert [*misplaced([moved, elsewhere])] == [moved, elsewhere]


MISPLACED = "\n".join(
    [
        "from survey import CALLS, table",
        "from survey.places import places",
        "from survey.reached import KNOWN, Known",
        inspect.getsource(misplaced),
        "print([row['function'] for row in misplaced(table.read())])",
    ]
)


@pytest.mark.slow
@pytest.mark.skipif(not (ROOT / ".survey").exists(), reason="`make survey` fetches the packages")
def test_the_line_of_every_row_is_that_of_its_class():
    asked = [ROOT / ".survey" / "bin" / "python", "-c", MISPLACED]
    done = subprocess.run(asked, cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def unsettled(rows):
    """Of silently wrong rows those whose setting is not the first in which the number is wrong, of
    all arguments, or where none is, by one or across two."""
    calls = {call.function: call for call in CALLS.values()}
    for row in rows:
        fn, inputs, *reference = calls[row["function"]].make()
        numbers = compare(fn, inputs, *reference, surrogate=bool(row["surrogate"]))
        if not any(number.wrong for number in numbers):
            numbers = sum(conditions.by_argument(fn, inputs).values(), [])
        if next(number.setting for number in numbers if number.wrong) != row["setting"]:
            yield row


UNSETTLED = "\n".join(
    [
        "from survey import CALLS, conditions, table",
        "from survey.compare import compare",
        inspect.getsource(unsettled),
        "rows = [row for row in table.read() if row['reading'] == table.WRONG]",
        "planted = rows[-1] | {'setting': 'both'}",
        "print(len(rows), [r['function'] for r in unsettled([*rows, planted])])",
        "print([planted['function']])",
    ]
)


@pytest.mark.slow
@pytest.mark.skipif(not (ROOT / ".survey").exists(), reason="`make survey` fetches the packages")
def test_a_row_shows_the_first_setting_that_is_wrong():
    asked = [ROOT / ".survey" / "bin" / "python", "-W", "ignore", "-c", UNSETTLED]
    done = subprocess.run(asked, cwd=ROOT, capture_output=True, text=True, check=True)
    seen, planted = done.stdout.splitlines()
    assert seen == f"{sum(row['reading'] == table.WRONG for row in ROWS)} {planted}"


def test_every_row_leads_to_a_line_of_the_published_version():
    folders = published.read()
    assert {*folders} == {item for item in versions().items() if item[0] != "torch"}
    for row in ROWS:
        link = published.link(row["source"], row["package"], row["version"], folders)
        file, line = row["source"].split(":")
        assert row["version"].partition("+")[0] in link
        assert re.fullmatch(rf"https://\S+/{re.escape(file)}#(line\.|L){line}", link)


def test_an_archive_is_read_where_there_is_no_wheel(monkeypatch):
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for name in ("own-1.0/src/own/ops.py", "own-1.0/src/own/other.py"):
            archive.addfile(tarfile.TarInfo(name))
    index = {"files": [{"filename": "own-1.0.tar.gz", "url": published.FILES + "packages/a/b"}]}
    answers = [json.dumps(index).encode(), packed.getvalue()]
    monkeypatch.setattr(published, "fetched", lambda what: answers.pop(0))
    found = published.folder("own", "1.0", "own/ops.py")
    assert found == "https://inspector.pypi.io/project/own/1.0/packages/a/b/own-1.0/src"


def test_every_function_of_several_tensors_was_asked_by_each():
    read = {row["function"]: conditions.read(row["arguments"]) for row in ROWS}
    assert sum(map(bool, read.values())) > 50
    outcomes = {outcome for each in read.values() for outcome in each.values()}
    outcomes_without_a_number = {"raises", conditions.NAN, conditions.NO_FIRST}
    assert outcomes == {"right", "wrong", conditions.FIRST} | outcomes_without_a_number
    for row in ROWS:
        if row["reading"] in (table.RIGHT, table.LOUD):
            assert conditions.WRONG not in read[row["function"]].values(), row
        if row["reading"] == table.RIGHT:
            assert {*read[row["function"]].values()} <= {conditions.RIGHT}, row


def test_a_row_that_is_wrong_by_some_arguments_says_by_which():
    text = (SURVEY / "RESULTS.md").read_text(encoding="utf-8")
    said = {name: conditions.sentence(row["arguments"]) for name, row in named_rows().items()}
    assert said["pypose:SE3_Act"] == "wrong by x and p together; right by x alone, p alone"
    assert said["pypose:SO3_Inv"] == "wrong by x alone; right by p alone"
    assert said["entmax:EntmaxBisectFunction"] == "wrong by alpha alone; right by x alone"
    assert said["gpytorch:MaternCovariance"] == ""
    assert said["torchesnufft:SpreadFunction"] == (
        "wrong by x and v together; NaN by x alone; right by v alone"
    )
    for name, row in named_rows().items():
        if said[name] and row["reading"] in (table.WRONG, table.FIRST):
            assert said[name] in text, name


def named_rows():
    return {name: row for name, call in CALLS.items() for row in ROWS
            if row["function"] == call.function}  # fmt: skip


# x * y * y, whose backward takes x for a constant where it multiplies grad_y.
Product = of_inputs(
    lambda x, y: x * y * y, lambda g, x, y: (g * y * y, 2 * g * x.detach() * y), "Product"
)


def by_argument(function):
    inputs = [torch.tensor([0.5, 1.5], dtype=torch.float64, requires_grad=True) for _ in "xy"]
    return conditions.text(conditions.by_argument(function.apply, inputs))


def test_each_argument_and_each_pair_is_asked():
    assert by_argument(Product) == "x: right; y: right; x, y: wrong"
    assert conditions.sentence(by_argument(Product)) == (
        "wrong by x and y together; right by x alone, y alone"
    )
    assert conditions.sentence("x: wrong; y: wrong; x, y: raises") == ""
    assert conditions.sentence("x: right; y: right; x, y: right") == ""
    assert conditions.sentence("") == ""


# x**2 / 2 * y; the root in its backward is 0, and has no slope there.
NotANumber = of_inputs(
    lambda x, y: x**2 / 2 * y,
    lambda g, x, y: (g * y * (x + ((x - x.detach()) ** 2).sqrt()), g * x**2 / 2),
)


def test_what_is_not_a_number_is_not_right():
    said = by_argument(NotANumber)
    assert said == "x: NaN; y: right; x, y: right", said
    assert conditions.sentence(said) == "NaN by x alone; right by y alone"


# Its backward asks autograd for the gradients of constants, too, as Zuko's do.
AsksForAll = of_inputs(
    lambda x, y: x * x * y,
    lambda g, x, y: torch.autograd.grad(product(x, y), (x, y), g, create_graph=True),
)


def product(x, y):
    with torch.enable_grad():
        return x * x * y


def test_what_has_no_first_derivative_is_not_said_to_raise_at_the_second():
    said = by_argument(AsksForAll)
    assert said == f"x: {conditions.NO_FIRST}; y: {conditions.NO_FIRST}; x, y: right", said
    assert conditions.sentence("x: first derivative raises; k: wrong; x, k: raises") == (
        "wrong by k alone; first derivative raises by x alone"
    )


def test_a_wrong_row_shows_two_numbers_that_differ():
    for row in ROWS:
        if row["reading"] in (table.WRONG, table.BACKWARD) and row["agrees"] == "yes":
            assert row["setting"] and float(row["expected"]) != float(row["got"]), row


def answer(verdict, first=(1.0, 1.0), numbers=((1.0, 1.0),), route="grad"):
    def number(expected, got):
        return {"expected": expected, "got": got, "error": "", "route": route}

    return {
        "verdict": verdict,
        "arguments": "",
        "first": number(*first) | {"wrong": first[0] != first[1]},
        "numbers": [number(a, b) | {"wrong": a != b} for a, b in numbers],
    }


def test_a_wrong_first_derivative_outranks_the_second():
    assert table.reading_of(answer("silently_wrong"), False) == table.WRONG
    assert table.reading_of(answer("silently_wrong", first=(1.0, 2.0)), False) == table.FIRST
    assert table.reading_of(answer("surrogate_gradient"), False) == table.FIRST
    assert table.reading_of(answer("surrogate_gradient"), True) == table.SURROGATE


@pytest.mark.parametrize("verdict", ["silently_wrong", "raises"])
def test_what_is_wrong_by_backward_alone_is_read_alike(verdict):
    by_backward = answer(verdict, numbers=[(1.0, 2.0)], route="backward")
    assert table.reading_of(by_backward, False) == table.BACKWARD


def test_a_number_by_some_arguments_outranks_an_error_by_all():
    assert table.reading_of(answer("not_finite", numbers=[(1.0, 2.0)]), False) == table.WRONG
    assert table.reading_of(answer("not_finite"), False) == table.LOUD


def made_up(name, reading, version):
    row = {"package": "own", "function": f"own.{name}", "reading": reading, "version": version}
    return dict.fromkeys(table.FIELDS, "") | row | {"findings": []}


OLD = [
    made_up("Mended", table.WRONG, "1.0"),
    made_up("SameVersion", table.WRONG, "1.0"),
    made_up("Still", table.FIRST, "1.0"),
    made_up("Broken", table.RIGHT, "1.0"),
    made_up("Gone", table.WRONG, "1.0"),
]
NEW = [
    made_up("Mended", table.RIGHT, "1.1"),
    made_up("SameVersion", table.RIGHT, "1.0"),
    made_up("Still", table.FIRST, "1.1"),
    made_up("Broken", table.WRONG, "1.1"),
]
FAILED = [{"function": "own.Gone", "version": "1.1", "why": "AttributeError: no Gone"}]


def test_a_weekly_run_tells_what_the_newest_releases_do():
    assert list(newest.told(OLD, NEW, FAILED)) == [
        "own 1.0, own.Mended: was 'silently wrong', mended in 1.1",
        "own 1.0, own.SameVersion: was 'silently wrong', is 'right' in 1.0",
        "own 1.0, own.Broken: was 'right', is 'silently wrong' in 1.1",
        "own 1.0, own.Gone: could not be called in 1.1: AttributeError: no Gone",
    ]
    assert list(newest.told(OLD, OLD, [])) == []
    assert list(newest.told(OLD, OLD[1:], [])) == []  # only some were asked


def test_a_weekly_run_is_red_where_it_tells(tmp_path, capsys):
    gone = {"function": ROWS[0]["function"], "version": "9", "why": "it is not there"}
    for rows, failed, status in ((ROWS, [], 0), (ROWS[1:], [gone], 1)):
        table.write(rows, tmp_path)
        table.write_lines(tmp_path / table.FAILED, table.OF_A_FAILURE, failed)
        with pytest.raises(SystemExit) as ended:
            newest.main(tmp_path)
        assert ended.value.code == status
    assert "could not be called in 9: it is not there" in capsys.readouterr().out


def test_a_right_row_shows_a_number_that_is_not_zero():
    found = answer("supported", numbers=[(0.0, 0.0), (-3.0, -3.0), (1.0, 1.0)])
    assert table.telling(found)["expected"] == -3.0


def test_a_row_without_a_wrong_number_shows_the_first_that_is_none():
    nan = {"expected": 1.0, "got": float("nan"), "error": "", "wrong": False}
    found = answer("not_finite", numbers=[(-3.0, -3.0)])
    assert table.telling(found | {"numbers": [*found["numbers"], nan]}) is nan


def test_pages_are_made_from_the_table(tmp_path, monkeypatch):
    for name in ("PAGE", "CHART", "README", "CHINESE_README"):
        monkeypatch.setattr(page, name, tmp_path / getattr(page, name).name)
    readmes = ("README.md", "README.zh-CN.md")
    for name in readmes:
        shutil.copy(ROOT / name, tmp_path)
    page.write(ROWS, NUMBERS)
    made = sorted(path.relative_to(tmp_path) for path in tmp_path.rglob("*.*"))
    assert len(made) == 4
    for path in made:
        stored = (ROOT if path.name in readmes else SURVEY) / path
        assert stored.read_text(encoding="utf-8") == (tmp_path / path).read_text(encoding="utf-8")


def test_what_is_known_of_a_surrogate_stands_in_its_table(monkeypatch):
    """As a release in which it is gone, or called otherwise."""
    row = named_rows()["norse:Triangle"]
    text = (SURVEY / "RESULTS.md").read_text(encoding="utf-8")
    assert row["reading"] == table.SURROGATE and f"`Triangle` ({row['source']})" in text
    monkeypatch.setitem(KNOWN, "norse:Triangle", Known(where="gone in 9"))
    (line,) = [*page.table_of_surrogates([row])][2:]
    assert f"`Triangle` ({row['source']}; gone in 9)" in line


def test_both_kinds_are_counted_by_themselves():
    told = page.told(ROWS)
    operators = [row for row in ROWS if "::" in row["function"]]
    assert told["operators"] == len(operators) >= 10
    assert len({row["package"] for row in operators}) >= 5
    assert told["functions"] + told["operators"] == len(ROWS)
    silent = [r for r in operators if r["reading"] == table.WRONG and not r["apart"]]
    assert told["wrong_operators"] == len(silent)
    assert f"{told['operators']} registered operators" in page.sentence(ROWS)


def test_the_head_says_where_its_numbers_come_from():
    told = page.told(ROWS)
    left_out = told["surrogates"] + told["apart"]
    assert told["functions"] + told["operators"] - left_out == told["counted"]
    outcomes = ("right", "loud", "first", "by_backward", "guarded")
    assert sum(told[each] for each in outcomes) == told["others"] == told["counted"] - told["wrong"]
    (example,) = (r for r in ROWS if r["function"] == CALLS[page.EXAMPLE].function)
    assert (example["setting"], example["cause"]) == ("graph after", "intermediate_saved")


def test_the_readme_says_what_the_table_holds():
    assert page.sentence(ROWS) in (ROOT / "README.md").read_text(encoding="utf-8")
    assert page.chinese(ROWS) in (ROOT / "README.zh-CN.md").read_text(encoding="utf-8")


DOCUMENTED, FIRST_ORDER = documented(), first_order()
REPORTS = reports.of_all(ROWS, NUMBERS)


def row_of(each):
    (row,) = (row for row in ROWS if row["function"] == CALLS[each.function].function)
    return row


def printed_change(name):
    """The diff that a reader copies from a report; "" where it has none."""
    return REPORTS.get(name, "").partition("```diff\n")[2].partition("```")[0]


@pytest.mark.parametrize("name", sorted(path.stem for path in patched.PATCHES.glob("*.patch")))
def test_a_change_stands_in_its_report_line_by_line(name):
    change = patched.patch_of((DOCUMENTED | FIRST_ORDER)[name]).read_text(encoding="utf-8")
    assert printed_change(name) == (change if name in REPORTS else "")
    for start, end, lines in hunks(change):
        kinds = Counter(line[:1] for line in lines)
        assert (kinds[" "] + kinds["-"], kinds[" "] + kinds["+"]) == (start, end), name


def hunks(change):
    """Of each how many lines it says that it takes and gives, and its lines."""
    for part in re.split(r"(?m)^(?=@@ )", change)[1:]:
        head, *lines = part.split("\n")[:-1]
        took, gave = re.fullmatch(r"@@ -\d+(?:,(\d+))? \+\d+(?:,(\d+))? @@.*", head).groups()
        yield int(took or 1), int(gave or 1), lines


@pytest.mark.slow
@pytest.mark.skipif(not (ROOT / ".survey").exists(), reason="`make survey` fetches the packages")
def test_a_change_applies_as_it_is_printed(tmp_path):
    """All by one process, which imports the list once."""
    names = [name for name in REPORTS if printed_change(name)]
    for name in names:
        (tmp_path / name).write_text(printed_change(name), encoding="utf-8")
    again = [ROOT / ".survey" / "bin" / "python", "-W", "ignore", "-c", PRINTED, tmp_path, *names]
    said = subprocess.run(again, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    expected = [f"{name} {NUMBERS[name]['patched']}" for name in names]
    assert len(names) > 10 and said.splitlines()[-len(names) :] == expected


PRINTED = """
import sys
from pathlib import Path
from survey.documented import documented, first_order
from survey.patched import printed
folder, *names = sys.argv[1:]
listed = documented() | first_order()
said = {name: printed(listed[name], Path(folder) / name)["got"] for name in names}
print(*(f"{name} {got}" for name, got in said.items()), sep="\\n")
"""


def test_documented_calls_and_those_of_a_wrong_first_derivative():
    files = [
        path.stem
        for folder in ("documented", "first_order")
        for path in (SURVEY / folder).glob("*.py")
    ]
    assert len(DOCUMENTED) == 11
    assert {*DOCUMENTED, *FIRST_ORDER} == set(NUMBERS) == set(files)
    assert {CALLS[each.function].function for each in FIRST_ORDER.values()} == {
        row["function"] for row in ROWS if row["reading"] == table.FIRST
    }


@pytest.mark.parametrize("name", NUMBERS)
def test_a_documented_call_shows_two_numbers_that_differ(name):
    each, found = (DOCUMENTED | FIRST_ORDER)[name], NUMBERS[name]
    got, expected = float(found["got"]), float(found["expected"])
    assert abs(got - expected) > 0.1 * abs(expected)
    if each.instead:
        assert abs(float(found["instead"]) - expected) < 1e-3 * abs(expected) + 1e-3


@pytest.mark.parametrize("name", NUMBERS)
def test_a_documented_call_says_what_to_install(name):
    each = (DOCUMENTED | FIRST_ORDER)[name]
    line = reports.install(each, ROWS)
    package = CALLS[each.function].package
    assert f"{package}=={versions()[package]}" in line and "+" not in line
    assert line.endswith(each.needs)
    assert line in (SURVEY / "RESULTS.md").read_text(encoding="utf-8")
    assert name not in REPORTS or line in REPORTS[name]


def test_a_report_has_what_a_maintainer_asks_for():
    for name, each in (DOCUMENTED | FIRST_ORDER).items():
        if name not in REPORTS:
            assert row_of(each)["apart"] == "applied nowhere in its package"
            continue
        text = REPORTS[name]
        code = text.partition("```python\n")[2].partition("```")[0]
        compile(code, name, "exec")
        assert "survey" not in code and code.count("import torch\n") == 1, name
        found = NUMBERS[name]
        assert f"got {found['got']}\nexpected {found['expected']}\n" in text
        package = rf", {row_of(each)['package']} \d".replace(", torch \\d", "")
        assert re.search(rf"On Python 3\.\d+\.\d+, torch \d\S+, Linux \w+{package}", text), name
        assert re.search(r"\.py:\d+\]\(https://", text) and "**Cause.** " in text, name
        assert "not known" not in text and (each.thread in text), name


def test_a_change_mends_what_it_is_for():
    patches = {path.stem for path in patched.PATCHES.glob("*.patch")}
    assert len(patches) == 16 and patches <= set(NUMBERS)
    for name, found in NUMBERS.items():
        assert bool(found["patched"]) == (name in patches), name
        if found["patched"]:
            expected = float(found["expected"])
            assert abs(float(found["patched"]) - expected) < 2e-3 * abs(expected) + 1e-3, name


def test_a_guarded_one_is_not_told_to_declare_it():
    def report(name):
        return REPORTS[name]

    assert "goes past the guard" in report("zuko_unaf")
    assert "goes past the guard" not in report("torchdiffeq_adjoint")


@pytest.mark.slow
def test_the_program_of_a_report_prints_its_numbers():
    found = NUMBERS["torch_checkpoint"]
    printed = patched.printed(DOCUMENTED["torch_checkpoint"])
    assert printed == {"got": found["got"], "expected": found["expected"]}


def test_what_needs_no_package_is_typed_again():
    found = main.digits(DOCUMENTED["torch_checkpoint"].numbers())
    assert found == {key: NUMBERS["torch_checkpoint"][key] for key in found}


def test_a_mistyped_name_is_told_before_anything_runs():
    with pytest.raises(SystemExit, match="RBFCovariance"):
        main.need_known(["gpytorch:RBFCovarianc"])


def test_what_needs_no_package_gives_its_row_again():
    from survey.one import look_at

    name = "torch:CheckpointFunction"
    (stored,) = (row for row in ROWS if row["function"] == CALLS[name].function)
    answer = look_at(name) | {"seconds": 0}
    row = table.row_of(name, answer, stored["version"])
    assert list(table.differences([stored], [row])) == []


def test_a_changed_row_is_reported_and_a_last_digit_is_not():
    (row, *_) = csv.DictReader(["function,expected,verdict", "a.B,1.23,supported"])
    base = dict.fromkeys(table.FIELDS, "") | row | {"findings": []}
    assert list(table.differences([base], [base | {"expected": "1.24"}])) == []
    assert len(list(table.differences([base], [base | {"expected": "1.5"}]))) == 1
    assert len(list(table.differences([base], [base | {"verdict": "silently_wrong"}]))) == 1


def found(*codes):
    """A row with these findings: the first is the cause, the others are notes."""
    kinds = ["cause"] + ["note"] * len(codes)
    findings = [
        {"function": "a.B", "code": code, "kind": kind, "about": "B", "message": "a\nb, c"}
        for code, kind in zip(codes, kinds, strict=False)
    ]
    return dict.fromkeys(table.FIELDS, "") | {"function": "a.B", "findings": findings}


def test_two_runs_are_compared_by_their_findings(tmp_path, capsys):
    base, other = tmp_path / "base", tmp_path / "other"
    for folder, row in ((base, found("w", "x", "y")), (other, found("w", "z", "x"))):
        folder.mkdir()
        table.write([row], folder)
    assert table.read(base) == [found("w", "x", "y")]
    differ.main(base, other)
    assert capsys.readouterr().out.startswith("a.B: findings -y +z\n1 of 1 Functions differ.\n")
    assert list(table.differences([found("w", "x", "y")], [found("w", "y", "x")])) == []
    said = list(table.differences([found("w", "x")], [found("x", "w")]))
    assert said == ["a.B: first cause was 'w', is 'x'"]


def test_all_findings_of_a_row_are_stored():
    named = {CALLS[name].function: known.cause for name, known in KNOWN.items()}
    for row in ROWS:
        assert row["cause"] == (named.get(row["function"]) or table.first_cause(row)), row
        assert row["verdict"] == "supported" or row["findings"], row
    kinds = {each["kind"] for row in ROWS for each in row["findings"]}
    assert kinds == {"cause", "error", "warning", "note"}


def test_a_run_into_a_folder_leaves_what_is_stored(tmp_path, monkeypatch):
    from survey.one import look_at

    def run_all(names):
        return [(name, look_at(name) | {"seconds": 0}) for name in names]

    monkeypatch.setattr(main, "run_all", run_all)
    monkeypatch.setattr(main, "store", None)
    main.main(["torch:CheckpointFunction"], tmp_path / "new")
    (row,) = table.read(tmp_path / "new")
    assert row["verdict"] == "silently_wrong" and "untracked_backward" in table.codes(row)


def test_a_run_into_a_folder_that_is_cut_short_leaves_what_it_has(tmp_path, monkeypatch):
    def run_all(names):
        yield "gpytorch:RBFCovariance", {"failed": "it is not there"}
        raise KeyboardInterrupt

    monkeypatch.setattr(main, "run_all", run_all)
    monkeypatch.setattr(main, "failure", lambda name, why: {"function": name, "why": why})
    with pytest.raises(KeyboardInterrupt):
        main.main([], tmp_path)
    (line,) = table.read_lines(tmp_path / table.FAILED)
    assert line["why"] == "it is not there" and table.read(tmp_path) == []


# Of six packages that need little besides: one Function each, called again.
SIX = ("gpytorch", "linear-operator", "entmax", "roma", "torchdiffeq", "zuko")
SUPPORT = ("jaxtyping", "wadler-lindig", "scikit-learn", "joblib", "threadpoolctl", "narwhals")
AGAIN = (
    "gpytorch:RBFCovariance",
    "linear-operator:InvQuad",
    "entmax:Entmax15LossFunction",
    "roma:_ProcrustesManualDerivatives",
    "torchdiffeq:OdeintAdjointMethod",
    "zuko:Bisection",
)
ROWS_AGAIN = """
import sys
from survey import CALLS, table
from survey.__main__ import row
from survey.run import run_all
ran = [row(name, answer) for name, answer in run_all(sys.argv[1:])]
stored = [each for each in table.read() if each["function"] in {r["function"] for r in ran}]
print(len(ran), len(stored), *table.differences(stored, ran), sep="\\n")
"""


def test_what_is_compiled_against_torch_takes_the_one_that_is_here(monkeypatch, tmp_path):
    """By itself uv fetches the newest torch to compile with, 3 GB, which ours need not fit."""
    made = []
    monkeypatch.setattr(environment, "look_in_course", lambda venv: None)
    monkeypatch.setattr(environment.pip_settings, "for_uv", lambda python: None)
    monkeypatch.setattr(subprocess, "run", lambda command, **_: made.append(command))
    environment.make(tmp_path, ["torchlpc"])
    assert "--no-build-isolation-package=torchlpc" in made[-1]


@pytest.mark.slow
def test_six_packages_give_their_rows_again(tmp_path):
    pins = [pin for pin in environment.pins() if pin.split("==")[0] in SIX + SUPPORT]
    assert len(pins) == len(SIX) + len(SUPPORT)
    environment.make(tmp_path / "venv", pins)
    again = [tmp_path / "venv" / "bin" / "python", "-c", ROWS_AGAIN, *AGAIN]
    printed = subprocess.run(again, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert printed.split() == ["6", "6"], printed
