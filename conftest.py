"""What every test starts from; at the root, so that `pytest notebooks` alone reads it too."""

import gc
import os
import sys
import tempfile
from pathlib import Path

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
# To check web addresses it builds a grammar, for two seconds in each process that reads notebooks.
# None of ours has one to check; jsonschema does without, and nbval is the first that asks for it.
sys.modules["rfc3987_syntax"] = None
pytest_plugins = ["nbval.plugin"]
# The cells and outputs of the lessons, which are executed in English.
collect_ignore_glob = ["notebooks/*/*"]


_kernels = []
# A lesson finds nothing of the one before it; torch is there already, which takes three seconds.
AS_NEW = """
import os, sys
for name in [n for n in sys.modules if n.split(".")[0] == "lessons_src"]:
    del sys.modules[name]
os.chdir({!r})
get_ipython().run_line_magic("reset", "-f")
"""


def pytest_configure():
    from nbval import plugin

    plugin.IPyNbCell.compare_outputs = compare_outputs
    started = plugin.RunningKernel

    def kernel_for(name, cwd=None, **options):
        """One for all lessons that this process runs."""
        if not _kernels or not _kernels[0].is_alive():
            _kernels[:] = [started(name, cwd=cwd, **options)]
            _kernels[0].end, _kernels[0].stop = _kernels[0].stop, lambda: None
        else:
            asked = _kernels[0].execute_cell_input(AS_NEW.format(cwd))
            _kernels[0].await_reply(asked, timeout=60)
            _kernels[0].await_idle(asked, timeout=60)
        return _kernels[0]

    plugin.RunningKernel = kernel_for


def pytest_unconfigure():
    for kernel in _kernels:
        kernel.end()
    _settings.cleanup()


def compare_outputs(cell, fresh, stored, skip_compare=None):
    """In place of nbval's own comparison, which knows no numbers, only texts."""
    cell.comparison_traceback = differences(stored, fresh)
    return not cell.comparison_traceback


def pytest_collection_modifyitems(items):
    """First what takes long, file by file, so that two workers end at about the same time."""
    pages = ("test_browser.py", "test_colab.py", "test_site.py", "test_workshop.py")
    long = (*pages, "_compiled.py", ".ipynb")
    items.sort(key=lambda item: not item.path.name.endswith(long))
    for item in items:
        if hasattr(item, "output_timeout"):  # nbval waits for a kernel's word; five seconds are few
            item.output_timeout = 600


def pytest_collection_finish(session):
    """What stays until the end is not looked through again, thousands of times, for garbage."""
    session.config.has_dynamo = "torch._dynamo" in sys.modules  # test_house looks
    gc.collect()
    gc.freeze()
