"""Memory of a long CPU run."""

import ctypes
import sys

M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4  # glibc's mallopt


def reuse_freed_memory() -> None:
    """Tell glibc to keep freed memory instead of handing it back to the kernel.

    Tensors of a large graph are otherwise mapped anew, page by page, at every step: on ogbn-arxiv a training step
    took 1.6 times as long. Does nothing on other systems.
    """
    if sys.platform != "linux":
        return
    try:
        libc = ctypes.CDLL("libc.so.6")
        libc.mallopt(M_MMAP_MAX, 0)
        libc.mallopt(M_TRIM_THRESHOLD, 2**31 - 1)
    except (OSError, AttributeError):
        pass
