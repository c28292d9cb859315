"""`python -m double_backward`: a script that knows nothing of it runs as it would without."""

import gc
import json
import os
import shutil
import signal
import subprocess
import sys
import weakref

import pytest
import torch
from chinese import HAN

import double_backward
from double_backward import __main__ as command
from double_backward.diagnosis.training_steps.training_step import Met
from lessons_src.saving_inputs import Square

SWISH = """
import torch
from torch.autograd import Function, grad


class Swish(Function):
    @staticmethod
    def forward(ctx, x):
        s = torch.sigmoid(x)
        ctx.save_for_backward(x, s)
        return x * s

    @staticmethod
    def backward(ctx, g):
        x, s = ctx.saved_tensors
        return g * (s + x * s * (1 - s))


class Right(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * 3 * x**2


class Once(Swish):
    pass


def penalty(x, f=Swish.apply):
    (g,) = grad((f(x) ** 2 + Right.apply(x)).sum() + Once.apply(x.detach().requires_grad_()).sum(),
                x, create_graph=True)
    return grad((g**2).sum(), x)[0]


x = torch.tensor([0.5, 1.0], dtype=torch.float64, requires_grad=True)
"""
TELLS = (
    SWISH
    + """
if __name__ == "__main__":
    import pickle
    import sys

    pickle.loads(pickle.dumps(Swish))
    print(sys.argv, sys.path[0], __file__, __name__, __package__, __spec__)
    print(penalty(x).tolist())
    sys.exit(7)
"""
)
RAISES = (
    SWISH
    + """
class Picky(Swish):
    @staticmethod
    def forward(ctx, x):
        raise ValueError("training failed")


def loss():
    (g,) = grad(Swish.apply(x).sum(), x, create_graph=True)
    g.detach().sum().backward()


print("begun", flush=True)
try:
    loss()
except RuntimeError as error:
    Picky.apply(x)
"""
)
WAITS = (
    SWISH
    + """
import os, signal, time

def child():
    pid = os.fork()
    if pid == 0:
        time.sleep(20)
        os._exit(0)
    time.sleep(0.2)  # for what Python does in a new process
    os.kill(pid, signal.SIGTERM)
    return os.waitpid(pid, 0)[1] == signal.SIGTERM

penalty(x)
print("begun", all([child() for _ in range(5)]), flush=True)
time.sleep(60)
"""
)


def python(*arguments, folder):
    return subprocess.run(
        [sys.executable, *arguments], cwd=folder, capture_output=True, text=True, timeout=300
    )


@pytest.fixture
def run(tmp_path, monkeypatch, capfd):
    """In this process: what `main` prints, and how it leaves."""

    def running(text, *arguments, name="train.py"):
        (tmp_path / name).write_text(text)
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(sys, "argv", ["double_backward", *arguments])
        monkeypatch.setattr(sys, "path", ["", *sys.path])
        monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])
        with pytest.raises(SystemExit) as left:
            command.main()
        out, err = capfd.readouterr()
        return out, err, left.value.code

    return running


@pytest.mark.slow
def test_a_script_runs_as_without(tmp_path):
    (tmp_path / "train.py").write_text(TELLS)
    plain = python("train.py", "--json", "3", folder=tmp_path)
    watched = python("-m", "double_backward", "train.py", "--json", "3", folder=tmp_path)
    assert (plain.returncode, plain.stderr) == (7, "")
    assert (watched.stdout, watched.returncode) == (plain.stdout, plain.returncode)
    head, *table = watched.stderr.strip().splitlines()
    assert head == "double_backward: differentiated 2 times or more:"
    assert table[0] == "2 custom Functions, 1 right, 1 not"
    assert "silently_wrong  Swish     train.py:6" in watched.stderr
    assert "supported       Right     train.py:19" in watched.stderr
    assert "Once" not in watched.stderr


@pytest.mark.slow
def test_what_it_raises_is_shown_as_without(tmp_path):
    (tmp_path / "train.py").write_text(RAISES)
    plain = python("train.py", folder=tmp_path)
    watched = python("-m", "double_backward", "train.py", folder=tmp_path)
    assert watched.returncode == plain.returncode == 1
    assert watched.stdout == plain.stdout == "begun\n"
    assert "element 0 of tensors" in plain.stderr and "training failed" in plain.stderr
    assert watched.stderr.startswith(plain.stderr)
    assert "silently_wrong  Swish" in watched.stderr.removeprefix(plain.stderr)


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="there are no such signals there")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_stopped_by_a_signal(tmp_path, number):
    (tmp_path / "train.py").write_text(WAITS)
    arguments = [sys.executable, "-m", "double_backward", "--json", "out.json", "train.py"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    # A job in the background has it that Ctrl-C is ignored, and hands that on.
    heard = {"preexec_fn": lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)}
    with subprocess.Popen(arguments, cwd=tmp_path, **pipes, **heard) as process:
        assert process.stdout.readline() == "begun True\n"
        process.send_signal(number)
        _, err = process.communicate(timeout=300)
    assert process.returncode == (-number if number == signal.SIGINT else 128 + number)
    shown, _, table = err.partition("double_backward:")
    assert "Swish" in table  # judged, or there was no time
    assert ("KeyboardInterrupt" in shown) == (number == signal.SIGINT) == bool(shown.strip())
    assert json.loads((tmp_path / "out.json").read_text())["functions"]


@pytest.mark.skipif(os.name == "nt", reason="there is no such signal there")
def test_a_script_that_is_told_to_stop_gets_its_table_in_time(run, monkeypatch):
    monkeypatch.setattr(command, "WITHIN", 0.0)
    text = SWISH + "import os, signal\npenalty(x)\nos.kill(os.getpid(), signal.SIGTERM)"
    _, err, code = run(text, "--strict", "train.py")
    assert code == 128 + signal.SIGTERM and "not_checked  Swish" in err
    assert "not checked: the script was stopped, and there was no time" in " ".join(err.split())
    _, err, _ = run(SWISH + "penalty(x)", "train.py")
    assert "silently_wrong  Swish" in err


@pytest.mark.skipif(os.name == "nt", reason="there is no such signal there")
def test_sigterm(run, monkeypatch):
    monkeypatch.setattr(command, "WITHIN", 60.0)
    text = SWISH + "import os, signal\npenalty(x)\n"
    out, err, code = run(text + "os.kill(os.getpid(), signal.SIGTERM)\nprint(1)", "train.py")
    assert (out, code) == ("", 128 + signal.SIGTERM) and "silently_wrong  Swish" in err
    assert "Traceback" not in err and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    own = "signal.signal(signal.SIGTERM, lambda *_: print('own'))\n"
    out, _, code = run(text + own + "os.kill(os.getpid(), signal.SIGTERM)", "train.py")
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    assert (out, code) == ("own\n", 0)


@pytest.mark.parametrize("text", [SWISH + "penalty(x)", ""])
def test_what_it_says_has_its_chinese_below(run, monkeypatch, text):
    monkeypatch.setenv("COURSE_LANGUAGE", "zh_CN")
    _, err, _ = run(text, "--ignore", "Nobody", "train.py")
    lines = err.splitlines()
    said = [place for place, line in enumerate(lines) if line.startswith("double_backward: ")]
    assert len(said) == 2 and all(HAN.search(lines[place + 1]) for place in said)
    _, err, _ = run(text, "nowhere.py")
    assert err.endswith("there is no file nowhere.py\n没有文件 nowhere.py\n")


def test_json(run, tmp_path):
    _, _, code = run(RAISES, "--json", "out.json", "train.py", "--epochs", "3")
    data = json.loads((tmp_path / "out.json").read_text())
    assert code == 1 and data["argv"] == ["train.py", "--epochs", "3"]
    assert data["error"] == "ValueError: training failed" and not data["ok"]
    assert [f["name"] for f in data["functions"]] == ["Swish"]
    assert data["functions"][0]["file"] == str(tmp_path / "train.py")
    assert data["torch"] == torch.__version__


@pytest.mark.skipif(not os.path.exists("/dev/fd"), reason="there is no such file there")
def test_json_to_a_pipe(run):
    reads, writes = os.pipe()
    _, err, code = run("", "--json", f"/dev/fd/{writes}", "train.py")
    os.close(writes)
    with open(reads) as pipe:
        assert json.load(pipe)["ok"] and code == 0 and "Error" not in err


def test_strict(run, monkeypatch):
    wrong, right = SWISH + "\npenalty(x)\n", SWISH + "\npenalty(x, Right.apply)\n"
    for text, expected in {
        wrong: command.NOT_ALL_RIGHT,
        right: 0,
        "print(1)": 0,
        wrong + "raise SystemExit(0)": command.NOT_ALL_RIGHT,
        wrong + "raise SystemExit(7)": 7,
        wrong + "raise SystemExit('bad')": "bad",
        wrong + "raise ValueError": 1,
    }.items():
        assert run(text, "--strict", "train.py")[2] == expected
    assert not run(wrong, "train.py")[2]
    monkeypatch.setattr(Met, "diagnosed", lambda *args, **options: 1 / 0)
    assert run(right, "--strict", "train.py")[2] == command.NOT_ALL_RIGHT
    assert command.NOT_ALL_RIGHT not in (0, 1, 2)


FIRST = """
def first(x, f):
    f.apply(x).sum().backward()


class Half(Right):
    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * 1.5 * x**2


"""


def test_strict_says_what_the_table_of_a_step_says(run):
    """What is differentiated once needs its first derivative; what is not, nothing."""
    for step, expected, said in (
        ("first(x, Swish)", 0, "no custom Function is differentiated 2 times or more"),
        ("Half.apply(x)", 0, "no custom Function is differentiated 2 times or more"),
        ("first(x, Half)", command.NOT_ALL_RIGHT, "or once and not rightly:"),
        ("first(x, Half); penalty(x, Right.apply)", command.NOT_ALL_RIGHT, "or once and not"),
        ("first(x, Swish); penalty(x, Right.apply)", 0, "1 custom Function, 1 right, 0 not"),
    ):
        _, err, code = run(SWISH + FIRST + step, "--strict", "train.py")
        assert code == expected and said in err


SPIKE = """
class Spike(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return (x > 0).to(x.dtype)

    @staticmethod
    def backward(ctx, g):
        s = torch.sigmoid(4 * ctx.saved_tensors[0])
        return g * 4 * s * (1 - s)


class SpikeBad(Spike):
    @staticmethod
    def backward(ctx, g):
        s = torch.sigmoid(4 * ctx.saved_tensors[0].detach())
        return g * 4 * s * (1 - s)


"""


def test_ignore(run):
    spike = SWISH + SPIKE + "penalty(x, Spike.apply)\n"
    assert run(spike, "--strict", "train.py")[2] == command.NOT_ALL_RIGHT
    for name in ("Spike", "__main__.Spike"):
        _, err, code = run(spike, "--strict", "--ignore", name, "train.py")
        assert not code and "supported, meant  Spike" in err
    _, err, code = run(spike, "--strict", "--ignore", "Speke", "--ignore", "Spike", "train.py")
    assert not code and "--ignore Speke: the script applies no custom Function" in err
    bad = SWISH + SPIKE + "penalty(x, SpikeBad.apply)\n"
    _, err, code = run(bad, "--strict", "--ignore", "SpikeBad", "train.py")
    assert code == command.NOT_ALL_RIGHT and "silently_wrong" in err
    assert run(bad, "--detect", "train.py")[2] == 1
    assert not run(bad, "--detect", "--ignore", "SpikeBad", "train.py")[2]


def test_version_and_help(run):
    out, _, code = run("", "--version")
    assert not code
    assert out == f"double_backward {double_backward.__version__}, torch {torch.__version__}\n"
    out, _, _ = run("", "--help")
    assert "SCRIPT [ARGS ...]" in out and f"status {command.NOT_ALL_RIGHT}" in out


def test_detect_and_recompute(run):
    text = SWISH + "\nprint(penalty(x).tolist())\n"
    right = SWISH + "\nprint(penalty(x, lambda x: x * torch.sigmoid(x)).tolist())\n"
    out, err, code = run(text, "--detect", "train.py")
    assert code == 1 and out == "" and "SecondDerivativeError: Swish" in err
    assert "double_backward/" not in err.split("double_backward: diff")[0]  # no frame of ours
    out, err, code = run(text, "--recompute", "train.py")
    assert "the script ran inside recompute_intermediates()" in err
    expected, _, _ = run(right, "train.py")
    assert code == 0
    torch.testing.assert_close(*(torch.tensor(json.loads(t)) for t in (out, expected)))
    plain, _, _ = run(text, "train.py")
    assert run(text, "--recompute", "--ignore", "Swish", "train.py")[0] == plain
    assert abs(json.loads(plain)[0] - json.loads(expected)[0]) > 0.01


def test_a_module_and_a_package(run, tmp_path):
    text = SWISH + "\nimport sys\nprint(penalty(x) is not None, __package__, sys.argv[1:])\n"
    out, err, code = run(text, "-m", "train", "a", "-m")
    assert (out, code) == ("True  ['a', '-m']\n", 0) and "Swish     train.py:6" in err
    package = tmp_path / "trained"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "swish.py").write_text(SWISH)
    out, err, code = run(
        "from .swish import penalty, x\npenalty(x)\nprint(__spec__.name)\n",
        "-m",
        "trained",
        name="trained/__main__.py",
    )
    assert (out, code) == ("trained.__main__\n", 0) and "trained/swish.py:6" in err
    _, _, code = run("", "-m", "not_there")
    assert code.endswith("No module named not_there")


def test_a_folder_and_a_zip_file(run, tmp_path):
    (tmp_path / "empty").mkdir()
    _, _, code = run("", "empty")
    assert code.endswith(f"can't find '__main__' module in {str(tmp_path / 'empty')!r}")
    for folder in ("packed", "folded"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / f"beside_{folder}.py").write_text("word = 'found'")
        (tmp_path / folder / "__main__.py").write_text(
            f"import sys, beside_{folder}\n"
            "print(sys.argv, __name__, repr(__package__), __spec__.name, __file__)\n"
            f"print(sys.path[0], beside_{folder}.word)\n"
        )
    shutil.make_archive(tmp_path / "packed", "zip", tmp_path / "packed")
    for script in ("packed.zip", "folded"):
        out, _, code = run("", script, "a", "--json")
        plain = python(script, "a", "--json", folder=tmp_path)
        assert (out, code, plain.returncode) == (plain.stdout, 0, 0)


def test_nothing_to_tell(run):
    _, err, code = run("print(1)", "train.py")
    assert err.startswith(
        "\ndouble_backward: no custom Function is differentiated 2 times or more."
    )
    assert err.endswith("outside of Functions is not looked at: diagnose_all tells of that.\n")
    assert code == 0
    _, err, code = run("def f(:", "train.py")
    assert "SyntaxError" in err and code == 1


def test_asked_for_what_cannot_be(run):
    for arguments, said in {
        ("none.py",): "there is no file none.py",
        ("--json", "no/folder/out.json", "train.py"): "--json: [Errno 2]",
        ("--detect", "--recompute", "train.py"): "not allowed with",
        (): "the following arguments are required: SCRIPT",
    }.items():
        _, err, code = run("raise SystemExit(5)", *arguments)
        assert said in err and code == 2


def test_an_error_of_ours_does_not_take_the_place_of_the_script(run, monkeypatch):
    monkeypatch.setattr(Met, "diagnosed", lambda *args, **options: 1 / 0)
    _, err, code = run("raise SystemExit(5)", "train.py")
    assert code == 5 and "ZeroDivisionError" in err


def test_calls_are_recorded_once_and_not_retained():
    met, alive = Met(), []
    with met.listening():
        for _ in range(50):
            point = torch.rand(3, requires_grad=True)
            out = Square.apply(point)
            alive += [weakref.ref(point), weakref.ref(out.grad_fn)]
            (g,) = torch.autograd.grad(out.sum(), point, create_graph=True)
            (g**2).sum().backward()
        point.grad = None
        del point, out, g
        gc.collect()
        assert [each for each in alive if each() is not None] == []
    (uses,) = met.functions.values()
    assert uses.calls == 50 and uses.order == 2 and len(uses.kinds) == 1
