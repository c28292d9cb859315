"""What the lessons import: one module per lesson, the graphs and the diagnosis.

The tools for your own code can be imported from here. They are loaded on first use, so that
`import lessons_src` stays as light as an empty module.
"""

import logging
import warnings
from importlib import import_module

# What torch says of itself, in some versions and on some machines: that its own forward mode uses
# torch.jit (from 2.14 on), and that there is no Triton, which is for GPUs.
warnings.filterwarnings("ignore", "`torch.jit.script` is deprecated", FutureWarning)
logging.getLogger("torch.utils.flop_counter").setLevel(logging.ERROR)

_MODULE_OF = {
    "draw": "graphs",
    "draw_backward": "graphs",
    "diagnose": "diagnosis",
    "assert_double_backward": "diagnosis",
    "diagnose_all": "diagnosis.step",
    "detect_intermediates": "remedies",
    "recompute_intermediates": "remedies",
}

__all__ = list(_MODULE_OF)


def __getattr__(name):
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'lessons_src' has no attribute '{name}'")
    return getattr(import_module(f"lessons_src.{_MODULE_OF[name]}"), name)
