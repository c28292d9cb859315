"""What `diagnose` and `diagnose_all` say of compiled functions, and that they leave them alone."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).with_name("compiled_diagnosis.py")
REGIONS = PROGRAM.with_name("compiled_regions.py")
SLOW = pytest.mark.slow


@pytest.fixture(
    scope="module",
    params=["aot_eager", pytest.param("eager", marks=SLOW), pytest.param("inductor", marks=SLOW)],
)
def said(request):
    done = subprocess.run(
        [sys.executable, PROGRAM, request.param],
        capture_output=True, text=True, cwd=PROGRAM.parent.parent,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return {"backend": request.param, **json.loads(done.stdout.splitlines()[-1])}


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
    assert [finding["code"] for finding in row["findings"]] == ["compiled_region"]


def test_each_input_is_asked_alone_too_where_torch_refuses_all_together(said):
    words = {"aot_eager": "silently_wrong", "inductor": "raises", "eager": "supported"}
    assert said["alone"]["pair"] == [words[said["backend"]]]  # e^a b: e^a is kept, and b


def test_a_net_with_trained_weights_that_keeps_its_input_raises(said):
    assert said["alone"]["trained"] == ([] if said["backend"] == "eager" else ["raises"])


def test_the_region_is_named_with_what_to_do(said):
    finding = said["rows"]["recomputes"]["findings"][0]
    assert (finding["function"], finding["file"]) == ("recomputes", str(REGIONS))
    assert f"recomputes ({REGIONS}, line {finding['line']})" in finding["message"]
    assert 'torch.compiler.set_stance("force_eager")' in finding["message"]


def test_a_step_lists_each_region_by_the_function_that_was_compiled(said):
    rows = {row["name"]: row for row in said["step"]["functions"]}
    assert all("Compiled" not in name and "Template" not in name for name in rows)
    assert rows["keeps"]["verdict"] != "supported"
    assert rows["keeps"]["cause"] == "compiled_region"
    assert (rows["keeps"]["file"], rows["keeps"]["line"] > 0) == (str(REGIONS), True)
    if said["backend"] != "eager":
        assert {"tanh", "Sequential", "keeps", "recomputes", *TRAINED} == set(rows)
        assert rows["Sequential"]["verdict"] == "silently_wrong"
        assert said["table"].startswith("9 compiled regions, ")
