"""Players, hops, walk weights and Eq. 13, against networkx and dense matrices."""

import dgl
import networkx as nx
import pytest
import torch
from codes import raises
from games import SmallGCN, random_graph

from dgl_lara.game.player_index import MANY, in_neighborhood, nodes_of_graphs
from dgl_lara.game.receptive_field import max_hop
from dgl_lara.game.tasks import NODE
from dgl_lara.game.walks import walk_scale, walk_weights
from dgl_lara.graphs import khop_kernel


def directed_graph():
    generator = torch.Generator().manual_seed(3)
    src, dst = torch.randint(40, (2, 90), generator=generator)
    return dgl.graph((src, dst), num_nodes=40)  # with loops and double edges


@pytest.mark.parametrize("graph", [random_graph(30, 40, 0), directed_graph()], ids=["undirected", "directed"])
@pytest.mark.parametrize("hops", [0, 1, 3])
@pytest.mark.parametrize("copies", [1, MANY // 4], ids=["few", "many, compiled"])
def test_players_are_nodes_that_reach_the_target(graph, hops, copies, monkeypatch):
    listed = []
    monkeypatch.setattr(
        khop_kernel, "list_players", lambda *a, whole=khop_kernel.list_players: listed.append(a) or whole(*a)
    )
    reverse = nx.DiGraph()
    reverse.add_nodes_from(range(graph.num_nodes()))
    reverse.add_edges_from(zip(graph.edges()[1].tolist(), graph.edges()[0].tolist(), strict=True))
    targets = torch.tensor([7, 0, 21, 7] * copies)
    found = in_neighborhood(graph, targets, hops)
    assert bool(listed) == (copies > 1)
    for row, target in enumerate(targets.tolist()):
        expected = nx.single_source_shortest_path_length(reverse, target, cutoff=hops)
        mine = found.part(slice(row, row + 1))
        assert dict(zip(mine.player.tolist(), mine.hop.tolist(), strict=True)) == expected
    assert int(found.counts.sum()) == len(found.player)
    assert bool((found.key.diff() > 0).all())


def test_walk_weights_are_powers_of_the_normalised_adjacency():
    graph = directed_graph()
    dense = torch.zeros(40, 40)
    src, dst = graph.edges()
    dense.index_put_((dst, src), torch.ones(len(src)), accumulate=True)
    scale = walk_scale(graph)
    normalised = scale[:, None] * (dense + torch.eye(40)) * scale[None, :]
    players = in_neighborhood(graph, torch.arange(40), 3)
    weights = walk_weights(graph, players, 3)
    assert weights.std() > 0.01
    for step in range(4):
        power = torch.linalg.matrix_power(normalised, step)
        torch.testing.assert_close(weights[:, step], power[players.row, players.player])
        reached = torch.zeros(40, 40, dtype=torch.bool)
        reached[players.row, players.player] = True
        assert not bool((power[~reached] != 0).any())  # walks never leave the players


def test_nodes_of_graphs():
    batch = dgl.batch([dgl.graph(([0], [1]), num_nodes=size) for size in (2, 4, 3)])
    players = nodes_of_graphs(batch, torch.tensor([2, 0]))
    assert players.player.tolist() == [6, 7, 8, 0, 1]
    assert players.row.tolist() == [0, 0, 0, 1, 1]


@pytest.mark.parametrize("layers", [1, 2, 3])
def test_max_hop_counts_the_layers(layers):
    """Eq. 13, on a model without degree normalisation, where it is exact."""

    def model(graph, h):
        for _ in range(layers):
            h = dgl.ops.copy_u_sum(graph, h) + h
        return h

    ring = dgl.graph((torch.arange(40), (torch.arange(40) + 1) % 40))
    features = torch.randn(40, 2, generator=torch.Generator().manual_seed(0))
    assert max_hop(model, NODE, ring, features, torch.tensor([0, 11, 30])) == layers


def test_degree_normalisation_looks_one_hop_further_unless_tolerated():
    graph, features = random_graph(200, 260, 1), torch.ones(200, 3)
    model = SmallGCN(layers=2)
    nodes = torch.arange(0, 200, 10)
    with torch.no_grad():
        assert max_hop(model, NODE, graph, features, nodes, tolerance=1e-6) == 3
        assert max_hop(model, NODE, graph, features, nodes, tolerance=0.5) <= 2


def test_a_model_that_sees_everything_is_refused_with_a_sentence():
    path = dgl.graph((torch.arange(49), torch.arange(1, 50)))

    def whole(graph, h):
        return h.sum(0, keepdim=True).expand(graph.num_nodes(), -1)

    with raises("hops.unbounded", limit=5):
        max_hop(whole, NODE, path, torch.ones(50, 1), torch.tensor([40]), limit=5)


def test_max_hop_is_not_fooled_by_a_hop_that_changes_nothing():
    """f looks exactly two steps back: 0 and 1 hops give the same (wrong) prediction, so Eq. 13 alone would say 0."""

    def model(graph, h):
        return dgl.ops.copy_u_sum(graph, dgl.ops.copy_u_sum(graph, h))

    ring = dgl.graph((torch.arange(40), (torch.arange(40) + 1) % 40))
    features = torch.randn(40, 2, generator=torch.Generator().manual_seed(0))
    assert max_hop(model, NODE, ring, features, torch.tensor([0, 11, 30])) == 2


def test_max_hop_looks_one_hop_further():
    """f = x + Ax - A^2 x on a chain of ones: the node alone has f's value by accident, and a hop more changes it."""
    chain = dgl.graph((torch.arange(1, 30), torch.arange(29)))

    def f(graph, x):
        once = dgl.ops.copy_u_sum(graph, x)
        return x + once - dgl.ops.copy_u_sum(graph, once)

    assert max_hop(f, NODE, chain, torch.ones(30, 1), torch.tensor([3, 9])) == 2
