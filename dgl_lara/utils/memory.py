"""Memory of a long run: how much there is, and keeping what was had."""

import ctypes
import sys
from pathlib import Path

M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4  # glibc's mallopt


def reuse_freed_memory(num_nodes: int = 0) -> None:
    """Tell glibc to keep freed memory instead of handing it back to the kernel.

    Tensors of a large graph are otherwise mapped anew, page by page, at every step: on ogbn-arxiv a training step
    took 1.6 times as long. On graphs of millions of nodes the holes between kept blocks cost too much memory, so there
    it does nothing; nor does it on other systems.
    """
    if sys.platform != "linux" or num_nodes > 1_000_000:
        return
    try:
        libc = ctypes.CDLL("libc.so.6")
        libc.mallopt(M_MMAP_MAX, 0)
        libc.mallopt(M_TRIM_THRESHOLD, 2**31 - 1)
    except (OSError, AttributeError):
        pass


def most_of_what_is_free() -> int:
    """Bytes. The bound that passes and chunks keep to where none is given."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        free = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable"))
    except (OSError, StopIteration):
        free = 8 * 2**30
    return free * 7 // 10
