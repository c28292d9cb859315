"""Make or finish the survey's environment in .survey: what `make survey` calls first.

With `--newest`, one in .newest, which has the newest release of each package, but for `KEPT`.

It lies on top of the course's own, which brings torch, NumPy and SciPy, and holds the surveyed
packages beside what they import, at fixed versions and without their other dependencies. Nothing
is installed into .venv.
"""

import hashlib
import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pip_settings

HERE = Path(__file__).parent
VENV = HERE.parent / ".survey"
NEWEST = HERE.parent / ".newest"
LISTS = [HERE / "packages.txt", HERE / "support.txt"]
KEPT = ("setuptools",)  # later ones have no pkg_resources, which pytorch-wavelets imports
# Compiled against torch, some minutes, where there is no wheel: against the one that is here, while
# by itself uv fetches the newest for it, 3 GB.
NEEDS_TORCH = ("torchlpc",)


def main(newest):
    if newest:
        make(NEWEST, [newest_of(pin) for pin in pins()])
        return
    stamp, wanted = VENV / "finished", digest()
    if stamp.exists() and stamp.read_text() == wanted:
        return
    print("Setting up .survey, once: the surveyed packages, 1 GB.", flush=True)
    make(VENV, pins())
    stamp.write_text(wanted)


def digest():
    texts = [path.read_bytes() for path in LISTS]
    return hashlib.sha256(b"".join(texts)).hexdigest() + f"\n{sys.prefix}\n"


def pins():
    """All of both lists, "name==version"."""
    lines = [line.split("#")[0].strip() for path in LISTS for line in path.read_text().splitlines()]
    return [line for line in lines if line]


def newest_of(pin):
    """The name alone, of "name==version"; the pin itself where the version is kept."""
    name = pin.partition("==")[0]
    return pin if name in KEPT else name


def make(venv, packages):
    """An environment with these packages, and for the rest what the course's own has.

    By uv, told what pip is told: pip takes many times as long.
    """
    subprocess.run([sys.executable, "-m", "venv", "--clear", "--without-pip", venv], check=True)
    look_in_course(venv)
    options, variables = pip_settings.for_uv(sys.executable) or ([], {})
    command = [Path(sysconfig.get_path("scripts")) / "uv", "pip", "install", "--quiet"]
    command += ["--no-config", "--index-strategy", "unsafe-best-match", *options]
    command += ["--no-deps", "--python", venv / "bin" / "python"]
    command += [f"--no-build-isolation-package={name}" for name in NEEDS_TORCH]
    subprocess.run([*command, *packages], check=True, env=os.environ | variables)


def look_in_course(venv):
    """What it does not hold is looked for in the course's environment."""
    places = {"base": str(venv), "platbase": str(venv)}
    own = Path(sysconfig.get_path("purelib", scheme="venv", vars=places))
    (own / "course.pth").write_text(sysconfig.get_path("purelib") + "\n")


if __name__ == "__main__":
    main(newest="--newest" in sys.argv[1:])
