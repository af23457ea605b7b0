"""Pairs of nodes as targets: both ends are one player, and the scores walk out from either."""

from dataclasses import replace
from typing import Any

import dgl
import pytest
import torch
from codes import raises
from games import SmallGCN, random_graph
from test_hetero import Net, by_type, features, shop

import dgl_lara
from dgl_lara import LARA, Edges
from dgl_lara._util.randomness import generator
from dgl_lara.attribution.exact import all_coalitions, exact
from dgl_lara.attribution.monte_carlo import least_squares, sample_shared, shared_least_squares
from dgl_lara.attribution.shared_samples import SampleReservoir, draw_more
from dgl_lara.explainer.decoder import PairBatch, sum_over_endpoints
from dgl_lara.explainer.inputs import encoder_graph, explainer_inputs
from dgl_lara.game.game import Game
from dgl_lara.game.inputs import normalize_inputs
from dgl_lara.inference.correction import _one_by_one
from dgl_lara.inference.kernels.posterior import correct_all
from dgl_lara.inference.scorer import Scorer, embed_all
from dgl_lara.training.coalitions import evaluate_coalitions
from dgl_lara.training.config import TrainingConfig
from dgl_lara.training.loop import new_explainer
from dgl_lara.training.objective import Step
from dgl_lara.training.subgraphs import FullGraph, NeighborSubgraphs

SMALL = TrainingConfig(hidden=16, dim=5, masks=4, steps=30)
wrong: Any = 7


class Pairing(torch.nn.Module):
    """How much what arrives at two nodes is alike."""

    def __init__(self):
        super().__init__()
        self.inner = SmallGCN(classes=4)

    def forward(self, graph, x, u, v):
        h = self.inner(graph, x)
        return (h[u] * h[v]).sum(1) - 0.3


class Recommender(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = Net(every=True)

    def forward(self, graph, x, u, v):
        h = self.inner(graph, x)
        return (h["user"][u] * h["item"][v]).sum(1)


def homogeneous(nodes=14, edges=14, pairs=((0, 5), (3, 1), (7, 8)), seed=0, **more) -> Any:
    graph = random_graph(nodes, edges, seed)
    x = torch.randn(nodes, 3, generator=generator(seed + 1)) / 2
    given = normalize_inputs(Pairing(), graph, x, "link", pairs=list(pairs))
    return Game.create(given.f, given.graph, given.features, given.task, hops=2, value="output", **more)


def typed(times=1, pairs=((0, 5), (3, 1), (5, 8)), edges=10, **more) -> Any:
    graph = shop(times, edges)
    given = normalize_inputs(Recommender(), graph, features(graph), "link", pairs=list(pairs), relation="buys")
    return Game.create(given.f, given.graph, given.features, given.task, hops=2, value="output", **more)


def on_what_is_left(game, target, stays):
    """f by DGL's own means: of the pair, where these nodes are left."""
    u, v = game.task.pairs[target].tolist()
    if not (stays[u] and stays[v]):
        assert not stays[u] and not stays[v]
        return game.null_logits[0]
    if hasattr(game.f, "types"):
        nodes, graph = by_type(game, stays.nonzero().flatten()), shop(1, game.graph.num_edges() // 5)
        (_, own), x = game.f.types.locate(torch.tensor([u, v])), features(graph)
        ends = [(nodes[kind] == end).nonzero()[0] for kind, end in zip(("user", "item"), own, strict=True)]
        return game.f.model(dgl.node_subgraph(graph, nodes), {kind: x[kind][nodes[kind]] for kind in x}, *ends)[0]
    part = dgl.node_subgraph(game.graph, stays.nonzero().flatten())
    ends = [stays[:end].sum().view(1) for end in (u, v)]
    return game.f(part, game.features[stays], *ends)[0]


@pytest.mark.parametrize("game", [homogeneous(edges=9), typed(edges=5)], ids=["one type", "several"])
@torch.no_grad()
def test_enumeration_by_hand(game):
    """Both ends go, and stay, together."""
    for target in range(3):
        u, v = game.task.pairs[target].tolist()
        players = game.players(torch.tensor([target]))
        ends = game.task.reach(game.graph, torch.tensor([target]), 2).player
        assert players.player.tolist() == [node for node in ends.tolist() if node != v]
        keep, values = all_coalitions(len(players.player)), []
        for mask in keep:
            stays = torch.ones(game.graph.num_nodes(), dtype=torch.bool)
            stays[players.player[~mask]] = False
            stays[v] = stays[u]
            values.append(on_what_is_left(game, target, stays))
        values = torch.stack(values)
        phi = torch.stack([values[side].mean() - values[~side].mean() for side in keep.T])
        assert phi.std() > 1e-3
        torch.testing.assert_close(exact(game, players), phi, atol=1e-5, rtol=1e-4)


@torch.no_grad()
def test_nothing_at_all_is_two_isolated_nodes():
    lonely, ends = dgl.graph(([], []), num_nodes=2), (torch.tensor([0]), torch.tensor([1]))
    torch.testing.assert_close(homogeneous().null_logits, Pairing()(lonely, torch.zeros(2, 3), *ends))


@pytest.mark.long
def test_the_score_itself_is_explained_also_where_it_is_negative():
    game = homogeneous(pairs=[(u, v) for u in range(14) for v in range(14) if u != v])
    lara = LARA(Pairing(), game.graph, game.features, "link", hops=2, pairs=[(0, 5)])
    assert lara.value == "output"
    output = Pairing()(game.graph, game.features, *game.task.pairs.T).detach()
    assert (output < 0).any() and (output > 0).any()
    torch.testing.assert_close(game.full_values[:, 0], output)
    players = game.players(torch.arange(game.num_targets))
    nobody = torch.zeros(1, len(players.player), dtype=torch.bool)
    torch.testing.assert_close(game.values_per_target(players, ~nobody)[0], output)
    torch.testing.assert_close(game.values_per_target(players, nobody)[0], game.null_values[0].expand(len(output)))


# --- masks that all share


@pytest.mark.parametrize("game", [homogeneous(40, 40), typed(3)], ids=["one type", "several"])
def test_masks_say_nothing_of_pairs_that_they_part(game):
    players = game.players(torch.arange(3))
    samples = sample_shared(game, players, 64, generator(1))
    u, v = game.task.endpoints(torch.arange(3))
    parted = samples.masks.keep[:, u] != samples.masks.keep[:, v]
    assert torch.equal(samples.responses.isnan(), parted) and 0.3 < parted.float().mean() < 0.7
    keep = samples.masks.keep[:, players.player]
    own = game.values_per_target(players, keep) - game.values_per_target(players, ~keep)
    apart = (samples.responses - own)[~parted].square().sum() / own[~parted].square().sum()
    assert apart < 0.05**2  # degrees at the rim are all that shared masks change
    keeper = SampleReservoir(game, 20, 0)
    keeper.add(
        samples.masks[:8], game.shared_values(samples.masks.keep[:8]) - game.shared_values(~samples.masks.keep[:8])
    )
    assert torch.equal(keeper.samples().responses.T.isnan(), parted[:8])


def test_shared_masks_and_coalitions_of_their_own_agree():
    game = homogeneous(30, 30, pairs=[(n, (7 * n + 3) % 30) for n in range(30) if n != (7 * n + 3) % 30])
    players = game.players(torch.arange(game.num_targets))
    shared = shared_least_squares(game, players, 3000, generator(1)).phi
    own = least_squares(game, players, 1500, generator(2)).phi
    assert (shared - own).square().sum() / (own - own.mean()).square().sum() < 0.01


@pytest.mark.long
def test_the_plain_and_the_compiled_correction_agree_where_samples_are_missing():
    game = homogeneous(40, 40, pairs=[(n, n + 1) for n in range(39)])
    keeper = SampleReservoir(game, 60, 0)
    draw_more(keeper, 60)
    samples, everyone = keeper.samples(), torch.arange(39)
    players = game.players(everyone)
    made = explain_with_a_new_g(game, everyone)
    prior = 0.1 * torch.rand(len(players.player), generator=generator(3))
    known = samples.know(game, everyone, game.explained_class)
    assert known.all() and samples.responses.isnan().any()
    plain = _one_by_one(made, samples, prior, known)
    compiled = correct_all(players, made.is_target, made.scores, samples, prior, known)
    for one, other in zip(plain, compiled, strict=True):
        assert torch.isfinite(one).all()
        torch.testing.assert_close(one, other, atol=1e-3, rtol=1e-2)


def test_pairs_with_next_to_no_samples_are_not_corrected():
    game = homogeneous(40, 40, pairs=[(n, n + 1) for n in range(39)])
    keeper = SampleReservoir(game, 2, 0)
    draw_more(keeper, 2)
    samples = keeper.samples()
    enough = (~samples.responses.isnan()).sum(1) == 2
    assert enough.any() and not enough.all()
    assert torch.equal(samples.know(game, torch.arange(39), game.explained_class), enough)


# --- g


def test_inputs_of_nodes_that_end_no_pair():
    """Each chunk has nodes of one type only."""
    game = typed(3)
    expected = explainer_inputs(game, "rich")
    game.caller.nodes_per_call = 2
    torch.testing.assert_close(explainer_inputs(game, "rich"), expected)


def test_columns_of_features_as_players_of_pairs():
    pairs = [(n, (7 * n + 3) % 40) for n in range(40) if n != (7 * n + 3) % 40]
    game = homogeneous(40, 60, pairs)
    config = TrainingConfig(hidden=16, dim=8, masks=4, steps=100)
    lara = LARA(Pairing(), game.graph, game.features, "link", hops=2, config=config, players="features").fit(pairs)
    truth = exact(game := lara.game, game.players(torch.arange(len(pairs))))
    scores = torch.cat([each.scores for each in lara.explain(pairs)])
    assert ((scores - truth) ** 2).sum() < 0.1 * (truth - truth.mean()).square().sum()


def explain_with_a_new_g(game, targets):
    seen = encoder_graph(game, "rich")
    g = new_explainer(game, SMALL, seen.inputs, targets).requires_grad_(False)
    return Scorer(g, game, embed_all(g, game, "rich")).explain(targets)


@pytest.mark.long
@pytest.mark.parametrize("gate, several", [("walk", False), ("walk", True), ("hop", False), ("none", False)])
@pytest.mark.parametrize("players", ["nodes", Edges(), Edges(directed=True)], ids=str)
def test_every_route_gives_the_same_sums(players, gate, several):
    pairs = [(n, n + 9) for n in range(36)]
    game = typed(8, pairs, players=players) if several else homogeneous(60, 60, pairs, players=players)
    seen, targets, everyone = encoder_graph(game, "rich"), torch.tensor([1, 5, 30]), torch.arange(36)
    g = new_explainer(game, replace(SMALL, gate=gate), seen.inputs, everyone)
    evaluated = evaluate_coalitions(game, FullGraph(game, seen).batch(targets), 12, generator(3))
    steps = [Step(game, g, evaluated, form(game, seen).embed(g, targets)) for form in (FullGraph, NeighborSubgraphs)]
    usable = steps[0].usable()
    usable = torch.ones(12, 3, dtype=torch.bool) if usable is None else usable
    assert usable.any(0).all() and usable.all() == (players != "nodes")
    sums = steps[0]._by_pairs()[usable]
    assert sums.std() > 1e-4
    for step in steps:
        torch.testing.assert_close(step.predicted_responses()[usable], sums, atol=1e-4, rtol=1e-3)
        torch.testing.assert_close(step._by_pairs()[usable], sums, atol=1e-4, rtol=1e-3)
    g.requires_grad_(False)
    embeddings, found = embed_all(g, game, "rich"), game.players(everyone)
    t = g.for_class(game.task.target_embeddings(embeddings.target, everyone, None), game.query(everyone))
    plain = sum_over_endpoints(g.decoder.scores, g, PairBatch(game, found, embeddings.source, t))
    compiled = Scorer(g, game, embeddings).explain(everyone)
    torch.testing.assert_close(compiled.scores, plain, atol=1e-4, rtol=1e-3)
    few = torch.cat([Scorer(g, game, embeddings).explain(some).scores for some in everyone.split(9)])
    torch.testing.assert_close(few, plain, atol=1e-4, rtol=1e-3)


@pytest.mark.parametrize("players", ["nodes", "edges"])
def test_a_mini_batch_asks_what_separate_graphs_ask(players):
    game, targets = homogeneous(60, 50, [(n, n + 20) for n in range(30)], players=players), torch.tensor([7])
    lesson = evaluate_coalitions(game, game.player_set.batch(targets, game.context_hops), 12, generator(1))
    mine = game.players(targets)
    keep = lesson.contains(mine.player)
    usable = game.player_set.valid_masks(lesson.contains, targets)
    usable = torch.ones(12, dtype=torch.bool) if usable is None else usable[:, 0]
    assert lesson.inside.std() > 1e-4 and usable.sum() > 2
    torch.testing.assert_close(lesson.inside[usable, 0, 0], game.values_per_target(mine, keep[usable])[:, 0])


@pytest.mark.parametrize("objective", ["balanced", "least-squares", "running-mean"])
@pytest.mark.parametrize("batch_size", [0, 8])
def test_nothing_is_learned_from_masks_that_part_a_pair(objective, batch_size):
    """Whatever f says under them, the loss is the same."""
    from dgl_lara.training.objectives import OBJECTIVES

    game = homogeneous(30, 30, [(n, n + 1) for n in range(20)])
    seen, targets = encoder_graph(game, "rich"), torch.arange(20)
    g = new_explainer(game, SMALL, seen.inputs, targets)
    form = (NeighborSubgraphs if batch_size else FullGraph)(game, seen)
    evaluated = evaluate_coalitions(game, form.batch(targets), 6, generator(3))
    step = Step(game, g, evaluated, form.embed(g, targets))
    usable = step.usable()
    noise = torch.randn(evaluated.inside.shape, generator=generator(4)) * ~usable.unsqueeze(2)
    other = replace(step, coalitions=replace(evaluated, inside=evaluated.inside + noise))
    if objective == "running-mean":
        found = [OBJECTIVES[objective].sample(one, game.players(targets)) for one in (step, other)]
    else:
        found = [OBJECTIVES[objective].loss(one, None) for one in (step, other)]
    torch.testing.assert_close(*found)
    louder = replace(step, coalitions=replace(evaluated, inside=evaluated.inside + 1.0 * usable.unsqueeze(2)))
    if objective != "running-mean":
        assert abs(OBJECTIVES[objective].loss(louder, None) - found[0]) > 1e-3


# --- from end to end


def some_pairs(sources, destinations, count, seed=0):
    drawn = torch.randperm(sources * destinations, generator=generator(seed))[:count]
    pairs = [(int(n) // destinations, int(n) % destinations) for n in drawn]
    return [(u, v) for u, v in pairs if u != v]


CONFIG = TrainingConfig(hidden=32, dim=8, masks=8, steps=200)


@pytest.fixture(scope="module")
def recommender():
    graph = shop(6)
    pairs = some_pairs(36, 54, 80)
    lara = LARA(Recommender(), graph, features(graph), "link", hops=2, relation="buys", pairs=pairs, config=CONFIG)
    return lara.fit(pairs)


@pytest.fixture(scope="module")
def pairing():
    graph, x = random_graph(50, 60, 0), torch.randn(50, 3, generator=generator(1)) / 2
    return LARA(Pairing(), graph, x, "link", hops=2, config=CONFIG).fit(some_pairs(50, 50, 80))


@pytest.mark.long
@pytest.mark.parametrize("made", ["recommender", "pairing"])
def test_fit_explain_correct_refine_verify(made, request):
    lara = request.getfixturevalue(made)
    pairs = some_pairs(36, 54, 80)[:4] if made == "recommender" else some_pairs(50, 50, 80)[:4]
    plain, better = lara.explain(pairs, corrected=False), lara.explain(pairs)
    assert better.source == ["corrected"] * 4 and plain.source == ["amortised"] * 4
    phi = least_squares(lara.game, better.players, 1500, generator(5)).phi
    errors = [float((one.scores - phi).square().sum() / phi.square().sum()) for one in (plain, better)]
    assert errors[1] < min(errors[0], 0.1)
    refined = lara.refine(plain, 60).explanations
    assert (refined.scores - phi).square().sum() < (plain.scores - phi).square().sum()
    assert not lara.verify(better).worse_than_random.all()
    assert lara.refine_until(plain, 0.99).pairs.max() > 0


def test_other_pairs(recommender):
    """g is asked about pairs that it has not seen; f is asked about them once, and what is known of some is kept."""
    known = some_pairs(36, 54, 80)[:2]
    others = [pair for pair in some_pairs(36, 54, 200, 3) if pair not in some_pairs(36, 54, 80)][:3]
    found = recommender.explain([*others, *known])
    assert found.source == ["amortised"] * 3 + ["corrected"] * 2
    lara = recommender.for_pairs(others)
    output = Recommender()(shop(6), features(shop(6)), *torch.tensor(others).T).detach()
    torch.testing.assert_close(lara.game.full_values[:, 0], output)
    torch.testing.assert_close(lara.explain(others).scores, found.scores[: int(found.players.counts[:3].sum())])
    phi = least_squares(lara.game, lara.game.players(torch.arange(3)), 1000, generator(1)).phi
    scores = lara.explain(others, corrected=False).scores
    assert (scores - phi).square().sum() < 0.5 * phi.square().sum()
    torch.testing.assert_close(recommender.explain(known).scores, found.scores[int(found.players.counts[:3].sum()) :])
    first = [part.max() for part in scores.split(lara.game.players(torch.arange(3)).counts.tolist())]
    torch.testing.assert_close(torch.from_numpy(lara.top(others, 3).score[:, 0]), torch.stack(first))


def test_what_is_drawn_for_a_pair_depends_on_its_ends_alone(pairing):
    """Not on its place among those that are asked about."""
    one, two, listed = (3, 40), (7, 41), some_pairs(50, 50, 80)[7]
    alone = torch.cat([pairing.refine(pairing.explain([pair]), 8).explanations.scores for pair in (one, two, listed)])
    together = pairing.refine(pairing.explain([one, two, listed]), 8).explanations.scores
    torch.testing.assert_close(together, alone, atol=1e-5, rtol=1e-4)


def test_triples(recommender):
    pairs = some_pairs(36, 54, 80)[:3]
    scores = recommender.explain(pairs).scores
    for between in ("buys", ("user", "buys", "item"), ["user", "buys", "item"]):
        triples = [(u, between, v) for u, v in pairs]
        assert torch.equal(recommender.explain(triples).scores, scores)
        graph = shop(6)
        made = LARA(Recommender(), graph, features(graph), "link", hops=2, relation="buys", pairs=triples)
        assert torch.equal(made.task.pairs, recommender._reader._pairs(pairs))
    plain = recommender.explain(pairs, corrected=False).scores
    again = recommender.explain_on(graph, features(graph), [(u, "buys", v) for u, v in pairs]).scores
    torch.testing.assert_close(again, plain, atol=1e-5, rtol=1e-4)


def test_saved_and_loaded(recommender, pairing, tmp_path):
    graph, x = shop(6), features(shop(6))
    recommender.save(tmp_path / "lara.pt")
    pairs = some_pairs(36, 54, 80)
    expected = recommender.explain(pairs[:5])
    for more in ({}, {"pairs": pairs}, {"pairs": pairs[:5][::-1]}):  # in any order, and some of them
        again = LARA.load(tmp_path / "lara.pt", Recommender(), graph, x, relation="buys", **more)
        found = again.explain(pairs[:5])
        torch.testing.assert_close(found.scores, expected.scores, atol=1e-4, rtol=1e-3)
        assert found.source == expected.source == ["corrected"] * 5
    pairing.save(tmp_path / "pairing.pt")
    again = LARA.load(tmp_path / "pairing.pt", Pairing(), pairing.graph, pairing.features)
    assert again.explain([(0, 1)]).source == pairing.explain([(0, 1)]).source
    assert torch.equal(again.task.pairs, pairing.task.pairs)


@pytest.mark.long
def test_one_call():
    graph, x = random_graph(20, 20, 0), torch.randn(20, 3, generator=generator(1)) / 2
    for more in ({}, {"pairs": some_pairs(20, 20, 20)}):
        found = dgl_lara.explain(Pairing(), graph, x, [(0, 1), (4, 2)], task="link", hops=2, config=SMALL, **more)
        assert len(found) == 2 and torch.isfinite(found.scores).all()


def test_hops_are_measured():
    graph, x = random_graph(60, 50, 0), torch.randn(60, 3, generator=generator(1)) / 2

    def sums(graph, x, u, v):
        h = dgl.ops.copy_u_sum(graph, dgl.ops.copy_u_sum(graph, x))
        return (h[u] * h[v]).sum(1)

    assert LARA(sums, graph, x, "link", pairs=some_pairs(60, 60, 20)).game.hops == 2


@pytest.mark.long
def test_training_on_mini_batches():
    graph, x = random_graph(50, 60, 0), torch.randn(50, 3, generator=generator(1)) / 2
    pairs = some_pairs(50, 50, 60)
    lara = LARA(Pairing(), graph, x, "link", hops=2, config=replace(CONFIG, batch_size=16)).fit(pairs)
    assert lara.history_[-1]["agreement"] > 0.3
    assert torch.isfinite(lara.explain(pairs[:3]).scores).all()


@pytest.mark.long
def test_edges_of_pairs():
    graph, x = random_graph(50, 60, 0), torch.randn(50, 3, generator=generator(1)) / 2
    pairs = some_pairs(50, 50, 60)
    lara = LARA(Pairing(), graph, x, "link", hops=2, config=CONFIG, pairs=pairs, players="edges").fit(pairs)
    plain, better = lara.explain(pairs[:4], corrected=False), lara.explain(pairs[:4])
    phi = least_squares(lara.game, better.players, 1500, generator(5)).phi
    errors = [float((one.scores - phi).square().sum() / phi.square().sum()) for one in (plain, better)]
    assert errors[1] < min(errors[0], 0.1)
    ends = lara.game.task.reach(lara.graph, torch.tensor([0]), 1).player  # edges into them, from wherever
    u, v = lara.game.player_set.endpoints(lara.game.players(torch.tensor([0])).player)
    assert (torch.isin(u, ends) | torch.isin(v, ends)).all()


@pytest.mark.parametrize("from_fit", [False, True])
def test_the_explained_edges_left_out(from_fit):
    graph, x = random_graph(30, 40, 0), torch.randn(30, 3, generator=generator(1)) / 2
    src, dst = graph.edges()
    pairs = [(int(src[n]), int(dst[n])) for n in (3, 9, 20)] + [(0, 29)]
    more = {} if from_fit else {"pairs": pairs}
    lara = LARA(Pairing(), graph, x, "link", hops=2, config=SMALL, leave_out=True, **more).fit(pairs)
    both = {pair for u, v in pairs for pair in ((u, v), (v, u))}
    left = set(zip(*(end.tolist() for end in lara.game.graph.edges()), strict=True))
    assert left == set(zip(src.tolist(), dst.tolist(), strict=True)) - both
    without = dgl.remove_edges(
        graph, [n for n, pair in enumerate(zip(src.tolist(), dst.tolist(), strict=True)) if pair in both]
    )
    torch.testing.assert_close(
        lara.game.full_values[lara._ids_of(pairs), 0], Pairing()(without, x, *torch.tensor(pairs).T).detach()
    )


def test_the_explained_edges_left_out_of_several_types():
    graph = shop(3)
    u, v = (end[:4].tolist() for end in graph.edges(etype="buys"))
    pairs = list(zip(u, v, strict=True))
    where = (Recommender(), graph, features(graph), "link")
    lara = LARA(*where, hops=2, relation="buys", pairs=pairs, leave_out=True)
    part = lara.model._to_hetero(
        lara.graph, lara.types.local_ids(torch.arange(57)), {"user": 18, "item": 27, "tag": 12}
    )
    kept = set(zip(*(end.tolist() for end in part.edges(etype="buys")), strict=True))
    everyone = set(zip(*(end.tolist() for end in graph.edges(etype="buys")), strict=True))
    assert kept == everyone - set(pairs)
    stays = torch.tensor(
        [pair not in pairs for pair in zip(*(end.tolist() for end in graph.edges(etype="buys")), strict=True)]
    )
    torch.testing.assert_close(part.edges["buys"].data["amount"], graph.edges["buys"].data["amount"][stays])
    assert part.num_edges("knows") == graph.num_edges("knows")


# --- mistakes


def link(pairs=((0, 5),), several=False, f=None, **more):
    if several:
        graph = shop()
        return LARA(f or Recommender(), graph, features(graph), "link", hops=2, pairs=pairs, **more)
    return LARA(f or Pairing(), random_graph(14, 14, 0), torch.ones(14, 3), "link", hops=2, pairs=pairs, **more)


@pytest.mark.parametrize(
    ("make", "code"),
    [
        (lambda: link([(0, 14)]), "pairs.range"),
        (lambda: link([(-1, 4)]), "pairs.range"),
        (lambda: link([(6, 2)], True, relation="buys"), "pairs.range"),
        (lambda: link([(2, 9)], True, relation="buys"), "pairs.range"),
        (lambda: link([(3, 3)]), "pairs.equal"),
        (lambda: link([(3, 3)], True, relation="knows"), "pairs.equal"),
        (lambda: link([(1, 2, 3)]), "pairs.type"),
        (lambda: link([(1, 2), (3,)]), "pairs.type"),
        (lambda: link([(0.5, 1.0)]), "pairs.type"),
        (lambda: link("ab"), "pairs.type"),
        (lambda: link([]), "pairs.none"),
        (lambda: link([(0, "buys", 1)]), "pairs.relation_of_one_type"),
        (lambda: link([(0, "sells", 1)], True, relation="buys"), "pairs.other_relation"),
        (lambda: link([(0, ("tag", "buys", "item"), 1)], True, relation="buys"), "pairs.other_relation"),
        (lambda: link(several=True), "relation.missing"),
        (lambda: link(several=True, relation="sells"), "relation.unknown"),
        (lambda: link(several=True, relation=("shop", "buys", "item")), "relation.types"),
        (lambda: link(several=True, relation=wrong), "relation.types"),
        (lambda: link(relation="buys"), "graph.one_type"),
        (lambda: link(None).game, "pairs.missing"),
        (lambda: link(None).fit([(0, 99)]), "pairs.range"),
        (lambda: link().fit([(4, 5)]), "pairs.not_of_lara"),
        (lambda: LARA(Pairing(), random_graph(14, 14, 0), torch.ones(14, 3), pairs=[(0, 1)]), "pairs.task"),
        (lambda: LARA(Pairing(), random_graph(14, 14, 0), torch.ones(14, 3), leave_out=True), "pairs.task"),
        (lambda: link(f=lambda g, x, u, v: x).game, "model.rows"),
        (lambda: link(f=SmallGCN()).game, "model.failed"),
    ],
)  # fmt: skip
def test_mistakes_raise_codes(make, code):
    with raises(code):
        make()


def test_invalid_pairs_are_not_explained(pairing):
    for pairs, code in (([(0, 50)], "pairs.range"), ([(2, 2)], "pairs.equal"), ([3, 4, 5], "pairs.type")):
        with raises(code):
            pairing.explain(pairs)
