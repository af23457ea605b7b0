"""Pages are made from .html files beside the modules that fill them: {{name}} stands for a part."""

from __future__ import annotations

import re
from importlib import resources


def fill(room: str, name: str, parts: dict[str, str]) -> str:
    """In one go, so that a part which itself holds {{...}} stays as it is."""
    template = resources.files(room).joinpath(name).read_text(encoding="utf-8")
    return re.sub(r"\{\{(\w+)\}\}", lambda found: parts[found[1]], template)
