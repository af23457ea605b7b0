"""Shared coalitions after training: samples are kept, scores corrected, and each says how far it can be trusted."""

import re
from dataclasses import replace

import dgl
import numpy as np
import pytest
import torch
from codes import raises
from games import PooledGCN, SmallGCN, gcn_game, random_graph

from dgl_lara import LARA
from dgl_lara._util.progress import Progress
from dgl_lara._util.randomness import generator
from dgl_lara.attribution.exact import exact
from dgl_lara.attribution.posterior import posterior_update, posterior_variance, prior_and_noise
from dgl_lara.attribution.shared_samples import SampleReservoir, draw_more
from dgl_lara.attribution.squared_error import own_squared_error, residual, squared_errors
from dgl_lara.game.game import Game
from dgl_lara.game.index import BANZHAF, Masks
from dgl_lara.inference.correction import _one_by_one, correct_with_samples
from dgl_lara.inference.kernels import posterior
from dgl_lara.training.backend import InMemory
from dgl_lara.training.config import TrainingConfig, paper
from dgl_lara.training.loop import new_explainer, train
from dgl_lara.training.objectives import OBJECTIVES

SHORT = TrainingConfig(hidden=16, dim=5, masks=4, steps=30)


def drawn(pairs, players, seed=0):
    return BANZHAF.design(BANZHAF.draw(pairs, players, generator(seed)))


# --- how wrong scores are


@pytest.mark.parametrize("target", [None, 2])
def test_squared_errors_are_right_on_average(target):
    """Over many sets of few coalitions, of a game with interactions, for scores that are wrong."""
    phi, scores = torch.tensor([1.0, -2.0, 5.0, 0.5]), torch.tensor([0.4, -1.0, 4.0, 0.5])
    own = torch.zeros(4, dtype=torch.bool)
    if target is not None:
        own[target] = True
    found, mine = [], []
    for seed in range(3000):
        sigma = drawn(24, 4, seed)
        mixed = sigma[:, 0] * sigma[:, 1] * sigma[:, 3] if target is None else sigma[:, :3].prod(1)
        seen = residual(sigma, sigma @ phi + 0.7 * mixed, scores, own)
        found.append(squared_errors(seen))
        if target is not None:
            mine.append(own_squared_error(seen))
    errors = (phi - scores).square()
    torch.testing.assert_close(torch.stack(found).mean(0), errors[~own], rtol=0.1, atol=0.03)
    if target is not None:
        assert torch.stack(mine).mean().item() == pytest.approx(errors[2].item(), rel=0.1)


# --- the posterior


def test_the_posterior_is_that_of_bayes():
    """Without a target among the players: the mean and variances of the joint normal distribution, by brute force."""
    sigma, prior = drawn(12, 5, 3), torch.tensor([1.0, 0.5, 2.0, 0.1, 1.5])
    scores, own = torch.randn(5, generator=generator(1)), torch.zeros(5, dtype=torch.bool)
    d = sigma @ torch.randn(5, generator=generator(2)) + 0.3 * torch.randn(12, generator=generator(4))
    scaled, noise = prior_and_noise(residual(sigma, d, scores, own), prior)
    covariance = torch.linalg.inv(sigma.T @ sigma / noise + torch.diag(1 / scaled))
    mean = scores + covariance @ sigma.T @ (d - sigma @ scores) / noise
    found = posterior_update(sigma, d, scores, prior, own)
    torch.testing.assert_close(found.scores, mean, rtol=1e-4, atol=1e-5)
    assert (found.scores - scores).abs().max() > 0.1
    few = posterior_update(sigma[:3], d[:3], scores, prior, own)  # fewer pairs than players: the other way round
    scaled, noise = prior_and_noise(residual(sigma[:3], d[:3], scores, own), prior)
    covariance = torch.linalg.inv(sigma[:3].T @ sigma[:3] / noise + torch.diag(1 / scaled))
    mean = scores + covariance @ sigma[:3].T @ (d[:3] - sigma[:3] @ scores) / noise
    torch.testing.assert_close(few.scores, mean, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("pairs", [40, 400])
def test_what_remains_unknown_needs_no_inverse(pairs):
    """The fixed point gives the sum of the exact posterior variances, with more players than pairs and with fewer."""
    prior, noise = 0.1 + torch.rand(120, generator=generator(0)).square(), torch.tensor(3.0)
    sigma = drawn(pairs, 120, 5).double()
    exactly = torch.linalg.inv(sigma.T @ sigma / noise + torch.diag(1 / prior.double())).diagonal()
    found = posterior_variance(prior, noise, pairs)
    assert found.sum().item() == pytest.approx(exactly.sum().item(), rel=0.03)
    assert found.sum() < 0.9 * prior.sum()


def test_the_targets_own_score_is_not_drawn_back():
    """However sure the prior is of it."""
    sigma, own = drawn(64, 4, 0), torch.tensor([False, True, False, False])
    phi, scores = torch.tensor([0.1, 8.0, -0.2, 0.3]), torch.tensor([0.1, 1.0, -0.2, 0.3])
    found = posterior_update(sigma, sigma @ phi, scores, torch.full((4,), 1e-6), own)
    torch.testing.assert_close(found.scores, phi, rtol=1e-4, atol=1e-3)


# --- samples


def test_kept_pairs_are_what_f_said():
    game = gcn_game(nodes=21, edges=24, seed=2)
    keeper, keeps = SampleReservoir(game, 100, 0), []
    for seed in range(3):
        masks = BANZHAF.draw(5, 21, generator(seed))
        keep = masks.keep
        keeper.add(masks, game.shared_values(keep) - game.shared_values(~keep))
        keeps.append(keep)
    samples, keep = keeper.samples(), torch.cat(keeps)
    ids = torch.tensor([4, 0, 20])
    assert samples.pairs == 15
    assert torch.equal(samples.masks(ids).keep, keep[:, ids])
    d = (game.shared_values(keep) - game.shared_values(~keep))[:, torch.arange(21), game.explained_class]
    assert d.std() > 0.1
    torch.testing.assert_close(samples.responses_of(torch.arange(21)).T, d, rtol=2e-3, atol=2e-3 * samples.unit)


def test_a_reservoir_forgets_evenly():
    game = gcn_game(nodes=9, edges=9, seed=2)
    kept = np.zeros(40)
    for seed in range(300):
        keeper = SampleReservoir(game, 10, seed)
        for number in range(40):
            keep = torch.zeros(1, 9, dtype=torch.bool)
            keep[0, :6] = torch.tensor([number >> bit & 1 for bit in range(6)], dtype=torch.bool)
            keeper.add(Masks(keep, torch.full((1,), 0.5)), torch.zeros(1, 9, 3))
        samples = keeper.samples()
        assert samples.pairs == 10
        numbers = (samples.masks(torch.arange(6)).keep.long() * (2 ** torch.arange(6))).sum(1)
        assert len(set(numbers.tolist())) == 10
        kept[numbers] += 1
    assert abs(kept[:10].mean() - kept[-10:].mean()) < 15  # 75 are expected of each
    assert kept.min() > 40


def test_kept_pairs_stay_within_the_memory():
    graph = random_graph(400, 900, 0)
    game = Game.create(SmallGCN(), graph, torch.randn(400, 3, generator=generator(1)), hops=2, memory=80_000)
    assert 0 < SampleReservoir(game, 2_000, 0).most < 80_000 / 8 / 400


def test_an_interrupted_training_keeps_the_same_pairs():
    game, halves = gcn_game(nodes=30, edges=34, seed=3), {}
    nodes = torch.arange(30)

    def stop(state):
        halves.update(state.to_dict())
        if state.step >= 10:
            raise KeyboardInterrupt

    config = replace(SHORT, steps=20, shared_pairs=30)
    with pytest.raises(KeyboardInterrupt):
        train(InMemory(game, config), nodes[:20], nodes[20:], checkpoint=stop)
    resumed = train(InMemory(game, config), nodes[:20], nodes[20:], resume=halves).reservoir.samples()
    unbroken = train(InMemory(game, config), nodes[:20], nodes[20:]).reservoir.samples()
    assert unbroken.pairs == 30
    assert torch.equal(resumed.inside, unbroken.inside) and torch.equal(resumed.responses, unbroken.responses)


def test_a_full_reservoir_stays_of_its_size_where_there_is_more_memory_now():
    """Places beyond its end would never be filled evenly: early pairs are gone."""
    game = gcn_game(nodes=9, edges=9, seed=2)
    little, plenty, unbroken = (SampleReservoir(game, most, 0) for most in (10, 1_000, 10))

    def show(keeper, count):
        drawn = generator(keeper.num_offered)
        for masks in BANZHAF.draw(count, 9, drawn).split(1):
            keeper.add(masks, game.shared_values(masks.keep) - game.shared_values(~masks.keep))

    show(little, 25)
    plenty.load_state_dict(little.state_dict())
    show(plenty, 15)
    show(unbroken, 25)
    show(unbroken, 15)
    assert plenty.samples().pairs == 10 and plenty.num_offered == 40
    assert torch.equal(plenty.samples().inside, unbroken.samples().inside)
    assert torch.equal(plenty.samples().responses, unbroken.samples().responses)


# --- the objective


def test_the_balanced_loss_has_its_minimum_at_phi():
    """Among multiples of each part, the target's own score and the neighbours', the true one is best."""
    game = gcn_game(nodes=14, edges=15, seed=4)
    config = replace(SHORT, masks=256)
    seen = LARA.of_game(game, config)
    explainer = new_explainer(game, config, encoder_inputs(game), torch.arange(14))
    step = InMemory(game, config, encoder_graph=encoder(game)).step(explainer, torch.arange(14), 0, None)
    phi = exact_of_all_classes(game)
    sigma = step.coalitions.masks.keep.float() * 2 - 1

    def loss(own, others):
        scores = phi * (others + (own - others) * torch.eye(14).unsqueeze(2))
        predicted = torch.einsum("mj,jic->mic", sigma, scores)
        object.__setattr__(step, "predicted_responses", lambda: predicted)
        return OBJECTIVES["balanced"].loss(step, None).item()

    assert seen.game is game
    best = loss(1.0, 1.0)
    assert all(loss(own, others) > best for own, others in [(0.8, 1), (1.2, 1), (1, 0.8), (1, 1.2)])
    # the error of the target's own score costs the same whatever the neighbours' are
    assert loss(0.5, 1.0) - best == pytest.approx(loss(0.5, 0.5) - loss(1.0, 0.5), rel=0.02)


def encoder(game):
    from dgl_lara.explainer.inputs import encoder_graph

    return encoder_graph(game, "rich")


def encoder_inputs(game):
    return encoder(game).inputs


def exact_of_all_classes(game):
    """(players, targets, classes) by the shared masks themselves: least squares over all coalitions drawn."""
    masks = BANZHAF.draw(6000, game.graph.num_nodes(), generator(9))
    keep = masks.keep
    d = game.shared_values(keep) - game.shared_values(~keep)
    phi = torch.linalg.lstsq(BANZHAF.design(masks).double(), d.double().flatten(1)).solution.float()
    return phi.view(game.graph.num_nodes(), *d.shape[1:])


# --- LARA


@pytest.fixture(scope="module")
def game():
    return gcn_game(nodes=40, edges=44, seed=3)


@pytest.fixture(scope="module")
def lara(game):
    return LARA.of_game(game, replace(SHORT, steps=60)).fit(range(25), range(25, 33))


@pytest.fixture(scope="module")
def asked(game):
    """Targets that g has not learned from, with few enough players for exact phi."""
    counts = game.players(torch.arange(40)).counts
    return torch.tensor([node for node in range(33, 40) if 2 < counts[node] <= 14])


def test_corrected_scores_are_closer_to_phi_at_no_model_call(game, lara, asked):
    lara.embed()
    calls = game.caller.num_calls
    amortised, better = lara.explain(asked, corrected=False), lara.explain(asked)
    assert game.caller.num_calls == calls
    assert len(asked) >= 3
    phi = exact(game, better.players)
    before, after = ((each.scores - phi).square().sum() for each in (amortised, better))
    assert after < 0.3 * before
    assert amortised.source == ["amortised"] * len(asked) and better.source == ["corrected"] * len(asked)


def test_compiled_and_plain_corrections_agree(game, lara):
    everyone = torch.arange(40)
    found = lara.explain(everyone, corrected=False)
    assert found.variance is not None
    better = correct_with_samples(found, lara.samples_, lara.errors_)
    scores, variance = _one_by_one(found, lara.samples_, found.variance, torch.ones(40, dtype=torch.bool))
    assert (scores - found.scores).abs().max() > 0.05
    torch.testing.assert_close(better.scores, scores, rtol=5e-3, atol=5e-3)
    torch.testing.assert_close(better.variance, variance * lara.errors_.stretch, rtol=1e-2, atol=1e-6)


def test_many_corrections_say_how_far_they_are(lara, monkeypatch):
    """And are the same in however many parts they are made."""
    expected = lara.explain(range(40))
    monkeypatch.setattr(posterior, "TARGETS_PER_PART", 15)
    counts = []
    monkeypatch.setattr(Progress, "advance", lambda bar, count=1: counts.append((bar.label, count, bar.total)))
    found = lara.explain(range(40))
    torch.testing.assert_close(found.scores, expected.scores, rtol=0, atol=0)
    assert ("correcting scores", 15, 40) in counts


def test_zero_shared_pairs_is_as_before(game, asked):
    alone = LARA.of_game(game, replace(SHORT, shared_pairs=0)).fit(range(25), range(25, 33))
    kept = LARA.of_game(game, SHORT).fit(range(25), range(25, 33))
    assert alone.samples_ is None and kept.samples_.pairs == 120
    assert alone.explain(asked).source == ["amortised"] * len(asked)
    torch.testing.assert_close(alone.explain(asked).scores, kept.explain(asked, corrected=False).scores, rtol=0, atol=0)
    assert paper("node").shared_pairs == 0


def test_other_classes_and_changed_surroundings_are_amortised(game, lara):
    nodes = torch.arange(40)
    other = (game.explained_class + 1) % 3
    assert lara.explain(nodes, classes=other).source == ["amortised"] * 40
    hub = int(game.graph.in_degrees().argmax())
    changed = dgl.remove_edges(game.graph, game.graph.in_edges(hub, form="eid"))
    new = LARA(game.f, changed, game.features, hops=2).with_fitted(lara.fitted)
    sources = new.explain(nodes).source
    assert sources[hub] == "amortised" and "corrected" in sources
    larger = dgl.add_nodes(game.graph, 1)
    wide = LARA(game.f, larger, torch.cat([game.features, game.features[:1]]), hops=2).with_fitted(lara.fitted)
    assert set(wide.explain(range(41)).source) == {"amortised"}


def test_saved_with_its_samples(game, lara, asked, tmp_path):
    lara.save(tmp_path / "lara.pt")
    again = LARA.load(tmp_path / "lara.pt", game.f, game.graph, game.features)
    expected, found = lara.explain(asked), again.explain(asked)
    torch.testing.assert_close(found.scores, expected.scores, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(found.confidence, expected.confidence, rtol=1e-3, atol=1e-3)
    assert found.source == ["corrected"] * len(asked)


def test_mini_batches_draw_their_pairs_afterwards(game, asked):
    lara = LARA.of_game(game, replace(SHORT, batch_size=10, shared_pairs=200)).fit(range(25), range(25, 33))
    assert lara.state_.reservoir is None and lara.samples_.pairs == 200
    phi = exact(game, game.players(asked))
    before, after = (lara.explain(asked, corrected=side).scores - phi for side in (False, True))
    assert after.square().sum() < 0.5 * before.square().sum()


def test_graphs_are_amortised_unless_pairs_are_asked_for():
    batch = dgl.batch([random_graph(nodes, 2 * nodes, seed) for seed, nodes in enumerate([7, 8, 9, 6, 8, 7, 9, 8] * 3)])
    game = Game.create(PooledGCN(), batch, torch.randn(batch.num_nodes(), 3, generator=generator(5)), "graph", hops=2)
    config = replace(SHORT, batch_size=8)
    plain = LARA.of_game(game, config).fit(range(12), range(12, 18))
    found = plain.explain([20, 21])
    assert plain.samples_ is None and found.source == ["amortised"] * 2
    assert found.confidence.isfinite().all()  # learned from the samples of the judge
    drawn_too = LARA.of_game(game, replace(config, shared_pairs=64)).fit(range(12), range(12, 18))
    phi = exact(game, game.players(torch.tensor([20, 21])))
    before, after = (drawn_too.explain([20, 21], corrected=side).scores - phi for side in (False, True))
    assert after.square().sum() < 0.6 * before.square().sum()


# --- confidence


def test_confidence_knows_how_wrong_the_scores_are(game, lara):
    """Over all targets together, expected and true squared errors, amortised and corrected, are of one size."""
    counts = game.players(torch.arange(40)).counts
    some = torch.tensor([node for node in range(25, 40) if 2 < counts[node] <= 14])
    phi = exact(game, game.players(some))
    for better in (False, True):
        found = lara.explain(some, corrected=better)
        others = ~found.is_target
        true, said = (found.scores - phi).square()[others].sum(), found.variance[others].sum()
        assert 0.25 < said / true < 4
    assert lara.explain(some).confidence.nanmean() > lara.explain(some, corrected=False).confidence.nanmean() + 0.05


def test_confidence_does_not_depend_on_the_company(lara):
    together = lara.explain(range(40), corrected=False)
    alone = torch.cat([lara.explain([node], corrected=False).confidence for node in (3, 17, 36)])
    torch.testing.assert_close(alone, together.confidence[[3, 17, 36]], rtol=1e-3, atol=1e-3, equal_nan=True)


def test_who_has_no_neighbours_has_no_confidence():
    graph = dgl.add_nodes(random_graph(20, 24, 1), 1)
    lara = LARA(SmallGCN(), graph, torch.randn(21, 3, generator=generator(1)), hops=2, config=SHORT).fit(range(21))
    confidence = lara.explain([20, 3]).confidence
    assert confidence[0].isnan() and 0 <= confidence[1] <= 1


def test_model_calls_only_for_the_doubtful(game, lara):
    found = lara.explain(range(25, 40), corrected=False)
    doubtful = found.confidence < 0.8
    assert 0 < doubtful.sum() < len(found)
    before = game.caller.num_evaluations
    settled = lara.refine_until(found, at_least=0.8)
    spent = 2 * int(settled.pairs.sum())
    assert game.caller.num_evaluations - before == spent > 0
    assert torch.equal(settled.pairs > 0, doubtful)
    same = ~doubtful[found.players.row]
    assert torch.equal(settled.explanations.scores[same], found.scores[same])
    assert (settled.explanations.confidence[doubtful] > found.confidence[doubtful]).all()
    with raises("confidence.range", got=1.5):
        lara.refine_until(found, at_least=1.5)
    with raises("confidence.unknown"):
        lara.refine_until(replace(found, variance=None))


def test_a_bar_of_a_refinement_says_how_many_are_in_doubt_and_which_round_it_is(lara, monkeypatch):
    labels = []
    monkeypatch.setattr(Progress, "advance", lambda bar, count=1: labels.append(bar.label))
    found = lara.explain(range(25, 40), corrected=False)
    lara.refine_until(found, at_least=0.95)
    doubtful = int((found.confidence < 0.95).sum())
    rounds = list(dict.fromkeys(label.split(": ")[0] for label in labels))
    assert len(rounds) > 1 and rounds[0] == f"refining {doubtful} in doubt, round 1 of 3"
    assert all(re.fullmatch(r"refining \d+ in doubt, round \d of 3", one) for one in rounds)


def test_drawn_samples_are_reproducible(game):
    keepers = [SampleReservoir(game, 12, seed) for seed in (3, 3, 4)]
    for keeper in keepers:
        draw_more(keeper, 12)
    one, two, other = (keeper.samples().responses for keeper in keepers)
    assert torch.equal(one, two) and not torch.equal(one, other)


def test_more_pairs_than_training_had_are_drawn_after_it(game):
    lara = LARA.of_game(game, replace(SHORT, steps=5, shared_pairs=50)).fit(range(25), range(25, 33))
    assert lara.state_.reservoir.num_offered == lara.samples_.pairs == 50  # 20 of them from training
    assert len(torch.unique(lara.samples_.masks(torch.arange(40)).keep, dim=0)) == 50
