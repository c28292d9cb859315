"""What the lessons import beside the tool `double_backward`: one module per lesson, and helpers."""

import logging
import warnings

# What torch says of itself, in some versions and on some machines: that its own forward mode uses
# torch.jit (from 2.14 on), that torch.compile is slower on Python 3.13.0, and that there is no
# Triton, which is for GPUs.
warnings.filterwarnings("ignore", "`torch.jit.script` is deprecated", FutureWarning)
warnings.filterwarnings("ignore", "Guards may run slower on Python 3.13.0", RuntimeWarning)
logging.getLogger("torch.utils.flop_counter").setLevel(logging.ERROR)
