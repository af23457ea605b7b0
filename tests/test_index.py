"""Indices: their laws, regressions and exact values, and explanations that follow them."""

import itertools
import math

import dgl
import numpy as np
import pytest
import torch
from codes import raises
from games import PooledGCN, gcn_game, random_graph

from dgl_lara import LARA, TrainingConfig
from dgl_lara._util.randomness import generator
from dgl_lara.attribution.efficiency import complete
from dgl_lara.attribution.exact import all_coalitions, exact, weighted_marginals
from dgl_lara.attribution.monte_carlo import fit_each, sample, sample_shared, unbiased_each
from dgl_lara.attribution.posterior import posterior_update
from dgl_lara.attribution.shared_samples import SampleReservoir, SharedSamples, draw_more
from dgl_lara.game.game import Game
from dgl_lara.game.index import BANZHAF, SHAPLEY, as_index
from dgl_lara.inference.kernels.posterior import correct_all
from dgl_lara.inference.scorer import Scorer, embed_all
from dgl_lara.training.config import default

INDICES = ("banzhaf", "shapley", "keep-0.9", "keep-0.6")
SHORT = TrainingConfig(hidden=16, dim=5, masks=8, steps=6, objective="least-squares")


def random_values(players, seed=0):
    """Values of all coalitions of an arbitrary game, in the order of `all_coalitions`."""
    return torch.randn(2**players, generator=generator(seed), dtype=torch.float64)


def brute_force(values, players, weight):
    """phi_j as the weighted sum of marginal contributions, set by set."""
    value = {frozenset(j for j in range(players) if row >> j & 1): float(values[row]) for row in range(2**players)}
    phi = np.zeros(players)
    for j in range(players):
        others = [player for player in range(players) if player != j]
        for size in range(players):
            for chosen in itertools.combinations(others, size):
                phi[j] += weight(size) * (value[frozenset(chosen) | {j}] - value[frozenset(chosen)])
    return phi


@pytest.mark.parametrize("index", INDICES)
def test_weights_of_marginal_contributions_sum_to_one(index):
    weights = as_index(index).marginal_weights(7)
    total = sum(math.comb(6, size) * float(weight) for size, weight in enumerate(weights))
    assert total == pytest.approx(1)


@pytest.mark.parametrize(
    ("index", "weight"),
    [
        ("banzhaf", lambda s: 1 / 16),
        ("shapley", lambda s: math.factorial(s) * math.factorial(4 - s) / math.factorial(5)),
        ("keep-0.9", lambda s: 0.9**s * 0.1 ** (4 - s)),
    ],
)
def test_enumeration_equals_the_definition(index, weight):
    values = random_values(5)
    phi = weighted_marginals(values, all_coalitions(5), as_index(index))
    np.testing.assert_allclose(phi.numpy(), brute_force(values, 5, weight), atol=1e-12)
    assert np.ptp(phi.numpy()) > 0.1


def test_shapley_axioms():
    """Efficiency, dummy, symmetry and linearity, on games with these properties."""
    coalitions = all_coalitions(5)
    values, others = random_values(5), random_values(5, 1)
    phi = weighted_marginals(values, coalitions, SHAPLEY)
    assert float(phi.sum()) == pytest.approx(float(values[-1] - values[0]))
    mixed = weighted_marginals(2 * values - others, coalitions, SHAPLEY)
    torch.testing.assert_close(mixed, 2 * phi - weighted_marginals(others, coalitions, SHAPLEY))
    inside = coalitions.double()
    game = inside[:, 0] * inside[:, 1] + 3 * inside[:, 2]  # 0 and 1 are symmetric, 3 and 4 are dummies
    for index in INDICES:
        found = weighted_marginals(game, coalitions, as_index(index))
        assert float(found[0]) == pytest.approx(float(found[1])) and float(found[0]) > 0.1
        torch.testing.assert_close(found[2:], torch.tensor([3.0, 0, 0], dtype=torch.float64))


@pytest.mark.parametrize("index", INDICES)
def test_the_design_is_centred_and_white(index):
    index = as_index(index)
    masks = index.draw(40_000, 4, generator(0))
    z = index.design(masks)
    torch.testing.assert_close(z.mean(0), torch.zeros(4), atol=0.03, rtol=0)
    torch.testing.assert_close(z.T @ z / len(z), torch.eye(4), atol=0.05, rtol=0)
    a, b = index.affine(masks.probability)
    torch.testing.assert_close(z, a * (masks.keep.float() * 2 - 1) - b.unsqueeze(1))


@pytest.mark.parametrize("index", INDICES)
def test_responses_of_a_linear_game_have_no_noise(index):
    """f(S) = 2 + sum of w_j over S: every response is z w, whatever the coalition."""
    index, weights = as_index(index), torch.tensor([1.0, -2.0, 0.5, 3.0])
    masks = index.draw(50, 4, generator(1))
    inside, outside = (2 + side.float() @ weights for side in (masks.keep, ~masks.keep))
    full, empty = 2 + weights.sum(), torch.tensor(2.0)
    found = index.response(inside, outside, full, empty, masks.probability)
    torch.testing.assert_close(found, index.design(masks) @ weights, atol=1e-5, rtol=1e-5)
    assert found.std() > 0.5


def small_game(index, task="node"):
    if task == "graph":
        batch = dgl.batch([random_graph(nodes, 2 * nodes, seed) for seed, nodes in enumerate((5, 7, 6))])
        features = torch.randn(batch.num_nodes(), 3, generator=generator(5))
        return Game.create(PooledGCN(), batch, features, "graph", hops=2, index=index)
    game = gcn_game(nodes=40, edges=50, seed=3)
    return Game.create(game.f, game.graph, game.features, hops=2, index=index)


def with_few_players(game, most=9):
    targets = torch.arange(game.num_targets)
    return targets[game.players(targets).counts <= most][:6]


@pytest.mark.parametrize("index", ["shapley", "keep-0.9"])
@pytest.mark.parametrize("task", ["node", "graph"])
def test_the_regression_finds_exact_values(index, task):
    game = small_game(index, task)
    players = game.players(with_few_players(game))
    phi = exact(game, players)
    assert phi.std() > 0.01
    found = fit_each(sample(game, players, 6000, generator(0))).phi
    explained = 1 - (found - phi).square().sum() / (phi - phi.mean()).square().sum()
    assert explained > 0.97, float(explained)
    banzhaf = exact(small_game("banzhaf", task), players)
    assert (banzhaf - phi).abs().max() > 0.02  # another question has another answer


def test_shared_masks_are_coalitions_of_every_target():
    game = small_game("shapley")
    players = game.players(with_few_players(game))
    phi = exact(game, players)
    found = unbiased_each(sample_shared(game, players, 6000, generator(0))).phi
    assert 1 - (found - phi).square().sum() / (phi - phi.mean()).square().sum() > 0.97


@pytest.mark.parametrize("players", ["nodes", "edges", "features"])
def test_shapley_scores_add_up(players):
    game = gcn_game(nodes=40, edges=50, seed=3)
    lara = LARA(game.f, game.graph, game.features, hops=2, players=players, index="shapley", config=SHORT)
    lara.fit(range(30), range(30, 40))
    for explanations in (
        lara.explain([3, 8]),
        lara.explain(range(40)),
        lara.explain([3, 8], corrected=False),
        lara.refine(lara.explain([3, 8]), 16).explanations,
    ):
        found, query = explanations.players, explanations.query
        total = lara.game.full_value_of(found.targets, query) - lara.game.empty_values_of(found, query)
        sums = torch.zeros(len(total)).index_add(0, found.row, explanations.scores)
        torch.testing.assert_close(sums, total, atol=1e-4, rtol=1e-4)
        assert total.abs().max() > 1e-3


def test_top_players_are_those_of_the_explanations():
    game = gcn_game(nodes=40, edges=50, seed=3)
    lara = LARA(game.f, game.graph, game.features, hops=2, index="shapley", config=SHORT).fit(range(30), range(30, 40))
    targets = torch.arange(40)
    best = Scorer(lara.explainer_, lara.game, embed_all(lara.explainer_, lara.game, "rich")).top(targets, 3)
    explanations = lara.explain(targets, corrected=False)
    for row, pairs in enumerate(explanations.players.slices):
        scores = explanations.scores[pairs].sort(descending=True).values[:3]
        kept = best.score[row][best.player[row] >= 0]
        np.testing.assert_allclose(kept, scores[: len(kept)].numpy(), atol=1e-5)


@pytest.mark.parametrize("index", INDICES)
def test_compiled_correction_equals_the_posterior(index):
    game = small_game(index)
    targets = torch.arange(40)
    players = game.players(targets)
    reservoir = SampleReservoir(game, 200, 0)
    draw_more(reservoir, 120)
    samples, own = reservoir.samples(), game.task.is_target(players)
    assert samples is not None
    scores = 0.1 * torch.randn(len(players.player), generator=generator(1))
    prior = torch.full_like(scores, 0.05)
    found, variance = correct_all(players, own, scores, samples, prior, torch.ones(40, dtype=torch.bool))
    for pairs, z, y in samples.of(players, own).each():
        expected = posterior_update(z, y, scores[pairs], prior[pairs], own[pairs])
        torch.testing.assert_close(found[pairs], expected.scores, atol=5e-3, rtol=5e-3)
        torch.testing.assert_close(variance[pairs], expected.variance, atol=1e-4, rtol=2e-3)
    assert (found - scores).abs().max() > 0.05


def test_samples_of_another_index_correct_nothing():
    game = small_game("shapley")
    reservoir = SampleReservoir(game, 20, 0)
    draw_more(reservoir, 20)
    drawn = reservoir.samples()
    assert drawn is not None
    samples = SharedSamples.from_dict(drawn.to_dict(), "samples")
    targets = torch.arange(40)
    assert samples.know(game, targets, game.explained_class).all()
    assert not samples.know(small_game("banzhaf"), targets, game.explained_class).any()


@pytest.mark.parametrize("index", ["shapley", "keep-0.9"])
def test_the_index_is_saved(index, tmp_path):
    game = gcn_game(nodes=40, edges=50, seed=3)
    lara = LARA(game.f, game.graph, game.features, hops=2, index=index, config=SHORT).fit(range(30), range(30, 40))
    lara.save(tmp_path / "lara.pt")
    loaded = LARA.load(tmp_path / "lara.pt", game.f, game.graph, game.features)
    assert loaded.index == as_index(index) != BANZHAF
    torch.testing.assert_close(loaded.explain([1, 2]).scores, lara.explain([1, 2]).scores)


def test_scores_that_add_up_are_completed_and_others_are_not():
    for index in INDICES:
        game = small_game(index)
        players = game.players(torch.tensor([3, 8]))
        scores = torch.zeros(len(players.player))
        completed = complete(game, players, game.query(players.targets), scores)
        assert bool(completed.any()) == (index == "shapley")


@pytest.mark.parametrize("index", ["owen", "keep-", "keep-x", "keep", None])
def test_an_unknown_index_is_refused(index):
    with raises("index.unknown"):
        as_index(index)


@pytest.mark.parametrize("index", ["keep-0", "keep-1", "keep-1.5"])
def test_a_probability_out_of_range_is_refused(index):
    with raises("index.keep"):
        as_index(index)


def test_an_objective_for_uniform_coalitions_is_refused():
    game = gcn_game(nodes=40, edges=50, seed=3)
    lara = LARA(game.f, game.graph, game.features, hops=2, index="shapley", config=TrainingConfig(steps=2))
    with raises("objective.index", got="balanced"):
        lara.fit(range(30), range(30, 40))


def test_the_default_objective_fits_the_index():
    assert default("node", 100).objective == "balanced"
    assert default("node", 100, index=SHAPLEY).objective == "least-squares"
