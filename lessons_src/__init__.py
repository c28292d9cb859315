"""What the lessons import beside the tool `double_backward`: one module per lesson, and helpers."""

import logging
import warnings

# What torch says of itself, in some versions and on some machines: that its own forward mode uses
# torch.jit (from 2.14 on), and that there is no Triton, which is for GPUs.
warnings.filterwarnings("ignore", "`torch.jit.script` is deprecated", FutureWarning)
logging.getLogger("torch.utils.flop_counter").setLevel(logging.ERROR)
