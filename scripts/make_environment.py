"""Make, finish or update the course's environment in .venv; `make` calls this before all else.

The names of extras in pyproject.toml may follow, as in `make_environment.py test workshop`: what
learning needs is always there, the rest comes when it is first asked for. Standard library only,
and syntax that an old Python can read, so that it gets as far as the sentence about its version.
"""

import hashlib
import importlib.util
import json
import os
import platform
import re
import shutil
import subprocess
import sys

import pip_settings
from said import language, spoken, to_type

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
VENV = os.path.join(ROOT, ".venv")
STAMP = os.path.join(VENV, "finished")
LOG = os.path.join(VENV, "setup.log")
CACHE = os.path.join(ROOT, ".venv.cache")
WINDOWS = os.name == "nt"
PROGRAMS = "Scripts" if WINDOWS else "bin"
ENDING = ".exe" if WINDOWS else ""
VENV_PYTHON = os.path.join(VENV, PROGRAMS, "python" + ENDING)
INPUTS = ("pyproject.toml", "constraints.txt", "scripts/dot/pyproject.toml")
TORCH_INDEX = "https://download.pytorch.org/whl/cpu"
NEEDED_GB = 3
NEEDED_GB_WITH_CUDA = 9
# The Pythons that torch's pinned version has wheels for.
OLDEST, NEWEST = (3, 11), (3, 14)
REMOVE = "import shutil, sys; shutil.rmtree(sys.argv[1], ignore_errors=True)"
AS_IN = spoken("as in {}", to_type("make lab PYTHON=python3.12"))


def main(extras):
    need_python()
    need_wheels_of_torch()
    with one_at_a_time():
        make_ready(extras)
        add_menus()


def make_ready(extras):
    before = read(STAMP) or ""
    have = set(before.partition("\nextras:")[2].split())
    if before == stamp(have) and have >= set(extras) and runs(VENV_PYTHON):
        return
    if can_be_updated():
        extras = have.union(extras)
        os.remove(STAMP)
    else:
        make_venv()
    try:
        install(sorted(extras))
    except SystemExit:
        if before == stamp(have):  # nothing but additions failed: what was there still works
            write(STAMP, before)
        raise
    put_programs_on_kernel_path()
    try_what_draws()
    write(STAMP, stamp(extras))
    # With dots: this takes seconds, too.
    run(spoken("What is not needed any more"), [VENV_PYTHON, "-I", "-c", REMOVE, CACHE])
    print(spoken("The environment in .venv is ready."), flush=True)


def add_menus():
    """JupyterLab's menus in the reader's language, where there are such; without them it is used
    as it is."""
    package = "jupyterlab-language-pack-" + language().replace("_", "-")
    there = os.path.join(VENV, package)
    if not language() or os.path.exists(there):
        return
    # One try more: without it pip does not say that there was no connection.
    soon = "--no-deps", "--retries", "1", "--timeout", "5"
    failed = pip(spoken("JupyterLab's menus"), *soon, "-c", "constraints.txt", package)
    if failed:  # a broken mirror may be whole the next time
        cause = in_words(what_went_wrong(failed))
        print(spoken("JupyterLab's menus stay English. {}", cause), flush=True)
    else:
        write(there, "")


def need_python():
    """Go on with another Python from the PATH where this one is too old or too new."""
    if OLDEST <= sys.version_info[:2] <= NEWEST:
        return
    for name in ("python3.13", "python3.12", "python3.11", "python3.14"):
        if shutil.which(name) and runs(shutil.which(name)):
            command = [shutil.which(name), os.path.abspath(__file__)]
            sys.exit(subprocess.call(command + sys.argv[1:]))
    first, last = ("%d.%d" % version for version in (OLDEST, NEWEST))
    needed = spoken(
        "The course needs Python {} to {}, for which PyTorch is built, and this is {}: "
        "install one and name it, {}.",
        first,
        last,
        platform.python_version(),
        AS_IN,
    )
    stop(needed)


def need_wheels_of_torch():
    """Stop before anything is downloaded where there is no build of torch's pinned version."""
    system, machine = platform.system(), platform.machine().lower()
    problem = None
    if platform.python_implementation() != "CPython":
        problem = spoken("for {}: name a CPython, {}", platform.python_implementation(), AS_IN)
    elif sys.maxsize < 2**32:
        problem = spoken("for a 32-bit Python: install a 64-bit one and name it, {}", AS_IN)
    elif system == "Darwin" and machine != "arm64":
        problem = spoken(
            "for Intel Macs, and this Python is made for one: on Apple silicon name a Python made "
            "for arm64, {}; else take a Linux machine, or Colab (see README.md)",
            AS_IN,
        )
    elif system == "Darwin" and int(platform.mac_ver()[0].split(".")[0]) < 14:
        problem = spoken("for macOS before 14, and this is {}", platform.mac_ver()[0])
    elif system == "Linux" and glibc() is None:
        problem = spoken("for Linux with musl instead of glibc, such as Alpine: take another Linux")
    elif system == "Linux" and glibc() < (2, 28):
        found = "%d.%d" % glibc()
        problem = spoken("for glibc before 2.28, and this is {}: take a newer Linux", found)
    elif machine not in ("x86_64", "amd64", "aarch64", "arm64") or (WINDOWS and "arm" in machine):
        problem = spoken("for {} on {}", system, platform.machine())
    if problem:
        stop(spoken("There is no build of {} {}.", torch_pin(), problem))


def glibc():
    """Its version as two numbers, or None on a Linux that has another C library."""
    try:
        name, version = os.confstr("CS_GNU_LIBC_VERSION").split()
    except (AttributeError, OSError, ValueError):
        return None
    return tuple(map(int, version.split(".")[:2]))


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


def write(path, text):
    """Replace the file: what it is linked to elsewhere stays as it was."""
    with open(path + ".new", "w", encoding="utf-8") as file:
        file.write(text)
    os.replace(path + ".new", path)


def stamp(extras):
    """What a finished .venv was made for: the place (scripts hold it), the inputs, the extras."""
    digest = hashlib.sha256()
    for path in (os.path.abspath(__file__),) + INPUTS:
        digest.update(read(os.path.join(ROOT, path)).encode())
    return "%s\n%s\nextras: %s\n" % (VENV, digest.hexdigest(), " ".join(sorted(extras)))


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
        missing = spoken(
            "This Python has no venv module: install it (on Debian and Ubuntu "
            "`sudo apt install python3-venv`) or name another Python, {}.",
            AS_IN,
        )
        stop(missing)
    needed = NEEDED_GB_WITH_CUDA if torch_from_pypi() else NEEDED_GB
    free = shutil.disk_usage(ROOT).free / 1e9
    if free < needed:
        left = "%.1f" % free
        stop(spoken("Setting up needs {} GB of disk and {} GB are free here.", needed, left))
    print(spoken("Setting up .venv, once: about a minute and 2 GB, more where the line is slow."))
    failed = run(spoken("An empty environment"), [sys.executable, "-m", "venv", "--clear", VENV])
    if failed:
        stop(spoken("Python could not make .venv: {}", in_words(what_went_wrong(failed))))


def run(title, command, **variables):
    """Run a command with a dot a second on the screen; return None, or what it printed if it fails.

    What it prints is added to .venv/setup.log.
    """
    print(title, end=" ", flush=True)
    printed = os.path.join(ROOT, ".venv.output")
    with open(printed, "wb") as file:
        environment = {k: v for k, v in os.environ.items() if not k.startswith("UV_")}
        running = subprocess.Popen(
            command, cwd=ROOT, env=dict(environment, **variables), stdout=file, stderr=file
        )
        while running.poll() is None:
            try:
                running.wait(1)
            except subprocess.TimeoutExpired:
                print(".", end="", flush=True)
    print("", flush=True)
    with open(printed, encoding="utf-8", errors="replace") as file:
        text = file.read()
    os.remove(printed)
    if os.path.isdir(os.path.dirname(LOG)):
        with open(LOG, "a", encoding="utf-8") as file:
            file.write("%s\n%s\n" % (title, text))
    return (text or "nothing") if running.returncode else None


def pip(title, *arguments):
    """`pip install` inside .venv; None, or what it printed if it fails.

    -I and PIP_USER=0 keep the reader's own packages out; their pip configuration stays in force.
    Python compiles what is imported when it is imported first, a minute's less work than for all.
    """
    command = [VENV_PYTHON, "-I", "-m", "pip", "install", "--disable-pip-version-check"]
    command += ["--no-compile", "--progress-bar", "off"]
    return run(title, command + list(arguments), PIP_USER="0", **no_folder_by_rustup())


def no_folder_by_rustup():
    """pip asks a `rustc` on the PATH for its version; rustup's would make its folder for that."""
    if "RUSTUP_HOME" in os.environ or os.path.exists(os.path.expanduser("~/.rustup")):
        return {}
    return {"RUSTUP_HOME": os.path.join(CACHE, "rustup")}


def uv(title, *arguments):
    """`uv pip install` inside .venv, told what pip is told; None, or what it printed if it fails.

    Its cache lies beside .venv until that is finished, so that a second try fetches nothing twice.
    """
    translated = pip_settings.for_uv(VENV_PYTHON)
    if translated is None:
        return "pip's configuration says what uv has no word for"
    own, variables = translated
    program = os.path.join(VENV, PROGRAMS, "uv" + ENDING)
    command = [program, "pip", "install", "--no-config", "--python", VENV_PYTHON]
    command += ["--cache-dir", CACHE, "--index-strategy", "unsafe-best-match", "--no-progress"]
    return run(title, command + own + list(arguments), **variables)


def what_went_wrong(text):
    """The line of pip, uv or venv that names the cause."""
    if "WARNING: Retrying" in text:  # what pip says last is then often beside the point
        return "no connection"
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    for pattern in ("No space left", "require a different python version", "^error", ""):
        found = [line for line in lines if re.search(pattern, line, re.IGNORECASE)]
        if found:
            return found[-1]
    return "nothing"


def install(extras):
    """The pinned packages: by uv, in seconds, or where uv cannot be had or fails by pip."""
    faster = pip(spoken("uv, which installs"), "--no-deps", "--retries", "0", pin("uv")) is None
    if not (faster and install_torch(uv) is None):
        error = install_torch(pip)
        if error:
            stop_for_torch(what_went_wrong(error))
    names = ",".join(["draw", "course", "lab"] + extras)
    course = ["-c", "constraints.txt", "-e", ".[%s]" % names, "-e", "./scripts/dot"]
    title = spoken("Smaller packages")
    if faster and uv(title, "--build-constraints", "constraints.txt", *course) is None:
        return
    # What builds the course; asked for first, it is the pinned one too.
    error = pip(spoken("The packages, by pip"), "-c", "constraints.txt", "setuptools") or pip(
        spoken("One after the other"), "--no-build-isolation", *course
    )
    if error:
        stop_for_packages(what_went_wrong(error))


def install_torch(installer):
    """Install torch on its own, first: PyPI's build for Linux brings gigabytes of CUDA.

    PyPI has no +cpu. So what the reader's own pip finds under that name (a wheel on disk, a
    mirror) is the CPU build or nothing, and only if it is nothing PyTorch's index is asked.
    """
    if platform.system() != "Linux":
        return installer("PyTorch", "--no-deps", torch_pin())
    if torch_from_pypi():
        return installer(spoken("PyTorch and CUDA"), "-c", "constraints.txt", torch_pin())
    cpu = torch_pin() + "+cpu"
    index = os.environ.get("TORCH_INDEX") or TORCH_INDEX
    if installer("PyTorch", "--no-deps", cpu) is None:
        return None
    if installer is pip:
        return pip(spoken("PyTorch, from its own index"), "--no-deps", "--index-url", index, cpu)
    return uv(spoken("PyTorch, from its own index"), "--no-deps", "--default-index", index, cpu)


def pin(name):
    lines = read(os.path.join(ROOT, "constraints.txt")).split()
    return next(line for line in lines if line.startswith(name + "=="))


def torch_pin():
    return pin("torch")


def torch_from_pypi():
    """Whether the reader takes the build that PyPI, or a mirror of it, has under torch's name."""
    return os.environ.get("TORCH_FROM_PYPI", "") not in ("", "0")


def stop_for_torch(cause):
    if platform.system() != "Linux" or torch_from_pypi():
        said = spoken(
            "PyTorch could not be fetched from the index that your pip asks: check the network, or "
            "name another index, as in {} (pip says: {}).",
            to_type(
                "make lab PIP_INDEX_URL=https://..." + " TORCH_FROM_PYPI=1" * torch_from_pypi()
            ),
            in_words(cause),
        )
    else:
        said = spoken(
            "PyTorch could not be fetched from {}: check the network, name another index, as in "
            "{}, or take PyPI's build with CUDA, gigabytes more, by {} (pip says: {}).",
            os.environ.get("TORCH_INDEX") or TORCH_INDEX,
            to_type("make lab TORCH_INDEX=https://..."),
            to_type("make lab TORCH_FROM_PYPI=1"),
            in_words(cause),
        )
    stop(said)


def in_words(cause):
    known = {"no connection": spoken("no connection"), "nothing": spoken("nothing")}
    return known.get(cause, cause)


def stop_for_packages(cause):
    another = to_type("make lab PIP_INDEX_URL=https://...")
    advice = spoken("see what pip says, or name another index, as in {}", another)
    if cause == "no connection":
        advice = spoken("check the network, or name another index, as in {}", another)
    elif "No space left" in cause:
        advice = spoken("make room on the disk")
    elif "different python" in cause:
        version = platform.python_version()
        advice = spoken("Python {} is not one of theirs, name another, {}", version, AS_IN)
    said = spoken(
        "The packages could not be installed: {}, then run the same command again (pip says: {}; "
        "more in {}).",
        advice,
        in_words(cause),
        os.path.join(".venv", "setup.log"),
    )
    stop(said)


def put_programs_on_kernel_path():
    """Let kernels find .venv's `dot`, but last on the PATH, so that a real one wins."""
    path = os.path.join(VENV, "share", "jupyter", "kernels", "python3", "kernel.json")
    spec = json.loads(read(path))
    spec["env"] = {"PATH": "${PATH}" + os.pathsep + os.path.dirname(VENV_PYTHON)}
    write(path, json.dumps(spec, indent=1))


def try_what_draws():
    """Do now what the first picture would wait for, and say it where graphs cannot be drawn.

    matplotlib looks at every font of the machine, once; where that takes more than five seconds it
    says so, in a lesson if it is not done here. pygraphviz needs GLib and X11's libraries.
    """
    fonts = [VENV_PYTHON, "-I", "-c", "import matplotlib.font_manager"]
    run(
        spoken("The machine's fonts"), fonts, MPLCONFIGDIR=os.path.join(ROOT, "build", "matplotlib")
    )
    failed = run(spoken("A graph"), [os.path.join(VENV, PROGRAMS, "dot" + ENDING), "-V"])
    if failed:
        cause = in_words(what_went_wrong(failed))
        print(spoken("The lessons will tell graphs in words. {}", cause))


def stop(sentence):
    sys.exit("\n" + sentence)


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except KeyboardInterrupt:
        stop(spoken("Stopped: the same command sets up .venv from the beginning."))
