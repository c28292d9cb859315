"""Make, finish or update the course's environment in .venv; `make` calls this before all else.

Standard library only, and syntax that an old Python can read, so that it gets as far as the
sentence about its version.
"""

import hashlib
import importlib.util
import json
import os
import platform
import shutil
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
VENV = os.path.join(ROOT, ".venv")
STAMP = os.path.join(VENV, "finished")
WINDOWS = os.name == "nt"
VENV_PYTHON = os.path.join(VENV, *(("Scripts", "python.exe") if WINDOWS else ("bin", "python")))
INPUTS = ("pyproject.toml", "constraints.txt", "scripts/dot/pyproject.toml")
TORCH_INDEX = "https://download.pytorch.org/whl/cpu"
NEEDED_GB = 2.5


def main():
    need_python()
    with one_at_a_time():
        if read(STAMP) == stamp() and runs(VENV_PYTHON):
            return
        if not can_be_updated():
            make_venv()
        else:
            os.remove(STAMP)
        install_torch()
        install_the_rest()
        put_programs_on_kernel_path()
        with open(STAMP, "w", encoding="utf-8") as file:
            file.write(stamp())
        print("The environment in .venv is ready.")


def need_python():
    """Go on with a newer Python from the PATH where this one is too old."""
    if sys.version_info >= (3, 11):
        return
    for name in ("python3.13", "python3.12", "python3.11", "python3.14"):
        if shutil.which(name) and runs(shutil.which(name)):
            sys.exit(subprocess.call([shutil.which(name), os.path.abspath(__file__)]))
    stop(
        "The course needs Python 3.11 or newer and this is %s: install one and name it, "
        "as in `make lab PYTHON=python3.12`." % platform.python_version()
    )


class one_at_a_time:
    """Two `make` at once would write into the same .venv; the second waits for the first."""

    def __enter__(self):
        self.file = open(os.path.join(ROOT, ".venv.lock"), "w")
        try:
            import fcntl
        except ImportError:  # Windows: without make, nobody starts two
            return
        fcntl.flock(self.file, fcntl.LOCK_EX)

    def __exit__(self, *error):
        self.file.close()


def read(path):
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except OSError:
        return None


def stamp():
    """What a finished .venv was made for: the place (scripts hold it) and the inputs."""
    digest = hashlib.sha256()
    for path in (os.path.abspath(__file__),) + INPUTS:
        digest.update(read(os.path.join(ROOT, path)).encode())
    return "%s\n%s\n" % (VENV, digest.hexdigest())


def runs(python):
    try:
        # A name on the PATH may be a shim that starts nothing.
        return subprocess.call([python, "-c", ""], stderr=subprocess.DEVNULL) == 0
    except OSError:
        return False


def can_be_updated():
    """Only a finished .venv in its place is worth keeping: one killed half-way may lie to pip."""
    return (read(STAMP) or "").startswith(VENV + "\n") and runs(VENV_PYTHON)


def make_venv():
    if not (importlib.util.find_spec("venv") and importlib.util.find_spec("ensurepip")):
        stop(
            "This Python has no venv module: install it (on Debian and Ubuntu "
            "`sudo apt install python3-venv`) or name another Python, "
            "as in `make lab PYTHON=python3.12`."
        )
    free = shutil.disk_usage(ROOT).free / 1e9
    if free < NEEDED_GB:
        stop("Setting up needs %.1f GB of disk and %.1f GB are free here." % (NEEDED_GB, free))
    print("Setting up .venv, once: a few minutes and up to 2 GB.", flush=True)
    made = subprocess.run(
        [sys.executable, "-m", "venv", "--clear", VENV], stdout=subprocess.PIPE, text=True
    )
    if made.returncode:
        stop("Python could not make .venv: %s" % (made.stdout.strip() or "see above"))


def pip(*arguments):
    """Run `pip install` inside .venv; return None, or what went wrong.

    -I and PIP_USER=0 keep the reader's own packages out; their pip configuration stays in force.
    """
    done = subprocess.run(
        [VENV_PYTHON, "-I", "-m", "pip", "install", "--disable-pip-version-check"]
        + ["--log", os.path.join(VENV, "pip.log")]
        + list(arguments),
        cwd=ROOT,
        env=dict(os.environ, PIP_USER="0"),
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
    )
    return None if done.returncode == 0 else what_went_wrong(done.stderr)


def what_went_wrong(text):
    if "WARNING: Retrying" in text:  # what pip says last is then often beside the point
        return "no connection"
    lines = [line for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if line.lower().startswith("error")]
    return (errors or lines or ["nothing"])[-1].strip()


def install_torch():
    """Install torch on its own, first: PyPI's build for Linux brings gigabytes of CUDA.

    PyPI has no +cpu. So what the reader's own pip finds under that name (a wheel on disk, a
    mirror) is the CPU build or nothing, and only if it is nothing PyTorch's index is asked.
    """
    lines = read(os.path.join(ROOT, "constraints.txt")).split()
    pin = next(line for line in lines if line.startswith("torch=="))
    if platform.system() != "Linux":
        return install("--no-deps", pin)
    if pip("--no-deps", pin + "+cpu") is None:
        return None
    index = os.environ.get("TORCH_INDEX") or TORCH_INDEX
    error = pip("--no-deps", "--index-url", index, pin + "+cpu")
    if error:
        stop(
            "The CPU build of torch could not be fetched from %s: check the network, or name "
            "another index, as in `make lab TORCH_INDEX=https://...` (pip says: %s)."
            % (index, error)
        )


def install(*arguments):
    error = pip("-c", "constraints.txt", *arguments)
    if error:
        stop(
            "The packages could not be installed: check the network, then run the same command "
            "again (pip says: %s; more in %s)." % (error, os.path.join(".venv", "pip.log"))
        )


def install_the_rest():
    """Everything at its tested version, and the course itself as a link to this folder."""
    print("Now about 140 smaller packages: a minute or a few, without a word.", flush=True)
    quiet = ("--quiet", "--progress-bar", "off")
    install(*quiet, "setuptools")  # builds the course; asked for first, it is the pinned one too
    install(*quiet, "--no-build-isolation", "-e", ".[lab,test,workshop]", "-e", "./scripts/dot")


def put_programs_on_kernel_path():
    """Let kernels find .venv's `dot`, but last on the PATH, so that a real one wins."""
    path = os.path.join(VENV, "share", "jupyter", "kernels", "python3", "kernel.json")
    spec = json.loads(read(path))
    spec["env"] = {"PATH": "${PATH}" + os.pathsep + os.path.dirname(VENV_PYTHON)}
    with open(path, "w", encoding="utf-8") as file:
        json.dump(spec, file, indent=1)


def stop(sentence):
    sys.exit("\n" + sentence)


if __name__ == "__main__":
    main()
