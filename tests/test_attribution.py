"""phi: exact values, an independent dense enumeration, unbiased estimators with the right rate."""

import itertools

import dgl
import numpy as np
import pytest
import torch
from games import gcn_game, star_game

from dgl_lara._util.randomness import generator
from dgl_lara.attribution.exact import all_coalitions, banzhaf, exact
from dgl_lara.attribution.mi_value import mi_value
from dgl_lara.attribution.monte_carlo import (
    Estimate,
    fit,
    fit_each,
    least_squares,
    paired,
    per_player,
    sample_shared,
    shared_least_squares,
    split_half_estimate,
    unbiased_each,
)
from dgl_lara.attribution.r_squared import corrected_r_squared, r_squared
from dgl_lara.errors import InputError, message
from dgl_lara.game.game import Game
from dgl_lara.game.index import BANZHAF
from dgl_lara.metrics.common.reference import reference


def test_star_toy_has_the_known_values():
    """Neighbours 1, 2, 3, f = relu(sum - 2): Banzhaf 3/4, 5/4, 9/4 when the target stays; half of it when the
    target is a player too and its removal gives the null prediction 0."""
    game = star_game()
    players = game.players(torch.tensor([0]))
    phi = exact(game, players)
    torch.testing.assert_close(phi[1:], torch.tensor([0.75, 1.25, 2.25]) / 2)
    kept = all_coalitions(3)
    keep = torch.cat([torch.ones(8, 1, dtype=torch.bool), kept], dim=1)
    values = game.values_per_target(players, keep)[:, 0]
    means = torch.stack([values[kept[:, j]].mean() - values[~kept[:, j]].mean() for j in range(3)])
    torch.testing.assert_close(means, torch.tensor([0.75, 1.25, 2.25]))


def dense_gcn(weights, adjacency, x):
    """NumPy only: the same two layers on a dense matrix."""
    with_loops = adjacency + np.eye(len(adjacency))
    scale = with_loops.sum(1) ** -0.5
    normalised = scale[:, None] * with_loops * scale[None, :]
    hidden = np.maximum(normalised @ x @ weights[0], 0)
    return normalised @ hidden @ weights[1]


def test_exact_equals_a_dense_enumeration():
    game = gcn_game(nodes=9, edges=8, seed=4)
    weights = [weight.detach().double().numpy() for weight in game.f.weights]
    adjacency, x = np.zeros((9, 9)), game.features.double().numpy()
    src, dst = (ends.numpy() for ends in game.graph.edges())
    adjacency[dst, src] = 1
    null = dense_gcn(weights, np.zeros((1, 1)), np.zeros((1, 3)))[0]
    target = int(game.graph.in_degrees().argmax())
    players = game.players(torch.tensor([target]))
    nodes = players.player.tolist()
    assert 4 <= len(nodes) <= 9
    label = int(game.explained_class[target])

    def value(subset):
        left = sorted(set(range(9)) - (set(nodes) - set(subset)))
        if target not in left:
            return null[label]
        return dense_gcn(weights, adjacency[np.ix_(left, left)], x[left])[left.index(target), label]

    expected = np.zeros(len(nodes))
    for size in range(len(nodes) + 1):
        for subset in itertools.combinations(nodes, size):
            rest = tuple(node for node in nodes if node not in subset)
            difference = value(subset) - value(rest)
            for j, node in enumerate(nodes):
                expected[j] += difference * (node in subset) / 2 ** (len(nodes) - 1)
    assert expected.std() > 0.05
    torch.testing.assert_close(exact(game, players).double(), torch.tensor(expected), atol=1e-4, rtol=1e-3)


def test_null_player_gets_zero():
    """A neighbour whose feature is 0 moves relu(sum - 2) nowhere."""
    game = star_game()
    game.features[1] = 0
    players = game.players(torch.tensor([0]))
    phi = exact(game, players)
    assert phi[1] == 0
    assert phi[2] > 0.1


def test_more_than_twenty_players_are_refused():
    game = gcn_game(nodes=40, edges=200)
    with pytest.raises(InputError, match="at most 20 players"):
        exact(game, game.players(torch.tensor([0])))


ESTIMATORS = {"per_player": per_player, "paired": paired, "least_squares": least_squares}


@pytest.mark.parametrize("name", ESTIMATORS)
def test_estimators_are_unbiased_and_converge_at_the_monte_carlo_rate(name):
    """Mean of many small runs: within 5 standard errors. Error against samples: slope -1/2 on a log-log scale."""
    game = gcn_game(seed=2)
    players = game.players(game.graph.in_degrees().topk(2).indices)
    assert int(players.counts.max()) >= 6
    phi = exact(game, players)
    assert phi.std() > 0.05
    budgets = [32, 128, 512]
    errors = []
    for budget in budgets:
        runs = torch.stack([ESTIMATORS[name](game, players, budget, generator(seed)).phi for seed in range(25)])
        errors.append((runs - phi).square().mean().sqrt().item())
        if budget == 128:
            bias = (runs.mean(0) - phi).abs()
            assert bool((bias < 5 * runs.std(0) / 5 + 1e-6).all())
    slope = np.polyfit(np.log(budgets), np.log(errors), 1)[0]
    assert -0.62 < slope < -0.4


@pytest.mark.parametrize("name", ESTIMATORS)
def test_standard_errors_are_honest(name):
    """The stated error matches the spread of repeated runs."""
    game = gcn_game(seed=2)
    players = game.players(game.graph.in_degrees().topk(1).indices)
    runs = [ESTIMATORS[name](game, players, 200, generator(seed)) for seed in range(40)]
    stated = torch.stack([run.error for run in runs]).square().mean().sqrt()
    spread = torch.stack([run.phi for run in runs]).var(0).mean().sqrt()
    assert 0.75 < stated / spread < 1.33


def test_estimators_depend_on_their_generator_only():
    game = gcn_game(seed=2)
    players = game.players(torch.tensor([0, 3]))
    for estimate in ESTIMATORS.values():
        first, again, other = (estimate(game, players, 64, generator(seed)).phi for seed in (1, 1, 2))
        torch.testing.assert_close(first, again, rtol=0, atol=0)
        assert (first - other).abs().max() > 1e-4


def test_least_squares_beats_paired_beats_per_player():
    """At the same number of evaluations of f; the reason they exist."""
    game = gcn_game(seed=2)
    players = game.players(game.graph.in_degrees().topk(1).indices)
    count = int(players.counts[0])
    phi = exact(game, players)

    def error(estimate, pairs):
        runs = torch.stack([estimate(game, players, pairs, generator(seed)).phi for seed in range(10)])
        return (runs - phi).square().mean()

    assert error(least_squares, 16 * count) < 0.5 * error(paired, 16 * count) < 0.5 * error(per_player, 16)


def test_fewer_masks_than_players_stay_tame():
    game = gcn_game(nodes=30, edges=80, seed=1)
    players = game.players(torch.tensor([0]))
    assert int(players.counts[0]) > 20
    truth = least_squares(game, players, 4000, generator(9)).phi
    few = least_squares(game, players, 20, generator(0)).phi
    assert r_squared(few, truth) > 0


def test_shared_masks_move_phi_only_through_boundary_degrees():
    """How much sharing masks costs: less than 2 % of the variance of phi on a small GCN, and nothing for a model
    without degree normalisation (checked in test_value on a graph without a boundary)."""
    game = gcn_game(nodes=60, edges=70, seed=5)
    players = game.players(torch.arange(0, 60, 5))
    alone = least_squares(game, players, 3000, generator(0))
    shared = shared_least_squares(game, players, 3000, generator(1))
    noise = alone.error.square().mean() + shared.error.square().mean()
    difference = (alone.phi - shared.phi).square().mean()
    assert difference > 1.5 * noise  # there is a bias ...
    assert difference < 0.02 * alone.phi.var()  # ... and it is small


def test_mi_value_by_hand():
    full, coalition = torch.tensor([[1.0, 0.0]]), torch.tensor([[0.0, 2.0]])
    p, q = full.softmax(1)[0], coalition.softmax(1)[0]
    torch.testing.assert_close(mi_value(full, coalition)[0], -(p * (p / q).log()).sum())
    torch.testing.assert_close(mi_value(full, full), torch.zeros(1))


def test_correction_takes_the_noise_of_the_reference_out():
    drawn = generator(0)
    phi, off, noise = (torch.randn(20_000, generator=drawn) for _ in range(3))
    scores = phi + 0.3 * off
    reference = Estimate(phi + 0.5 * noise, torch.full_like(phi, 0.5))
    assert abs(corrected_r_squared(scores, reference) - (1 - 0.09)) < 0.02
    assert r_squared(scores, reference.phi) < 0.78


def test_correction_takes_the_noise_out_of_the_variance_too():
    """Scores of no use at all: true R squared 0. Without the second correction it would be .2."""
    drawn = generator(0)
    phi, noise = (torch.randn(20_000, generator=drawn) for _ in range(2))
    reference = Estimate(phi + 0.5 * noise, torch.full_like(phi, 0.5))
    assert abs(corrected_r_squared(2 * phi, reference) - 0) < 0.02


# --- a dense game: thousands of players, few samples --------------------------------------------------------------


def dense_game(players=1200):
    """A hub that everyone points to: f_0 = 4 x_0 + 3 times the mean of its neighbours' features.

    phi is known: without the hub the value is 0 (the null prediction), so what a neighbour gives counts half, and the
    hub has its own 4 x_0 and half of what all neighbours give."""
    graph = dgl.graph((torch.arange(1, players), torch.zeros(players - 1, dtype=torch.long)), num_nodes=players)
    x = torch.rand(players, 1, generator=torch.Generator().manual_seed(0)) + 0.5

    def f(part, h):
        return 4 * h + dgl.ops.copy_u_sum(part, h) / (players - 1) * 3

    game = Game.create(f, graph, x, hops=1, value="output")
    phi = 3 * x.flatten() / (players - 1) / 2
    phi[0] = 4 * x[0, 0] + 3 * x[1:].sum() / (players - 1) / 2
    return game, game.players(torch.tensor([0])), phi


def test_the_reference_of_a_dense_game_is_not_drawn_towards_zero():
    """1,200 players and 300 samples: the target's own phi was a third of what it is (ridge least squares)."""
    game, players, phi = dense_game()
    samples = sample_shared(game, players, 300, generator(0))
    assert not samples.enough
    estimate, best = unbiased_each(samples), fit_each(samples)
    assert estimate.phi[0] == pytest.approx(float(phi[0]), rel=0.02)
    assert best.phi[0] == pytest.approx(float(phi[0]), rel=0.02)  # `sampled` is no strawman there either
    assert (estimate.phi - phi)[1:].mean().abs() < 3 * estimate.error[1:].mean() / len(phi) ** 0.5
    sigma = BANZHAF.design(samples.masks.for_players(players.player))
    drawn = fit(sigma, samples.responses[:, 0])[0]  # nothing left out of the ridge
    assert drawn[0] < 0.6 * phi[0]


def test_scores_are_judged_without_bias_however_few_the_samples():
    """Squared error of scores and size of phi, the noise taken out, over the neighbours: right on average."""
    game, players, phi = dense_game(400)
    others = torch.arange(len(phi)) > 0
    wrong = phi + 0.3 * phi[others].std() * torch.randn(len(phi), generator=torch.Generator().manual_seed(1))
    errors, sizes = [], []
    for seed in range(60):
        halves = (sample_shared(game, players, 60, generator(1000 * seed + half)) for half in (0, 1))
        estimate = split_half_estimate(*halves)
        noise = estimate.error[others].square().sum()
        errors.append((wrong - estimate.phi)[others].square().sum() - noise)
        sizes.append(estimate.phi[others].square().sum() - noise)
    for values, true in ((errors, (wrong - phi)[others].square().sum()), (sizes, phi[others].square().sum())):
        found = torch.stack(values)
        assert found.std() > 0 and (found.mean() - true).abs() < 3.5 * found.std() / len(found) ** 0.5


def test_agreement_on_a_dense_graph(monkeypatch):
    """A perfect explainer has 1; one that knows the target alone has nothing over the neighbours."""
    game, players, phi = dense_game()
    monkeypatch.setattr("dgl_lara.metrics.common.reference.MAX_NODES_PER_TARGET", 0)
    against = reference(game, torch.tensor([0]), 1200, 0)
    assert against.description.endswith(message("reference.too_few", players=1200))
    assert against.r_squared(phi) == pytest.approx(1, abs=1e-3)
    assert against.r_squared(0.4 * phi) == pytest.approx(0.64, abs=0.01)


def test_exact_phi_loses_nothing_to_the_sum_of_a_million_terms():
    """Twenty players of very unlike weight: f is linear, so phi is known."""
    coalitions = all_coalitions(20)
    weights = torch.logspace(-3, 3, 20, dtype=torch.float64)
    values = (coalitions.double() @ weights).float()
    torch.testing.assert_close(banzhaf(values, coalitions), weights.float(), rtol=1e-4, atol=1e-4)
