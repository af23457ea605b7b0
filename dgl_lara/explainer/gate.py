"""The gate w of Eq. 6: where a player stands as seen from the target, which its embedding alone cannot know.

    phi_hat(j -> i) = sum over terms d of w_d(i, j) <p_j^(d), t_i^(d)>

A gate is one file in `gates/`; it says how many terms there are and what w is. A gate whose sums can be had without
a list of pairs, or by the compiled walk, says that too; one that says nothing works all the same, pair by pair.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from torch import Tensor

from dgl_lara.game.player_index import Players
from dgl_lara.graphs.graph import Graph

if TYPE_CHECKING:
    from dgl_lara.explainer.encoder import EncoderGraph

# What the compiled walk (inference/kernels/walk.py) does at each step.
ONE_TERM, BY_HOP, BY_WALK = range(3)


class Gate:
    kernel: ClassVar[int | None] = None  # what the compiled walk does for it; None: it cannot

    def terms(self, hops: int) -> int:
        """How many <p, t> a score sums."""
        return hops + 1

    def weights(self, graph: Graph, players: Players, hops: int) -> Tensor:
        """w, (num_pairs, terms)."""
        raise NotImplementedError

    def scaled(self, p: Tensor, t: Tensor, scale: Tensor) -> tuple[Tensor, Tensor]:
        """p and t from what the heads say; factors of w that belong to one end alone go here."""
        return p, t

    supports_propagation: ClassVar[bool] = (
        False  # it has `arrivals` and `carry`: sums over walks without a list of pairs
    )

    def aggregate(self, graph: EncoderGraph, held: Tensor, terms: int, places: Tensor) -> Tensor:
        """(places, num_masks, terms * dim): sum_v w_d(i, v) held_v^(d). held: (num_nodes, num_masks, terms * dim)."""
        raise NotImplementedError

    def carry(self, graph: EncoderGraph, x: Tensor, steps: int, places: Tensor) -> Tensor:
        """(places, steps + 1, columns): sum_v w_d(i, v) x_v, the same x for every d."""
        raise NotImplementedError
