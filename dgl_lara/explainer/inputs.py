"""What g sees of a node. Everything here can be had of a black box.

features  the node features as they are (the paper)
rich      features on a signed-log scale, log degree, f's logits, f's solo logits (f on the node alone); on graphs of
          several types also what f makes of nodes of which it says nothing (`probe_outputs.py`)

Wide features (bags of words) are left out of `rich`: g would learn single nodes by heart from them, and what f makes of
them is in its solo logits. For a GAT on Cora, R2 on unseen nodes rose from .88 to .99 without them.
"""

from __future__ import annotations

import torch
from torch import Tensor

from dgl_lara._util.randomness import generator
from dgl_lara.blackbox.eval_mode import eval_mode
from dgl_lara.blackbox.input_adapter import MAX_INPUT_COLUMNS, input_adapter
from dgl_lara.explainer.encoder import EncoderGraph
from dgl_lara.explainer.network import Explainer
from dgl_lara.explainer.probe import probe_outputs
from dgl_lara.game.game import Game
from dgl_lara.game.receptive_field import evenly_spaced
from dgl_lara.game.removal import edgeless, loops_of

CLIP = 4.0
PARTNERS = 16  # nodes with which a model of pairs is asked to pair everybody


def explainer_inputs(game: Game, kind: str, nodes: Tensor | None = None) -> Tensor:
    """(num_nodes, in_dim), before normalisation; of all nodes, or of some."""
    count = game.graph.num_nodes() if nodes is None else len(nodes)
    if count <= game.nodes_per_call:
        return _rows(game, kind, nodes)
    nodes = torch.arange(count, device=game.features.device) if nodes is None else nodes
    result, done = None, 0
    for part in nodes.split(game.nodes_per_call):  # in pieces: f's own states on all nodes may not fit
        rows = _rows(game, kind, part)
        result = rows.new_empty(len(nodes), rows.shape[1]) if result is None else result
        result[done : done + len(rows)] = rows
        done += len(rows)
    assert result is not None
    return result


def _rows(game: Game, kind: str, nodes: Tensor | None) -> Tensor:
    """Of some nodes; None: of all, whose rows need not be gathered."""
    here = slice(None) if nodes is None else nodes
    features = game.features[here]
    if kind == "features":
        return torch.cat([block[here].float() for block in game.input_blocks], dim=1)
    loops = loops_of(game.graph)[here]
    tells_apart = game.edge_inputs is not None and bool(loops.any())  # what own loops carry
    chosen, place = (_everyone(features),) * 2 if tells_apart else _unlike(features, loops)
    ids = chosen if nodes is None else nodes[chosen]
    own = [
        signed_log(features[chosen].float()).index_select(0, place)
        if block is game.features
        else signed_log(block[here].float())
        for block in game.input_blocks
        if block.shape[1] <= MAX_INPUT_COLUMNS
    ]
    degree = torch.log1p(game.in_degrees[here].float()).unsqueeze(1)
    return torch.cat([*own, degree, *_said(game, nodes, ids, place)], dim=1)


def _said(game: Game, nodes: Tensor | None, ids: Tensor, place: Tensor) -> list[Tensor]:
    """f's logits of each node, and of the node alone. A model of pairs says how it pairs each node with some others."""
    here = slice(None) if nodes is None else nodes
    with eval_mode(game.f):
        if game.task.num_endpoints > 1:
            return _paired(game, nodes)
        solo = game.caller(game.task.mark_singles(edgeless(game.graph, ids)), game.features[ids])
        more = [] if game.types is None else [probe_outputs(game, nodes)]
    return [game.task.expand_to_nodes(game.graph, game.full_logits)[here], solo.index_select(0, place), *more]


def _paired(game: Game, nodes: Tensor | None) -> list[Tensor]:
    """What f says of pairs of each node with a few others, as the graph is and where nobody has an edge. Nodes that
    cannot stand on one side of a pair, by their type, have zeros there."""
    count, device = game.graph.num_nodes(), game.features.device
    nodes = torch.arange(count, device=device) if nodes is None else nodes
    alone = edgeless(game.graph, torch.arange(count, device=device))
    columns = []
    sides = input_adapter(game.f).endpoint_ranges(count)
    for side, (mine, theirs) in enumerate(zip(sides, reversed(sides), strict=True)):
        stands = (nodes >= mine.start) & (nodes < mine.stop)
        others = theirs.start + evenly_spaced(len(theirs), PARTNERS, device)
        me, other = nodes[stands].repeat_interleave(len(others)), others.repeat(int(stands.sum()))
        ends = (me, other) if side == 0 else (other, me)
        for graph in (game.graph, alone):
            said = game.caller(graph, game.features, *ends).view(int(stands.sum()), -1)
            rows = said.new_zeros(len(nodes), said.shape[1])
            rows[stands] = said
            columns.append(rows)
    return columns


def _unlike(features: Tensor, loops: Tensor) -> tuple[Tensor, Tensor]:
    """Some of the nodes, and for each node which of these it cannot be told from where it is alone. Atoms of a kind
    have the same features, and f need not be asked about each; where hardly two nodes have, these are all nodes."""
    everyone = _everyone(features)
    if features.shape[1] > MAX_INPUT_COLUMNS:
        return everyone, everyone
    weights = torch.rand(features.shape[1], generator=generator(0)).to(features.device)
    kinds, place = torch.unique(features.float() @ weights - loops, return_inverse=True)
    if 2 * len(kinds) > len(features):
        return everyone, everyone
    one = torch.empty_like(kinds, dtype=torch.long).scatter_(0, place, everyone)
    alike = all(torch.equal(part[one].index_select(0, place), part) for part in (features, loops))
    return (one, place) if alike else (everyone, everyone)


def _everyone(features: Tensor) -> Tensor:
    return torch.arange(len(features), device=features.device)


def encoder_graph(game: Game, kind: str) -> EncoderGraph:
    """The whole graph as g sees it; made once for training and for the pass that embeds everything."""
    return EncoderGraph.of(game.graph, explainer_inputs(game, kind), game.in_degrees)


def signed_log(x: Tensor) -> Tensor:
    """Compresses large values of either sign, so that a single outlier does not fix the scale."""
    return x.sign() * x.abs().log1p()


def fit_normalisation(explainer: Explainer, inputs: Tensor, others: Tensor | None = None) -> None:
    """Centre and scale from these rows (the training nodes); clip what lies far outside, seen or unseen. `others`: rows
    of everybody, for the scale of columns that are only of other types."""
    explainer.centre.copy_(inputs.median(dim=0).values)
    spread = inputs.std(dim=0, unbiased=False)
    usual = torch.ones_like(spread)
    if others is not None:
        size = others.square().sum(0).div((others != 0).sum(0).clamp(min=1)).sqrt()
        usual = torch.where(size > 1e-3, size, usual)
    explainer.spread.copy_(torch.where(spread > 1e-3, spread, usual))
    explainer.clip.fill_(CLIP)
