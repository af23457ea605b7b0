"""Passes in batches give the numbers of whole passes."""

import dgl
import pytest
import torch
from games import SmallGCN, gcn_game, random_graph
from test_explainer import new

from dgl_lara.game.game import Game, ModelOutputs
from dgl_lara.inference.layerwise import embed_layerwise, full_pass_bytes, predict_in_batches
from dgl_lara.inference.local import explain_nearby, game_nearby
from dgl_lara.inference.scorer import Scorer, embed_all

GAME = gcn_game(nodes=40, edges=50, seed=3)


@pytest.mark.parametrize(
    "changes", [{}, {"encoder": "plain"}, {"embedding": "single"}, {"layers": 0}, {"gate": "random-walk"}]
)
def test_layer_by_layer_equals_one_pass(changes):
    g = new(**changes)
    g.unit.fill_(3.0)
    whole, layered = embed_all(g, GAME, "rich"), embed_layerwise(g, GAME, "rich", size=7)
    assert whole.source.std() > 1e-2
    torch.testing.assert_close(layered.source, whole.source, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(layered.target, whole.target, atol=1e-5, rtol=1e-5)


def test_workers_change_nothing():
    g = new()
    one, two = embed_layerwise(g, GAME, "rich", size=7), embed_layerwise(g, GAME, "rich", size=7, workers=2)
    torch.testing.assert_close(one.source, two.source)
    torch.testing.assert_close(one.target, two.target)


def test_f_in_batches():
    logits = predict_in_batches(GAME.f, GAME.graph, GAME.features, hops=2, size=7)
    torch.testing.assert_close(logits, GAME.full_logits, atol=1e-5, rtol=1e-5)
    known = Game.create(GAME.f, GAME.graph, GAME.features, hops=2, known=ModelOutputs(logits))
    assert known.full_outputs is logits and known.caller.num_calls < GAME.caller.num_calls


def explain_apart(g, f, graph, features, targets):
    return explain_nearby(g, game_nearby(f, graph, features, targets, g, "logit"), "rich", targets)


def a_long_graph():
    """A path with side branches: wide enough that a neighbourhood is a small part of it."""
    around = torch.arange(200)
    src, dst = torch.cat([around[:-1], around[::7]]), torch.cat([around[1:], (around[::7] + 3) % 200])
    return dgl.graph((torch.cat([src, dst]), torch.cat([dst, src])), num_nodes=200)


@pytest.mark.parametrize("graph", [a_long_graph(), random_graph(200, 300, 1)], ids=["long", "dense"])
def test_a_few_targets_need_only_their_surroundings(graph):
    features = torch.randn(200, 3, generator=torch.Generator().manual_seed(1))
    game, g = Game.create(SmallGCN(), graph, features, hops=2), new()
    targets = torch.tensor([120, 3])
    expected = Scorer(g, game, embed_all(g, game, "rich")).explain(targets)
    for result in (
        explain_nearby(g, game, "rich", targets),
        explain_apart(g, game.f, graph, features, targets),
    ):
        assert result.players.player.tolist() == expected.players.player.tolist()
        assert result.players.targets.tolist() == [120, 3]
        torch.testing.assert_close(result.scores, expected.scores, atol=1e-5, rtol=1e-4)


def test_nothing_far_away_is_looked_at():
    """A node 100 steps off has NaN features: the whole pass would carry it along, the local one never meets it."""
    graph, features = a_long_graph(), torch.randn(200, 3, generator=torch.Generator().manual_seed(1))
    expected = explain_apart(new(), SmallGCN(), graph, features, torch.tensor([20]))
    features[120] = torch.nan
    result = explain_apart(new(), SmallGCN(), graph, features, torch.tensor([20]))
    assert torch.equal(result.scores, expected.scores)


def test_the_estimate_of_a_full_pass_grows_with_the_graph():
    assert full_pass_bytes(new(), 2_000) == 2 * full_pass_bytes(new(), 1_000) > 1_000 * 4 * 16 * 3
