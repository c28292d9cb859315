"""The reader's own settings are neither used nor changed, by a kernel or anything else of ours."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from homes import contents, make_home

ROOT = Path(__file__).resolve().parent.parent
# A kernel started in the way that JupyterLab, nbval and `make refresh` do it.
IN_A_KERNEL = """
import json, pathlib, sys, tempfile
from own_settings import keep_apart
with tempfile.TemporaryDirectory() as folder:
    keep_apart(pathlib.Path(folder))
    from jupyter_client.manager import start_new_kernel
    manager, client = start_new_kernel(kernel_name="python3", startup_timeout=600)
    said = []
    client.execute_interactive(sys.argv[1], output_hook=said.append)
    client.stop_channels()
    manager.shutdown_kernel(now=True)
shown = ("stream", "display_data", "execute_result", "error")
print(json.dumps([m["content"] for m in said if m["msg_type"] in shown]))
"""
# Only the last of these is shown, unless the reader's IPython has its way.
QUESTIONS = """
import importlib.util, os, sys
import matplotlib.pyplot as plt
plt.plot([0, 1]), plt.close()
1
[os.path.dirname(importlib.util.find_spec("lessons_src").origin), plt.rcParams["font.size"],
 sys.flags.optimize, len(sys.warnoptions)]
"""


@pytest.fixture
def reader(tmp_path):
    """A home, and the variables of a reader whose settings are all unlike ours."""
    home = tmp_path / "home"
    other = tmp_path / "other"
    (other / "lessons_src").mkdir(parents=True)
    (other / "lessons_src" / "__init__.py").write_text("raise SystemExit('another course')")
    (other / "matplotlibrc").write_text("font.size: 30\n")
    variables = make_home(home) | {
        "IPYTHONDIR": str(home / ".ipython"),
        "JUPYTER_CONFIG_DIR": str(home / ".jupyter"),
        "JUPYTER_DATA_DIR": str(home / ".local" / "share" / "jupyter"),
        "MATPLOTLIBRC": str(other),
        "MPLCONFIGDIR": str(home / ".config" / "matplotlib"),
        "PYTHONOPTIMIZE": "2",
        "PYTHONPATH": os.pathsep.join([str(ROOT / "scripts"), str(other)]),
        "PYTHONWARNINGS": "ignore",
    }
    return home, variables


@pytest.mark.slow
def test_kernel_knows_nothing_of_the_reader(reader):
    home, variables = reader
    before = contents(home)
    run = subprocess.run(
        [sys.executable, "-c", IN_A_KERNEL, QUESTIONS],
        env=os.environ | variables,
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stderr
    (output,) = json.loads(run.stdout)  # the start-up file printed nothing, and 1 is not shown
    assert eval(output["data"]["text/plain"]) == [str(ROOT / "lessons_src"), 10.0, 0, 0]
    assert contents(home) == before
