"""What edges carry reaches f through every removal; models that read none of it are asked as ever."""

from dataclasses import replace

import dgl
import pytest
import torch
from codes import raises
from games import PooledGCN, SmallGCN, random_graph

from dgl_lara import LARA, Edges, Features
from dgl_lara._util.randomness import generator
from dgl_lara.attribution.exact import all_coalitions, exact
from dgl_lara.attribution.monte_carlo import least_squares
from dgl_lara.blackbox.edge_data import WithEdgeData
from dgl_lara.blackbox.input_adapter import EDGE_ID
from dgl_lara.errors import ModelError
from dgl_lara.explainer.decoder import PairBatch
from dgl_lara.explainer.inputs import encoder_graph, explainer_inputs
from dgl_lara.game.game import Game, ModelOutputs
from dgl_lara.game.values import ClassQuery
from dgl_lara.inference.layerwise import embed_layerwise, predict_in_batches
from dgl_lara.inference.scorer import Scorer, embed_all
from dgl_lara.training.coalitions import evaluate_coalitions
from dgl_lara.training.config import TrainingConfig
from dgl_lara.training.loop import new_explainer
from dgl_lara.training.objective import Step
from dgl_lara.training.subgraphs import FullGraph, NeighborSubgraphs

SMALL = TrainingConfig(hidden=16, dim=5, masks=4, steps=30)


def with_data(graph, seed=0):
    """Columns of several shapes and types; no two edges, parallel ones neither, carry the same."""
    count = graph.num_edges()
    graph.edata["amount"] = 0.5 + torch.randperm(count, generator=generator(seed)).float() / count
    graph.edata["kind"] = torch.arange(count) % 3
    graph.edata["two"] = torch.randn(count, 2, generator=generator(seed + 1))
    return graph


def parallel(nodes=14, edges=16, seed=0, loops="some"):
    """Edges in both directions, some of them twice; loops at some nodes, at all, or at none."""
    graph = random_graph(nodes, edges, seed)
    src, dst = graph.edges()
    own = torch.arange({"some": 3, "all": nodes, "none": 0}[loops])
    src, dst = torch.cat([src, src[:5], own]), torch.cat([dst, dst[:5], own])
    order = torch.randperm(len(src), generator=generator(seed))
    return with_data(dgl.graph((src[order], dst[order]), num_nodes=nodes), seed)


def numbers(nodes):
    """Features: who it is, and something to compute with."""
    return torch.stack([torch.arange(nodes).float(), torch.rand(nodes, generator=generator(9))], dim=1)


def table(graph, ids):
    """What f is given, edge by edge: places, ends, and all that the edge carries."""
    src, dst = graph.edges()
    columns = [src, dst, ids[src], ids[dst]]
    columns += [part for _, rows in sorted(graph.edata.items()) for part in rows.unsqueeze(1).flatten(1).T]
    return ids.tolist(), sorted(graph.edata), sorted(zip(*(column.tolist() for column in columns), strict=True))


class Spy(torch.nn.Module):
    """Two rounds of weighted sums, a class a column; remembers what it was given."""

    def __init__(self):
        super().__init__()
        self.given = []

    def forward(self, graph, x):
        self.given.append(table(graph, x[:, 0]))
        self.batches = graph.batch_num_nodes().tolist(), graph.batch_num_edges().tolist()
        weight = graph.edata["amount"] * (1 + graph.edata["kind"]) + graph.edata["two"].sum(1) / 4
        h = x[:, 1:] + dgl.ops.u_mul_e_sum(graph, x[:, 1:], weight)
        h = h + dgl.ops.u_mul_e_sum(graph, h, weight)
        return torch.cat([h, 1 - h], dim=1)


class Pooled(Spy):
    """Sums over the nodes, and over the edges, of each graph of the batch."""

    def forward(self, graph, x):
        h = dgl.ops.segment_reduce(graph.batch_num_nodes(), super().forward(graph, x), "sum")
        with graph.local_scope():
            return h + dgl.sum_edges(graph, "amount").unsqueeze(1)


class EdgeNet(SmallGCN):
    """The small GCN, with messages weighted by what edges carry."""

    def forward(self, graph, h):
        weight = graph.edata["amount"] * (1 + graph.edata["kind"]) + graph.edata["two"].tanh().sum(1) / 4
        scale = (graph.in_degrees().float() + 1).rsqrt().unsqueeze(1)
        for place, layer in enumerate(self.weights):
            h = (h @ layer) * scale
            h = (dgl.ops.u_mul_e_sum(graph, h, weight) + h) * scale
            h = torch.relu(h) if place + 1 < len(self.weights) else h
        return h


def expected(graph, parts):
    """By DGL's own means, of parts of the user's graph side by side."""
    graph.ndata["id"] = torch.arange(graph.num_nodes()).float()
    many = dgl.batch([cut(graph) for cut in parts])
    return table(many, many.ndata["id"])


def left_of(nodes):
    return lambda graph: dgl.node_subgraph(graph, nodes, store_ids=False)


def masks(count, players, seed=2):
    return torch.rand(count, players, generator=generator(seed)) < 0.6


GRAPHS = pytest.mark.parametrize("loops", ["some", "all", "none"])


@GRAPHS
@pytest.mark.parametrize("idtype", [torch.int32, torch.int64], ids=str)
def test_node_subgraphs_equal_those_of_dgl(loops, idtype):
    graph, f = parallel(loops=loops).astype(idtype), Spy()
    game, keep = Game.create(f, graph, numbers(14), hops=2), masks(5, 14)
    game.shared_values(keep)
    assert f.given[-1] == expected(graph.long(), [left_of(mask.nonzero().flatten()) for mask in keep])
    assert f.given[0] == expected(graph.long(), [left_of(torch.arange(14))])
    assert f.given[0][1] == ["amount", "kind", "two"]


@pytest.mark.parametrize("directed", [True, False])
def test_edge_subgraphs_equal_those_of_dgl(directed):
    """Parallel edges go together, and loops stay."""
    graph, f = parallel(), Spy()
    game = Game.create(f, graph, numbers(14), hops=2, players=Edges(directed))
    keep = masks(5, game.num_players)
    game.shared_values(keep)
    player = game.player_set.player_of_edges(*graph.edges())
    gone = [((player >= 0) & ~mask[player.clamp(min=0)]).nonzero().flatten() for mask in keep]
    parts = [lambda whole, ids=ids: dgl.remove_edges(whole, ids, store_ids=False) for ids in gone]
    assert f.given[-1] == expected(graph, parts)
    assert min(len(ids) for ids in gone) > 3


def ego(graph, targets, hops):
    return dgl.khop_in_subgraph(graph, targets, k=hops)[0].ndata[dgl.NID].sort().values


@GRAPHS
def test_nodes_taken_out_of_ego_graphs(loops):
    graph, f = parallel(40, 30, loops=loops), Spy()
    game = Game.create(f, graph, numbers(40), hops=2)
    players = game.players(torch.tensor([7, 2, 30]))
    keep, parts = masks(4, len(players.player)), []
    game.values_per_target(players, keep)
    for mask in keep:
        for target, mine in zip(players.targets, players.slices, strict=True):
            around = ego(graph, target, game.context_hops)
            parts.append(left_of(around[~torch.isin(around, players.player[mine][~mask[mine]])]))
    assert f.given[-1] == expected(graph, parts)


def test_edges_taken_out_of_ego_graphs():
    graph, f = parallel(40, 30), Spy()
    game = Game.create(f, graph, numbers(40), hops=2, players="edges")
    players = game.players(torch.tensor([7, 2, 30]))
    keep, parts = masks(4, len(players.player)), []
    game.values_per_target(players, keep)

    def cut(whole, around, gone):
        part = dgl.node_subgraph(whole, around)
        names = part.ndata.pop(dgl.NID)
        player = game.player_set.player_of_edges(*(names[end] for end in part.edges()))
        part.edata.pop(dgl.EID)
        return dgl.remove_edges(part, torch.isin(player, gone).nonzero().flatten(), store_ids=False)

    for mask in keep:
        for target, mine in zip(players.targets, players.slices, strict=True):
            gone = players.player[mine][~mask[mine]]
            parts.append(
                lambda whole, target=target, gone=gone: cut(whole, ego(whole, target, game.context_hops), gone)
            )
    assert f.given[-1] == expected(graph, parts)


def test_a_mini_batch():
    graph, f = parallel(40, 30), Spy()
    game, targets = Game.create(f, graph, numbers(40), hops=2), torch.tensor([2, 7])
    batch = game.player_set.batch(targets, 3)
    coalitions = evaluate_coalitions(game, batch, 3, generator(1))
    players = ego(graph, targets, 2)
    parts = []
    for mask in ~coalitions.masks.keep:  # the last masks are the complements
        gone = coalitions.ids[~mask]
        around = ego(graph, targets, 3)
        parts.append(left_of(around[~(torch.isin(around, gone) & torch.isin(around, players))]))
    assert f.given[-1] == expected(graph, parts)
    assert len(ego(graph, targets, 3)) > len(players)


@pytest.mark.parametrize("players", ["nodes", "edges"])
def test_graphs_of_a_batch_in_any_order(players):
    graphs = [parallel(size, size, size) for size in (5, 7, 4)]
    batch, f = dgl.batch(graphs), Pooled()
    game = Game.create(f, batch, numbers(16), "graph", players=players)
    targets = torch.tensor([2, 0])
    mine = game.players(targets)
    keep = torch.ones(1, len(mine.player), dtype=torch.bool)
    requested = game.logits_per_target(mine, keep)[0]
    torch.testing.assert_close(requested, game.full_logits[targets])  # sums over edges too: edges stand graph by graph
    assert f.given[-1] == expected(batch, [left_of(torch.arange(12, 16)), left_of(torch.arange(5))])
    assert f.batches == ([4, 5], [graphs[2].num_edges(), graphs[0].num_edges()])
    some = game.task.full_batch(game.graph, targets)
    game.batch_logits(some, torch.ones(1, len(game.player_set.ids(some)), dtype=torch.bool))
    assert f.given[-1] == expected(batch, [left_of(torch.arange(5)), left_of(torch.arange(12, 16))])


def test_nodes_taken_out_of_graphs():
    batch, f = dgl.batch([parallel(size, size, size) for size in (5, 7, 4)]), Pooled()
    game, keep = Game.create(f, batch, numbers(16), "graph"), masks(3, 16)
    keep[1, 5:12] = False
    values = game.shared_values(keep)
    assert f.given[-1] == expected(batch, [left_of(mask.nonzero().flatten()) for mask in keep])
    start = 0
    for number, size in enumerate((5, 7, 4)):
        alive = torch.arange(start, start + size)[keep[0, start : start + size]]
        part = dgl.node_subgraph(batch, alive, store_ids=False)
        torch.testing.assert_close(values[0, number], f(part, numbers(16)[alive])[0])
        start += size


@GRAPHS
def test_a_node_alone_keeps_what_its_own_loop_carries(loops):
    graph, f = parallel(loops=loops), Spy()
    game = Game.create(f, graph, numbers(14), hops=2)
    for nodes in (None, torch.tensor([1, 4, 9])):
        explainer_inputs(game, "rich", nodes)
        alone = range(14) if nodes is None else nodes.tolist()
        assert f.given[-1] == expected(graph, [left_of(torch.tensor([node])) for node in alone])


def test_nodes_that_are_alike_but_for_what_their_loops_carry():
    graph, x = parallel(loops="all"), torch.ones(14, 2)
    game = Game.create(Spy(), graph, x, hops=2)
    solo = explainer_inputs(game, "rich")[:, -2:]
    alone = [Spy()(dgl.node_subgraph(graph, [node]), x[:1])[0] for node in range(14)]
    torch.testing.assert_close(solo, torch.stack(alone))
    assert solo.std(0).min() > 0.05


@GRAPHS
def test_nothing_at_all_carries_nothing(loops):
    graph, f = parallel(loops=loops), Spy()
    game = Game.create(f, graph, numbers(14), hops=2, known=ModelOutputs(context_hops=2))
    nothing = with_data(dgl.graph(([0], [0]) if loops == "all" else ([], []), num_nodes=1))
    for name, rows in nothing.edata.items():
        nothing.edata[name] = torch.zeros_like(rows)
    assert f.given[-1] == table(nothing, torch.zeros(1))
    torch.testing.assert_close(game.null_logits, Spy()(nothing, torch.zeros(1, 2))[0])


# --- models that read none


def test_a_model_without_edge_data_gets_none():
    bare = parallel()
    for name in list(bare.edata):
        bare.edata.pop(name)
    x, keep = numbers(14), masks(5, 14)
    without, given = Game.create(SmallGCN(2), bare, x, hops=2), Game.create(SmallGCN(2), parallel(), x, hops=2)
    assert not given.graph.edata and not isinstance(given.f, WithEdgeData) and given.edge_inputs is None
    assert given.caller.num_calls == without.caller.num_calls + 1
    assert torch.equal(given.shared_values(keep), without.shared_values(keep))
    found = [LARA(SmallGCN(2), graph, x, hops=2, config=SMALL).fit(range(14)) for graph in (bare, parallel())]
    one, other = (lara.explain(range(14)).scores for lara in found)
    assert torch.equal(one, other) and one.std() > 1e-3
    assert found[1].explainer_.config.edge_columns == 0


def test_a_model_that_reads_it_is_given_it():
    game = Game.create(EdgeNet(2), parallel(), numbers(14), hops=2)
    assert isinstance(game.f, WithEdgeData) and game.edge_inputs.shape[1] == 1 + 16 + 2
    known = Game.create(EdgeNet(2), parallel(), numbers(14), hops=2, uses_edge_data=True)
    assert known.caller.num_calls == game.caller.num_calls - 1  # f is not asked what is known


def test_a_column_may_have_any_name():
    """Also that under which edges are numbered inside."""
    graph, x = parallel(), numbers(14)
    graph.edata["edge"] = graph.edata["amount"]

    def f(graph, x):
        return dgl.ops.u_mul_e_sum(graph, x, graph.edata["edge"])

    for made in (Game.create(f, graph, x, hops=1), LARA(f, graph, x, hops=1).game):
        keep = masks(3, 14)
        left = dgl.node_subgraph(graph, keep[0].nonzero().flatten())
        torch.testing.assert_close(made.shared_values(keep)[0, keep[0]], f(left, x[keep[0]]))


def test_edge_data_that_f_wants_and_the_graph_lacks():
    graph = parallel()
    graph.edata.pop("kind")
    with raises("model.missing_key", ModelError, key="'kind'", carried="'amount', 'two'"):
        LARA(EdgeNet(2), graph, numbers(14), hops=2).fit([1, 2, 3])
    with raises("model.missing_key", ModelError, key="'amount'", carried="no data"):
        LARA(EdgeNet(2), random_graph(14, 16, 0), numbers(14), hops=2).fit([1, 2, 3])


def test_complex_numbers_on_edges():
    graph = parallel()
    graph.edata["phase"] = torch.ones(graph.num_edges(), dtype=torch.complex64)
    with raises("edge_data.complex", name="phase"):
        LARA(EdgeNet(2), graph, numbers(14), hops=2, config=SMALL).fit([1, 2, 3])


@pytest.mark.parametrize("unknown", [float("nan"), float("inf")])
def test_nan_and_infinity_on_edges(unknown):
    graph = parallel()
    graph.edata["noted"] = torch.full((graph.num_edges(),), unknown)
    with raises("edge_data.not_finite", name="noted"):
        LARA(EdgeNet(2), graph, numbers(14), hops=2, config=SMALL).fit([1, 2, 3])


# --- known attributions


def weighted(graph, x):
    """What arrives over the edges, by their weights."""
    return dgl.ops.u_mul_e_sum(graph, x, graph.edata["amount"])


def test_edges_of_a_linear_model_have_what_they_carry():
    graph = parallel()
    game = Game.create(weighted, graph, numbers(14)[:, 1:], hops=1, players="edges", value="output")
    players = game.players(torch.arange(14))
    (src, dst), loop = graph.edges(), 0
    worth = torch.zeros(14, game.num_players)
    carried = graph.edata["amount"] * game.features[src, 0]
    loop = src == dst
    worth.index_put_((dst[~loop], game.player_set.player_of_edges(src, dst)[~loop]), carried[~loop], accumulate=True)
    phi = exact(game, players)
    assert phi.std() > 0.05
    torch.testing.assert_close(phi, worth[players.row, players.player], atol=1e-5, rtol=1e-4)


def test_nodes_of_a_linear_model_have_half_of_what_arrives_of_them():
    """What arrives is there only with the target: either has half of it."""
    graph = parallel(loops="none")
    game = Game.create(weighted, graph, numbers(14)[:, 1:], hops=1, value="output")
    players = game.players(torch.arange(14))
    arrives = torch.zeros(14, 14).index_put_(
        graph.edges()[::-1], graph.edata["amount"] * game.features[graph.edges()[0], 0], accumulate=True
    )
    half = arrives / 2
    half[range(14), range(14)] = arrives.sum(1) / 2
    torch.testing.assert_close(exact(game, players), half[players.row, players.player], atol=1e-5, rtol=1e-4)


@torch.no_grad()
def test_enumeration_by_hand():
    graph, x, f = parallel(8, 6), numbers(8), EdgeNet(2)
    game = Game.create(f, graph, x, hops=2)
    target = int(graph.in_degrees().argmax())
    players = game.players(torch.tensor([target]))
    keep, chosen = all_coalitions(len(players.player)), game.explained_class[target]
    values = []
    for mask in keep:
        stays = torch.ones(8, dtype=torch.bool)
        stays[players.player[~mask]] = False
        part = dgl.node_subgraph(graph, stays.nonzero().flatten())
        output = f(part, x[stays])[stays[:target].sum()] if stays[target] else game.null_logits
        values.append(output[chosen])
    values = torch.stack(values)
    phi = torch.stack([values[side].mean() - values[~side].mean() for side in keep.T])
    assert phi.std() > 0.01
    torch.testing.assert_close(exact(game, players), phi, atol=1e-5, rtol=1e-4)


# --- g


@pytest.mark.parametrize("gate", ["walk", "random-walk", "hop", "none"])
@pytest.mark.parametrize("players", [Edges(), Edges(directed=True), "nodes", Features()], ids=str)
def test_walks_equal_lists_of_pairs(players, gate):
    game = Game.create(EdgeNet(2), parallel(40, 50, 4), numbers(40) / 10, hops=2, players=players)
    seen, targets = encoder_graph(game, "rich"), torch.tensor([1, 5, 30])
    g = new_explainer(game, replace(SMALL, gate=gate), seen.inputs, targets)
    assert g.config.edge_columns == 19
    coalitions = evaluate_coalitions(game, FullGraph(game, seen).batch(targets), 4, generator(3))
    steps = [Step(game, g, coalitions, form(game, seen).embed(g, targets)) for form in (FullGraph, NeighborSubgraphs)]
    pairs = steps[0]._by_pairs()
    assert pairs.std() > 1e-3
    for step in steps:
        torch.testing.assert_close(step.predicted_responses(), pairs, atol=1e-5, rtol=1e-4)
        torch.testing.assert_close(step._by_pairs(), pairs, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("players", [Edges(), Edges(directed=True)], ids=str)
def test_the_compiled_walk_knows_what_edges_carry(players):
    game = Game.create(EdgeNet(2), parallel(70, 120, 3), numbers(70) / 10, hops=3, players=players)
    seen, everyone = encoder_graph(game, "rich"), torch.arange(70)
    g = new_explainer(game, SMALL, seen.inputs, everyone).requires_grad_(False)
    embeddings, found = embed_all(g, game, "rich"), game.players(everyone)
    t = g.for_class(embeddings.target, ClassQuery(game.explained_class))
    scores = g.decoder.scores(g, PairBatch(game, found, embeddings.source, t))
    many = Scorer(g, game, embeddings).explain(everyone)
    torch.testing.assert_close(many.scores, scores, atol=1e-5, rtol=1e-3)
    best = Scorer(g, game, embeddings).top(everyone, 3)
    real = best.player >= 0
    first = many.rank() < 3
    torch.testing.assert_close(
        torch.from_numpy(best.score[real]).sort().values, scores[first].sort().values, atol=1e-5, rtol=1e-3
    )


def test_the_encoder_distinguishes_edges_by_their_data():
    """Two leaves that are alike but for what their edges carry."""
    graph = dgl.graph(([1, 2, 0, 0], [0, 0, 1, 2]), num_nodes=3)
    graph.edata["amount"] = torch.tensor([0.1, 3.0, 1.0, 1.0])
    game = Game.create(weighted, graph, torch.ones(3, 1), hops=1, players=Edges(directed=True), value="output")
    g = new_explainer(game, SMALL, encoder_graph(game, "rich").inputs, torch.arange(3)).requires_grad_(False)
    scores = Scorer(g, game, embed_all(g, game, "rich")).explain(torch.tensor([0])).scores
    assert abs(scores[0] - scores[1]) > 1e-3


@pytest.fixture(scope="module", params=["nodes", "edges"])
def trained(request):
    config = TrainingConfig(hidden=32, dim=8, masks=4, steps=150)
    graph = parallel(60, 80)
    return LARA(EdgeNet(2), graph, numbers(60) / 20, hops=2, config=config, players=request.param).fit(range(60))


def test_fit_explain_correct_refine_verify(trained):
    targets = [3, 5, 7, 9]
    plain, better = trained.explain(targets, corrected=False), trained.explain(targets)
    assert better.source == ["corrected"] * 4
    phi = least_squares(trained.game, better.players, 1500, generator(5)).phi
    errors = [float((one.scores - phi).square().sum() / phi.square().sum()) for one in (plain, better)]
    assert errors[1] < min(errors[0], 0.1)
    refined = trained.refine(plain, 60).explanations
    assert (refined.scores - phi).square().sum() < (plain.scores - phi).square().sum()
    assert not trained.verify(better).worse_than_random.all()


def test_saved_and_loaded(trained, tmp_path):
    trained.save(tmp_path / "lara.pt")
    again = LARA.load(tmp_path / "lara.pt", trained.model.model, parallel(60, 80), numbers(60) / 20)
    again.embed(), trained.embed()
    torch.testing.assert_close(again.explain([3, 7]).scores, trained.explain([3, 7]).scores, atol=1e-5, rtol=1e-4)
    assert again.explain([3, 7]).source == ["corrected"] * 2


def test_from_the_surroundings_and_from_everything(trained, tmp_path):
    trained.save(tmp_path / "lara.pt")
    fresh = LARA.load(tmp_path / "lara.pt", trained.model.model, parallel(60, 80), numbers(60) / 20)
    near = fresh.explain([3, 44], corrected=False)
    assert not fresh.is_embedded and fresh._game is None
    trained.embed()
    whole = trained.explain([3, 44], corrected=False)
    torch.testing.assert_close(near.scores, whole.scores, atol=1e-5, rtol=1e-4)


def test_layer_by_layer(trained):
    whole = trained.embed()
    layered = embed_layerwise(trained.explainer_, trained.game, trained.config_.inputs, size=7)
    torch.testing.assert_close(layered.source, whole.source, atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(layered.target, whole.target, atol=1e-5, rtol=1e-4)
    output = predict_in_batches(trained.model, trained.graph, trained.features, 2, size=7)
    torch.testing.assert_close(output, trained.game.full_outputs, atol=1e-5, rtol=1e-4)


def test_batches_elsewhere():
    """The model gets batches on a device of its own, here the same one."""
    graph, config = parallel(60, 80), replace(SMALL, steps=5, batch_size=8)
    here, there = (
        LARA(EdgeNet(2), graph, numbers(60) / 20, hops=2, config=config, compute_device=device).fit(range(60))
        for device in (None, torch.device("cpu"))
    )
    assert isinstance(there.game.f, WithEdgeData)
    scores = here.explain([3, 5], corrected=False).scores
    torch.testing.assert_close(there.explain([3, 5], corrected=False).scores, scores, atol=1e-4, rtol=1e-3)


def test_graphs_are_learned_with_what_their_edges_carry():
    batch = dgl.batch([parallel(size, size, size) for size in (5, 7, 4, 6, 8, 5)])

    class PooledEdgeNet(EdgeNet, PooledGCN):
        def forward(self, graph, h):
            return dgl.ops.segment_reduce(graph.batch_num_nodes(), EdgeNet.forward(self, graph, h), "sum")

    x = numbers(35) / 10
    for players in ("nodes", "edges"):
        lara = LARA(PooledEdgeNet(2), batch, x, "graph", config=replace(SMALL, batch_size=3), players=players)
        lara.fit(range(6))
        assert lara.explainer_.config.edge_columns == 19
        assert torch.isfinite(lara.explain([5, 0]).scores).all()


def test_internal_edge_data_is_hidden():
    """The user's graph is as it was."""
    graph = parallel()
    before = {name: rows.clone() for name, rows in graph.edata.items()}
    game = Game.create(EdgeNet(2), graph, numbers(14), hops=2)
    game.shared_values(masks(2, 14))
    assert set(graph.edata) == set(before) and EDGE_ID in game.graph.edata
    assert all(torch.equal(graph.edata[name], rows) for name, rows in before.items())


def test_the_subgraph_of_an_explanation_shows_none_of_them(trained):
    assert set(trained.explain([3])[0].subgraph().edata) <= {dgl.EID, "score"}
