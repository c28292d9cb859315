"""What the reader has stays theirs: settings of Jupyter, IPython, matplotlib and Python itself.

They are neither used, so that every picture and text comes out as in the lessons, nor changed.
Standard library only: Jupyter looks at its folders while it is imported, so this comes before.
"""

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build"
NOT_USED = [
    "JUPYTER_CONFIG_PATH",
    "JUPYTER_PATH",
    "JUPYTERLAB_DIR",
    "JUPYTERLAB_SETTINGS_DIR",
    "JUPYTERLAB_WORKSPACES_DIR",
    "MATPLOTLIBRC",
    "MPLBACKEND",
    "PYTHONHOME",
    "PYTHONOPTIMIZE",
    "PYTHONSTARTUP",
    "PYTHONWARNINGS",
]


def keep_apart(folder, runtime=None):
    """Let this process and those that it starts keep their settings in `folder`.

    `runtime` is for files that live as long as a server or a kernel; by default in `folder` too.
    """
    for name in NOT_USED:
        os.environ.pop(name, None)
    places = {
        "JUPYTER_CONFIG_DIR": folder / "config",
        "JUPYTER_DATA_DIR": folder / "data",
        "JUPYTER_RUNTIME_DIR": runtime or folder / "runtime",
        "IPYTHONDIR": folder / "ipython",
        # One for all, because matplotlib looks at every font of the machine to fill it.
        "MPLCONFIGDIR": BUILD / "matplotlib",
        # This course and no other, however the reader's Python finds its modules.
        "PYTHONPATH": ROOT,
    }
    os.environ.update({name: str(place) for name, place in places.items()})
    os.environ["PYTHONUTF8"] = "1"  # a locale that cannot spell the course's folder cannot find it
