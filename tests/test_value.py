"""The game: which number is explained, coalitions, counting, and a model that raises."""

import dgl
import pytest
import torch
from codes import raises
from games import PooledGCN, SmallGCN, gcn_game, random_graph, star_game

from dgl_lara.game.game import Game
from dgl_lara.game.values import ClassQuery, to_values


def test_coalitions_remove_players_and_leave_everyone_else():
    game = gcn_game(nodes=20, edges=22)
    assert game.context_hops == 3
    targets = torch.tensor([4, 11])
    players = game.players(targets)
    keep = torch.rand(5, len(players.player), generator=torch.Generator().manual_seed(0)) < 0.6
    got = game.values_per_target(players, keep)
    for row, target in enumerate(targets.tolist()):
        mine = players.row == row
        for mask in range(5):
            gone = set(players.player[mine & ~keep[mask]].tolist())
            left = torch.tensor([node for node in range(20) if node not in gone])
            expected = game.null_values[game.explained_class[target]]
            if target not in gone:
                logits = game.f(dgl.node_subgraph(game.graph, left), game.features[left])
                expected = logits[left.tolist().index(target), game.explained_class[target]]
            torch.testing.assert_close(got[mask, row], expected)


def test_chunks_change_nothing(monkeypatch):
    game = gcn_game(nodes=30, edges=40)
    players = game.players(torch.arange(30))
    keep = torch.rand(7, len(players.player), generator=torch.Generator().manual_seed(0)) < 0.5
    whole = game.values_per_target(players, keep)
    assert whole.std() > 0.1
    monkeypatch.setattr("dgl_lara._util.memory_budget.MAX_NODES_PER_CALL", 50)
    torch.testing.assert_close(game.values_per_target(players, keep), whole)


def test_shared_masks_are_coalitions_of_every_target():
    """On a graph where everybody is everybody's player, nothing is left outside and both must agree."""
    graph = random_graph(8, 40, 0)
    game = Game.create(SmallGCN(), graph, torch.randn(8, 3, generator=torch.Generator().manual_seed(2)), hops=2)
    players = game.players(torch.arange(8))
    assert len(players.player) == 64
    keep = torch.rand(6, 8, generator=torch.Generator().manual_seed(3)) < 0.5
    shared = game.shared_values(keep)[:, torch.arange(8), game.explained_class]
    torch.testing.assert_close(shared, game.values_per_target(players, keep[:, players.player]))


def test_graph_task_coalitions_equal_shared_masks():
    batch = dgl.batch([random_graph(size, 2 * size, size) for size in (5, 7, 4)])
    game = Game.create(PooledGCN(), batch, torch.randn(16, 3, generator=torch.Generator().manual_seed(2)), "graph")
    keep = torch.rand(6, 16, generator=torch.Generator().manual_seed(3)) < 0.5
    players = game.players(torch.tensor([2, 0]))
    shared = game.shared_values(keep)[:, [2, 0], game.explained_class[[2, 0]]]
    torch.testing.assert_close(game.values_per_target(players, keep[:, players.player]), shared)


def test_calls_and_evaluations_are_counted():
    game = star_game()
    calls, evaluations = game.caller.num_calls, game.caller.num_evaluations
    game.values_per_target(game.players(torch.tensor([0])), torch.ones(10, 4, dtype=torch.bool))
    assert (game.caller.num_calls - calls, game.caller.num_evaluations - evaluations) == (1, 10)


def test_values():
    logits = torch.tensor([[2.0, 0.0, -1.0]])
    p = logits.softmax(1)
    torch.testing.assert_close(to_values(logits, "probability"), p)
    torch.testing.assert_close(to_values(logits, "log-odds"), (p / (1 - p)).log())
    certain = to_values(torch.tensor([[40.0, 0.0]]), "log-odds")
    assert bool(torch.isfinite(certain).all())


class Moody(SmallGCN):
    """Raises when it meets a graph that is not the whole one."""

    def forward(self, graph, h):
        if self.armed and graph.num_nodes() != 12:
            raise RuntimeError("not today")
        return super().forward(graph, h)


def test_a_model_that_raises_gets_its_mode_back():
    model = Moody()
    model.armed = False
    game = Game.create(model, random_graph(12, 14, 0), torch.randn(12, 3), hops=2)
    model.train()
    model.weights.eval()  # a mixed state must survive too
    model.armed = True
    with pytest.raises(RuntimeError, match="not today"):
        game.shared_values(torch.zeros(1, 12, dtype=torch.bool).index_fill(1, torch.tensor([0]), True))
    assert model.training and not model.weights.training
    assert torch.is_grad_enabled()


@pytest.mark.parametrize(
    ("model", "code"),
    [(lambda graph, x: x[:5], "model.rows"), (lambda graph, x: x * torch.nan, "model.not_finite")],
)
def test_models_that_cannot_be_explained(model, code):
    with raises(code):
        Game.create(model, random_graph(12, 14, 0), torch.randn(12, 3))


def test_bad_settings():
    with raises("task.unknown"):
        Game.create(SmallGCN(), random_graph(12, 14, 0), torch.randn(12, 3), task="edge")
    with raises("value.unknown"):
        Game.create(SmallGCN(), random_graph(12, 14, 0), torch.randn(12, 3), value="odds")


def test_one_hop_of_context_more_only_where_degrees_matter():
    assert star_game().context_hops == 1
    assert gcn_game().context_hops == 3


@pytest.mark.parametrize("kind", ["probability", "log-odds"])
def test_other_values_are_functions_of_the_same_logits(kind):
    """Coalitions, shared masks, full and null values, each against `to_values` of all classes' logits."""
    plain, game = gcn_game(nodes=20, edges=22), gcn_game(nodes=20, edges=22, value=kind)
    players = game.players(torch.tensor([4, 11]))
    keep = torch.rand(5, len(players.player), generator=torch.Generator().manual_seed(0)) < 0.6
    logits = torch.stack([plain.values_per_target(players, keep, ClassQuery.repeat([c], 2)) for c in range(3)], dim=2)
    expected = to_values(logits, kind)
    assert (logits - expected).abs().max() > 0.1
    for row, label in enumerate(game.explained_class[players.targets].tolist()):
        torch.testing.assert_close(game.values_per_target(players, keep)[:, row], expected[:, row, label])
    masks = torch.rand(3, 20, generator=torch.Generator().manual_seed(1)) < 0.5
    torch.testing.assert_close(game.shared_values(masks), to_values(plain.shared_values(masks), kind))
    torch.testing.assert_close(game.full_values, to_values(plain.full_logits, kind))
    torch.testing.assert_close(game.null_values, to_values(plain.null_logits, kind))
    torch.testing.assert_close(game.explained_class, plain.explained_class)


def test_other_values_of_graphs():
    batch = dgl.batch([random_graph(size, 2 * size, size) for size in (5, 7, 4)])
    features = torch.randn(16, 3, generator=torch.Generator().manual_seed(2)) / 5
    game = Game.create(PooledGCN(), batch, features, "graph", value="probability")
    players = game.players(torch.tensor([2, 0]))
    keep = torch.rand(6, 16, generator=torch.Generator().manual_seed(3)) < 0.5
    expected = game.batch_logits(game.full_batch, keep).softmax(2)[:, [2, 0], game.explained_class[[2, 0]]]
    torch.testing.assert_close(game.values_per_target(players, keep[:, players.player]), expected)


def test_shared_masks_count_one_evaluation_a_target():
    game = gcn_game(nodes=20, edges=22)
    calls, evaluations = game.caller.num_calls, game.caller.num_evaluations
    game.shared_values(torch.rand(6, 20, generator=torch.Generator().manual_seed(3)) < 0.5)
    assert (game.caller.num_calls - calls, game.caller.num_evaluations - evaluations) == (1, 120)
