"""Indices: how coalitions are drawn, and which average of marginal contributions is a score.

Let Delta_j(p) be the mean marginal contribution of player j if every other player stays with probability p. Then

    banzhaf   phi_j = Delta_j(1/2)                    Eq. 5: uniform coalitions
    shapley   phi_j = integral of Delta_j(p) dp       scores that add up to f(N) - f(no player)
    keep-P    phi_j = Delta_j(P)                      coalitions close to the whole graph

A mask keeps every player of a graph with one probability p, so it is a coalition of every target's players. If x_j = 1
for a player that stays, E[(x_j - p) f(S)] = p (1 - p) Delta_j(p). So scores are the linear fit of f(S) on x_j - p. For
Shapley values logit(p) is uniform. The mean of p (1 - p) Delta_j(p) is then proportional to the integral over p.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from dgl_lara.errors import InputError

MAX_LOGIT = 4.0  # of the probability to stay, for Shapley values: p lies between .018 and .982
MIN_KEEP, MAX_KEEP = 0.05, 0.99  # P of keep-P


@dataclass(frozen=True, eq=False)
class Masks:
    """Random coalitions.

    Attributes:
        keep: (num_masks, num_players) bool, whether a player is in S.
        probability: (num_masks,) with which each player stays.
    """

    keep: Tensor
    probability: Tensor

    def __len__(self) -> int:
        return len(self.keep)

    def __getitem__(self, rows: slice | Tensor) -> Masks:
        return Masks(self.keep[rows], self.probability[rows])

    def for_players(self, columns: slice | Tensor) -> Masks:
        """Select columns."""
        return replace(self, keep=self.keep[:, columns])

    def split(self, size: int) -> list[Masks]:
        """Split the masks into parts of at most `size`."""
        return [self[start : start + size] for start in range(0, len(self), size)]


class Index:
    """A law of coalitions and the regression that belongs to it.

    Under every law y = sum_j z_j phi_j + noise, with E[z] = 0 and E[z z^T] = I. The design is z_j = a sigma_j - b, with
    sigma_j = +1 inside S and -1 outside. The factor a is constant, and b depends on p. The response y is f(S), minus
    f(N without S) if the law is symmetric, in the scale of z and without the part that the mean score explains.
    """

    name: str
    words: str  # what a score is the mean of
    evaluates_complements: bool = True
    is_centred: bool = True  # the response uses the values with all and without any players
    objective: str = "least-squares"  # of training, by default
    adds_up: bool = False  # scores of a target add up to f(N) - f(no player)

    def probabilities(self, count: int, generator: torch.Generator | None = None) -> Tensor:
        """(count,) Return the probabilities to stay, drawn if there is a generator."""
        raise NotImplementedError

    def affine(self, probability: Tensor) -> tuple[float, Tensor]:
        """Return a and (num_masks,) b of the design."""
        raise NotImplementedError

    def response(self, inside: Tensor, outside: Tensor, full: Tensor, empty: Tensor, probability: Tensor) -> Tensor:
        """Return y.

        Args:
            inside: (num_masks, ...) values under S.
            outside: (num_masks, ...) values under the complement of S, ignored if the law does not evaluate it.
            full: (...) values with all players.
            empty: (...) values without any player.
            probability: (num_masks,) of the masks.
        """
        raise NotImplementedError

    def marginal_weights(self, players: int) -> Tensor:
        """(players,) Return the weight of the marginal contribution to one set of s other players, by s."""
        raise NotImplementedError

    def draw(self, count: int, players: int, generator: torch.Generator, device: torch.device | str = "cpu") -> Masks:
        """Draw coalitions on the CPU, so that they depend on the seed and not on the device."""
        probability = self.probabilities(count, generator)
        keep = torch.rand(count, players, generator=generator) < probability.unsqueeze(1)
        return Masks(keep.to(device), probability.to(device))

    def design(self, masks: Masks) -> Tensor:
        """(num_masks, num_players) Return z."""
        a, b = self.affine(masks.probability)
        return a * (masks.keep.float() * 2 - 1) - b.unsqueeze(1)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Index) and self.name == other.name

    def __hash__(self) -> int:
        return hash(self.name)

    def __repr__(self) -> str:
        return self.name


class Banzhaf(Index):
    """The paper's law: every coalition is equally likely."""

    name = "banzhaf"
    words = "over random coalitions"
    is_centred = False
    objective = "balanced"

    def probabilities(self, count: int, generator: torch.Generator | None = None) -> Tensor:
        return torch.full((count,), 0.5)

    def affine(self, probability: Tensor) -> tuple[float, Tensor]:
        return 1.0, torch.zeros_like(probability)

    def design(self, masks: Masks) -> Tensor:
        return masks.keep.float() * 2 - 1

    def response(self, inside: Tensor, outside: Tensor, full: Tensor, empty: Tensor, probability: Tensor) -> Tensor:
        return inside - outside

    def marginal_weights(self, players: int) -> Tensor:
        return torch.full((players,), 0.5 ** (players - 1), dtype=torch.float64)


class Shapley(Index):
    """Shapley values. The law of one mask is the mixture over p that gives every target the Shapley kernel."""

    name = "shapley"
    words = "over random orders of the players"
    adds_up = True

    def probabilities(self, count: int, generator: torch.Generator | None = None) -> Tensor:
        # complements cover p < 1/2
        jitter = torch.full((count,), 0.5) if generator is None else torch.rand(count, generator=generator)
        return torch.sigmoid((torch.arange(count) + jitter) / max(count, 1) * MAX_LOGIT)

    def affine(self, probability: Tensor) -> tuple[float, Tensor]:
        a = 1 / math.sqrt(2 / MAX_LOGIT * math.tanh(MAX_LOGIT / 2))  # E[4 p (1 - p)]
        return a, a * (2 * probability - 1)

    def response(self, inside: Tensor, outside: Tensor, full: Tensor, empty: Tensor, probability: Tensor) -> Tensor:
        a, b = self.affine(probability)
        return a * (inside - outside) - _like(b, inside) * (full - empty)

    def marginal_weights(self, players: int) -> Tensor:
        sizes = torch.arange(players, dtype=torch.float64)
        return (torch.lgamma(sizes + 1) + torch.lgamma(players - sizes) - math.lgamma(players + 1)).exp()


class Keep(Index):
    """The p-biased value: every other player stays with one probability, close to 1."""

    evaluates_complements = False

    def __init__(self, probability: float) -> None:
        if not MIN_KEEP <= probability <= MAX_KEEP:
            raise InputError("index.keep", least=MIN_KEEP, most=MAX_KEEP, got=probability)
        self.probability = probability
        self.name = f"keep-{probability:g}"
        self.words = f"over coalitions that keep {probability:.0%} of the players"

    @property
    def _scale(self) -> float:
        return math.sqrt(self.probability * (1 - self.probability))

    def probabilities(self, count: int, generator: torch.Generator | None = None) -> Tensor:
        return torch.full((count,), self.probability)

    def affine(self, probability: Tensor) -> tuple[float, Tensor]:
        return 0.5 / self._scale, torch.full_like(probability, (self.probability - 0.5) / self._scale)

    def response(self, inside: Tensor, outside: Tensor, full: Tensor, empty: Tensor, probability: Tensor) -> Tensor:
        return (inside - full + (1 - self.probability) * (full - empty)) / self._scale

    def marginal_weights(self, players: int) -> Tensor:
        sizes = torch.arange(players, dtype=torch.float64)
        return self.probability**sizes * (1 - self.probability) ** (players - 1 - sizes)


BANZHAF, SHAPLEY = Banzhaf(), Shapley()


def as_index(index: str | Index) -> Index:
    """Return the index of a name: "banzhaf", "shapley" or "keep-P" such as "keep-0.9"."""
    if isinstance(index, Index):
        return index
    known: dict[str, Index] = {"banzhaf": BANZHAF, "shapley": SHAPLEY}
    if index in known:
        return known[index]
    prefix, _, probability = str(index).partition("-")
    try:
        if prefix == "keep":
            return Keep(float(probability))
    except ValueError as error:
        if isinstance(error, InputError):
            raise
    raise InputError("index.unknown", got=index)


def _like(values: Tensor, other: Tensor) -> Tensor:
    """Return (num_masks,) values with the number of dimensions of another tensor."""
    return values.view(-1, *[1] * (other.dim() - 1))
