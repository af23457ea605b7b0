"""Explanations of many targets, streamed to a file: Parquet, CSV or JSON lines.

The work is cut into parts, each written whole beside the result (`<file>.parts/`). A run that is killed goes on with
the parts it has; the file itself appears only when all are there, so it is complete or absent.
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
from dgl_lara._util.memory_budget import BYTES_A_WALK, slices_within_budget
from dgl_lara._util.progress import Progress, log_info
from dgl_lara.attribution.monte_carlo import BYTES_A_DRAW
from dgl_lara.constants import EXPORTS
from dgl_lara.errors import InputError
from dgl_lara.explanation import COLUMNS, pairs_frame, to_user_ids
from dgl_lara.game.game import Game
from dgl_lara.inference.top_players import BulkExplainer, TopPlayers, most_players

TARGETS_A_PART = 8192
BOUGHT_A_PART = 256  # where each is asked f about, so that not much is lost when it is interrupted
BYTES_A_ROW = 120  # measured: what a kept player takes until it is in a file
DICTIONARY = pa.dictionary(pa.int8(), pa.string())
TYPES = {name: DICTIONARY if kind == "dictionary" else pa.type_for_alias(kind) for name, kind in COLUMNS.items()}
SCHEMA = pa.schema(list(TYPES.items()))


def explain_to_file(
    bulk: BulkExplainer,
    targets: Tensor,
    top: int | None,
    out: Path,
    about: dict,
    make: Callable | None = None,
    pairs: int = 0,
) -> int:
    """Explain the targets, `top` players each (None: all), and write them to `out`; returns the number of rows.

    `make`, in the place of `rows`, may give columns beyond those of SCHEMA, from `pairs` coalitions a target.
    """
    if out.suffix not in EXPORTS:
        raise InputError(f"the file must end in {', '.join(EXPORTS)} (got '{out.name}').")
    order = hashlib.sha256(targets.cpu().numpy().tobytes()).hexdigest()[:16]
    bulk.game.check_targets(targets)
    parts = list(pieces(bulk.game, targets, None if make else top, pairs))
    sizes = hashlib.sha256(str([len(part) for part in parts]).encode()).hexdigest()[:16]
    question = {**about, "targets": order, "top": top, "parts": sizes}
    folder = out.with_name(out.name + ".parts")
    with locked(folder, wait=True):  # two that write one file do so one after the other
        mine = folder / short_hash(question)
        try:
            count = _in_parts(bulk, parts, top, out, about, make or rows, mine)
        except KeyboardInterrupt:
            if kept := len(list(mine.glob("*.parquet"))):
                log_info(f"{kept:,} of {len(parts):,} parts are kept in {folder}; the same command goes on from there.")
            raise
        _clear(folder)
    return count


def _in_parts(
    bulk: BulkExplainer, pieces: list[Tensor], top: int | None, out: Path, about: dict, make: Callable, parts: Path
) -> int:
    parts.mkdir(exist_ok=True)
    paths = []
    started, done = time.monotonic(), 0
    bar = Progress(pieces, "explaining", total=sum(map(len, pieces)), unit="target", weight=len)
    for number, piece in enumerate(bar):
        found = _done_before(parts, number, piece)
        if found is None:
            path = parts / f"{number:06d}.parquet"
            frame = make(bulk, piece, top)
            more = pa.Schema.from_pandas(frame.drop(columns=SCHEMA.names), preserve_index=False)
            table = pa.Table.from_pandas(frame, schema=pa.schema([*SCHEMA, *more]), preserve_index=False)
            with atomic_write(path) as temporary:
                # without pandas' notes in the file, which no checksum covers
                pq.write_table(table.replace_schema_metadata(None), temporary, write_page_checksum=True)
            # whose own checksums leave out what stands at the end of the file, how many rows there are among it
            found = path.rename(path.with_stem(f"{path.stem}-{checksum(path)}"))
            done += len(piece)
            pace = done / (time.monotonic() - started)
            bar.note(f"{pace:,.0f} a second" if pace >= 10 else f"{pace:.1f} a second")
        paths.append(found)
    with atomic_write(out) as temporary:
        return WRITERS[out.suffix](paths, temporary, about)


def _done_before(parts: Path, number: int, targets: Tensor) -> Path | None:
    """The part that an interrupted export has left, if it is as it was written, which its name says, and explains these
    targets."""
    for path in parts.glob(f"{number:06d}-*.parquet"):
        if _is_whole(path, targets):
            return path
        path.unlink()
    return None


def _is_whole(path: Path, targets: Tensor) -> bool:
    try:
        part = _read(path)
        damage = "other columns" if part.schema.names[: len(SCHEMA)] != SCHEMA.names else ""
        if not path.stem.endswith(checksum(path)):
            damage = "its checksum is another"
        if not np.isin(part["target"].to_numpy(), targets.cpu().numpy()).all():
            damage = "other targets"
    except (OSError, KeyError, ValueError, pa.ArrowException) as error:
        damage = str(error).splitlines()[0]
    if damage:
        log_info(f"{path} is damaged ({damage}); it is made anew.")
    return not damage


def _read(part: Path) -> pa.Table:
    return pq.read_table(part, page_checksum_verification=True)


def _groups(part: Path) -> Iterator[pa.Table]:
    """The same a group of rows at a time: a file of many parts need not fit into memory."""
    with pq.ParquetFile(part, page_checksum_verification=True) as file:
        for group in range(file.num_row_groups):
            yield file.read_row_group(group)


def _clear(folder: Path) -> None:
    """Removes our own parts, of this question and of earlier ones; whatever else lies there stays."""
    for parts in folder.iterdir():
        if re.fullmatch("[0-9a-f]{12}", parts.name) and parts.is_dir():
            for path in parts.iterdir():
                if re.fullmatch(r"\d{6}(-[0-9a-f]{8})?\.parquet|\.\d{6}\.parquet\..+\.part", path.name):
                    path.unlink()
            _remove_if_empty(parts)
    _remove_if_empty(folder)


def _remove_if_empty(folder: Path) -> None:
    with suppress(OSError):  # somebody keeps something there
        folder.rmdir()


def pieces(game: Game, targets: Tensor, top: int | None, pairs: int = 0) -> Iterator[Tensor]:
    """A fixed number of targets where few players of each are kept; fewer where the memory does not allow it."""
    bought = -(-len(targets) // BOUGHT_A_PART) if pairs else 0
    for part in targets.tensor_split(bought) if bought else targets.split(TARGETS_A_PART):
        if top is None:
            a_walk = 1 + pairs * BYTES_A_DRAW / BYTES_A_WALK
            for rows in slices_within_budget(game.cost_bound[part] * a_walk, game.budget.walks_per_chunk):
                yield part[rows]
        else:
            width = min(top, most_players(game, part))
            yield from part.split(max(1, int(game.budget.memory // 2 // (BYTES_A_ROW * width))))


def rows(bulk: BulkExplainer, targets: Tensor, top: int | None) -> pd.DataFrame:
    if top is None:
        return bulk.explain(targets).to_frame()
    return to_user_ids(top_frame(bulk.top(targets, min(top, most_players(bulk.game, targets)))), bulk.game)


def top_frame(best: TopPlayers) -> pd.DataFrame:
    """One row for each kept (target, player) pair, best first."""
    real = best.player >= 0
    row, rank = np.nonzero(real)
    return pairs_frame(
        target=best.targets[row],
        player=best.player[real],
        hop=best.hop[real],
        score=best.score[real],
        rank=rank + 1,
        explained_class=best.explained_class[row],
        kind=best.kind,
    ).assign(**{name: values[real] for name, values in best.about.items()})


def _to_parquet(parts: list[Path], out: Path, about: dict) -> int:
    """What the explanations are explanations of travels with them, in the file's metadata."""
    count = 0
    with pq.ParquetWriter(out, pq.read_schema(parts[0]).with_metadata({"dgl-lara": json.dumps(about)})) as writer:
        for table in chain.from_iterable(map(_groups, parts)):
            writer.write_table(table.replace_schema_metadata(writer.schema.metadata))
            count += len(table)
    return count


def _to_text(parts: list[Path], out: Path, write: Callable[[pd.DataFrame, bool], str]) -> int:
    count = 0
    with out.open("w") as file:
        for table in chain.from_iterable(map(_groups, parts)):
            frame = table.to_pandas(ignore_metadata=True)
            file.write(write(frame, count == 0))
            count += len(frame)
    return count


def _to_csv(parts: list[Path], out: Path, about: dict) -> int:
    return _to_text(parts, out, lambda frame, first: frame.to_csv(index=False, header=first))


def _to_json_lines(parts: list[Path], out: Path, about: dict) -> int:
    return _to_text(parts, out, lambda frame, first: frame.to_json(orient="records", lines=True))


WRITERS = {".parquet": _to_parquet, ".csv": _to_csv, ".jsonl": _to_json_lines}
