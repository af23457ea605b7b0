"""Memory of a long run: how much there is, and keeping what was had."""

import ctypes
import sys
from contextlib import suppress
from pathlib import Path

import psutil
import torch

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, M_MMAP_MAX = -1, -3, -4  # glibc's mallopt
LARGE = 2**21  # bytes: of what is larger, nothing is kept


def reuse_freed_memory(num_nodes: int = 0) -> None:
    """Tell glibc to keep freed memory instead of handing it back to the kernel.

    Tensors of a large graph are otherwise mapped anew, page by page, at every step: on ogbn-arxiv a training step
    took 1.6 times as long. On graphs of millions of nodes the holes between kept blocks cost too much memory, so there
    it does nothing; nor does it on other systems.
    """
    if sys.platform != "linux" or num_nodes > 1_000_000:
        return
    _tell_malloc({M_MMAP_MAX: 0, M_TRIM_THRESHOLD: 2**31 - 1})


def hand_back_freed_memory() -> None:
    """The opposite, where memory is what a process has least of: a third of the peak was holes on ogbn-arxiv."""
    if sys.platform == "linux":
        _tell_malloc({M_MMAP_MAX: 65536, M_MMAP_THRESHOLD: LARGE})


def _tell_malloc(settings: dict[int, int]) -> None:
    with suppress(OSError, AttributeError):
        libc = ctypes.CDLL("libc.so.6")
        for name, value in settings.items():
            libc.mallopt(name, value)


def free_memory(device: torch.device | None = None) -> int:
    """Bytes: most of what is free here, or within the limit of the container; on a GPU, of its own memory. The bound
    where none is given."""
    if device is not None and device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0] * 7 // 10
    return min([psutil.virtual_memory().available, *container_memory()]) * 7 // 10


def container_memory(root: Path = Path("/sys/fs/cgroup"), own: Path = Path("/proc/self/cgroup")) -> list[int]:
    """What control groups (version 2 and 1) still allow this process, in bytes; nothing where they set no limit.

    Inside a container its group is the root; under Slurm or systemd it lies deeper, and every group above counts too.
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
