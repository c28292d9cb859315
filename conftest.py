"""What every test starts from; at the root, so that `pytest notebooks` alone reads it too."""

import os
import sys
import tempfile
from pathlib import Path

from nbval.plugin import IPyNbCell
from own_settings import BUILD, keep_apart
from same_outputs import differences

# Tests start small programs in the temporary folder; some machines allow none there.
if hasattr(os, "statvfs") and os.statvfs(tempfile.gettempdir()).f_flag & getattr(
    os, "ST_NOEXEC", 0
):
    BUILD.mkdir(exist_ok=True)
    tempfile.tempdir = os.environ["TMPDIR"] = str(BUILD)
# The stand-in `dot` must be found, after a real one: as in the kernels that JupyterLab starts.
os.environ["PATH"] += os.pathsep + os.path.dirname(sys.executable)
# Two workers with a kernel each on two cores: more threads only get in each other's way.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# The tester's own settings must not change an output, nor two kernels share a history.
_settings = tempfile.TemporaryDirectory()
keep_apart(Path(_settings.name))


def compare_outputs(cell, fresh, stored, skip_compare=None):
    """In place of nbval's own comparison, which knows no numbers, only texts."""
    cell.comparison_traceback = differences(stored, fresh)
    return not cell.comparison_traceback


IPyNbCell.compare_outputs = compare_outputs
