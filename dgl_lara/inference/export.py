"""Explanations of many targets, streamed to a file: Parquet, CSV or JSON lines.

The work is cut into parts, each a file of its own in `<file>.parts/`. A run that is killed resumes with the parts it
has. The file itself appears only when all parts are complete.
"""

from __future__ import annotations

import hashlib
import json
import re
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import chain
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from torch import Tensor

from dgl_lara._util.atomic import atomic_write, checksum, locked, short_hash
from dgl_lara._util.memory_budget import WALK_BYTES, slices_within_budget
from dgl_lara._util.notices import notice
from dgl_lara._util.progress import Progress
from dgl_lara.attribution.monte_carlo import BYTES_A_DRAW
from dgl_lara.constants import EXPORTS
from dgl_lara.errors import InputError
from dgl_lara.explanation import COLUMNS
from dgl_lara.game.game import Game
from dgl_lara.inference.rows import MakeRows, amortised_rows
from dgl_lara.inference.scorer import Scorer

TARGETS_A_PART = 8192
REFINED_TARGETS_A_PART = 256  # smaller parts if the model is called, so that an interrupt loses little
BYTES_A_ROW = 120  # measured: memory of a kept player until it is in a file
DICTIONARY = pa.dictionary(pa.int8(), pa.string())
TYPES = {name: DICTIONARY if dtype == "dictionary" else pa.type_for_alias(dtype) for name, dtype in COLUMNS.items()}
SCHEMA = pa.schema(list(TYPES.items()))


def explain_to_file(
    scorer: Scorer,
    targets: Tensor,
    top: int | None,
    out: Path,
    metadata: dict,
    make_rows: MakeRows | None = None,
    pairs: int = 0,
) -> int:
    """Explain targets and write the explanations to a file.

    Args:
        scorer: Scores the players.
        targets: (num_targets,) ids.
        top: Players kept of each target. None means all.
        out: File to write.
        metadata: What the explanations depend on. Parts of an export with other metadata are not reused.
        make_rows: Makes the rows of a part. None means amortised scores without a list of all players.
        pairs: Pairs of coalitions that `make_rows` evaluates for each target.

    Returns:
        The number of rows of the file.
    """
    if out.suffix not in EXPORTS:
        raise InputError("export.ending", expected=", ".join(EXPORTS), got=out.name)
    order = hashlib.sha256(targets.cpu().numpy().tobytes()).hexdigest()[:16]
    scorer.game.check_targets(targets)
    parts = list(split_targets(scorer.game, targets, None if make_rows else top, pairs))
    sizes = hashlib.sha256(str([len(part) for part in parts]).encode()).hexdigest()[:16]
    key = {**metadata, "targets": order, "top": top, "parts": sizes}
    folder = out.with_name(out.name + ".parts")
    with locked(folder, wait=True):  # two processes that write one file take turns
        own_folder = folder / short_hash(key)

        def frame_of(part: Tensor) -> pd.DataFrame:
            return (make_rows or amortised_rows)(scorer, part, top)

        try:
            count = _write_parts(parts, frame_of, own_folder, out, metadata)
        except KeyboardInterrupt:
            if kept := len(list(own_folder.glob("*.parquet"))):
                notice("export.interrupted", kept=kept, total=len(parts), folder=folder)
            raise
        _clear(folder)
    return count


def _write_parts(
    parts: list[Tensor], frame_of: Callable[[Tensor], pd.DataFrame], folder: Path, out: Path, metadata: dict
) -> int:
    folder.mkdir(exist_ok=True)
    paths = []
    started, done = time.monotonic(), 0
    bar = Progress(parts, "explaining", total=sum(map(len, parts)), unit="target", weight=len)
    for number, part in enumerate(bar):
        path = _finished_part(folder, number, part)
        if path is None:
            path = _write_part(folder / f"{number:06d}.parquet", frame_of(part))
            done += len(part)
            pace = done / (time.monotonic() - started)
            bar.note(f"{pace:,.0f} a second" if pace >= 10 else f"{pace:.1f} a second")
        paths.append(path)
    with atomic_write(out) as temporary:
        return WRITERS[out.suffix](paths, temporary, metadata)


def _write_part(path: Path, frame: pd.DataFrame) -> Path:
    more = pa.Schema.from_pandas(frame.drop(columns=SCHEMA.names), preserve_index=False)
    table = pa.Table.from_pandas(frame, schema=pa.schema([*SCHEMA, *more]), preserve_index=False)
    with atomic_write(path) as temporary:
        # without the metadata of pandas, which no checksum covers
        pq.write_table(table.replace_schema_metadata(None), temporary, write_page_checksum=True)
    # page checksums leave out the footer with the number of rows, so the name holds a checksum of the whole file
    return path.rename(path.with_stem(f"{path.stem}-{checksum(path)}"))


def _finished_part(folder: Path, number: int, targets: Tensor) -> Path | None:
    """Return the part of an interrupted export if it is undamaged and explains these targets."""
    for path in folder.glob(f"{number:06d}-*.parquet"):
        if _is_undamaged(path, targets):
            return path
        path.unlink()
    return None


def _is_undamaged(path: Path, targets: Tensor) -> bool:
    try:
        part = pq.read_table(path, page_checksum_verification=True)
        damage = "other columns" if part.schema.names[: len(SCHEMA)] != SCHEMA.names else ""
        if not path.stem.endswith(checksum(path)):
            damage = "wrong checksum"
        if not np.isin(part["target"].to_numpy(), targets.cpu().numpy()).all():
            damage = "other targets"
    except (OSError, KeyError, ValueError, pa.ArrowException) as error:
        damage = str(error).splitlines()[0]
    if damage:
        notice("export.damaged_part", path=path, reason=damage)
    return not damage


def _row_groups(part: Path) -> Iterator[pa.Table]:
    """Yield a part in groups of rows, since a file of many parts may not fit into memory."""
    with pq.ParquetFile(part, page_checksum_verification=True) as file:
        for group in range(file.num_row_groups):
            yield file.read_row_group(group)


def _clear(folder: Path) -> None:
    """Remove our own parts, of this export and of earlier ones, and keep all other files."""
    for parts in folder.iterdir():
        if re.fullmatch("[0-9a-f]{12}", parts.name) and parts.is_dir():
            for path in parts.iterdir():
                if re.fullmatch(r"\d{6}(-[0-9a-f]{8})?\.parquet|\.\d{6}\.parquet\..+\.part", path.name):
                    path.unlink()
            _remove_if_empty(parts)
    _remove_if_empty(folder)


def _remove_if_empty(folder: Path) -> None:
    with suppress(OSError):  # it holds other files
        folder.rmdir()


def split_targets(game: Game, targets: Tensor, top: int | None, pairs: int = 0) -> Iterator[Tensor]:
    """Yield the targets of each part, fewer of them if their players would not fit into memory.

    Args:
        game: The game that is explained.
        targets: (num_targets,) ids.
        top: Players held of each target. None means all of them.
        pairs: Pairs of coalitions evaluated for each target.
    """
    num_parts = -(-len(targets) // REFINED_TARGETS_A_PART) if pairs else 0
    for part in targets.tensor_split(num_parts) if num_parts else targets.split(TARGETS_A_PART):
        if top is None:
            walks = 1 + pairs * BYTES_A_DRAW / WALK_BYTES
            for rows in slices_within_budget(game.cost_bound[part] * walks, game.budget.walks_per_chunk):
                yield part[rows]
        else:
            width = min(top, game.max_players(part))
            yield from part.split(max(1, int(game.budget.memory // 2 // (BYTES_A_ROW * width))))


def _to_parquet(parts: list[Path], out: Path, metadata: dict) -> int:
    count = 0
    with pq.ParquetWriter(out, pq.read_schema(parts[0]).with_metadata({"dgl-lara": json.dumps(metadata)})) as writer:
        for table in chain.from_iterable(map(_row_groups, parts)):
            writer.write_table(table.replace_schema_metadata(writer.schema.metadata))
            count += len(table)
    return count


def _to_text(parts: list[Path], out: Path, write: Callable[[pd.DataFrame, bool], str]) -> int:
    count = 0
    with out.open("w") as file:
        for table in chain.from_iterable(map(_row_groups, parts)):
            frame = table.to_pandas(ignore_metadata=True)
            file.write(write(frame, count == 0))
            count += len(frame)
    return count


def _to_csv(parts: list[Path], out: Path, metadata: dict) -> int:
    return _to_text(parts, out, lambda frame, first: frame.to_csv(index=False, header=first))


def _to_json_lines(parts: list[Path], out: Path, metadata: dict) -> int:
    return _to_text(parts, out, lambda frame, first: frame.to_json(orient="records", lines=True))


WRITERS = {".parquet": _to_parquet, ".csv": _to_csv, ".jsonl": _to_json_lines}
