"""Edges and columns of features as players: closed forms, enumeration, and the same numbers by every route."""

from dataclasses import replace
from typing import Any

import dgl
import pytest
import torch
from codes import raises
from games import PooledGCN, SmallGCN, random_graph

from dgl_lara import LARA, Edges, Features
from dgl_lara._util.randomness import generator
from dgl_lara.attribution.exact import all_coalitions, exact
from dgl_lara.attribution.monte_carlo import least_squares
from dgl_lara.errors import InputError
from dgl_lara.explainer.decoder import PairBatch
from dgl_lara.explainer.inputs import encoder_graph
from dgl_lara.game.game import Game
from dgl_lara.game.values import ClassQuery
from dgl_lara.inference.scorer import Scorer, embed_all
from dgl_lara.training.coalitions import evaluate_coalitions
from dgl_lara.training.config import TrainingConfig
from dgl_lara.training.loop import new_explainer
from dgl_lara.training.objective import Step
from dgl_lara.training.subgraphs import FullGraph, NeighborSubgraphs

SMALL = TrainingConfig(hidden=16, dim=5, masks=4, steps=60)
wrong: Any = 7
half: Any = 0.5
word: Any = "12"
KINDS = [Edges(), Edges(directed=True), Features(), Features(groups={"one": [0], "both": [1, 2]})]


def linear(graph, features):
    """Two rounds of plain sums, and two 'classes': nothing but paths of two edges count."""
    h = dgl.ops.copy_u_sum(graph, dgl.ops.copy_u_sum(graph, features))
    return torch.stack([h @ torch.arange(1.0, 1 + h.shape[1]), -h.sum(1)], dim=1)


def small_game(players, f=None, nodes=12, edges=11, seed=4, **more):
    graph = random_graph(nodes, edges, seed)
    features = torch.randn(nodes, 3, generator=generator(seed))
    return Game.create(f or SmallGCN(), graph, features, hops=2, players=players, **more)


def by_hand(game, target, keep):
    """f with some edges deleted, or columns emptied, by DGL's own means and a loop."""
    values = []
    players = game.players(torch.tensor([target])).player
    for row in keep:
        gone, graph, x = players[~row], game.graph, game.features.clone()
        if game.player_set.name == "edges":
            source, destination = game.player_set.endpoints(gone)
            pairs = list(zip(source.tolist(), destination.tolist(), strict=True))
            pairs += [] if game.player_set.directed else [(v, u) for u, v in pairs]
            ids = [int(graph.edge_ids(u, v)) for u, v in pairs if graph.has_edges_between(u, v)]
            graph = dgl.remove_edges(graph, torch.tensor(ids, dtype=torch.long))
        else:
            for player in gone.tolist():
                x[:, (game.player_set.player_of_column == player).nonzero().flatten()] = 0
        values.append(game.f(graph, x)[target, game.explained_class[target]])
    return torch.stack(values)


@pytest.mark.parametrize("players", KINDS, ids=str)
@torch.no_grad()
def test_a_coalition_is_what_it_is_by_hand(players):
    game = small_game(players)
    target = int(game.graph.in_degrees().argmax())
    mine = game.players(torch.tensor([target]))
    keep = torch.rand(12, len(mine.player), generator=generator(1)) < 0.5
    values = game.values_per_target(mine, keep)[:, 0]
    assert values.std() > 0.01
    torch.testing.assert_close(values, by_hand(game, target, keep))


@pytest.mark.parametrize("players", KINDS, ids=str)
def test_all_players_and_none(players):
    game = small_game(players)
    everyone = game.players(torch.arange(12))
    torch.testing.assert_close(
        game.values_per_target(everyone, torch.ones(1, len(everyone.player), dtype=torch.bool))[0],
        game.full_value_of(torch.arange(12), game.query(torch.arange(12))),
    )
    nothing = game.shared_values(torch.zeros(1, game.num_players, dtype=torch.bool))[0]
    lonely = dgl.graph(([], []), num_nodes=12) if game.player_set.name == "edges" else game.graph
    x = game.features if game.player_set.name == "edges" else torch.zeros_like(game.features)
    torch.testing.assert_close(nothing, game.f(lonely, x).detach())


def test_edges_of_a_linear_model_have_half_of_each_path():
    """A path of two edges is worth its end's features; either edge alone is worth nothing: each has half of it, but for
    a path that uses one (undirected) edge twice, which has all of it."""
    game = small_game(Edges(), linear, value="output")
    graph, target = game.graph, int(game.graph.in_degrees().argmax())
    players = game.players(torch.tensor([target]))
    expected = dict.fromkeys(players.player.tolist(), 0.0)
    worth = game.features @ torch.tensor([1.0, 2.0, 3.0])
    for near in graph.predecessors(target).tolist():
        for far in graph.predecessors(near).tolist():
            steps = game.player_set.player_of_edges(torch.tensor([near, far]), torch.tensor([target, near])).tolist()
            for step in steps:
                expected[step] += float(worth[far]) / 2
    phi = exact(game, players)
    assert phi.std() > 0.1
    torch.testing.assert_close(phi, torch.tensor(list(expected.values())), atol=1e-4, rtol=1e-4)


def test_features_of_a_linear_model_have_what_arrives_of_them():
    game = small_game(Features(), linear, value="output")
    players = game.players(torch.arange(12))
    arrived = dgl.ops.copy_u_sum(game.graph, dgl.ops.copy_u_sum(game.graph, game.features))
    torch.testing.assert_close(exact(game, players).view(12, 3), arrived * torch.tensor([1.0, 2.0, 3.0]))


def test_features_replaced_by_the_mean_or_by_rows():
    """For a linear model, rows of the data average to what their mean does."""
    mean = small_game(Features(baseline="mean"), linear, value="output")
    rows = small_game(Features(baseline="rows"), linear, value="output")
    arrived = dgl.ops.copy_u_sum(mean.graph, dgl.ops.copy_u_sum(mean.graph, mean.features - mean.features.mean(0)))
    expected = arrived * torch.tensor([1.0, 2.0, 3.0])
    torch.testing.assert_close(exact(mean, mean.players(torch.arange(12))).view(12, 3), expected, atol=1e-4, rtol=1e-4)
    rest = rows.features - rows.player_set.baseline_rows.mean(0)
    arrived = dgl.ops.copy_u_sum(rows.graph, dgl.ops.copy_u_sum(rows.graph, rest))
    got = exact(rows, rows.players(torch.arange(12))).view(12, 3)
    torch.testing.assert_close(got, arrived * torch.tensor([1.0, 2.0, 3.0]), atol=1e-4, rtol=1e-4)
    assert rows.player_set.num_baselines == 4


def test_features_of_the_target_alone():
    game = small_game(Features(of="target"), linear, value="output")
    back = dgl.ops.copy_u_sum(game.graph, dgl.ops.copy_u_sum(game.graph, torch.eye(12))).diagonal()  # walks that return
    expected = back.unsqueeze(1) * game.features * torch.tensor([1.0, 2.0, 3.0])
    assert expected.std() > 0.1
    torch.testing.assert_close(exact(game, game.players(torch.arange(12))).view(12, 3), expected, atol=1e-4, rtol=1e-4)


def test_only_present_columns_of_wide_features_play():
    graph = random_graph(30, 30, 1)
    x = torch.zeros(30, 300)
    x[torch.arange(30), torch.arange(30) * 7] = 1.0
    game = Game.create(SmallGCN(300), graph, x, hops=2, players="features")
    players = game.players(torch.tensor([4, 9]))
    for row, target in enumerate((4, 9)):
        mine = players.part(slice(row, row + 1)).player
        near = game.task.reach(graph, torch.tensor([target]), 2).player
        assert mine.tolist() == (near * 7).tolist()
    everyone = torch.zeros(1, 300, dtype=torch.bool)  # columns that are absent change nothing
    everyone[0, players.part(slice(0, 1)).player] = True
    torch.testing.assert_close(game.shared_values(everyone)[0, 4], game.full_values[4])


def test_parallel_edges_are_one_player_and_loops_are_no_players():
    graph = dgl.graph(([0, 1, 1, 2, 2, 0], [1, 0, 2, 1, 2, 1]), num_nodes=3)  # a loop at 2, and 0 -> 1 twice
    both = Game.create(SmallGCN(1), graph, torch.ones(3, 1), hops=2, players="edges")
    assert both.num_players == 2
    assert [end.tolist() for end in both.player_set.endpoints(torch.arange(2))] == [[0, 1], [1, 2]]
    each = Game.create(SmallGCN(1), graph, torch.ones(3, 1), hops=2, players=Edges(directed=True))
    assert each.num_players == 4
    assert both.players(torch.tensor([0])).hop.tolist() == [1, 2]


@pytest.mark.parametrize("gate", ["walk", "random-walk", "hop", "none"])
@pytest.mark.parametrize("players", KINDS, ids=str)
def test_walks_equal_lists_of_pairs(players, gate):
    """Training's sums, by walks on the whole graph, on a mini-batch, and from the scores of single pairs."""
    game = small_game(players, nodes=40, edges=50)
    seen, targets = encoder_graph(game, "rich"), torch.tensor([5, 1, 30]).sort().values
    g = new_explainer(game, replace(SMALL, gate=gate), seen.inputs, targets)
    whole = FullGraph(game, seen)
    coalitions = evaluate_coalitions(game, whole.batch(targets), 4, generator(3))
    steps = [Step(game, g, coalitions, form(game, seen).embed(g, targets)) for form in (FullGraph, NeighborSubgraphs)]
    pairs = steps[0]._by_pairs()
    assert pairs.std() > 1e-3
    for step in steps:
        torch.testing.assert_close(step.predicted_responses(), pairs, atol=1e-5, rtol=1e-4)
        torch.testing.assert_close(step._by_pairs(), pairs, atol=1e-5, rtol=1e-4)
    found = game.players(targets)
    classes = torch.tensor([2, 0, 1])
    here = steps[0].embedded
    t = g.for_class(here.t, ClassQuery(classes))
    scores = g.decoder.scores(g, PairBatch(game, found, here.p, t))
    sums = torch.zeros(4, 3).index_add(1, found.row, coalitions.design(found.player) * scores)
    torch.testing.assert_close(sums, pairs[:, [0, 1, 2], classes], atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("players", [*KINDS, Features(of="target")], ids=str)
def test_a_mini_batch_asks_what_separate_graphs_ask(players):
    game = small_game(players, nodes=60, edges=60)
    target = torch.tensor([7])
    lesson = evaluate_coalitions(game, game.player_set.batch(target, game.context_hops), 6, generator(1))
    mine = game.players(target)
    keep = lesson.contains(mine.player)
    torch.testing.assert_close(lesson.inside[:, 0, game.explained_class[7]], game.values_per_target(mine, keep)[:, 0])
    assert lesson.inside.std() > 1e-3


@pytest.mark.parametrize("players", [Edges(), Features()], ids=str)
def test_graphs_as_targets(players):
    batch = dgl.batch([random_graph(size, 2 * size, size) for size in (5, 7, 4)])
    features = torch.randn(16, 3, generator=generator(2)) / 5
    game = Game.create(PooledGCN(), batch, features, "graph", players=players)
    mine = game.players(torch.arange(3))
    keep = torch.rand(5, game.num_players, generator=generator(3)) < 0.5
    expected = game.shared_values(keep)[:, torch.arange(3), game.explained_class]
    assert expected.std() > 1e-3
    torch.testing.assert_close(game.values_per_target(mine, keep[:, mine.player]), expected)
    lara = LARA.of_game(game, replace(SMALL, steps=4, batch_size=2))
    assert torch.isfinite(lara.fit(range(3)).explain([2, 0]).scores).all()


@pytest.mark.long
def test_features_of_a_linear_model_are_learned_exactly():
    """Every term of the form is a walk: the averages that arrive, times weights of the model's own."""
    graph = random_graph(60, 90, 2)
    x = torch.randn(60, 4, generator=generator(3))

    def average(graph, x):
        looped = dgl.add_self_loop(graph)
        scale = looped.in_degrees().float().rsqrt().unsqueeze(1)
        for _ in range(2):
            x = dgl.ops.copy_u_sum(looped, x * scale) * scale
        return x @ torch.tensor([[1.0, -2.0], [0.5, 1.0], [-1.5, 0.3], [2.0, 1.0]])

    config = TrainingConfig(hidden=32, dim=8, masks=8, steps=300, lr=1e-2)
    lara = LARA(average, graph, x, hops=2, config=config, players="features").fit(range(60), range(60))
    assert lara.history_[-1]["agreement"] > 0.99


@pytest.mark.parametrize("players", [Edges(), Features()], ids=str)
def test_fit_explain_correct_refine_verify(players):
    graph = random_graph(60, 80, 0)
    features = torch.randn(60, 6, generator=generator(1))
    config = TrainingConfig(hidden=32, dim=8, masks=4, steps=150)
    lara = LARA(SmallGCN(6), graph, features, hops=2, config=config, players=players).fit(range(60))
    targets = [3, 5, 7, 9]
    plain, better = lara.explain(targets, corrected=False), lara.explain(targets)
    assert better.source == ["corrected"] * 4 and plain.source == ["amortised"] * 4
    phi = least_squares(lara.game, better.players, 1500, generator(5)).phi
    errors = [float((one.scores - phi).square().sum() / phi.square().sum()) for one in (plain, better)]
    assert errors[1] < min(errors[0], 0.1)
    refined = lara.refine(plain, 60).explanations
    assert (refined.scores - phi).square().sum() < (plain.scores - phi).square().sum()
    assert not lara.verify(better).worse_than_random.all()
    assert lara.refine_until(plain, 0.99).pairs.max() > 0
    frame = better.to_frame()
    assert set(frame.kind) == {lara.players.name}
    if players == Edges():
        assert graph.has_edges_between(frame.u.to_numpy(), frame.v.to_numpy()).all()


@pytest.mark.parametrize("players", [Edges(), Features()], ids=str)
def test_nearby_and_from_everything(players):
    graph = random_graph(80, 90, 0)
    features = torch.randn(80, 5, generator=generator(1))
    lara = LARA(SmallGCN(5), graph, features, hops=2, config=SMALL, players=players).fit(range(80))
    near = lara.explain([3, 44], corrected=False)
    lara.embed()
    torch.testing.assert_close(lara.explain([3, 44], corrected=False).scores, near.scores, atol=1e-5, rtol=1e-4)


def test_why_this_rather_than_that():
    graph = random_graph(60, 80, 0)
    features = torch.randn(60, 3, generator=generator(1))
    lara = LARA(SmallGCN(), graph, features, hops=2, config=SMALL).fit(range(60))
    one, other = (lara.explain([3, 5, 8], classes=[c] * 3, corrected=False).scores for c in (2, 0))
    both = lara.explain([3, 5, 8], classes=(2, 0))
    torch.testing.assert_close(both.scores, one - other, atol=1e-5, rtol=1e-4)
    logits = lara.game.full_logits[3]
    assert both[0].output == pytest.approx(float(logits[2] - logits[0]), abs=1e-5)
    assert "rather than" in both[0].in_words()
    with raises("classes.ambiguous"):
        lara.explain([3, 5], classes=(2, 0))


def test_enumeration_is_the_signed_mean_of_everything():
    """Eq. 5 for edges, from every coalition by hand."""
    game = small_game(Edges(), nodes=7, edges=5)
    target = int(game.graph.in_degrees().argmax())
    players = game.players(torch.tensor([target]))
    keep = all_coalitions(len(players.player))
    values = by_hand(game, target, keep).detach()
    expected = torch.stack([values[side].mean() - values[~side].mean() for side in keep.T])
    assert expected.std() > 0.01
    torch.testing.assert_close(exact(game, players), expected)


@pytest.mark.parametrize(
    ("make", "code"),
    [
        (lambda: Edges(wrong), "settings.invalid"),
        (lambda: Features(of="me"), "settings.invalid"),
        (lambda: Features(baseline="none"), "settings.invalid"),
        (lambda: Features(groups={"a": [1], "b": [1]}), "groups.columns"),
        (lambda: Features(groups={"a": []}), "groups.columns"),
        (lambda: Features(groups={"": [1]}), "groups.columns"),
        (lambda: Features(groups={"a": [half]}), "groups.type"),
        (lambda: Features(groups={"a": [wrong, True]}), "groups.type"),
        (lambda: Features(groups={"a": word}), "groups.type"),
        (lambda: Features(groups=wrong), "groups.type"),
        (lambda: small_game(Features(groups={"a": [3]})), "groups.range"),
        (lambda: small_game("edgess"), "choice.unknown"),
    ],
)
def test_invalid_player_sets(make, code):
    with raises(code, InputError):
        make()


def test_a_graph_without_edges_in_reach_has_no_edge_players():
    with raises("edges.no_hops"):
        Game.create(SmallGCN(), random_graph(5, 5, 0), torch.ones(5, 3), hops=0, players="edges")


@pytest.mark.parametrize("gate", ["walk", "random-walk", "hop", "none"])
@pytest.mark.parametrize("players", [Edges(), Edges(directed=True), Features()], ids=str)
def test_the_best_of_many_are_those_of_all_pairs(players, gate):
    """The compiled walk over edges and the table of columns, against the plain route."""
    graph = dgl.add_edges(random_graph(70, 120, 3), [5], [5])  # with a self-loop, which nobody is
    features = torch.randn(70, 4, generator=generator(1))
    game = Game.create(SmallGCN(4), graph, features, hops=3, players=players)
    inputs = encoder_graph(game, "rich")
    g = new_explainer(game, replace(SMALL, gate=gate), inputs.inputs, torch.arange(70)).requires_grad_(False)
    embeddings, everyone = embed_all(g, game, "rich"), torch.arange(70)
    found = game.players(everyone)
    t = g.for_class(embeddings.target, ClassQuery(game.explained_class))
    expected = g.decoder.scores(g, PairBatch(game, found, embeddings.source, t))
    assert expected.std() > 1e-3
    many = Scorer(g, game, embeddings).explain(everyone)
    torch.testing.assert_close(many.scores, expected, atol=1e-5, rtol=1e-3)
    for name in ("counts", "player", "hop"):
        torch.testing.assert_close(getattr(many.players, name), getattr(found, name))
    best = Scorer(g, game, embeddings).top(everyone, 3)
    assert best.player_type == players.name
    first = many.rank() < 3
    real = best.player >= 0
    assert real.sum() == first.sum()
    torch.testing.assert_close(
        torch.from_numpy(best.score[real]).sort().values, expected[first].sort().values, atol=1e-5, rtol=1e-3
    )
    if players.name == "edges":
        ends = [torch.from_numpy(best.endpoints[end][real]) for end in ("u", "v")]
        assert torch.equal(game.player_set.player_of_edges(*ends), torch.from_numpy(best.player[real]))


@pytest.mark.long
@pytest.mark.parametrize(
    "players", [Edges(directed=True), Features(baseline="mean", groups={"a": [0, 2], "b": [1]})], ids=str
)
def test_what_is_saved_comes_back(players, tmp_path):
    graph, features = random_graph(40, 50, 0), torch.randn(40, 3, generator=generator(1))
    model = SmallGCN()
    lara = LARA(model, graph, features, hops=2, config=SMALL, players=players).fit(range(40))
    lara.save(tmp_path / "lara.pt")
    again = LARA.load(tmp_path / "lara.pt", model, graph, features)
    assert again.players == players
    torch.testing.assert_close(again.explain([3, 7]).scores, lara.explain([3, 7]).scores)
    assert again.explain([3, 7]).source == ["corrected"] * 2


def test_every_player_set_has_a_description_of_its_own():
    choices = (*KINDS, Features(of="target", baseline="mean"))
    assert len({small_game(choice).player_set.description for choice in choices}) == len(choices)
