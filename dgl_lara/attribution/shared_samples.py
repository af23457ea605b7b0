"""Samples of every target from one set of masks, kept from training to correct scores without further calls of f.

A random mask over all players is a coalition of every target's players (see `game/index.py`), so one or two passes of f
over the whole graph are a sample of every target.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from dgl_lara._util.progress import Progress
from dgl_lara._util.randomness import generator
from dgl_lara._util.schema import between, maybe, tensor, text, validate, whole
from dgl_lara.attribution.monte_carlo import Samples, mask_invalid
from dgl_lara.errors import LaraError
from dgl_lara.game.index import Index, Masks, as_index

if TYPE_CHECKING:
    from dgl_lara.game.game import Game
    from dgl_lara.game.player_index import Players

SHARE_OF_MEMORY = 8  # kept samples take at most 1/8 of the memory
MAX_HALF_UNITS = 6e4  # that a float16 holds
SAME_VALUE = 1e-3  # of the size of the values: two graphs have equal outputs


@dataclass(frozen=True, eq=False)
class SharedSamples:
    """Coalitions of all players there are, and the responses of every target's explained class.

    Attributes:
        inside: (num_ids, bytes) uint8, whether a player is in S, a bit per sample, the first in the highest bit.
        probability: (samples,) with which each player stayed.
        responses: (num_targets, samples) half precision, in units of `unit`, NaN if S is no coalition for the target.
        unit: Size of the responses.
        explained_class: (num_targets,)
        full: (num_targets,) explained value with all players.
        total: (num_targets,) f(N) - f(no player), zeros if scores need not add up.
        index: Name of the law of the coalitions.
    """

    inside: Tensor
    probability: Tensor
    responses: Tensor
    unit: float
    explained_class: Tensor
    full: Tensor
    total: Tensor
    index: str

    @property
    def pairs(self) -> int:
        return self.responses.shape[1]

    @property
    def law(self) -> Index:
        return as_index(self.index)

    def masks(self, ids: Tensor) -> Masks:
        """Return the coalitions of some players."""
        bits = np.unpackbits(self.inside[ids.cpu()].numpy(), axis=1, count=self.pairs)
        return Masks(torch.from_numpy(bits).bool().T.to(ids.device), self.probability.to(ids.device))

    def responses_of(self, targets: Tensor) -> Tensor:
        """(num_targets, samples) Return the responses in full precision."""
        return self.responses[targets.cpu()].float().mul_(self.unit).to(targets.device)

    def of(self, players: Players, own: Tensor) -> Samples:
        """Return the samples of some targets.

        Args:
            players: (target, player) pairs.
            own: (num_pairs,) bool, whether the player is the target itself.
        """
        ids, columns = torch.unique(players.player, return_inverse=True)
        targets = players.targets
        total = self.total[targets.cpu()].to(targets.device) if self.law.adds_up else None
        return Samples(self.law, players, self.masks(ids), self.responses_of(targets).T, own, total, columns)

    def know(self, game: Game, targets: Tensor, classes: Tensor) -> Tensor:
        """(num_targets,) bool: Return whether the samples are of this target and class, on an unchanged graph."""
        targets, classes = targets.cpu(), classes.cpu()
        if not self._has_size_of(game):
            return torch.zeros(len(targets), dtype=torch.bool)
        now = game.full_values[targets, classes].cpu()
        same = (now - self.full[targets]).abs() <= SAME_VALUE * self.unit
        known = same & (classes == self.explained_class[targets])
        if game.task.min_valid_masks:
            known &= (~self.responses[targets].isnan()).sum(1) >= game.task.min_valid_masks
        return known

    def at(self, positions: Tensor, known: Tensor) -> SharedSamples:
        """Select targets by position. Those that are not `known` have no samples."""
        positions, known = positions.cpu(), known.cpu()
        full = self.full[positions].masked_fill(~known, torch.nan)
        rows = {name: getattr(self, name)[positions] for name in ("responses", "explained_class", "total")}
        return replace(self, full=full, **rows)

    def _has_size_of(self, game: Game) -> bool:
        return len(self.full) == game.num_targets and len(self.inside) == game.num_players and self.law == game.index

    def are_of_another(self, game: Game, targets: Tensor) -> bool:
        """Return whether f returns something else for all of these targets, on a graph of equal size."""
        if not self._has_size_of(game) or bool(self.full[targets.cpu()].isnan().all()):  # no samples
            return False
        return not bool(self.know(game, targets, self.explained_class[targets.cpu()].to(targets.device)).any())

    def to_dict(self) -> dict[str, Any]:
        return dict(vars(self))

    @staticmethod
    def from_dict(
        content: Any, where: object, sizes: tuple[int, int] | None = None, gaps: bool = False
    ) -> SharedSamples:
        """Return the samples of `to_dict`.

        Args:
            content: What was stored.
            where: Source of the content, for messages.
            sizes: Number of players and of targets, if known.
            gaps: Whether S may be no coalition for some targets.

        Raises:
            LaraError: If the content is damaged. The kernels would read beyond the end of a shorter one.
        """
        ids, targets = sizes or (None, None)
        fields = {"responses": tensor(torch.half, targets, None, gaps=gaps), "index": text}
        pairs = validate(content, fields, where)["responses"].shape[1]
        fields = {
            "inside": tensor(torch.uint8, ids, -(-pairs // 8)), "probability": tensor(torch.float, pairs),
            "unit": between(1e-7, 1e30), "explained_class": tensor(torch.long, len(content["responses"])),
            "full": tensor(torch.float, len(content["responses"]), gaps=gaps),
            "total": tensor(torch.float, len(content["responses"])),
        }  # fmt: skip
        validate(content, fields, where)
        as_index(content["index"])
        return SharedSamples(**{name: content[name] for name in ("responses", "index", *fields)})


class SampleReservoir:
    """A uniform choice of at most `most` of the samples that are offered: all of them, then a reservoir."""

    def __init__(self, game: Game, most: int, seed: int) -> None:
        self.game, self.seed, self.num_offered = game, seed, 0
        sample_bytes = game.num_players / 8 + 2 * game.num_targets
        self.most = min(most, int(game.budget.memory / SHARE_OF_MEMORY / sample_bytes))
        self.unit = game.value_scale
        self.rows: list[np.ndarray] = []  # of each kept sample: the players in S, eight to a byte
        self.probability: list[float] = []
        self.responses: list[Tensor] = []
        self.offered: list[tuple[np.ndarray, float, Tensor]] = []  # of a step that is not over yet

    def add(self, masks: Masks, responses: Tensor) -> None:
        """Keep samples.

        Args:
            masks: Coalitions of all players.
            responses: (num_masks, num_targets, num_classes)
        """
        self.offer(masks, responses)
        self.settle()

    def offer(self, masks: Masks, responses: Tensor) -> None:
        """Take samples of a step that may yet fail and be repeated. They count after `settle`."""
        targets = torch.arange(self.game.num_targets, device=responses.device)
        y = self.game.query(targets).select(responses)
        y = mask_invalid(self.game, masks.keep, y, targets).cpu()
        self._make_room(float(y.nan_to_num(0).abs().max()))
        y = y.div_(self.unit).half()
        rows = np.packbits(masks.keep.cpu().numpy(), axis=1)
        self.offered = list(zip(rows, masks.probability.tolist(), y, strict=True))

    def _make_room(self, largest: float) -> None:
        """Enlarge the unit if no float16 holds a response."""
        if largest > MAX_HALF_UNITS * self.unit:
            factor = 2 * largest / (MAX_HALF_UNITS * self.unit)
            self.unit, self.responses = self.unit * factor, [(y.float() / factor).half() for y in self.responses]

    def settle(self) -> None:
        """Keep what was offered."""
        for row, probability, y in self.offered:
            position = self._position()
            self.num_offered += 1
            if position == len(self.rows):
                self.rows.append(row.copy())
                self.probability.append(probability)
                self.responses.append(y.clone())
            elif position is not None:
                self.rows[position], self.probability[position] = row.copy(), probability
                self.responses[position] = y.clone()
        self.offered = []

    def _position(self) -> int | None:
        """Return the slot of the next sample, by the seed and its number, or None if it is not kept."""
        if self.num_offered < self.most:
            return self.num_offered
        drawn = generator(self.seed * 1_000_003 + self.num_offered)
        position = int(torch.randint(self.num_offered + 1, (1,), generator=drawn))
        return position if position < self.most else None

    def samples(self) -> SharedSamples | None:
        """Return what was kept, or None."""
        if not self.rows:
            return None
        columns = self.game.num_players
        game, packed = self.game, np.stack(self.rows)
        inside = np.empty((columns, -(-len(self.rows) // 8)), np.uint8)
        for first in range(0, packed.shape[1], 4096):  # in pieces, because all bits as bytes may not fit
            bits = np.unpackbits(packed[:, first : first + 4096], axis=1)[:, : columns - 8 * first]
            inside[8 * first : 8 * first + bits.shape[1]] = np.packbits(bits.T, axis=1)
        classes = game.explained_class[: game.num_targets]
        full = game.full_values[: game.num_targets].gather(1, classes.unsqueeze(1)).squeeze(1)
        responses, probability = torch.stack(self.responses).T.contiguous(), torch.tensor(self.probability)
        targets = torch.arange(game.num_targets, device=full.device)
        empty = game.query(targets).select(game.empty_values.unsqueeze(0))[0] if game.index.adds_up else full
        values = (classes.cpu(), full.cpu(), (full - empty).cpu())
        stored = (torch.from_numpy(inside), probability, responses, self.unit, *values)
        return SharedSamples(*stored, game.index.name)

    def state_dict(self) -> dict[str, Any]:
        """Return the state for a checkpoint."""
        rows = torch.from_numpy(np.stack(self.rows)) if self.rows else None
        responses = torch.stack(self.responses) if self.responses else None
        probability = torch.tensor(self.probability) if self.rows else None
        return {"seen": self.num_offered, "rows": rows, "d": responses, "p": probability, "unit": self.unit}

    def load_state_dict(self, content: dict[str, Any]) -> None:
        """Load a checkpoint.

        Raises:
            LaraError: If it is damaged, or of another graph.
        """
        columns = self.game.num_players
        fields = {
            "seen": whole(), "rows": maybe(tensor(torch.uint8, None, -(-columns // 8))),
            "d": maybe(tensor(torch.half, None, self.game.num_targets, gaps=self.game.task.min_valid_masks > 0)),
            "p": maybe(tensor(torch.float, None)), "unit": between(1e-7, 1e30),
        }  # fmt: skip
        validate(content, fields, "what it keeps of shared coalitions", optional=("unit",))
        self.num_offered, self.unit = content["seen"], content.get("unit", self.unit)
        self.rows = [] if content["rows"] is None else list(content["rows"].numpy())
        self.responses = [] if content["d"] is None else list(content["d"])
        self.probability = [] if content["p"] is None else content["p"].tolist()
        if not len(self.rows) == len(self.responses) == len(self.probability) <= self.num_offered:
            raise LaraError("samples.damaged")
        if len(self.rows) < self.num_offered:  # a full reservoir keeps its size, whatever memory there is now
            self.most = min(self.most, len(self.rows))


def draw_more(reservoir: SampleReservoir, pairs: int) -> None:
    """Evaluate f under new coalitions of all players and keep the samples."""
    game, drawn = reservoir.game, generator(reservoir.seed * 1_000_003 + 700_000_000)
    columns = game.num_players
    step = max(1, min(pairs, game.nodes_per_call // game.graph.num_nodes()))
    label = "asking the model about coalitions that all targets share"
    full, empty = game.full_values[: game.num_targets], torch.zeros(1, device=game.features.device)
    if game.index.is_centred:
        empty = game.empty_values
    for start in Progress(range(0, pairs, step), label, unit="pass"):
        masks = game.index.draw(min(step, pairs - start), columns, drawn, game.features.device)
        inside = game.shared_values(masks.keep)
        outside = game.shared_values(~masks.keep) if game.index.evaluates_complements else inside
        reservoir.add(masks, game.index.response(inside, outside, full, empty, masks.probability))
