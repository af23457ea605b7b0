"""Memory of a long run: how much there is, and keeping what was had."""

import ctypes
import sys
from pathlib import Path

import psutil

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


def free_memory() -> int:
    """Bytes: most of what is free here, or within the limit of the container. The bound where none is given."""
    return min([psutil.virtual_memory().available, *container_memory()]) * 7 // 10


def container_memory(root: Path = Path("/sys/fs/cgroup")) -> list[int]:
    """What control groups (version 2, then 1) still allow this process, in bytes; nothing where they set no limit."""
    free = []
    for limit, used in (
        (root / "memory.max", root / "memory.current"),
        (root / "memory/memory.limit_in_bytes", root / "memory/memory.usage_in_bytes"),
    ):
        try:
            free.append(max(0, int(limit.read_text()) - int(used.read_text())))
        except (OSError, ValueError):  # not there, or "max"
            continue
    return free
