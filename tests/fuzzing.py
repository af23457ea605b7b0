"""Mutations of files, drawn from a seed: bytes of any file, and values inside those whose format we know."""

import copy
import json
import random
import warnings
from pathlib import Path

import dgl
import numpy as np
import torch

warnings.filterwarnings("ignore", message=".*NaN.*", category=RuntimeWarning)
NASTY: list = [
    None, True, False, 0, -1, 1, 50, 2**31, 2**63, 10**30, -0.5, 1.7, 1e308, float("nan"), float("inf"), "", "3", "two",
    "../..", "\u0000", "\u00b2", "x" * 300, [], [1, 2], {}, {"a": 1}, [[]],
]  # fmt: skip


def mutated(path: Path, drawn: random.Random) -> str:
    """Change the file at one place; returns what was done."""
    inside = {".json": _json, ".pt": _tensors, ".npz": _arrays, ".bin": _graph, ".csv": _text}.get(path.suffix)
    if inside and drawn.random() < 0.6:
        return inside(path, drawn)
    return _bytes(path, drawn)


def _bytes(path: Path, drawn: random.Random) -> str:
    content = bytearray(path.read_bytes())
    place, kind = (
        drawn.randrange(len(content)),
        drawn.choice(["flip", "set", "cut", "insert", "delete", "zero", "empty"]),
    )
    if kind == "flip":
        content[place] ^= 1 << drawn.randrange(8)
    elif kind == "set":
        content[place] = drawn.randrange(256)
    elif kind == "cut":
        del content[place:]
    elif kind == "insert":
        content[place:place] = drawn.randbytes(drawn.randrange(1, 20))
    elif kind == "delete":
        del content[place : place + drawn.randrange(1, 20)]
    elif kind == "zero":
        content[place : place + 64] = bytes(len(content[place : place + 64]))
    else:
        content.clear()
    path.write_bytes(content)
    return f"{kind} at byte {place}"


def _leaves(content, trail=()):
    """Every place of nested tables and lists."""
    items = content.items() if isinstance(content, dict) else enumerate(content) if isinstance(content, list) else ()
    for name, value in items:
        yield (*trail, name)
        yield from _leaves(value, (*trail, name))


def _inside(content, drawn: random.Random, other):
    """A copy with one place dropped, doubled under another name, or with `other(value)` in it."""
    content = copy.deepcopy(content)
    places = list(_leaves(content))
    if not places or drawn.random() < 0.05:
        return drawn.choice(NASTY[:18]), "the whole"
    *trail, last = drawn.choice(places)
    holder = content
    for name in trail:
        holder = holder[name]
    kind = drawn.choice(["drop", "other", "other", "other", "more"])
    if kind == "drop":
        del holder[last]
    elif kind == "more" and isinstance(holder, dict):
        holder["surplus"] = holder[last]
    else:
        holder[last] = other(holder[last])
    return content, f"{kind} of {'.'.join(map(str, [*trail, last]))}"


def _json(path: Path, drawn: random.Random) -> str:
    content, done = _inside(json.loads(path.read_text()), drawn, lambda old: drawn.choice(NASTY))
    path.write_text(json.dumps(content))
    return done


def _other_tensor(old, drawn: random.Random):
    """Another shape, type or NaN: never other numbers of the right kind, which nobody could tell."""
    if isinstance(old, float):
        return drawn.choice([value for value in NASTY if not isinstance(value, int | float) or not 0 < value < 1e300])
    if not isinstance(old, torch.Tensor):
        return drawn.choice(NASTY)
    ways = [
        lambda: old[:-1] if old.dim() and len(old) > 1 else old.reshape(1, -1), lambda: torch.cat([old.flatten()] * 2),
        lambda: old.float() * torch.nan, lambda: old.to(torch.int8).bool(), lambda: old.to(torch.complex64),
        lambda: old.unsqueeze(0), lambda: old.T.contiguous() if old.dim() == 2 and len(set(old.shape)) == 2 else 5,
        lambda: [1, 2], lambda: None, lambda: torch.empty(0), lambda: {"a": old},
    ]  # fmt: skip
    return drawn.choice(ways)()


def _tensors(path: Path, drawn: random.Random) -> str:
    content = torch.load(path, weights_only=True)
    content, done = _inside(content, drawn, lambda old: _other_tensor(old, drawn))
    torch.save(content, path)
    return done


def _arrays(path: Path, drawn: random.Random) -> str:
    with np.load(path) as file:
        arrays = {name: file[name] for name in file.files}
    name = drawn.choice(sorted(arrays))
    old = arrays[name]
    ways = {
        "dropped": None, "shorter": old[:-1] if old.ndim else old, "doubled": np.concatenate([old.ravel()] * 2),
        "NaN": np.full(old.shape, np.nan), "text": np.full(old.shape, "a"), "minus one": np.full(old.shape, -1),
        "huge": np.full(old.shape, 2**62), "wrapping": np.full(old.shape, 2**64 - 1, np.uint64),
        "deeper": old[None], "empty": old.ravel()[:0], "complex": np.full(old.shape, 1j),
    }  # fmt: skip
    kind = drawn.choice(sorted(ways))
    arrays[name] = ways[kind]
    np.savez(path, **{name: array for name, array in arrays.items() if array is not None})
    return f"{kind}: {name}"


def _graph(path: Path, drawn: random.Random) -> str:
    (graph,), _ = dgl.load_graphs(str(path))
    frames = [graph.nodes[kind].data for kind in graph.ntypes] + [graph.edges[kind].data for kind in graph.etypes]
    data = drawn.choice([frame for frame in frames if frame])
    name = drawn.choice(sorted(data))
    kind = drawn.choice(["dropped", "NaN", "text", "deeper", "huge"])
    old = data.pop(name)
    if kind == "NaN":
        data[name] = old.float() * torch.nan
    elif kind == "deeper":
        data[name] = old.unsqueeze(1).unsqueeze(1)
    elif kind == "huge":
        data[name] = torch.full_like(old, 1e38) if old.is_floating_point() else torch.full_like(old.long(), 2**62)
    elif kind == "text":
        data[name] = old.to(torch.uint8)
    dgl.save_graphs(str(path), [graph])
    return f"{kind}: {name}"


def _text(path: Path, drawn: random.Random) -> str:
    lines = path.read_text().splitlines()
    row = drawn.randrange(len(lines))
    cells = lines[row].split(",")
    cells[drawn.randrange(len(cells))] = drawn.choice(["", "nan", "two", "1e999", "-1", '"', "\u00b2", "1,2,3"])
    lines[row] = ",".join(cells)
    path.write_text("\n".join(lines) + "\n")
    return f"row {row}: {lines[row]}"
