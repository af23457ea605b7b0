"""Alg. 1: a closed form that must be learned, mini-batch against full graph, objectives, resume."""

import copy
import io
import os
import signal
from dataclasses import replace

import dgl
import pytest
import torch
from codes import raises
from games import PooledGCN, gcn_game, random_graph

from dgl_lara import LARA
from dgl_lara._util.randomness import generator
from dgl_lara.attribution.exact import exact
from dgl_lara.attribution.mi_value import mi_value
from dgl_lara.errors import InputError
from dgl_lara.explainer.decoder import PairBatch
from dgl_lara.explainer.inputs import encoder_graph, explainer_inputs
from dgl_lara.game.game import Game
from dgl_lara.game.node_task import TypedNodeTask
from dgl_lara.training.backend import InMemory
from dgl_lara.training.coalitions import evaluate_coalitions
from dgl_lara.training.config import TrainingConfig, default, paper
from dgl_lara.training.loop import Schedule, learning_rate, new_explainer, train
from dgl_lara.training.objective import Step
from dgl_lara.training.objectives import OBJECTIVES
from dgl_lara.training.objectives.least_squares import squared_loss
from dgl_lara.training.running_mean_table import AttributionTable
from dgl_lara.training.state import TrainingState
from dgl_lara.training.subgraphs import FullGraph, NeighborSubgraphs, target_batches
from dgl_lara.training.validation import AttributionValidator, CoalitionValidator, make_validator

NODES, HEAD = torch.arange(40), "source_head.weight"
SMALL = TrainingConfig(hidden=16, dim=5, masks=4, steps=6)


def graph_game(**more):
    return gcn_game(nodes=40, edges=50, seed=3, **more)


def trained_scores(game, config, targets, validation):
    return LARA.of_game(game, config).fit(targets, validation).explain(validation)


def coalitions_of(game, targets, masks, subgraphs=FullGraph):
    return evaluate_coalitions(game, subgraphs(game, None).batch(targets), masks, generator(0))


def step_on_the_full_graph(game, g, targets, masks, seen):
    subgraphs = FullGraph(game, seen)
    coalitions = evaluate_coalitions(game, subgraphs.batch(targets), masks, generator(0))
    return Step(game, g, coalitions, subgraphs.embed(g, targets))


@pytest.mark.parametrize(
    ("steps", "within"), [(400, 1e-2), pytest.param(2000, 1e-3, marks=pytest.mark.slow)], ids=["roughly", "to 1e-3"]
)
def test_a_linear_gnn_is_learned_to_its_closed_form(steps, within):
    """f_i = x_i + the sum over its neighbours, on a ring. With the null prediction 0 and the target a player,
    phi is x_j / 2 for a neighbour and x_i + half the neighbours' sum for the target."""
    ring = torch.arange(60)
    graph = dgl.graph((torch.cat([ring, ring]), torch.cat([(ring + 1) % 60, (ring - 1) % 60])))
    x = torch.randn(60, 1, generator=torch.Generator().manual_seed(0))

    def f(graph, h):
        return dgl.ops.copy_u_sum(graph, h) + h

    game = Game.create(f, graph, x, hops=1, value="output")
    config = TrainingConfig(hidden=128, dim=8, masks=16, steps=steps, lr=1e-2)
    result = trained_scores(game, config, ring, ring)
    frame = result.to_frame()
    neighbours = (x[(ring + 1) % 60] + x[(ring - 1) % 60]).flatten()
    expected = torch.where(
        torch.tensor(frame.hop.to_numpy()) == 0,
        (x.flatten() + neighbours / 2)[frame.target],
        x.flatten()[frame.player] / 2,
    )
    torch.testing.assert_close(exact(game, result.players), expected, atol=1e-5, rtol=0)
    error = (result.scores - expected).square().mean().sqrt() / expected.std()
    assert error < within


@pytest.mark.parametrize(("gate", "loops"), [("walk", 0), ("random-walk", 0), ("walk", 2)])
def test_propagation_equals_explicit_pairs(gate, loops, monkeypatch):
    game = graph_game()
    if loops:
        with_loops = torch.arange(0, 40, loops)
        game = Game.create(game.f, dgl.add_edges(game.graph, with_loops, with_loops), game.features, hops=2)
    encoded = encoder_graph(game, "rich")
    targets = torch.tensor([5, 1, 30])
    g = new_explainer(game, replace(SMALL, gate=gate), encoded.inputs, targets)
    step = step_on_the_full_graph(game, g, targets, 4, encoded)
    pairs = step._by_pairs()
    assert pairs.std() > 1e-3
    monkeypatch.setattr(Step, "_by_pairs", None)  # the full graph needs no list of pairs
    torch.testing.assert_close(step.predicted_responses(), pairs)


def test_mini_batch_training_equals_full_graph_training_when_the_batch_is_everything():
    game = graph_game()
    states = [train(InMemory(game, replace(SMALL, batch_size=size)), NODES, NODES) for size in (0, 40)]
    full, batch = (state.explainer.state_dict() for state in states)
    start = new_explainer(game, SMALL, explainer_inputs(game, "rich"), NODES).state_dict()
    assert (full[HEAD] - start[HEAD]).abs().max() > 1e-3
    torch.testing.assert_close(batch, full, atol=1e-4, rtol=1e-3)


def test_bystanders_stay_and_players_are_drawn():
    """In a mini-batch only the K-hop players are removed, also if the boundary has neighbours further out."""
    game = gcn_game(nodes=60, edges=70, seed=3)
    targets = torch.arange(60)
    larger = Game.create(game.f, game.graph, game.features, hops=3)
    further = game.players(targets).counts < larger.players(targets).counts
    assert int(further.sum()) > 20
    for target in targets[further][:10].split(1):
        coalitions = coalitions_of(game, target, 6, NeighborSubgraphs)
        players = game.players(target)
        for values, keep in (
            (coalitions.inside, coalitions.contains(players.player)),
            (coalitions.outside, ~coalitions.contains(players.player)),
        ):
            assert 0 < keep.float().mean() < 1
            expected = game.values_per_target(players, keep)[:, 0]
            torch.testing.assert_close(values[:, 0, game.explained_class[target[0]]], expected)


def test_least_squares_loss_has_its_minimum_at_phi():
    """The identity of DESIGN 2: with exact phi the squared error is the variance no linear function explains."""
    game = gcn_game(seed=2)
    target = game.graph.in_degrees().topk(1).indices
    players = game.players(target)
    phi = exact(game, players)
    coalitions = coalitions_of(game, target, 4000)
    sigma = coalitions.design(players.player)
    g = new_explainer(game, replace(SMALL, all_classes=False), explainer_inputs(game, "rich"), target)

    def loss(scores):
        return squared_loss(Step(game, g, coalitions, None), (sigma @ scores)[:, None, None]).item()

    at_phi = loss(phi)
    for direction in torch.randn(8, len(phi), generator=torch.Generator().manual_seed(1)):
        step = 0.3 * phi.std() * direction / direction.norm()
        rise = loss(phi + step) - at_phi
        expected = (step.square().sum() / g.unit**2).item()
        assert 0.5 * expected < rise < 1.5 * expected


def test_running_mean_is_eq_10():
    game = gcn_game(nodes=20, edges=24, seed=1)
    targets = torch.tensor([4, 9, 2])
    table = AttributionTable(game, targets)
    samples = []
    for batch in ([9, 4], [2], [9], [9, 2]):
        players = game.players(torch.tensor(batch))
        sample = torch.randn(len(players.player), generator=torch.Generator().manual_seed(len(samples)))
        samples.append({b: sample[players.row == i] for i, b in enumerate(batch)})
        got = table.update(players, sample)
        for i, b in enumerate(batch):
            seen = torch.stack([s[b] for s in samples if b in s])
            torch.testing.assert_close(got[players.row == i], seen.mean(0))


@pytest.mark.parametrize("objective", ["running-mean", "mutual-information"])
def test_table_objectives_converge(objective):
    """With many masks in one step the table holds phi, or E[MI value | j in S], and the loss is Eq. 8 against it."""
    game = gcn_game(seed=2)
    targets = game.graph.in_degrees().topk(2).indices.sort().values
    players = game.players(targets)
    table = AttributionTable(game, targets)
    seen = encoder_graph(game, "rich")
    g = new_explainer(game, replace(SMALL, objective=objective), seen.inputs, targets)
    step = step_on_the_full_graph(game, g, targets, 6000, seen)
    coalitions, embedded = step.coalitions, step.embedded
    loss = OBJECTIVES[objective].loss(step, table)
    if objective == "running-mean":
        expected = exact(game, players)
    else:
        values = mi_value(game.full_logits[targets], coalitions.inside)  # (masks, targets)
        inside = (coalitions.contains(players.player)).float()
        expected = (inside * values[:, players.row]).sum(0) / inside.sum(0)
    assert expected.std() > 0.03
    assert (table.phi - expected).square().mean() < 0.03 * expected.var()
    scores = g.decoder.scores(g, PairBatch(game, players, embedded.p, embedded.t))
    torch.testing.assert_close(loss, ((scores - table.phi) / g.unit).square().mean())


def test_paper_preset_is_the_paper():
    node, graph = paper("node"), paper("graph")
    assert (node.lr, graph.lr, node.batch_size) == (1e-3, 1e-4, 64)
    assert (node.gate, node.inputs, node.objective, node.dim) == ("none", "features", "running-mean", 20)
    for config in (node, graph):
        assert (config.encoder, config.masks, config.schedule, config.average) == ("plain", 1, "constant", 0.0)
        assert (config.all_classes, config.embedding, config.hidden) == (False, "dual", 20)
    game = graph_game()
    state = train(InMemory(game, replace(node, epochs=2)), NODES, NODES)
    assert state.explainer.class_weight is None
    assert state.explainer.config.layers == 2
    assert learning_rate(node, 500, 1000) == 1e-3


def test_graph_task_learns():
    batch = dgl.batch([random_graph(6, 8, seed) for seed in range(40)])
    game = Game.create(
        PooledGCN(), batch, torch.randn(240, 3, generator=torch.Generator().manual_seed(2)), "graph", hops=2
    )
    config = TrainingConfig(hidden=32, dim=10, batch_size=16, steps=200, lr=1e-2)
    state = train(InMemory(game, config), torch.arange(30), torch.arange(30, 40))
    assert state.best > 0.8 > state.history[0]["agreement"]


def _saved(state):
    buffer = io.BytesIO()
    torch.save(state.to_dict(), buffer)
    buffer.seek(0)
    return torch.load(buffer, weights_only=True)


@pytest.mark.usefixtures("hardly_judged")
@pytest.mark.parametrize("objective", ["least-squares", "running-mean"])
@pytest.mark.parametrize("signalled", [False, True], ids=["raised", "ctrl-c"])
def test_resumed_equals_uninterrupted(objective, signalled, monkeypatch, notices):
    """Ctrl-C is a real signal in the middle of the optimiser's step: the checkpoint has the complete step."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job begins by ignoring it
    game, config = graph_game(), replace(SMALL, objective=objective, batch_size=16, steps=12)
    unbroken = train(InMemory(game, config), NODES, NODES)
    kept, steps, adam_step = {}, [], torch.optim.Adam.step

    def checkpoint(state: TrainingState) -> None:
        kept.update(_saved(state))
        if state.step >= 7:
            raise KeyboardInterrupt

    def interrupted(self):
        steps.append(1)
        adam_step(self)
        if len(steps) == 6:
            os.kill(os.getpid(), signal.SIGINT)

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        if signalled:
            patched.setattr(torch.optim.Adam, "step", interrupted)
        train(InMemory(game, config), NODES, NODES, checkpoint=checkpoint)
    assert kept["step"] == 6 if signalled else 7 <= kept["step"] < unbroken.step
    resumed = train(InMemory(game, config), NODES, NODES, resume=kept)
    torch.testing.assert_close(resumed.best_weights, unbroken.best_weights, rtol=0, atol=0)
    assert resumed.history == unbroken.history and resumed.resumed_at == kept["step"]
    assert notices.fields("training.resumed") == {"step": kept["step"], "total": 12}
    train(InMemory(game, config), NODES, NODES, resume=resumed.to_dict())
    assert notices.fields("training.was_finished") == {"step": 12, "total": 12}


def test_same_seed_same_explainer():
    game = graph_game()
    first, again, other = (train(InMemory(game, replace(SMALL, seed=seed)), NODES, NODES) for seed in (0, 0, 1))
    torch.testing.assert_close(first.best_weights, again.best_weights, rtol=0, atol=0)
    assert (first.best_weights[HEAD] - other.best_weights[HEAD]).abs().max() > 1e-3


def test_training_leaves_no_trace_in_the_global_generator():
    game = graph_game()
    torch.manual_seed(5)
    before = torch.random.get_rng_state()
    train(InMemory(game, SMALL), NODES, NODES)
    assert bool((torch.random.get_rng_state() == before).all())


@pytest.mark.parametrize(
    "wrong",
    [
        {"masks": 0}, {"dim": "5"}, {"batch_size": None}, {"seed": True}, {"lr": -1}, {"lr": float("nan")},
        {"average": 2}, {"all_classes": "yes"}, {"train_on": "test"}, {"schedule": "constnat"},
    ],
)  # fmt: skip
def test_invalid_settings(wrong):
    with raises("settings.invalid", InputError, name=next(iter(wrong))):
        TrainingConfig(**wrong)


@pytest.mark.parametrize("wrong", [{"gate": "door"}, {"objective": "least-square"}])
def test_unknown_gates_and_objectives(wrong):
    with pytest.raises(InputError):
        TrainingConfig(**wrong)


def test_diverging_losses():
    config = replace(SMALL, lr=1e30, schedule="constant", average=0.0)
    with raises("training.diverged"):
        train(InMemory(graph_game(), config), NODES, NODES)


def test_learning_rate_warms_up_and_falls_as_a_cosine():
    config = replace(SMALL, lr=0.3)
    assert learning_rate(config, 0, 1000) == pytest.approx(0.01)
    assert learning_rate(config, 500, 1000) == pytest.approx(0.15)
    assert learning_rate(config, 750, 1000) == pytest.approx(0.15 * (1 - 2**-0.5))
    assert learning_rate(config, 999, 1000) < 1e-5


@pytest.mark.parametrize("average", [0.0, 0.6, 0.99])
def test_the_average_forgets_with_the_stated_decay(average):
    """A short memory at first: decay (step + 1) / (step + 10) until `average` is smaller."""
    game = graph_game()
    config = replace(SMALL, steps=19, average=average)  # at most 20 steps: a checkpoint after each
    slow = new_explainer(game, config, explainer_inputs(game, "rich"), NODES).source_head.weight.detach().clone()
    weights = []

    def record(state):
        weights.append(state.explainer.source_head.weight.detach().clone())

    state = train(InMemory(game, config), NODES, NODES, checkpoint=record)
    assert len(weights) == 19 and (weights[-1] - slow).abs().max() > 1e-3
    for step, fast in enumerate(weights):
        decay = min(average, (step + 1) / (step + 10))
        slow = decay * slow + (1 - decay) * fast
    torch.testing.assert_close(state.average.source_head.weight, slow)


def test_coalitionss_speak_of_the_value_that_is_explained():
    game = graph_game(value="probability")
    coalitions = coalitions_of(game, torch.tensor([5, 1]), 4)
    torch.testing.assert_close(coalitions.responses(), coalitions.inside.softmax(2) - coalitions.outside.softmax(2))


def test_half_the_loss_is_the_explained_class_half_all_classes():
    game = graph_game()
    targets = torch.tensor([5, 1, 30])
    g = new_explainer(game, SMALL, explainer_inputs(game, "rich"), targets)
    coalitions = coalitions_of(game, targets, 4)
    error = torch.randn(4, 3, 3, generator=torch.Generator().manual_seed(1))
    own = torch.stack([error[:, i, game.explained_class[target]] for i, target in enumerate(targets)], dim=1)
    got = squared_loss(Step(game, g, coalitions, None), coalitions.responses() - error * g.unit)
    torch.testing.assert_close(got, own.square().mean() / 2 + error.square().mean() / 2)


def test_every_step_draws_other_masks_and_every_epoch_other_batches(monkeypatch):
    game = graph_game()
    coalitionss = []

    def recorded(*arguments):
        coalitionss.append(evaluate_coalitions(*arguments))
        return coalitionss[-1]

    monkeypatch.setattr("dgl_lara.training.backend.evaluate_coalitions", recorded)
    train(InMemory(game, replace(SMALL, steps=2)), NODES, NODES)
    assert not torch.equal(coalitionss[0].masks.keep, coalitionss[1].masks.keep)
    epochs = [list(target_batches(torch.arange(20, 60), 16, seed, epoch)) for seed, epoch in ((0, 0), (0, 1), (1, 0))]
    for batches in epochs:
        assert [len(batch) for batch in batches] == [16, 16, 8]
        assert torch.cat(batches).sort().values.tolist() == list(range(20, 60))
    assert not torch.equal(epochs[0][0], epochs[1][0]) and not torch.equal(epochs[0][0], epochs[2][0])


def test_normalisation_comes_from_the_training_targets():
    game = graph_game()
    inputs = explainer_inputs(game, "rich")
    g = new_explainer(game, SMALL, inputs, torch.arange(10))
    torch.testing.assert_close(g.centre, inputs[:10].median(0).values)
    state = train(InMemory(game, replace(SMALL, steps=1)), torch.arange(10), torch.arange(30, 40))
    torch.testing.assert_close(state.explainer.centre, inputs[:10].median(0).values)


def test_a_mini_batch_embeds_its_surroundings_as_the_whole_graph_does():
    """Eq. 12 inside `embed`: K hops for the players and K more for g's layers."""
    game = gcn_game(nodes=60, edges=60, seed=3)
    seen = encoder_graph(game, "rich")
    targets = torch.tensor([17, 3])
    g = new_explainer(game, SMALL, seen.inputs, targets)
    whole, part = (subgraphs(game, seen).embed(g, targets) for subgraphs in (FullGraph, NeighborSubgraphs))
    assert len(part.nodes) < 60
    players = game.players(targets).player.unique()
    torch.testing.assert_close(part.p[torch.searchsorted(part.nodes, players)], whole.p[players])
    torch.testing.assert_close(part.t, whole.t)


def test_the_best_averaged_weights_on_the_validation_targets_are_kept(monkeypatch):
    """Also over a resume: an early best is not forgotten."""
    game = graph_game()
    judged, asked = [], []
    agreements = iter([0.1, 0.9, 0.3, 0.2, 0.4, 0.5])

    class Judge:
        name = "a fixed list"
        samples = None

        def __init__(self, game, encoder_graph, targets, seed, pool):
            asked.append(targets.tolist())

        def score(self, explainer, *_):
            judged.append((explainer, copy.deepcopy(explainer.state_dict())))
            return next(agreements)

    monkeypatch.setattr("dgl_lara.training.backend.make_validator", Judge)
    kept = {}

    def stop_at_3(state: TrainingState) -> None:
        kept.update(copy.deepcopy(state.to_dict()))
        if state.step == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(InMemory(game, SMALL), torch.arange(30), torch.arange(30, 40), checkpoint=stop_at_3)
    state = train(InMemory(game, SMALL), torch.arange(30), torch.arange(30, 40), resume=kept)
    assert asked == [list(range(30, 40))] * 2
    assert len(judged) == 6 and judged[-1][0] is state.average
    assert state.best == 0.9
    torch.testing.assert_close(state.best_weights, judged[1][1], rtol=0, atol=0)


def test_many_targets_need_fewer_and_longer_steps():
    assert [default("node", count).steps for count in (1000, 3000)] == [800, 500]
    assert [default(TypedNodeTask(4057), count).steps for count in (1000, 3000)] == [1000, 1000]
    large = default("node", 90_000)
    assert (large.gate, large.hidden, large.lr, large.masks) == ("random-walk", 128, 1e-2, 2)


def test_a_graph_too_large_for_phi_is_validated_by_unseen_coalitions(monkeypatch):
    """Both ways put the trained explainer above the untrained one, and near each other."""
    game = gcn_game(nodes=60, edges=70, seed=3)
    targets, seen = torch.arange(60), encoder_graph(game, "rich")
    by_phi = make_validator(game, seen, targets, 0)
    monkeypatch.setattr("dgl_lara.training.validation.SMALL_GRAPH_NODES", 1)
    monkeypatch.setattr("dgl_lara.training.validation.MAX_WALKS", 1)
    by_coalitions = make_validator(game, seen, targets, 0)
    assert (type(by_phi), type(by_coalitions)) == (AttributionValidator, CoalitionValidator)
    config = replace(SMALL, hidden=32, steps=150, lr=1e-2)
    trained = train(InMemory(game, config), NODES, NODES)
    assert trained.validated_by == CoalitionValidator.name
    for judge in (by_phi, by_coalitions):
        before = judge.score(new_explainer(game, SMALL, seen.inputs, targets))
        assert judge.score(trained.best_explainer()) > max(before, 0) + 0.3


def test_agreement_over_the_neighbours_ignores_the_targets_own_score():
    game = graph_game()
    targets, seen = torch.arange(40), encoder_graph(game, "rich")
    judge, g = make_validator(game, seen, targets, 0), new_explainer(game, SMALL, seen.inputs, targets)
    every, others = judge.score(g), judge.score_of_neighbours(g)
    judge.estimate.phi[judge.samples.own] += 100
    assert judge.score(g) != pytest.approx(every, abs=1e-3)
    assert judge.score_of_neighbours(g) == others
    judge.estimate.phi[~judge.samples.own] += 1
    assert judge.score_of_neighbours(g) != pytest.approx(others, abs=1e-3)


@pytest.mark.parametrize("total", [1, 7, 20, 41, 130])
def test_the_last_step_is_validated(total):
    checks = list(filter(Schedule(1, 1, total).is_check, range(1, total + 1)))
    assert checks[-1] == total and len(checks) >= min(total, 20)


@pytest.mark.usefixtures("hardly_judged")
def test_the_number_of_targets():
    game = graph_game()
    config = replace(SMALL, batch_size=5, epochs=2)
    steps = {
        wanted: train(InMemory(game, replace(config, targets=wanted)), torch.arange(30), torch.arange(30, 40)).step
        for wanted in (None, 10, 100)
    }
    assert steps == {None: 12, 10: 4, 100: 12}
