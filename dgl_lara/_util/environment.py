"""Environment of a run: versions, command, time, git hash."""

from __future__ import annotations

import platform
import subprocess
import sys
import time
from pathlib import Path

from dgl_lara import __version__


def versions() -> dict[str, str]:
    """Return the versions that results depend on."""
    loaded = [module for module in ("torch", "dgl", "numpy") if module in sys.modules]
    return {"dgl-lara": __version__, **{module: sys.modules[module].__version__ for module in loaded}}


def environment() -> dict:
    """Return command, time, versions and git hash as plain values."""
    return {
        "command": " ".join([Path(sys.argv[0]).name, *sys.argv[1:]]),
        "time": time.strftime("%Y-%m-%d %H:%M:%S"),
        "versions": {**versions(), "python": platform.python_version()},
        "git": _git_hash(),
    }


def _git_hash() -> str | None:
    try:
        command = ["git", "-C", str(Path(__file__).parent), "rev-parse", "HEAD"]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None
