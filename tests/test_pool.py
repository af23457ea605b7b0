"""A pool of coalitions that all steps of a training share: f is asked about each once."""

from dataclasses import replace

import pytest
import torch
from codes import raises
from games import SmallGCN, gcn_game, random_graph

from dgl_lara import LARA
from dgl_lara._util.randomness import generator
from dgl_lara.game.game import Game
from dgl_lara.training.backend import InMemory
from dgl_lara.training.coalition_pool import evaluate_pool, pool_size
from dgl_lara.training.config import TrainingConfig, paper
from dgl_lara.training.loop import train

SMALL = TrainingConfig(hidden=8, dim=3, masks=2, steps=12, pool=6)
LEARNING, JUDGED = torch.arange(30), torch.arange(30, 40)


@pytest.fixture
def game():
    return gcn_game(nodes=40, edges=50, seed=3)


@pytest.fixture
def judged_by_four(monkeypatch):
    monkeypatch.setattr("dgl_lara.training.validation.PAIRS", 4)
    monkeypatch.setattr("dgl_lara.training.validation.MIN_PAIRS", 4)


def size(game, steps, learning=LEARNING, judged=JUDGED, **changes):
    return pool_size(game, replace(SMALL, **changes), learning, judged, steps)


def kept_by(state):
    samples = state.reservoir.samples()
    assert samples is not None
    return samples


def test_every_pair_is_taken_once_before_any_is_taken_again(game):
    pool = evaluate_pool(game, 6, LEARNING, 0)
    assert len(pool.outputs.masks.keep.unique(dim=0)) == 6
    sweeps = [[pool.for_step(3 * sweep + place, 2) for place in range(3)] for sweep in range(4)]
    orders = [torch.cat([step.masks.keep for step in steps]) for steps in sweeps]
    for order in orders:
        assert torch.equal(order.unique(dim=0), pool.outputs.masks.keep.unique(dim=0))
    assert any(not torch.equal(order, orders[0]) for order in orders)
    taken = pool.for_step(7, 2)
    torch.testing.assert_close(taken.inside, game.batch_logits(game.full_batch, taken.masks.keep))
    torch.testing.assert_close(taken.outside, game.batch_logits(game.full_batch, ~taken.masks.keep))
    assert len(pool.for_step(5, 100).masks) == 6  # all there are


def test_f_is_asked_about_the_pool_and_nothing_else(game, judged_by_four):
    game.value_scale, before = game.value_scale, game.caller.nodes_evaluated
    state = train(InMemory(game, SMALL), LEARNING, JUDGED)
    assert state.nodes_asked == 6 * 40  # a node is either in S or in the rest
    assert state.nodes_asked <= game.caller.nodes_evaluated - before
    samples = kept_by(state)
    keep = samples.masks(torch.arange(40)).keep
    assert samples.pairs == len(keep.unique(dim=0)) == 6
    d = (
        (game.shared_values(keep) - game.shared_values(~keep))
        .gather(2, game.explained_class.expand(6, -1).unsqueeze(2))
        .squeeze(2)
    )
    torch.testing.assert_close(samples.responses_of(torch.arange(40)).T, d, atol=2e-3 * game.value_scale, rtol=1e-3)


def test_the_judge_reads_the_pool_unless_it_is_small_or_known_by_heart(game, judged_by_four):
    def judged_on(learning, **changes):
        return train(InMemory(game, replace(SMALL, steps=8, **changes)), learning, JUDGED).validation_samples

    pool, by_pool = evaluate_pool(game, 6, LEARNING, 0), judged_on(LEARNING)
    assert torch.equal(by_pool.masks.keep, pool.outputs.masks.keep)
    d = (game.shared_values(by_pool.masks.keep) - game.shared_values(~by_pool.masks.keep))[
        :, JUDGED, game.explained_class[JUDGED]
    ]
    torch.testing.assert_close(by_pool.responses, d)
    fresh = judged_on(LEARNING, pool=0)
    for own in (judged_on(torch.arange(31)), judged_on(LEARNING, pool=3)):
        assert torch.equal(own.masks.keep, fresh.masks.keep) and torch.equal(own.responses, fresh.responses)


@pytest.mark.parametrize("shared_pairs", [None, 0, 4])
def test_a_resumed_training_equals_an_unbroken_one(game, shared_pairs):
    kept, config = {}, replace(SMALL, shared_pairs=shared_pairs)

    def stop(state):
        kept.update(state.to_dict())
        if state.step == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(InMemory(game, config), LEARNING, JUDGED, checkpoint=stop)
    with_less_memory = Game.create(game.f, game.graph, game.features, hops=2, memory=30_000)
    resumed = train(InMemory(with_less_memory, config), LEARNING, JUDGED, resume=kept)
    unbroken = train(InMemory(game, config), LEARNING, JUDGED)
    torch.testing.assert_close(resumed.best_weights, unbroken.best_weights, rtol=0, atol=0)
    assert resumed.history == unbroken.history and resumed.pool == unbroken.pool == 6
    if shared_pairs != 0:
        ours, theirs = kept_by(resumed), kept_by(unbroken)
        assert ours.pairs == (shared_pairs or 6)
        assert torch.equal(ours.responses, theirs.responses) and torch.equal(ours.inside, theirs.inside)


def test_a_training_without_a_pool_resumes_without(game):
    kept, config = {}, replace(SMALL, pool=0)

    def stop(state):
        kept.update(state.to_dict())
        if state.step == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(InMemory(game, config), LEARNING, JUDGED, checkpoint=stop)
    assert kept["pool"] == 0
    resumed = train(InMemory(game, SMALL), LEARNING, JUDGED, resume=kept)
    unbroken = train(InMemory(game, config), LEARNING, JUDGED)
    torch.testing.assert_close(resumed.best_weights, unbroken.best_weights, rtol=0, atol=0)


def test_a_pool_of_all_that_steps_would_draw_is_none(game):
    assert (size(game, 12, pool=23), size(game, 12, pool=24), size(game, 12, pool=0)) == (23, 0, 0)
    states = [train(InMemory(game, replace(SMALL, pool=pool)), LEARNING, JUDGED) for pool in (0, 24, None, 23)]
    losses = [state.history[-1]["loss"] for state in states]
    assert losses[0] == losses[1] == losses[2] != losses[3]


def test_by_itself_there_is_a_pool_where_players_are_few(game):
    assert size(game, 800, pool=None) == 512
    features = torch.randn(200, 3, generator=generator(1))
    for edges, few in ((200, True), (500, False)):
        other = Game.create(SmallGCN(), random_graph(200, edges, 0), features, hops=2)
        assert (float(other.players(LEARNING).counts.float().mean()) <= 16) == few
        assert size(other, 800, pool=None) == (512 if few else 0)
    assert size(game, 800, pool=None, judged=torch.arange(29, 40)) == 0  # one of them teaches
    assert paper("node").pool == 0


def test_a_graph_too_large_to_count_players_has_none_by_itself(game, monkeypatch):
    monkeypatch.setattr("dgl_lara.training.coalition_pool.SMALL_GRAPH_NODES", 39)
    assert (size(game, 800, pool=None), size(game, 800, pool=6)) == (0, 6)


def test_a_pool_that_does_not_fit_is_left_out(game, notices):
    small = Game.create(game.f, game.graph, game.features, hops=2, memory=1_000_000)
    assert size(small, 800, pool=None) == 0 and not notices.codes
    assert size(small, 10_000, pool=5_000) == 0
    assert notices.fields("pool.too_large")["pairs"] == 5_000
    assert size(small, 800, pool=6) == 6


def test_what_is_asked_for_is_drawn_beyond_the_pool(game):
    lara = LARA.of_game(game, replace(SMALL, shared_pairs=20)).fit(LEARNING, JUDGED)
    assert lara.samples_ and lara.samples_.pairs == 20
    assert len(lara.samples_.masks(torch.arange(40)).keep.unique(dim=0)) == 20
    corrected = lara.explain([35]).corrected
    assert corrected is not None and corrected.all()


def test_mini_batches_have_none():
    with raises("pool.needs_full_graph", batch_size=64):
        replace(SMALL, batch_size=64)
    assert replace(SMALL, batch_size=64, pool=None).pool is None


@pytest.mark.parametrize("objective", ["least-squares", "running-mean", "mutual-information"])
def test_any_objective_learns_from_a_pool(game, objective):
    state = train(InMemory(game, replace(SMALL, objective=objective)), LEARNING, JUDGED)
    assert state.pool == 6 and state.history[-1]["loss"] != state.history[0]["loss"]
