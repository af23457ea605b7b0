"""Verified: bad explanations are flagged, good ones are not. Refined: closer to phi, and no move without a reason."""

from dataclasses import replace

import dgl
import pandas as pd
import pytest
import torch
from codes import raises
from games import PooledGCN, SmallGCN, gcn_game, random_graph
from test_bulk import bulk

from dgl_lara._util.randomness import generator
from dgl_lara.attribution.exact import exact
from dgl_lara.attribution.monte_carlo import least_squares
from dgl_lara.attribution.posterior import posterior_update
from dgl_lara.cli import main
from dgl_lara.explanation import Explanations
from dgl_lara.game.game import Game
from dgl_lara.game.index import BANZHAF
from dgl_lara.game.tasks import GRAPH, NODE
from dgl_lara.game.values import ClassQuery
from dgl_lara.inference import export
from dgl_lara.inference.refine import correction, covariance, refine
from dgl_lara.inference.request import RefineCost, RefineOptions
from dgl_lara.inference.rows import refined_rows
from dgl_lara.inference.verification import verify
from dgl_lara.metrics.fidelity import fidelity_per_target


@pytest.fixture(scope="module")
def game():
    return gcn_game(nodes=40, edges=44, seed=3)


@pytest.fixture(scope="module")
def truth(game):
    """Exact phi of all targets with few players but more than three."""
    counts = game.players(torch.arange(40)).counts
    targets = ((counts > 3) & (counts <= 11)).nonzero().flatten()
    assert len(targets) >= 12
    players = game.players(targets)
    return Explanations(players, exact(game, players), game.explained_class[targets], NODE, "exact")


def off(explanations, by, seed=0):
    """The same with noise on the scores."""
    noise = torch.randn(len(explanations.scores), generator=generator(seed))
    return replace(explanations, scores=explanations.scores + by * explanations.scores.std() * noise)


def test_verify_flags_what_is_worse_than_random(game, truth):
    good, bad = verify(game, truth), verify(game, replace(truth, scores=-truth.scores))
    assert good.worse_than_random.mean() < 0.2 < 0.8 < bad.worse_than_random.mean()
    plus, minus = fidelity_per_target(game, truth, keep_target=True)
    torch.testing.assert_close(torch.tensor(good["fidelity+"].to_numpy()), plus.mean(0))
    torch.testing.assert_close(torch.tensor(good["fidelity-"].to_numpy()), minus.mean(0))
    pd.testing.assert_frame_equal(good, verify(game, truth))
    assert not good["random fidelity+"].equals(verify(game, truth, seed=1)["random fidelity+"])


def test_a_target_without_neighbours_is_never_flagged():
    graph = dgl.add_nodes(random_graph(10, 12, 0), 1)
    game = Game.create(SmallGCN(), graph, torch.randn(11, 3, generator=generator(0)), hops=2)
    players = game.players(torch.tensor([10]))
    verdict = verify(game, Explanations(players, torch.ones(1), game.explained_class[[10]], NODE, "-"))
    assert verdict["fidelity+"].isna().all() and not verdict.worse_than_random.any()


def test_graphs_are_verified_and_refined():
    batch = dgl.batch([random_graph(7, 10, seed) for seed in range(6)])
    game = Game.create(PooledGCN(), batch, torch.randn(42, 3, generator=generator(2)), "graph")
    players = game.players(torch.arange(6))
    phi = exact(game, players)
    truth = Explanations(players, phi, game.explained_class, GRAPH, "exact")
    assert verify(game, replace(truth, scores=-phi)).worse_than_random.mean() > 0.8
    rough = off(truth, 0.5)
    refined = refine(game, rough, 16).explanations
    error = (refined.scores - phi).square()
    assert error.mean() < 0.5 * (rough.scores - phi).square().mean()
    assert refined.variance is not None and refined.confidence is not None
    assert error.mean() / 5 < refined.variance.mean() < 5 * error.mean() and len(refined.confidence) == 6


def test_refined_is_closer_than_before_and_than_sampling_alone(game, truth):
    rough = off(truth, 0.3)
    sampled = least_squares(game, truth.players, 12, generator(0)).phi
    refined = refine(game, rough, 12)
    error = [(scorer - truth.scores).square().mean() for scorer in (rough.scores, sampled, refined.explanations.scores)]
    assert error[2] < 0.6 * error[0] and error[2] < 0.8 * error[1]
    step = (refined.explanations.scores - rough.scores).split(truth.players.counts.tolist())
    sizes = truth.players.counts.tolist()
    reported = zip(step, rough.scores.split(sizes), (~rough.is_target).split(sizes), refined.moved, strict=True)
    for mine, old, others, moved in reported:  # over the neighbours: beside the target's own score everything is small
        torch.testing.assert_close(moved, mine[others].norm() / old[others].norm())
    assert refined.explanations.method == "exact + 12"


def test_what_was_right_hardly_moves(game, truth):
    assert refine(game, truth, 32).moved.mean() < 0.3 * refine(game, off(truth, 0.5), 32).moved.mean()


def test_more_pairs_bring_it_nearer(game, truth):
    rough = off(truth, 1.0)
    errors = [(refine(game, rough, n).explanations.scores - truth.scores).square().mean() for n in (4, 32, 256)]
    assert errors[0] > 2 * errors[1] > 4 * errors[2]


@pytest.mark.parametrize("pairs", [2, 16, 128])
def test_refined_scores_know_how_good_they_are(game, truth, pairs):
    """However few the pairs: they are not worse than before, and the share that they promise is the true one."""
    rough = off(truth, 0.2)
    known = torch.full_like(rough.scores, (0.2 * truth.scores.std().item()) ** 2)
    refined = refine(game, replace(rough, variance=known), pairs).explanations
    others = ~truth.is_target
    size = truth.scores[others].square().sum()
    errors = [(one.scores - truth.scores)[others].square().sum() for one in (rough, refined)]
    assert refined.variance is not None and refined.confidence is not None
    assert errors[1] < 1.02 * errors[0]
    promised = (refined.variance[others].sum() / size).item()
    assert promised == pytest.approx((errors[1] / size).item(), rel=0.6, abs=0.01)
    assert refined.confidence.isfinite().all() and refine(game, rough, pairs).explanations.variance is None


def test_errors_are_not_expected_to_grow_by_asking():
    """However much they are stretched."""
    sigma = torch.randint(2, (8, 3), generator=generator(0)).float() * 2 - 1
    d = sigma @ torch.tensor([3.0, 1, 1]) + 0.1 * torch.randn(8, generator=generator(1))
    scorer, prior, own = torch.tensor([3.0, 1.1, 0.9]), torch.full((3,), 0.01), torch.tensor([True, False, False])
    plain, much, more = (posterior_update(sigma, d, scorer, prior, own, stretch) for stretch in (1.0, 1e6, 1e9))
    assert (much.variance > plain.variance).all() and torch.equal(much.variance[1:], more.variance[1:])


def test_scores_that_leave_nothing_stay():
    """Two samples that say the same of two players, and nothing that is not explained."""
    sigma, own = torch.tensor([[1.0, 1, -1], [1, -1, 1]]), torch.tensor([True, False, False])
    scorer = torch.tensor([3.0, 1, 1])
    better = posterior_update(sigma, sigma @ scorer, scorer, torch.full((3,), 0.01), own)
    torch.testing.assert_close(better.scores, scorer)


def test_same_seed_same_refinement_and_other_classes(game, truth):
    rough = off(truth, 0.3)
    one, two, other = (refine(game, rough, 8, seed=seed).explanations.scores for seed in (0, 0, 1))
    torch.testing.assert_close(one, two, rtol=0, atol=0)
    assert not torch.equal(one, other)
    classes = (truth.explained_class + 1) % 3
    mirrored = refine(game, replace(rough, explained_class=classes), 256)
    phi = torch.cat([least_squares_of(game, truth.players, ClassQuery(classes))])
    assert (mirrored.explanations.scores - phi).square().mean() < 0.1 * (rough.scores - phi).square().mean()
    with raises("settings.invalid", got="0"):
        refine(game, rough, 0)


def least_squares_of(game, players, query):
    from dgl_lara.attribution.monte_carlo import Samples, fit_each, responses

    masks = BANZHAF.draw(2000, len(players.player), generator(9))
    y = responses(game, players, masks, query)
    return fit_each(Samples(BANZHAF, players, masks, y, game.task.is_target(players))).phi


def test_correction_is_the_posterior_over_all_ratios():
    """Against the textbook: (Z'Z + A^-1)^-1 Z'r with A = ratio * prior, weighed by likelihood, by brute force."""
    drawn = generator(0)
    sigma = torch.randint(2, (20, 6), generator=drawn).double() * 2 - 1
    scorer, hop = torch.randn(6, generator=drawn).double(), torch.tensor([0, 1, 1, 1, 2, 2])
    prior = covariance(scorer, hop, torch.randn(6, 4, generator=drawn).double())
    d = sigma @ (scorer + torch.linalg.cholesky(prior) @ torch.randn(6, generator=drawn).double())
    d = d + 0.5 * torch.randn(20, generator=drawn).double()
    likelihoods, steps, left = [], [], []
    for ratio in torch.logspace(-8, 4, 73).double():
        total = torch.eye(20) + ratio * sigma @ prior @ sigma.T
        r = d - sigma @ scorer
        noise = r @ torch.linalg.solve(total, r) / 20
        normal = torch.distributions.MultivariateNormal(torch.zeros(20).double(), noise * total)
        likelihoods.append(normal.log_prob(r))
        precision = sigma.T @ sigma + torch.linalg.inv(ratio * prior)
        steps.append(torch.linalg.solve(precision, sigma.T @ r))
        left.append(noise * torch.linalg.inv(precision).diagonal())
    expected = torch.softmax(torch.stack(likelihoods), dim=0) @ torch.stack(steps)
    step, variance = correction(sigma, d, scorer, prior)
    torch.testing.assert_close(step, expected, rtol=1e-5, atol=1e-7)
    belief = torch.softmax(torch.stack(likelihoods), dim=0)
    spread = belief @ (torch.stack(left) + (torch.stack(steps) - expected).square())
    torch.testing.assert_close(variance, spread, rtol=1e-5, atol=1e-7)
    assert expected.abs().max() > 0.1


def test_prior_shares_errors_between_players_that_look_alike():
    scorer, hop = torch.tensor([1.0, 1.0, 1.0, 1.0]), torch.tensor([1, 1, 2, 1])
    looks = torch.tensor([[0.0], [0.0], [0.0], [3.0]])
    prior = covariance(scorer, hop, looks)
    torch.testing.assert_close(prior[0], 4 * torch.tensor([1.0, 0.8, 0.0, 0.0]), rtol=0, atol=1e-3)
    assert torch.linalg.eigvalsh(prior).min() > 0


@pytest.mark.parametrize("ending", [".parquet", ".csv"])
def test_columns_in_the_file(tmp_path, ending):
    one, out = bulk("walk", False), tmp_path / f"trusted{ending}"
    explain = one.explain
    make = refined_rows(explain, RefineOptions(8, verify=True), 1.0, 0, RefineCost())
    export.explain_to_file(one, torch.arange(20), 4, out, {"refined": 8}, make)
    frame = pd.read_parquet(out) if ending == ".parquet" else pd.read_csv(out)
    plain = export.amortised_rows(one, torch.arange(20), 4)
    assert frame.columns.tolist()[:7] == plain.columns.tolist()
    assert frame.columns.tolist()[7:] == [
        "moved", "fidelity+", "fidelity-", "random fidelity+", "random fidelity-", "worse_than_random",
    ]  # fmt: skip
    assert frame.worse_than_random.dtype == bool and frame["rank"].max() == 4
    assert (frame.groupby("target")["rank"].apply(list) == plain.groupby("target")["rank"].apply(list)).all()
    assert (frame.groupby("target")["moved"].nunique() == 1).all() and frame.moved.std() > 0
    only = refined_rows(explain, RefineOptions(verify=True), 1.0, 0, RefineCost())(one, torch.arange(20), 4)
    torch.testing.assert_close(torch.tensor(only.score.to_numpy()), torch.tensor(plain.score.to_numpy()))
    assert only.player.tolist() == plain.player.tolist()


def test_options_of_explain():
    main.commands["explain"].make_context("explain", ["--all", "--refine", "64", "--verify", "--out", "a.csv"])
