"""Names of nodes, classes and features: arrays of an .npz file, or a JSON file next to the graph file."""

from __future__ import annotations

import json
import unicodedata
from pathlib import Path
from typing import Any

from dgl_lara.datasets.text_files import TEXT_ENCODING
from dgl_lara.errors import InputError

Names = dict[str, Any]  # "nodes", "classes", "features" -> tuple of texts, names of nodes also {type: tuple}
KINDS = ("nodes", "classes", "features")


def read_names(path: Path) -> Names:
    """Return the lists of "<stem>.names.json", empty if there is no such file."""
    names_file = path.with_suffix(".names.json")
    if not names_file.is_file():
        return {}
    try:
        content = json.loads(names_file.read_text(TEXT_ENCODING))
    except (ValueError, OSError, RecursionError) as error:
        raise InputError("names_file.not_json", path=names_file, cause=error) from error
    if not isinstance(content, dict) or not set(content) <= set(KINDS):
        raise InputError("names_file.keys", path=names_file, expected=", ".join(KINDS))
    return {kind: _texts(names_file, kind, names) for kind, names in content.items()}


def _texts(path: Path, kind: str, names: Any) -> Any:
    if kind == "nodes" and isinstance(names, dict):
        return {node_type: _texts(path, f"nodes of {node_type}", listed) for node_type, listed in names.items()}
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise InputError("names_file.not_texts", path=path, of=kind)
    return tuple(names)


def check_names(path: Path, names: Names, counts: dict[str, Any]) -> Names:
    """Return the names. Raise InputError if there is not one line of text for each node, class or feature.

    Args:
        path: The file, for errors.
        names: By kind.
        counts: Number of names by kind, None if unknown, {type: number} if names are given by type.
    """
    for kind, listed in names.items():
        if kind not in counts:
            raise InputError("names_file.unexpected", path=path, of=kind)
        count = counts[kind]
        if isinstance(listed, dict) != isinstance(count, dict):
            expected = "lists by node type" if isinstance(count, dict) else "one list"
            raise InputError("names_file.by_type", path=path, of=kind, expected=expected)
        if isinstance(listed, dict):
            check_names(path, listed, count)
        elif count is not None and len(listed) != count:
            raise InputError("names_file.count", path=path, of=kind, expected=count, got=len(listed))
        else:
            for name in map(str, listed):
                if not _is_one_line(name):
                    raise InputError("names_file.not_plain", path=path, of=kind, got=ascii(name)[:60])
    return names


def _is_one_line(name: str) -> bool:
    """Return whether a name has no line breaks, terminal controls or lone surrogates."""
    return name.isprintable() or not any(unicodedata.category(letter) in ("Cc", "Cs", "Zl", "Zp") for letter in name)
