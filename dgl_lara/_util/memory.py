"""Free memory, and settings of the allocator."""

import ctypes
import sys
from contextlib import suppress
from pathlib import Path

import psutil
import torch

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, M_MMAP_MAX = -1, -3, -4  # glibc's mallopt
LARGE_BYTES = 2**21  # larger blocks are returned


def reuse_freed_memory(num_nodes: int = 0) -> None:
    """Let glibc keep freed memory instead of returning it to the kernel.

    Otherwise tensors of a large graph are mapped again at every step. On ogbn-arxiv a training step took 1.6 times as
    long. On graphs of more than a million nodes the holes between kept blocks cost too much memory.

    Args:
        num_nodes: Nodes of the graph.
    """
    if sys.platform != "linux" or num_nodes > 1_000_000:
        return
    _set_malloc({M_MMAP_MAX: 0, M_TRIM_THRESHOLD: 2**31 - 1})


def hand_back_freed_memory() -> None:
    """Let glibc return freed memory. On ogbn-arxiv a third of the peak was holes."""
    if sys.platform == "linux":
        _set_malloc({M_MMAP_MAX: 65536, M_MMAP_THRESHOLD: LARGE_BYTES})


def _set_malloc(settings: dict[int, int]) -> None:
    with suppress(OSError, AttributeError):
        libc = ctypes.CDLL("libc.so.6")
        for name, value in settings.items():
            libc.mallopt(name, value)


def free_memory(device: torch.device | None = None) -> int:
    """Return 70 % of the free bytes of the machine or container, or of a GPU. This is the default limit."""
    if device is not None and device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0] * 7 // 10
    return min([psutil.virtual_memory().available, *container_memory()]) * 7 // 10


def container_memory(root: Path = Path("/sys/fs/cgroup"), own: Path = Path("/proc/self/cgroup")) -> list[int]:
    """Return the bytes that control groups (version 2 and 1) still allow this process. Empty without limits.

    In a container its group is the root. Under Slurm or systemd it is deeper, and the limits of all parents hold.
    """
    try:
        lines = [line.split(":", 2) for line in own.read_text().splitlines()]
    except OSError:
        lines = []
    paths = {kinds: path.strip("/") for _, kinds, path in (line for line in lines if len(line) == 3)}
    free = []
    for folder, path, limit, used in (
        (root, paths.get("", ""), "memory.max", "memory.current"),
        (root / "memory", paths.get("memory", ""), "memory.limit_in_bytes", "memory.usage_in_bytes"),
    ):
        inner = folder / path
        for group in (inner, *inner.parents):
            with suppress(OSError, ValueError):  # not there, or "max"
                free.append(max(0, int((group / limit).read_text()) - int((group / used).read_text())))
            if group == folder:
                break
    return free
