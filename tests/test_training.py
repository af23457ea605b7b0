"""Alg. 1: a closed form that must be learned, mini-batch against full graph, objectives, resume."""

import copy
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

SMALL = TrainingConfig(hidden=16, dim=5, masks=4, steps=6)


def graph_game(**more):
    return gcn_game(nodes=40, edges=50, seed=3, **more)


def trained_scores(game, config, targets, validation):
    return LARA.of_game(game, config).fit(targets, validation).explain(validation)


def coalitions_of(game, targets, masks, subgraphs=FullGraph):
    return evaluate_coalitions(game, subgraphs(game, None).batch(targets), masks, generator(0))


def step_on_the_whole_graph(game, g, targets, masks, seen):
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


@pytest.mark.parametrize("gate", ["walk", "random-walk"])
def test_walks_without_pairs_equal_explicit_pairs(gate, monkeypatch):
    game = graph_game()
    seen = encoder_graph(game, "rich")
    targets = torch.tensor([5, 1, 30])
    g = new_explainer(game, replace(SMALL, gate=gate), seen.inputs, targets)
    step = step_on_the_whole_graph(game, g, targets, 4, seen)
    pairs = step._by_pairs()
    assert pairs.std() > 1e-3
    monkeypatch.setattr(Step, "_by_pairs", None)  # the whole graph needs no list of pairs
    torch.testing.assert_close(step.predicted_differences(), pairs)


def test_mini_batch_training_equals_full_graph_training_when_the_batch_is_everything():
    game = graph_game()
    targets = torch.arange(40)
    states = [train(InMemory(game, replace(SMALL, batch_size=size)), targets, targets) for size in (0, 40)]
    full, batch = (state.explainer.state_dict() for state in states)
    start = new_explainer(game, SMALL, explainer_inputs(game, "rich"), targets).state_dict()
    assert (full["source_head.weight"] - start["source_head.weight"]).abs().max() > 1e-3
    torch.testing.assert_close(batch, full, atol=1e-4, rtol=1e-3)


def test_bystanders_stay_and_players_are_drawn():
    """In a mini-batch only the K-hop players are removed: f agrees with coalitions of the exact convention."""
    game = gcn_game(nodes=60, edges=60, seed=3)
    target = torch.tensor([7])
    lesson = coalitions_of(game, target, 6, NeighborSubgraphs)
    players = game.players(target)
    keep = lesson.sigma(players.player) > 0
    expected = game.values_per_target(players, keep)[:, 0]
    torch.testing.assert_close(lesson.inside[:, 0, game.explained_class[7]], expected)
    assert 0 < keep.float().mean() < 1


def test_least_squares_loss_has_its_minimum_at_phi():
    """The identity of DESIGN 2: with exact phi the squared error is the variance no linear function explains."""
    game = gcn_game(seed=2)
    target = game.graph.in_degrees().topk(1).indices
    players = game.players(target)
    phi = exact(game, players)
    lesson = coalitions_of(game, target, 4000)
    sigma = lesson.sigma(players.player)
    g = new_explainer(game, replace(SMALL, all_classes=False), explainer_inputs(game, "rich"), target)

    def loss(scores):
        return squared_loss(Step(game, g, lesson, None), (sigma @ scores)[:, None, None]).item()

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
def test_table_objectives_teach_the_right_thing(objective):
    """With many masks in one step the table holds phi, or E[MI value | j in S], and the loss is Eq. 8 against it."""
    game = gcn_game(seed=2)
    targets = game.graph.in_degrees().topk(2).indices.sort().values
    players = game.players(targets)
    table = AttributionTable(game, targets)
    seen = encoder_graph(game, "rich")
    g = new_explainer(game, replace(SMALL, objective=objective), seen.inputs, targets)
    step = step_on_the_whole_graph(game, g, targets, 6000, seen)
    lesson, embedded = step.coalitions, step.embedded
    loss = OBJECTIVES[objective].loss(step, table)
    if objective == "running-mean":
        expected = exact(game, players)
    else:
        values = mi_value(game.full_logits[targets], lesson.inside)  # (masks, targets)
        inside = (lesson.sigma(players.player) > 0).float()
        expected = (inside * values[:, players.row]).sum(0) / inside.sum(0)
    assert expected.std() > 0.03
    assert (table.phi - expected).square().mean() < 0.03 * expected.var()
    scores = g.form.scores(g, PairBatch(game, players, embedded.p, embedded.t))
    torch.testing.assert_close(loss, ((scores - table.phi) / g.unit).square().mean())


def test_paper_preset_is_the_paper():
    node, graph = paper("node"), paper("graph")
    assert (node.lr, graph.lr, node.batch_size) == (1e-3, 1e-4, 64)
    assert (node.gate, node.inputs, node.objective, node.dim) == ("none", "features", "running-mean", 20)
    game = graph_game()
    state = train(InMemory(game, replace(node, epochs=2)), torch.arange(40), torch.arange(40))
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


@pytest.mark.usefixtures("hardly_judged")
def test_resumed_equals_uninterrupted():
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job begins by ignoring it
    game = graph_game()
    targets = torch.arange(40)
    for objective in ("least-squares", "running-mean"):
        config = replace(SMALL, objective=objective, batch_size=16, steps=12)
        unbroken = train(InMemory(game, config), targets, targets)
        kept = {}

        def stop_at_7(state: TrainingState, kept=kept) -> None:
            kept.update(torch.load(_saved(state), weights_only=True))
            if state.step >= 7:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            train(InMemory(game, config), targets, targets, checkpoint=stop_at_7)
        assert 7 <= kept["step"] < unbroken.step
        resumed = train(InMemory(game, config), targets, targets, resume=kept)
        torch.testing.assert_close(resumed.best_weights, unbroken.best_weights, rtol=0, atol=0)
        assert resumed.history == unbroken.history


def _saved(state):
    import io

    buffer = io.BytesIO()
    torch.save(state.to_dict(), buffer)
    buffer.seek(0)
    return buffer


def test_same_seed_same_explainer():
    game = graph_game()
    targets = torch.arange(40)
    first, again, other = (train(InMemory(game, replace(SMALL, seed=seed)), targets, targets) for seed in (0, 0, 1))
    torch.testing.assert_close(first.best_weights, again.best_weights, rtol=0, atol=0)
    assert (first.best_weights["source_head.weight"] - other.best_weights["source_head.weight"]).abs().max() > 1e-3


def test_training_leaves_no_trace_in_the_global_generator():
    game = graph_game()
    torch.manual_seed(5)
    before = torch.random.get_rng_state()
    train(InMemory(game, SMALL), torch.arange(40), torch.arange(40))
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
        train(InMemory(graph_game(), config), torch.arange(40), torch.arange(40))


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
    targets = torch.arange(40)
    config = replace(SMALL, steps=19, average=average)  # at most 20 steps: a checkpoint after each
    slow = new_explainer(game, config, explainer_inputs(game, "rich"), targets).source_head.weight.detach().clone()
    seen = []
    state = train(
        InMemory(game, config),
        targets,
        targets,
        checkpoint=lambda s: seen.append(s.explainer.source_head.weight.detach().clone()),
    )
    assert len(seen) == 19 and (seen[-1] - slow).abs().max() > 1e-3
    for step, fast in enumerate(seen):
        decay = min(average, (step + 1) / (step + 10))
        slow = decay * slow + (1 - decay) * fast
    torch.testing.assert_close(state.average.source_head.weight, slow)


def test_bystanders_stay_where_their_degrees_matter():
    """Like the test above, for all targets whose boundary has neighbours further out."""
    game = gcn_game(nodes=60, edges=70, seed=3)
    targets = torch.arange(60)
    further = (
        game.players(targets).counts < Game.create(game.f, game.graph, game.features, hops=3).players(targets).counts
    )
    assert int(further.sum()) > 20
    for target in targets[further][:10].split(1):
        lesson = coalitions_of(game, target, 6, NeighborSubgraphs)
        players = game.players(target)
        for values, keep in (
            (lesson.inside, lesson.sigma(players.player) > 0),
            (lesson.outside, lesson.sigma(players.player) < 0),
        ):
            expected = game.values_per_target(players, keep)[:, 0]
            torch.testing.assert_close(values[:, 0, game.explained_class[target[0]]], expected)


def test_lessons_speak_of_the_value_that_is_explained():
    game = graph_game(value="probability")
    lesson = coalitions_of(game, torch.tensor([5, 1]), 4)
    torch.testing.assert_close(lesson.differences(game.value), lesson.inside.softmax(2) - lesson.outside.softmax(2))


def test_half_the_loss_is_the_explained_class_half_all_classes():
    game = graph_game()
    targets = torch.tensor([5, 1, 30])
    g = new_explainer(game, SMALL, explainer_inputs(game, "rich"), targets)
    lesson = coalitions_of(game, targets, 4)
    error = torch.randn(4, 3, 3, generator=torch.Generator().manual_seed(1))
    own = torch.stack([error[:, i, game.explained_class[target]] for i, target in enumerate(targets)], dim=1)
    got = squared_loss(Step(game, g, lesson, None), lesson.differences(game.value) - error * g.unit)
    torch.testing.assert_close(got, own.square().mean() / 2 + error.square().mean() / 2)


def test_every_step_draws_other_masks_and_every_epoch_other_batches(monkeypatch):
    game = graph_game()
    lessons = []

    def recorded(*arguments):
        lessons.append(evaluate_coalitions(*arguments))
        return lessons[-1]

    monkeypatch.setattr("dgl_lara.training.backend.evaluate_coalitions", recorded)
    train(InMemory(game, replace(SMALL, steps=2)), torch.arange(40), torch.arange(40))
    assert not torch.equal(lessons[0].keep, lessons[1].keep)
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


def test_large_graphs_get_the_random_walk_and_longer_steps():
    small, large = default("node", 1000), default("node", 90_000)
    assert (small.gate, small.hidden, small.lr) == ("walk", 64, 5e-3)
    assert (large.gate, large.hidden, large.lr, large.masks) == ("random-walk", 128, 1e-2, 2)


def test_many_targets_need_fewer_steps_but_for_graphs_of_several_types():
    assert [default("node", count).steps for count in (1000, 3000)] == [800, 500]
    assert [default(TypedNodeTask(4057), count).steps for count in (1000, 3000)] == [1000, 1000]


def test_paper_preset_has_the_papers_encoder_and_one_pair_a_step():
    for task in ("node", "graph"):
        config = paper(task, seed=3)
        assert (config.encoder, config.masks, config.schedule, config.average) == ("plain", 1, "constant", 0.0)
        assert (config.all_classes, config.embedding, config.hidden, config.seed) == (False, "dual", 20, 3)


def test_walks_and_pairs_agree_on_a_graph_with_its_own_self_loops():
    plain = graph_game()
    some = torch.arange(0, 40, 2)
    game = Game.create(plain.f, dgl.add_edges(plain.graph, some, some), plain.features, hops=2)
    seen = encoder_graph(game, "rich")
    targets = torch.tensor([5, 1, 30])
    step = step_on_the_whole_graph(game, new_explainer(game, SMALL, seen.inputs, targets), targets, 4, seen)
    torch.testing.assert_close(step._along_the_edges(), step._by_pairs())


@pytest.mark.usefixtures("hardly_judged")
def test_ctrl_c_in_the_middle_of_a_step_waits_for_its_end(monkeypatch, notices):
    """A real signal inside the optimiser: what is stored is a whole step, and resuming repeats the unbroken run."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job begins by ignoring it
    game = graph_game()
    targets = torch.arange(40)
    for objective in ("least-squares", "running-mean"):
        config = replace(SMALL, objective=objective, batch_size=16, steps=12)
        unbroken = train(InMemory(game, config), targets, targets)
        kept, count, real = {}, [], torch.optim.Adam.step

        def interrupted(self, count=count, real=real):
            count.append(1)
            real(self)
            if len(count) == 6:
                os.kill(os.getpid(), signal.SIGINT)

        with monkeypatch.context() as patched:
            patched.setattr(torch.optim.Adam, "step", interrupted)
            with pytest.raises(KeyboardInterrupt):
                train(
                    InMemory(game, config),
                    targets,
                    targets,
                    checkpoint=lambda s, kept=kept: kept.update(torch.load(_saved(s), weights_only=True)),
                )
        assert kept["step"] == 6
        notices.records.clear()
        resumed = train(InMemory(game, config), targets, targets, resume=kept)
        torch.testing.assert_close(resumed.best_weights, unbroken.best_weights, rtol=0, atol=0)
        assert resumed.history == unbroken.history
        assert notices.fields("training.resumed") == {"step": 6, "total": 12} and resumed.resumed_at == 6
        notices.records.clear()
        train(InMemory(game, config), targets, targets, resume=resumed.to_dict())
        assert notices.codes == ["training.was_finished"]


def test_a_graph_too_large_for_phi_is_judged_by_unseen_coalitions(monkeypatch):
    """Both ways put the trained explainer above the untrained one, and near each other."""
    game = gcn_game(nodes=60, edges=70, seed=3)
    targets, seen = torch.arange(60), encoder_graph(game, "rich")
    by_phi = make_validator(game, seen, targets, 0)
    monkeypatch.setattr("dgl_lara.training.validation.SMALL_GRAPH_NODES", 1)
    monkeypatch.setattr("dgl_lara.training.validation.MAX_WALKS", 1)
    by_coalitions = make_validator(game, seen, targets, 0)
    assert (type(by_phi), type(by_coalitions)) == (AttributionValidator, CoalitionValidator)
    config = replace(SMALL, hidden=32, steps=150, lr=1e-2)
    trained = train(InMemory(game, config), targets, targets)
    assert trained.validated_by == CoalitionValidator.name
    for judge in (by_phi, by_coalitions):
        before = judge.score(new_explainer(game, SMALL, seen.inputs, targets))
        assert judge.score(trained.best_explainer()) > max(before, 0) + 0.3


def test_agreement_over_the_neighbours_does_not_look_at_the_targets_own_score():
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
def test_how_often_it_will_be_judged_yet(total):
    plan = Schedule(1, 1, total)
    judged = [step for step in range(1, total + 1) if plan.is_check(step)]
    assert [plan.checks_after(step) for step in judged] == list(reversed(range(len(judged))))


@pytest.mark.usefixtures("hardly_judged")
def test_only_so_many_targets_are_learned_from():
    game = graph_game()
    config = replace(SMALL, batch_size=5, epochs=2)
    steps = {
        wanted: train(InMemory(game, replace(config, targets=wanted)), torch.arange(30), torch.arange(30, 40)).step
        for wanted in (None, 10, 100)
    }
    assert steps == {None: 12, 10: 4, 100: 12}
