"""The gate w of Eq. 6: the position of a player relative to the target, which its embedding alone cannot contain.

    phi_hat(j -> i) = sum over terms d of w_d(i, j) <p_j^(d), t_i^(d)>

A gate is one file in `gates/`. It must return the number of terms and w. It may also propagate messages without a list
of pairs, and name the compiled kernel that computes its weights.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from torch import Tensor

from dgl_lara.game.player_index import Players
from dgl_lara.graphs.graph import Graph

if TYPE_CHECKING:
    from dgl_lara.explainer.encoder import EncoderGraph

# what the compiled walk (inference/kernels/walk.py) does at each step
ONE_TERM, BY_HOP, BY_WALK = range(3)


class Gate:
    """Base class of gates."""

    kernel: ClassVar[int | None] = None  # kind of step of the compiled walk; None: no compiled code

    def terms(self, hops: int) -> int:
        """Return how many products <p, t> a score sums."""
        return hops + 1

    def weights(self, graph: Graph, players: Players, hops: int) -> Tensor:
        """Return w, (num_pairs, terms)."""
        raise NotImplementedError

    def scaled(self, p: Tensor, t: Tensor, scale: Tensor) -> tuple[Tensor, Tensor]:
        """Return p and t, multiplied by the factors of w that depend on one end only."""
        return p, t

    supports_propagation: ClassVar[bool] = False  # it has `aggregate` and `propagate`

    def aggregate(self, graph: EncoderGraph, messages: Tensor, terms: int, nodes: Tensor) -> Tensor:
        """Return sum_v w_d(i, v) m_v^(d) for the nodes i, (len(nodes), num_masks, terms * dim).

        Args:
            graph: The graph.
            messages: (num_nodes, num_masks, terms * dim) messages m that nodes hold.
            terms: Number of terms d.
            nodes: Nodes i.
        """
        raise NotImplementedError

    def propagate(self, graph: EncoderGraph, x: Tensor, steps: int, nodes: Tensor) -> Tensor:
        """Return sum_v w_d(i, v) x_v for the nodes i, (len(nodes), steps + 1, columns), with one x for all d."""
        raise NotImplementedError
