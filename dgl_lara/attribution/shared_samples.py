"""Samples of the games of all targets, from masks over the full graph that training evaluates.

One random mask over all players is a uniform coalition for every target (`Game.shared_values`). So two calls of f,
with S
and with the rest, give a sample d(S) for every target. They are kept up to a share of memory, and improve scores later
without further calls.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dgl_lara._util.progress import Progress
from dgl_lara._util.randomness import generator
from dgl_lara._util.schema import between, maybe, tensor, validate, whole
from dgl_lara.attribution.monte_carlo import Samples, mask_invalid, random_coalitions
from dgl_lara.errors import LaraError
from dgl_lara.game.game import Game
from dgl_lara.game.player_index import Players

SHARE_OF_MEMORY = 8  # at most one part in so many goes to kept samples
FEWEST = 2  # samples of a target from which anything can be read
MOST_UNITS = 6e4  # that a half holds
CLOSE = 1e-3  # of the values' size: f says the same of two graphs


@dataclass(frozen=True, eq=False)
class SharedSamples:
    """Coalitions S of all players, and d(S) = f(S) - f(rest) of the explained class of every target."""

    inside: Tensor  # (num_ids, bytes) uint8: in which S a player is, a bit a pair, the first in the highest bit
    d: Tensor  # (num_targets, pairs) half precision, in units of `unit`; NaN where S is no coalition for the target
    unit: float
    explained_class: Tensor  # (num_targets,)
    full: Tensor  # (num_targets,) the explained value on the untouched graph

    @property
    def pairs(self) -> int:
        return self.d.shape[1]

    def keep(self, ids: Tensor) -> Tensor:
        """Return S for some players, (pairs, len(ids)) bool."""
        bits = np.unpackbits(self.inside[ids.cpu()].numpy(), axis=1, count=self.pairs)
        return torch.from_numpy(bits).bool().T.to(ids.device)

    def differences(self, targets: Tensor) -> Tensor:
        """Return d(S) of some targets, (num_targets, pairs)."""
        return self.d[targets.cpu()].float().mul_(self.unit).to(targets.device)

    def of(self, players: Players, own: Tensor) -> Samples:
        """Return the samples of some targets and their players."""
        ids, column = torch.unique(players.player, return_inverse=True)
        return Samples(players, self.keep(ids), self.differences(players.targets).T, own, column)

    def know(self, game: Game, targets: Tensor, classes: Tensor) -> Tensor:
        """Return whether the samples are valid for each target: same class, and outputs of f as in training."""
        asked, wanted = targets.cpu(), classes.cpu()
        if not self._as_many(game):
            return torch.zeros(len(asked), dtype=torch.bool)
        now = game.full_values[targets, classes].cpu()
        same = (now - self.full[asked]).abs() <= CLOSE * self.unit
        known = same & (wanted == self.explained_class[asked])
        if game.task.min_valid_masks:
            known &= (~self.d[asked].isnan()).sum(1) >= game.task.min_valid_masks
        return known

    def at(self, places: Tensor, known: Tensor) -> SharedSamples:
        """Return samples for a list of targets at these positions. Those not `known` have none."""
        places, known = places.cpu(), known.cpu()
        full = self.full[places].masked_fill(~known, torch.nan)
        return replace(self, d=self.d[places], explained_class=self.explained_class[places], full=full)

    def _as_many(self, game: Game) -> bool:
        return len(self.full) == game.num_targets and len(self.inside) == game.num_players

    def are_of_another(self, game: Game, targets: Tensor) -> bool:
        """Return whether the graph has the same size, but no output of f is that of training."""
        if not self._as_many(game) or bool(self.full[targets.cpu()].isnan().all()):  # nothing was said of them
            return False
        return not bool(self.know(game, targets, self.explained_class[targets.cpu()].to(targets.device)).any())

    def to_dict(self) -> dict[str, Any]:
        return dict(vars(self))

    @staticmethod
    def from_dict(
        content: Any, where: object, sizes: tuple[int, int] | None = None, gaps: bool = False
    ) -> SharedSamples:
        """Return what `to_dict` returned.

        Args:
            content: The stored values.
            where: The file, for errors.
            sizes: Number of players and of targets, if they are known.
            gaps: Whether not every S is a coalition for every target.

        Raises:
            LaraError: If it is damaged. Kernels would read beyond the end of a shorter array.
        """
        ids, targets = sizes or (None, None)
        pairs = validate(content, {"d": tensor(torch.half, targets, None, gaps=gaps)}, where)["d"].shape[1]
        fields = {
            "inside": tensor(torch.uint8, ids, -(-pairs // 8)), "unit": between(1e-7, 1e30),
            "explained_class": tensor(torch.long, len(content["d"])),
            "full": tensor(torch.float, len(content["d"]), gaps=gaps),
        }  # fmt: skip
        validate(content, fields, where)
        return SharedSamples(**{name: content[name] for name in ("d", *fields)})


class SampleReservoir:
    """A uniform sample of at most `most` of the pairs of masks that it is offered."""

    def __init__(self, game: Game, most: int, seed: int) -> None:
        self.game, self.seed, self.seen = game, seed, 0
        columns = game.num_players
        a_pair = columns / 8 + 2 * game.num_targets
        self.most = min(most, int(game.budget.memory / SHARE_OF_MEMORY / a_pair))
        self.unit = game.value_scale
        self.rows: list[np.ndarray] = []  # of each kept pair: who is in S, eight players a byte
        self.d: list[Tensor] = []
        self.offered: list[tuple[np.ndarray, Tensor]] = []  # of a step that is not over yet

    def add(self, keep: Tensor, inside: Tensor, outside: Tensor) -> None:
        """Add masks over all players, and values (num_masks, num_targets, num_classes) inside and outside."""
        self.offer(keep, inside, outside)
        self.settle()

    def offer(self, keep: Tensor, inside: Tensor, outside: Tensor) -> None:
        """Offer masks of a step that may be repeated. They count after `settle`."""
        everyone = torch.arange(self.game.num_targets, device=inside.device)
        d = self.game.query(everyone).select(inside - outside)
        d = mask_invalid(self.game, keep, d, everyone).cpu()
        self._make_room(float(d.nan_to_num(0).abs().max()))
        d = d.div_(self.unit).half()
        self.offered = list(zip(np.packbits(keep.cpu().numpy(), axis=1), d, strict=True))

    def _make_room(self, largest: float) -> None:
        """Enlarge the unit if values exceed what half precision holds."""
        if largest > MOST_UNITS * self.unit:
            factor = 2 * largest / (MOST_UNITS * self.unit)
            self.unit, self.d = self.unit * factor, [(mine.float() / factor).half() for mine in self.d]

    def settle(self) -> None:
        """Keep what was offered."""
        for row, mine in self.offered:
            place = self._place()
            self.seen += 1
            if place == len(self.rows):
                self.rows.append(row.copy())
                self.d.append(mine.clone())
            elif place is not None:
                self.rows[place], self.d[place] = row.copy(), mine.clone()
        self.offered = []

    def _place(self) -> int | None:
        """Return the slot of the next pair, None to drop it. It depends on the seed and its number only."""
        if self.seen < self.most:
            return self.seen
        drawn = int(torch.randint(self.seen + 1, (1,), generator=generator(self.seed * 1_000_003 + self.seen)))
        return drawn if drawn < self.most else None

    def samples(self) -> SharedSamples | None:
        """Return the kept samples, None if there are none."""
        if not self.rows:
            return None
        columns = self.game.num_players
        game, packed = self.game, np.stack(self.rows)
        inside = np.empty((columns, -(-len(self.rows) // 8)), np.uint8)
        for first in range(0, packed.shape[1], 4096):  # bits are turned round in pieces: as bytes they may not fit
            bits = np.unpackbits(packed[:, first : first + 4096], axis=1)[:, : columns - 8 * first]
            inside[8 * first : 8 * first + bits.shape[1]] = np.packbits(bits.T, axis=1)
        classes = game.explained_class[: game.num_targets]
        full = game.full_values[: game.num_targets].gather(1, classes.unsqueeze(1)).squeeze(1)
        d = torch.stack(self.d).T.contiguous()
        return SharedSamples(torch.from_numpy(inside), d, self.unit, classes.cpu(), full.cpu())

    def state_dict(self) -> dict[str, Any]:
        rows = torch.from_numpy(np.stack(self.rows)) if self.rows else None
        d = torch.stack(self.d) if self.d else None
        return {"seen": self.seen, "rows": rows, "d": d, "unit": self.unit}

    def load_state_dict(self, content: dict[str, Any]) -> None:
        """Load a checkpoint. Raise LaraError if it is damaged or belongs to another graph."""
        columns = self.game.num_players
        parts = {
            "seen": whole(), "rows": maybe(tensor(torch.uint8, None, -(-columns // 8))),
            "d": maybe(tensor(torch.half, None, self.game.num_targets, gaps=self.game.task.min_valid_masks > 0)),
            "unit": between(1e-7, 1e30),
        }  # fmt: skip
        validate(content, parts, "what it keeps of shared coalitions", optional=("unit",))
        self.seen, self.unit = content["seen"], content.get("unit", self.unit)
        self.rows = [] if content["rows"] is None else list(content["rows"].numpy())
        self.d = [] if content["d"] is None else list(content["d"])
        if len(self.rows) != len(self.d) or len(self.rows) > self.seen:
            raise LaraError("the shared coalitions that it keeps and what the model said of them are not as many.")
        if len(self.rows) < self.seen:  # a reservoir that was full stays of that size, whatever memory there is now
            self.most = min(self.most, len(self.rows))


def draw_more(keeper: SampleReservoir, pairs: int) -> None:
    """Draw further pairs with two calls of f each."""
    game, drawn = keeper.game, generator(keeper.seed * 1_000_003 + 700_000_000)
    columns = game.num_players
    step = max(1, min(pairs, game.nodes_per_call // game.graph.num_nodes()))
    for start in Progress(
        range(0, pairs, step), "asking the model about coalitions that all targets share", unit="pass"
    ):
        keep = random_coalitions(min(step, pairs - start), columns, drawn, game.features.device)
        keeper.add(keep, game.shared_values(keep), game.shared_values(~keep))
