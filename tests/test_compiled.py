"""Second derivatives through compiled regions: inside detect and recompute and after them, and what
`diagnose` and `diagnose_all` say of compiled functions; that all of these leave them alone."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow  # Dynamo takes long to import, and to compile

PROGRAM = Path(__file__).with_name("compiled_regions.py")
BOTH = """
import sys, torch, compiled_regions, compiled_diagnosis
compiled_regions.main(*sys.argv[1:])
torch._dynamo.reset()
compiled_diagnosis.main(sys.argv[1])
"""
# When a region is compiled is Dynamo's affair, not its backend's: both ways with one is enough.
RUNS = [
    ("aot_eager", "before"),
    ("aot_eager", "inside"),
    ("eager", "inside"),
    ("inductor", "before"),
]


@pytest.fixture(
    scope="module",
    params=RUNS,
    ids=" ".join,
)
def ran(request):
    """When, and the rows of each remedy and of diagnose: from one process, since Dynamo takes long
    to import."""
    backend, when = request.param
    done = subprocess.run(
        [sys.executable, "-c", BOTH, backend, when],
        capture_output=True, text=True, cwd=PROGRAM.parent,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    *_, rows, diagnosed = map(json.loads, done.stdout.splitlines())
    return when, rows, {"backend": backend, **diagnosed}


@pytest.fixture
def said(ran):
    return ran[2]


@pytest.mark.parametrize("remedy", ["detect", "recompute"])
def test_regions(ran, remedy):
    when, rows = ran[0], ran[1][remedy]
    assert len(rows) == 22
    for row in rows:
        right = right_in(row, row["after"])
        if remedy == "recompute":
            assert right_in(row, row["inside"]), row
            assert row["graphs inside"] == 0, row
        elif isinstance(row["after"], str):  # torch's own refusal, or one that names the region
            refused = row["inside"] == row["after"] or "would be wrong" in one_line(row["inside"])
            assert refused, row
        elif right:
            assert row["inside"] == row["after"], row
        else:
            assert one_line(row["inside"]).startswith(
                "SecondDerivativeError: A second derivative"
            ), row
            assert names_it(row), row
        if when == "before":  # nothing is compiled anew
            assert row["without"] == row["after"], row
            assert row["graphs inside"] == row["graphs after"] == 0, row


INSIDE = """
import json, torch
from torch import compile as by_another_name
from compiled_regions import keeps, second
from double_backward import diagnose_all
torch._dynamo.reset()
found = {}
for name, made in [
    ("eager", lambda: torch.compile(keeps, backend="eager")),
    ("aot_eager", lambda: torch.compile(keeps, backend="aot_eager")),
    ("unseen", lambda: by_another_name(keeps, backend="eager")),
]:
    step = diagnose_all(lambda: second(lambda x: made()(x) ** 2), progress=False)
    found[name] = step.ok, step.itself, [(row.verdict.value, row.cause.code) for row in step.rows]
    torch._dynamo.reset()
print(json.dumps(found))
"""


def test_a_step_that_compiles_for_the_first_time_inside_itself():
    done = subprocess.run(
        [sys.executable, "-c", INSIDE], capture_output=True, text=True, cwd=PROGRAM.parent
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {
        "eager": [False, None, [["silently_wrong", "compiled_region"]]],
        "aot_eager": [False, None, [["raises", "compiled_region"]]],
        "unseen": [False, None, [["not_checked", "not_called"]]],
    }


def right_in(row, got):
    return not isinstance(got, str) and got == pytest.approx(row["eager"], rel=1e-4, abs=1e-5)


def names_it(row):
    names = {"tanh": "of tanh would", "trained": "of Sequential (", "frozen": "of Sequential ("}
    return names.get(row["name"], f"of {row['name']} ({PROGRAM}, line ") in one_line(row["inside"])


def one_line(text):
    return " ".join(text.split())  # where it is wrapped depends on the length of a path


def test_a_compiled_function_stays_as_it_was(said):
    for name, row in said["rows"].items():
        assert row["after"] == row["before"], name
        assert row["compiled anew"] == 0, name


def test_what_is_wrong_or_raises_is_the_region(said):
    rows = said["rows"]
    codes = {name: [finding["code"] for finding in row["findings"]] for name, row in rows.items()}
    if said["backend"] == "eager":  # operations of torch keep their graph there
        assert codes["tanh"] == codes["trained"] == codes["frozen"] == codes["calls"] == []
        assert rows["tanh"]["verdict"] == rows["trained"]["verdict"] == "supported"
    else:
        for name in ("tanh", "trained", "frozen", "calls"):
            assert codes[name] == ["compiled_region"], name
        assert rows["trained"]["verdict"] == "raises"
        assert rows["frozen"]["verdict"] == "silently_wrong"
    assert codes["keeps"][:2] == ["compiled_region", "intermediate_saved"]
    assert codes["recomputes"][0] == "compiled_region"
    assert not {"state_outside_ctx", "grad_out_path_cut"} & {c for cs in codes.values() for c in cs}


TRAINED = ("scaled", "viewed", "embedded", "normed", "attends")


@pytest.mark.parametrize("name", TRAINED)
def test_trained_weights_behind_a_step_are_silent_where_the_region_keeps_what_came_of_x(said, name):
    row = said["rows"][name]
    step = next((r for r in said["step"]["functions"] if r["name"] == name), None)
    if said["backend"] == "eager":
        assert (row["verdict"], row["before"], step) == ("supported", row["eager"], None)
        return
    silent = not isinstance(row["before"], str)
    assert silent or said["backend"] == "inductor"  # which keeps x itself, in some
    assert not silent or row["before"] != pytest.approx(row["eager"], rel=1e-3)
    verdict = "silently_wrong" if silent else "raises"
    assert (row["verdict"], step["verdict"], step["cause"]) == (verdict, verdict, "compiled_region")
    assert [f["code"] for f in row["findings"] if f["cause"]] == ["compiled_region"]


def test_each_input_is_asked_alone_too_where_torch_refuses_all_together(said):
    words = {"aot_eager": "silently_wrong", "inductor": "raises", "eager": "supported"}
    assert said["alone"]["pair"] == [words[said["backend"]]]  # e^a b: e^a is kept, and b


def test_a_net_with_trained_weights_that_keeps_its_input_raises(said):
    assert said["alone"]["trained"] == ([] if said["backend"] == "eager" else ["raises"])


def test_a_net_whose_weights_alone_require_grad_is_not_supported(said):
    eager = said["backend"] == "eager"
    assert said["alone"]["weights"] in ([[]] if eager else [["raises"], ["silently_wrong"]])


def test_the_region_is_named_with_what_to_do(said):
    finding = said["rows"]["recomputes"]["findings"][0]
    assert (finding["function"], finding["file"]) == ("recomputes", str(PROGRAM))
    assert f"recomputes ({PROGRAM}, line {finding['line']})" in finding["message"]
    assert 'torch.compiler.set_stance("force_eager")' in finding["message"]


def test_a_step_lists_each_region_by_the_function_that_was_compiled(said):
    rows = {row["name"]: row for row in said["step"]["functions"]}
    assert all("Compiled" not in name and "Template" not in name for name in rows)
    assert rows["keeps"]["verdict"] != "supported"
    assert rows["keeps"]["cause"] == "compiled_region"
    assert (rows["keeps"]["file"], rows["keeps"]["line"] > 0) == (str(PROGRAM), True)
    if said["backend"] != "eager":
        assert {"tanh", "Sequential", "keeps", "recomputes", *TRAINED} == set(rows)
        assert rows["Sequential"]["verdict"] == "silently_wrong"
        assert said["table"].startswith("9 compiled regions, ")
