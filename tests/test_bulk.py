"""The compiled kernel and the pair path give the same numbers."""

import os
import subprocess
import sys

import dgl
import numpy as np
import pytest
import torch
from games import SmallGCN, random_graph

from dgl_lara.explainer.inputs import explainer_inputs
from dgl_lara.explainer.network import Explainer, ExplainerConfig
from dgl_lara.game.game import Game
from dgl_lara.game.player_index import MANY
from dgl_lara.inference.kernels.walk import WalkKernel
from dgl_lara.inference.scorer import Scorer, embed_all


def bulk(gate, directed, nodes=80):
    graph = random_graph(nodes, 110, 0)
    if directed:
        src, dst = graph.edges()
        graph = dgl.graph((src[src < dst], dst[src < dst]), num_nodes=nodes)
    game = Game.create(SmallGCN(), graph, torch.randn(nodes, 3, generator=torch.Generator().manual_seed(1)), hops=2)
    torch.manual_seed(0)
    config = ExplainerConfig("node", explainer_inputs(game, "rich").shape[1], 3, 2, 2, hidden=16, dim=5, gate=gate)
    explainer = Explainer(config).eval()
    return Scorer(explainer, game, embed_all(explainer, game, "rich"))


def by_pairs(scorer, targets, top):
    t = scorer._target_embeddings(targets, scorer.game.query(targets))
    with torch.no_grad():
        return scorer._pairs.top(targets, t, top)


@pytest.mark.parametrize("directed", [False, True], ids=["undirected", "directed"])
@pytest.mark.parametrize("gate", ["none", "hop", "walk", "random-walk"])
def test_compiled_top_players_equal_those_of_pairs(gate, directed):
    scorer = bulk(gate, directed)
    assert isinstance(scorer._fastest, WalkKernel)
    targets = torch.tensor([7, 3, 3, 60, 79, 0])
    compiled = scorer.top(targets, 6)
    player, score, hop = by_pairs(scorer, targets, 6)
    assert compiled.score.std() > 1e-3
    np.testing.assert_allclose(compiled.score, score, atol=1e-5)
    np.testing.assert_array_equal(compiled.player, player)
    np.testing.assert_array_equal(compiled.hop, hop)


@pytest.mark.parametrize("directed", [False, True], ids=["undirected", "directed"])
@pytest.mark.parametrize("gate", ["none", "hop", "walk", "random-walk"])
def test_compiled_scores_equal_those_of_pairs(gate, directed):
    scorer = bulk(gate, directed)
    targets = torch.arange(MANY + 3) * 2
    targets[5] = targets[4]  # requested twice
    compiled = scorer.explain(targets)
    assert compiled.scores.std() > 1e-3
    for rows in (slice(0, 5), slice(5, 20), slice(20, MANY + 3)):
        pairs, players = scorer.explain(targets[rows]), compiled.players.part(rows)
        for name in ("targets", "counts", "player", "hop"):
            assert torch.equal(getattr(players, name), getattr(pairs.players, name)), name
        first = compiled.players.indptr
        scores = compiled.scores[first[rows.start] : first[rows.stop]]
        torch.testing.assert_close(scores, pairs.scores, atol=1e-5, rtol=0)


def test_compiled_scores_of_targets_without_neighbors():
    graph = dgl.graph(([0, 1], [1, 2]), num_nodes=MANY)
    game = Game.create(SmallGCN(), graph, torch.randn(MANY, 3, generator=torch.Generator().manual_seed(1)), hops=2)
    config = ExplainerConfig("node", explainer_inputs(game, "rich").shape[1], 3, 2, 2, hidden=16, dim=5)
    explainer = Explainer(config).eval()
    found = Scorer(explainer, game, embed_all(explainer, game, "rich")).explain(torch.arange(MANY))
    assert found.players.counts.tolist() == [1, 2, 3] + [1] * (MANY - 3)
    assert found.players.player[:6].tolist() == [0, 0, 1, 0, 1, 2]
    assert found.players.hop[:6].tolist() == [0, 1, 0, 2, 1, 0]


def test_a_large_top_keeps_all_players():
    scorer = bulk("walk", False)
    result, expected = scorer.top(torch.arange(80), 80), scorer.explain(torch.arange(80)).to_frame()
    for target in range(0, 80, 9):
        kept = {int(j): s for j, s in zip(result.player[target], result.score[target], strict=True) if j >= 0}
        frame = expected[expected.target == target]
        assert set(kept) == set(frame.player)
        np.testing.assert_allclose([kept[j] for j in frame.player], frame.score, atol=1e-5)


def test_many_targets_equal_one_at_a_time_exactly():
    scorer = bulk("walk", False)
    together = scorer.top(torch.arange(80), 5)
    for target in range(80):
        alone = scorer.top(torch.tensor([target]), 5)
        np.testing.assert_array_equal(alone.score[0], together.score[target])
        np.testing.assert_array_equal(alone.player[0], together.player[target])


SCORES = """
import torch
from games import SmallGCN, random_graph
from dgl_lara import LARA
from dgl_lara.training.config import TrainingConfig

torch.set_num_threads(2)
features = torch.randn(80, 3, generator=torch.Generator().manual_seed(1))
lara = LARA(SmallGCN(), random_graph(80, 110, 0), features, hops=2, config=TrainingConfig(steps=3, shared_pairs=90))
lara.fit(range(80))
torch.save([lara.explain(range(80)).scores, torch.from_numpy(lara.top(range(80), 5).score)], "FILE")
"""


@pytest.mark.long
def test_loaded_kernels_equal_freshly_compiled_ones(tmp_path):
    found = []
    for name in ("compiled", "loaded"):
        environment = {
            **os.environ,
            "NUMBA_CACHE_DIR": str(tmp_path / "kernels"),
            "PYTHONPATH": os.pathsep.join(sys.path),
        }
        code = SCORES.replace("FILE", str(tmp_path / name))
        subprocess.run([sys.executable, "-c", code], env=environment, check=True, capture_output=True)
        found.append(torch.load(tmp_path / name, weights_only=True))
    assert all(torch.equal(one, other) for one, other in zip(*found, strict=True))
