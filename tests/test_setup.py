"""Setting up where something is wrong: each case works, or says in one sentence what to do."""

import io
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
import venv
import zipfile
from pathlib import Path
from types import SimpleNamespace

import make_environment as setup
import pip_settings
import pytest

ROOT = Path(__file__).resolve().parent.parent
NOBODY = "http://127.0.0.1:9/simple"  # a port nobody listens on
OFFLINE = {
    "PIP_CONFIG_FILE": os.devnull,
    "PIP_INDEX_URL": NOBODY,
    "PIP_EXTRA_INDEX_URL": "",
    "PIP_FIND_LINKS": "",
    "PIP_RETRIES": "0",
    "TORCH_INDEX": NOBODY,
}
PIN = next(p for p in (ROOT / "constraints.txt").read_text().split() if p.startswith("torch=="))
VERSION = PIN.removeprefix("torch==")


def sentence(function):
    """The one sentence that a function stops with."""
    with pytest.raises(SystemExit) as stopped:
        function()
    text = str(stopped.value).strip()
    assert "\n" not in text
    return text


@pytest.mark.parametrize(
    "printed, once", [(None, True), ("ERROR: none is there", False), ("WARNING: Retrying", False)]
)
def test_the_menus_of_jupyterlab_are_asked_for_until_they_are_there(
    printed, once, monkeypatch, tmp_path, capsys
):
    """Set-up goes on without them; what a broken mirror has not, another one may have."""
    asked = []
    monkeypatch.setattr(setup, "VENV", str(tmp_path))
    monkeypatch.setattr(setup, "pip", lambda title, *line: asked.append(line[-1]) or printed)
    setup.add_menus()  # in English there is nothing to add
    monkeypatch.setenv("COURSE_LANGUAGE", "zh_CN")
    setup.add_menus()
    setup.add_menus()
    assert asked == ["jupyterlab-language-pack-zh-CN"] * (1 if once else 2)
    assert ("JupyterLab 的菜单仍是英文" in capsys.readouterr().out) == bool(printed)


def test_old_python_is_named(monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "version_info", (3, 8, 0))
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "make lab PYTHON=python3.12" in sentence(setup.need_python)


def test_newer_python_on_the_path_takes_over(monkeypatch, tmp_path):
    for name, script in {
        "python3.13": "exit 127",
        "python3.12": 'test "$1" = -c || exit 7',
    }.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setattr(sys, "version_info", (3, 8, 0))
    monkeypatch.setenv("PATH", str(tmp_path))
    assert sentence(setup.need_python) == "7"


def test_too_new_python_is_named(monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "version_info", (3, setup.NEWEST[1] + 1, 0))
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "needs Python 3.11 to 3.14, for which PyTorch is built" in sentence(setup.need_python)


@pytest.mark.parametrize(
    ("system", "machine", "other", "said"),
    [
        ("Darwin", "x86_64", {}, "for Intel Macs"),
        ("Darwin", "arm64", {"mac_ver": "13.6.1"}, "for macOS before 14, and this is 13.6.1"),
        ("Linux", "x86_64", {"glibc": None}, "for Linux with musl"),
        ("Linux", "x86_64", {"glibc": "glibc 2.17"}, "for glibc before 2.28, and this is 2.17"),
        ("Linux", "riscv64", {}, "for Linux on riscv64"),
        ("Linux", "x86_64", {"maxsize": 2**31 - 1}, "for a 32-bit Python"),
        ("Linux", "x86_64", {"implementation": "PyPy"}, "for PyPy"),
        ("Darwin", "arm64", {}, None),
        ("Linux", "aarch64", {}, None),
        ("Linux", "x86_64", {}, None),
        ("Windows", "AMD64", {}, None),
    ],
)
def test_machine_without_a_build_of_torch_is_named(monkeypatch, system, machine, other, said):
    """At once: nothing has been looked for or fetched."""
    python = other.get("implementation", "CPython")
    monkeypatch.setattr(setup.platform, "system", lambda: system)
    monkeypatch.setattr(setup.platform, "machine", lambda: machine)
    monkeypatch.setattr(setup.platform, "mac_ver", lambda: (other.get("mac_ver", "14.1"), (), ""))
    monkeypatch.setattr(setup.platform, "python_implementation", lambda: python)
    monkeypatch.setattr(setup.sys, "maxsize", other.get("maxsize", 2**63 - 1))
    c_library = other.get("glibc", "glibc 2.28")
    monkeypatch.setattr(setup.os, "confstr", lambda name: c_library and str(c_library))
    if c_library is None:  # as os.confstr does it on Alpine
        monkeypatch.delattr(setup.os, "confstr")
    if said is None:
        assert setup.need_wheels_of_torch() is None
    else:
        told = sentence(setup.need_wheels_of_torch)
        assert told.startswith(f"There is no build of {PIN} {said}")


@pytest.mark.parametrize(
    ("printed", "said"),
    [
        ("WARNING: Retrying (Retry(total=4\nERROR: No matching distribution", "check the network"),
        ("OSError: [Errno 28] No space left on device\nerror: x", "make room on the disk"),
        (
            "ERROR: Ignored the following versions that require a different python version: "
            "4.1.2 Requires-Python >=3.11.5\nERROR: No matching distribution found for soupsieve",
            "is not one of theirs",
        ),
        ("ERROR: No matching distribution found for soupsieve", "see what pip says"),
    ],
)
def test_the_cause_is_named(printed, said):
    told = sentence(lambda: setup.stop_for_packages(setup.what_went_wrong(printed)))
    assert said in told
    assert ("network" in told) == (said == "check the network")


def test_what_is_advised_is_in_the_language_asked_for_and_asks_for_it_again(monkeypatch):
    monkeypatch.setenv("COURSE_LANGUAGE", "zh_CN")
    monkeypatch.delenv("TORCH_FROM_PYPI", raising=False)
    monkeypatch.setattr(setup.platform, "system", lambda: "Linux")
    told = sentence(lambda: setup.stop_for_torch("no connection"))
    assert "请检查网络" in told and "连接不上" in told and told.count(" LANGUAGE=zh_CN`") == 2
    letters = io.TextIOWrapper(io.BytesIO(), encoding="ascii")  # of a terminal that has no others
    monkeypatch.setattr(sys, "stdout", letters)
    told = sentence(lambda: setup.stop_for_torch("no connection"))
    assert told.isascii() and told.count(" LANGUAGE=zh_CN`") == 2


def test_a_mirror_that_does_not_answer_is_told_as_no_connection(monkeypatch, tmp_path, capsys):
    """By pip itself, which says so only where it tries again."""
    monkeypatch.setattr(setup, "VENV", str(tmp_path))
    monkeypatch.setattr(setup, "VENV_PYTHON", sys.executable)
    monkeypatch.setattr(setup, "LOG", str(tmp_path / "none" / "setup.log"))
    for name in ("PIP_CONSTRAINT", "PIP_FIND_LINKS", "PIP_NO_INDEX", "PIP_EXTRA_INDEX_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_INDEX_URL", "https://127.0.0.1:9/simple")
    monkeypatch.setenv("COURSE_LANGUAGE", "zh_CN")
    setup.add_menus()
    assert "JupyterLab 的菜单仍是英文。连接不上" in capsys.readouterr().out


@pytest.mark.parametrize("from_pypi", ["", "1"])
def test_where_the_mirror_lacks_it_another_one_can_be_named(from_pypi, monkeypatch):
    monkeypatch.setattr(setup.platform, "system", lambda: "Linux" if from_pypi else "Darwin")
    monkeypatch.setenv("TORCH_FROM_PYPI", from_pypi)
    said = "make lab PIP_INDEX_URL=https://..."
    assert said in sentence(lambda: setup.stop_for_torch("no connection"))
    for printed in ("ERROR: No matching distribution found for x", "ERROR: ResolutionImpossible"):
        assert said in sentence(lambda text=printed: setup.stop_for_packages(text))


def test_missing_venv_module_is_named(monkeypatch):
    monkeypatch.setattr(setup.importlib.util, "find_spec", lambda name: name != "ensurepip")
    assert "apt install python3-venv" in sentence(setup.make_venv)


def test_full_disk_is_named(monkeypatch):
    full = SimpleNamespace(free=1e8)
    monkeypatch.setattr(setup.shutil, "disk_usage", lambda path: full)
    assert "0.1 GB are free" in sentence(setup.make_venv)


def test_unfinished_moved_or_broken_venv_is_made_anew(monkeypatch, tmp_path):
    python = tmp_path / "python"
    python.symlink_to(sys.executable)
    monkeypatch.setattr(setup, "VENV", str(tmp_path))
    monkeypatch.setattr(setup, "STAMP", str(tmp_path / "finished"))
    monkeypatch.setattr(setup, "VENV_PYTHON", str(python))
    assert not setup.can_be_updated(), "unfinished"
    Path(setup.STAMP).write_text(f"{tmp_path}\nof an older version\n")
    assert setup.can_be_updated()
    monkeypatch.setattr(setup, "VENV", "/another/place")
    assert not setup.can_be_updated(), "moved"
    monkeypatch.setattr(setup, "VENV", str(tmp_path))
    python.unlink()
    assert not setup.can_be_updated(), "broken"


@pytest.fixture
def fake(monkeypatch, tmp_path):
    """A finished .venv of which nothing is real; the calls that would install are noted."""
    monkeypatch.setattr(setup, "ROOT", str(tmp_path))
    monkeypatch.setattr(setup, "VENV", str(tmp_path / ".venv"))
    monkeypatch.setattr(setup, "STAMP", str(tmp_path / ".venv" / "finished"))
    monkeypatch.setattr(setup, "VENV_PYTHON", sys.executable)
    for name in setup.INPUTS:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, tmp_path / name)
    (tmp_path / ".venv").mkdir()
    setup.write(setup.STAMP, setup.stamp({"test"}))
    asked = []
    monkeypatch.setattr(setup, "install", asked.append)
    monkeypatch.setattr(setup, "put_programs_on_kernel_path", lambda: None)
    monkeypatch.setattr(setup, "try_what_draws", lambda: None)
    monkeypatch.setattr(setup, "CACHE", str(tmp_path / ".venv.cache"))
    monkeypatch.setattr(setup, "make_venv", lambda: asked.append("a new .venv"))
    return asked


def test_extras_come_when_they_are_asked_for(fake):
    setup.main([])
    setup.main(["test"])
    assert fake == []
    setup.main(["workshop"])
    assert fake == [["test", "workshop"]]
    setup.main(["workshop"])
    assert len(fake) == 1 and setup.read(setup.STAMP) == setup.stamp({"test", "workshop"})


def test_new_pins_are_installed_for_all_extras(fake):
    pins = Path(setup.ROOT, "constraints.txt")
    pins.write_text(pins.read_text() + "one-more==1.0\n")
    setup.main([])
    assert fake == [["test"]]


def test_extras_out_of_reach_leave_what_was_there(fake, monkeypatch):
    """`make test` without a network must not take away what `make lab` made."""
    monkeypatch.setattr(setup, "install", lambda extras: setup.stop("no network"))
    assert sentence(lambda: setup.main(["workshop"])) == "no network"
    setup.main(["test"])
    assert fake == []


def test_extras_killed_half_way_are_not_trusted(fake, monkeypatch):
    def killed(extras):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(setup, "install", killed)
        setup.main(["workshop"])
    setup.main([])
    assert fake == ["a new .venv", []]


def test_file_is_replaced_and_its_twin_in_a_cache_left_alone(tmp_path):
    (tmp_path / "cached").write_text("as it was")
    os.link(tmp_path / "cached", tmp_path / "installed")
    setup.write(str(tmp_path / "installed"), "ours")
    assert (tmp_path / "installed").read_text() == "ours"
    assert (tmp_path / "cached").read_text() == "as it was"


def test_graphs_that_cannot_be_drawn_are_said_at_once(monkeypatch, capsys):
    said = ["warning: about something else\nNo Graphviz here: install the program", None]
    asked = []

    def run(title, command, **variables):
        asked.append(command[1:])
        return said.pop(0) if command[-1] == "-V" else None

    monkeypatch.setattr(setup, "run", run)
    setup.try_what_draws()
    assert asked == [["-I", "-c", "import matplotlib.font_manager"], ["-V"]]
    told = "The lessons will tell graphs in words. No Graphviz here: install the program\n"
    assert capsys.readouterr().out == told
    setup.try_what_draws()
    assert capsys.readouterr().out == ""


def test_something_moves_every_two_seconds(fake, monkeypatch, tmp_path):
    screen, seen = tmp_path / "screen", []

    class Program:
        returncode = 0

        def __init__(self, *_, **__):
            pass

        def poll(self):
            return 0 if len(seen) == 3 else None

        def wait(self, seconds):
            assert seconds < 2
            seen.append(screen.read_text())  # what has arrived there, not what waits in a buffer
            raise subprocess.TimeoutExpired("program", seconds)

    monkeypatch.setattr(setup, "LOG", str(tmp_path / "log"))
    monkeypatch.setattr(subprocess, "Popen", Program)
    with screen.open("w") as file:
        monkeypatch.setattr(sys, "stdout", file)
        assert setup.run("Title", ["program"]) is None
    assert seen == ["Title ", "Title .", "Title .."]


# What pip is told, said to uv.


def test_pip_is_told_by_files_then_by_the_command_then_by_variables():
    listing = """:env:.find-links='/wheels'
global.find-links='/others'
global.index-url='https://me:secret@here/simple'
install.index-url='https://there/simple'
freeze.timeout='1'
:env:.extra-index-url=''
"""
    expected = {"find-links": "/wheels", "index-url": "https://there/simple"}
    assert pip_settings.told(listing) == expected


def test_what_pip_is_told_is_said_to_uv():
    settings = {
        "index-url": "https://me:secret@here/simple",
        "extra-index-url": "\nhttps://a/simple\nhttps://b/simple",
        "find-links": "/wheels /more",
        "no-index": "false",
        "proxy": "http://proxy:3128",
        "cert": "/ca.pem",
        "constraint": "mine.txt",
        "trusted-host": "here",
        "quiet": "1",
    }
    options, variables = pip_settings.translated(settings, {})
    assert options == [
        *("--find-links", "/wheels", "--find-links", "/more"),
        *("--constraints", "mine.txt", "--allow-insecure-host", "here"),
    ]
    assert variables == {
        "UV_DEFAULT_INDEX": "https://me:secret@here/simple",
        "UV_INDEX": "https://a/simple https://b/simple",
        **dict.fromkeys(["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"], "http://proxy:3128"),
        "SSL_CERT_FILE": "/ca.pem",
    }
    assert pip_settings.translated({"no-index": "1"}, {}) == (["--no-index", "--system-certs"], {})
    assert pip_settings.translated({}, {"CURL_CA_BUNDLE": "/ca.pem"})[1] == {
        "SSL_CERT_FILE": "/ca.pem"
    }
    assert pip_settings.translated({"keyring-provider": "subprocess"}, {}) is None


# Which torch: wheels that hold nothing but their name, and folders that pip reads as indexes.


def make_wheel(folder, version):
    folder.mkdir(parents=True, exist_ok=True)
    info = f"torch-{version}.dist-info"
    with zipfile.ZipFile(folder / f"torch-{version}-py3-none-any.whl", "w") as wheel:
        metadata = f"Metadata-Version: 2.1\nName: torch\nVersion: {version}\n"
        wheel.writestr(f"{info}/METADATA", metadata)
        tag = "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        wheel.writestr(f"{info}/WHEEL", tag)
        wheel.writestr(f"{info}/RECORD", f"{info}/METADATA,,\n{info}/WHEEL,,\n{info}/RECORD,,\n")


def make_index(folder, version):
    """A package index on disk; its address."""
    make_wheel(folder / "torch", version)
    name = f"torch-{version}-py3-none-any.whl".replace("+", "%2B")
    (folder / "torch" / "index.html").write_text(f'<a href="{name}">{name}</a>')
    return folder.as_uri()


@pytest.fixture(scope="session")
def small_venv(tmp_path_factory):
    """It holds nothing but pip and uv."""
    folder = tmp_path_factory.mktemp("small") / ".venv"
    venv.create(folder, with_pip=True)
    shutil.copy2(Path(sys.executable).parent / "uv", folder / "bin" / "uv")
    return folder


@pytest.fixture
def offline(small_venv, monkeypatch):
    """A Linux without network."""
    monkeypatch.setattr(setup, "VENV", str(small_venv))
    monkeypatch.setattr(setup, "LOG", str(small_venv / "setup.log"))
    monkeypatch.setattr(setup, "CACHE", str(small_venv / "cache"))
    monkeypatch.setattr(setup, "VENV_PYTHON", str(small_venv / "bin" / "python"))
    monkeypatch.setattr(setup.platform, "system", lambda: "Linux")
    for name, value in OFFLINE.items():
        monkeypatch.setenv(name, value)
    yield monkeypatch
    subprocess.run([setup.VENV_PYTHON, "-m", "pip", "uninstall", "-qy", "torch"])


def installed():
    listed = subprocess.run([setup.VENV_PYTHON, "-m", "pip", "freeze"], capture_output=True)
    return re.findall(r"^torch(?:==| @ ).*", listed.stdout.decode(), re.MULTILINE)


by_either = pytest.mark.parametrize("installer", [setup.uv, setup.pip], ids=["uv", "pip"])


@pytest.mark.slow
@by_either
def test_torch_that_pip_knows_wins(installer, offline, tmp_path):
    make_wheel(tmp_path / "wheels", VERSION + "+cpu")
    offline.setenv("PIP_INDEX_URL", make_index(tmp_path / "mirror", VERSION))
    offline.setenv("PIP_FIND_LINKS", str(tmp_path / "wheels"))
    assert setup.install_torch(installer) is None  # TORCH_INDEX is out of reach; nobody asks it
    assert installed() == [f"{PIN}+cpu"]


@pytest.mark.slow
@by_either
def test_torch_comes_from_the_index_otherwise(installer, offline, tmp_path):
    """A build without +cpu, as PyPI has, is not taken though pip knows it."""
    offline.setenv("PIP_INDEX_URL", make_index(tmp_path / "mirror", VERSION))
    offline.setenv("TORCH_INDEX", make_index(tmp_path / "cpu", VERSION + "+cpu"))
    assert setup.install_torch(installer) is None
    assert installed() == [f"{PIN}+cpu"]


@pytest.mark.slow
@by_either
def test_torch_of_a_mirror_of_pypi_is_taken_where_that_is_asked_for(installer, offline, tmp_path):
    offline.setenv("PIP_INDEX_URL", make_index(tmp_path / "mirror", VERSION))
    offline.setenv("TORCH_FROM_PYPI", "1")
    assert setup.install_torch(installer) is None
    assert installed() == [PIN]


@pytest.mark.slow
def test_pip_asks_rustc_and_nothing_is_left_at_home(offline, tmp_path):
    (tmp_path / "rustc").write_text('#!/bin/sh\nmkdir -p "${RUSTUP_HOME:-$HOME/.rustup}"\n')
    (tmp_path / "rustc").chmod(0o755)
    offline.setenv("HOME", str(tmp_path))
    offline.delenv("RUSTUP_HOME", raising=False)
    offline.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    assert setup.pip("Nothing", "no-such-package") is not None
    assert (Path(setup.CACHE) / "rustup").exists()
    assert not (tmp_path / ".rustup").exists()


@pytest.mark.slow
def test_torch_out_of_reach_is_named(offline):
    said = sentence(lambda: setup.install([]))
    assert said.startswith(f"PyTorch could not be fetched from {NOBODY}: check the network")
    assert "make lab TORCH_INDEX=" in said and "make lab TORCH_FROM_PYPI=1" in said
    assert installed() == []


# A clean copy of the course, in a folder whose name has spaces and letters beyond ASCII.


@pytest.fixture(scope="module")
def clone(tmp_path_factory):
    clone = tmp_path_factory.mktemp("Käse und Brot ü") / "der Kurs"
    ignored = (ROOT / ".gitignore").read_text().replace("/", "").split()
    # Not by git's own list: who downloaded the course as a zip has no git.
    shutil.copytree(ROOT, clone, ignore=shutil.ignore_patterns(".git", *ignored))
    return clone


def make(clone, target, **changes):
    """What runs `make target` there as a reader would, with the Python that runs this."""
    surroundings = {k: v for k, v in os.environ.items() if k not in ("MAKEFLAGS", "MAKELEVEL")}
    # Without this environment's own `dot`: the clone has one.
    ours = os.pathsep + os.path.dirname(sys.executable)
    surroundings["PATH"] = surroundings["PATH"].removesuffix(ours)
    return {
        "args": ["make", target, f"PYTHON={sys._base_executable}"],
        "cwd": clone,
        "text": True,
        "env": surroundings | changes,
    }


@pytest.mark.slow
def test_no_network_is_said_in_one_sentence(clone):
    failed = subprocess.run(**make(clone, "environment", **OFFLINE), capture_output=True)
    said = [line for line in failed.stderr.splitlines() if line and not line.startswith("make: ")]
    assert failed.returncode and len(said) == 1, failed.stderr
    assert "check the network" in said[0]


@pytest.mark.slow
def test_killed_setup_is_finished_by_the_next_call(clone):
    running = subprocess.Popen(
        **make(clone, "environment"), stdout=subprocess.DEVNULL, start_new_session=True
    )
    deadline = time.monotonic() + 3000
    while not list(clone.glob(".venv/lib/*/site-packages/torch/nn")):  # torch is half unpacked
        assert running.poll() is None and time.monotonic() < deadline
        time.sleep(0.05)
    os.killpg(running.pid, signal.SIGKILL)
    running.wait()
    assert not (clone / ".venv" / "finished").exists()

    subprocess.run(
        **make(clone, "environment+test+workshop"), check=True, stdout=subprocess.DEVNULL
    )
    log = (clone / ".venv" / "setup.log").read_bytes()
    again = subprocess.run(**make(clone, "environment"), check=True, capture_output=True)
    assert again.stdout == "" and (clone / ".venv" / "setup.log").read_bytes() == log
    assert list(clone.glob(".venv.cache")) == []
    assert (clone / ".venv" / "setup.log").stat().st_size < 1e6


@pytest.mark.slow
def test_lessons_and_house_work_in_the_clean_copy(clone):
    command = [clone / ".venv" / "bin" / "python", "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    tests = ["tests/test_environment.py", "tests/test_lab.py", "notebooks/1_saving_inputs.ipynb"]
    done = subprocess.run([*command, *tests], cwd=clone, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


@pytest.mark.slow
def test_refreshing_twice_changes_nothing(clone):
    refreshed = []
    for _ in range(2):
        subprocess.run(**make(clone, "refresh"), check=True, capture_output=True)
        refreshed.append({path: path.read_bytes() for path in clone.glob("notebooks/*.ipynb")})
    assert refreshed[0] == refreshed[1]


@pytest.mark.slow
def test_make_lab_prints_an_address_that_answers(clone):
    nothing = {"DISPLAY": "", "WAYLAND_DISPLAY": "", "BROWSER": ""}
    lab = subprocess.Popen(
        **make(clone, "lab", **nothing), stdout=subprocess.PIPE, start_new_session=True
    )
    try:
        address = next(line.strip() for line in lab.stdout if "http://" in line)
        assert "There is no display here" in next(line for line in lab.stdout if line.strip())
        for _ in range(3000):
            try:
                assert urllib.request.urlopen(address).status == 200
                break
            except OSError:
                time.sleep(0.1)
        else:
            pytest.fail("JupyterLab did not answer within 300 seconds")
        assert (clone / "my_lessons" / "1_saving_inputs.ipynb").exists()
    finally:
        os.killpg(lab.pid, signal.SIGTERM)
        lab.wait(300)
