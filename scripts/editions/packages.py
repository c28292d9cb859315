"""What comes from npm: reveal.js, MathJax, axe-core and JupyterHub's proxy, at fixed versions."""

import shutil
import subprocess
import sys
from pathlib import Path

from said import spoken

HERE = Path(__file__).resolve().parent
MODULES = HERE / "node_modules"


def package(*path):
    """The path of a file in one of the packages, which are installed where they are not yet."""
    lock = (HERE / "package-lock.json").read_text(encoding="utf-8")
    installed = MODULES / "installed-from.json"
    if not installed.exists() or installed.read_text(encoding="utf-8") != lock:
        install()
        installed.write_text(lock, encoding="utf-8")
    return MODULES.joinpath(*path)


def install():
    npm = shutil.which("npm")
    if npm is None:
        sys.exit(
            spoken("npm is missing: install Node.js 20 or newer, which brings it, then try again.")
        )
    command = [npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"]
    done = subprocess.run(command, cwd=HERE, capture_output=True, text=True)
    if done.returncode:
        words = done.stderr.strip().splitlines() or [spoken("nothing")]
        failed = "npm could not install: check the network, then try again (npm: {})."
        sys.exit(spoken(failed, words[0]))
