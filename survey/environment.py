"""Make or finish the survey's environment in .survey: what `make survey` calls first.

It lies on top of the course's own, which brings torch, NumPy and SciPy, and holds the surveyed
packages beside what they import, at fixed versions and without their other dependencies. Nothing
is installed into .venv.
"""

import hashlib
import subprocess
import sys
import sysconfig
from pathlib import Path

HERE = Path(__file__).parent
VENV = HERE.parent / ".survey"
PYTHON = VENV / "bin" / "python"
LISTS = [HERE / "packages.txt", HERE / "support.txt"]


def main():
    stamp, wanted = VENV / "finished", digest()
    if stamp.exists() and stamp.read_text() == wanted:
        return
    print("Setting up .survey, once: the surveyed packages, some minutes.", flush=True)
    subprocess.run([sys.executable, "-m", "venv", "--clear", VENV], check=True)
    look_in_course()
    install = [PYTHON, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    for each in LISTS:
        subprocess.run([*install, "--no-deps", "--requirement", each], check=True)
    stamp.write_text(wanted)


def digest():
    texts = [path.read_bytes() for path in LISTS]
    return hashlib.sha256(b"".join(texts)).hexdigest() + f"\n{sys.prefix}\n"


def look_in_course():
    """What .survey does not hold is looked for in the course's environment."""
    places = {"base": str(VENV), "platbase": str(VENV)}
    own = Path(sysconfig.get_path("purelib", scheme="venv", vars=places))
    (own / "course.pth").write_text(sysconfig.get_path("purelib") + "\n")


if __name__ == "__main__":
    main()
