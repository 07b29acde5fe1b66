"""Where and how numbers are computed: the one place that chooses device, precision and threads.

Results are reproducible to the bit as long as none of the three changes.
"""

from __future__ import annotations

import os

import torch


def choose_device() -> torch.device:
    """A GPU when there is one."""
    if torch.cuda.is_available():
        return torch.device("cuda")
    if torch.backends.mps.is_available():
        return torch.device("mps")
    return torch.device("cpu")


def choose_dtype(device: torch.device) -> torch.dtype:
    """Half precision where the hardware has it; on a plain CPU, float32 is several times faster."""
    return torch.bfloat16 if device.type == "cuda" else torch.float32


def fix_threads() -> None:
    """Use the cores this process may run on; `OMP_NUM_THREADS` overrides.

    The split of a sum over threads decides its rounding, so the number never changes after this.
    """
    if "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(_free_cores())


def _free_cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
