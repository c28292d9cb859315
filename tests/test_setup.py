"""Setting up where something is wrong: each case works, or says in one sentence what to do."""

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


@pytest.fixture(scope="module")
def small_venv(tmp_path_factory):
    folder = tmp_path_factory.mktemp("small") / ".venv"
    venv.create(folder, with_pip=True)
    return folder


@pytest.fixture
def offline(small_venv, monkeypatch):
    """A Linux without network, in a venv that holds nothing but pip."""
    monkeypatch.setattr(setup, "VENV", str(small_venv))
    monkeypatch.setattr(setup, "VENV_PYTHON", str(small_venv / "bin" / "python"))
    monkeypatch.setattr(setup.platform, "system", lambda: "Linux")
    for name, value in OFFLINE.items():
        monkeypatch.setenv(name, value)
    yield monkeypatch
    subprocess.run([setup.VENV_PYTHON, "-m", "pip", "uninstall", "-qy", "torch"])


def installed():
    listed = subprocess.run([setup.VENV_PYTHON, "-m", "pip", "freeze"], capture_output=True)
    return re.findall(r"^torch(?:==| @ ).*", listed.stdout.decode(), re.MULTILINE)


@pytest.mark.slow
def test_torch_that_pip_knows_wins(offline, tmp_path):
    make_wheel(tmp_path / "wheels", VERSION + "+cpu")
    offline.setenv("PIP_FIND_LINKS", str(tmp_path / "wheels"))
    setup.install_torch()  # TORCH_INDEX is out of reach, and nobody asks it
    assert installed() == [f"{PIN}+cpu"]


@pytest.mark.slow
def test_torch_comes_from_the_index_otherwise(offline, tmp_path):
    """A build without +cpu, as PyPI has, is not taken though pip knows it."""
    offline.setenv("PIP_INDEX_URL", make_index(tmp_path / "mirror", VERSION))
    offline.setenv("TORCH_INDEX", make_index(tmp_path / "cpu", VERSION + "+cpu"))
    setup.install_torch()
    assert installed() == [f"{PIN}+cpu"]


@pytest.mark.slow
def test_torch_out_of_reach_is_named(offline):
    said = sentence(setup.install_torch)
    assert said.startswith(f"The CPU build of torch could not be fetched from {NOBODY}")
    assert "make lab TORCH_INDEX=" in said
    assert installed() == []


# A clean copy of the course, in a folder whose name has spaces and letters beyond ASCII.


@pytest.fixture(scope="module")
def clone(tmp_path_factory):
    clone = tmp_path_factory.mktemp("Käse und Brot ü") / "der Kurs"
    listed = subprocess.check_output(
        ["git", "ls-files", "-z", "-co", "--exclude-standard"], cwd=ROOT, text=True
    )
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).exists():
            (clone / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, clone / name)
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
    deadline = time.time() + 300
    while not list(clone.glob(".venv/lib/*/site-packages/torch/nn")):  # torch is half unpacked
        assert running.poll() is None and time.time() < deadline
        time.sleep(0.05)
    os.killpg(running.pid, signal.SIGKILL)
    running.wait()
    assert not (clone / ".venv" / "finished").exists()

    subprocess.run(**make(clone, "environment"), check=True, stdout=subprocess.DEVNULL)
    started = time.time()
    again = subprocess.run(**make(clone, "environment"), check=True, capture_output=True)
    assert again.stdout == "" and time.time() - started < 2


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
        for _ in range(300):
            try:
                assert urllib.request.urlopen(address).status == 200
                break
            except OSError:
                time.sleep(0.1)
        else:
            pytest.fail("JupyterLab did not answer within 30 seconds")
        assert (clone / "my_lessons" / "1_saving_inputs.ipynb").exists()
    finally:
        os.killpg(lab.pid, signal.SIGTERM)
        lab.wait(20)
