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
from dgl_lara.inference.scorer import embed_all, explain_embedded
from dgl_lara.inference.top_players import BulkExplainer


def bulk(gate, directed, nodes=80):
    graph = random_graph(nodes, 110, 0)
    if directed:
        src, dst = graph.edges()
        graph = dgl.graph((src[src < dst], dst[src < dst]), num_nodes=nodes)
    game = Game(SmallGCN(), graph, torch.randn(nodes, 3, generator=torch.Generator().manual_seed(1)), hops=2)
    torch.manual_seed(0)
    config = ExplainerConfig("node", explainer_inputs(game, "rich").shape[1], 3, 2, 2, hidden=16, dim=5, gate=gate)
    explainer = Explainer(config).eval()
    return BulkExplainer(explainer, game, embed_all(explainer, game, "rich"))


@pytest.mark.parametrize("directed", [False, True], ids=["undirected", "directed"])
@pytest.mark.parametrize("gate", ["none", "hop", "walk", "random-walk"])
def test_compiled_kernel_equals_the_pair_path(gate, directed):
    one = bulk(gate, directed)
    assert one.compiled
    targets = torch.tensor([7, 3, 3, 60, 79, 0])
    ours = one.top(targets, 6)
    theirs = one._top_by_pairs(targets, one.game.explained_class[targets], 6)
    assert ours.score.std() > 1e-3
    np.testing.assert_allclose(ours.score, theirs.score, atol=1e-5)
    np.testing.assert_array_equal(ours.player, theirs.player)
    np.testing.assert_array_equal(ours.hop, theirs.hop)


@pytest.mark.parametrize("directed", [False, True], ids=["undirected", "directed"])
@pytest.mark.parametrize("gate", ["none", "hop", "walk", "random-walk"])
def test_compiled_scores_of_all_players_equal_the_pair_path(gate, directed):
    one = bulk(gate, directed)
    targets = torch.arange(MANY + 3) * 2
    targets[5] = targets[4]  # asked for twice
    compiled = explain_embedded(one.explainer, one.game, one.embeddings, targets)
    assert compiled.scores.std() > 1e-3
    for rows in (slice(0, 5), slice(5, 20), slice(20, MANY + 3)):
        pairs = explain_embedded(one.explainer, one.game, one.embeddings, targets[rows])
        mine = compiled.players.part(rows)
        for name in ("targets", "counts", "player", "hop"):
            assert torch.equal(getattr(mine, name), getattr(pairs.players, name)), name
        first = compiled.players.indptr
        torch.testing.assert_close(
            compiled.scores[first[rows.start] : first[rows.stop]], pairs.scores, atol=1e-5, rtol=0
        )


def test_compiled_scores_where_a_target_has_no_neighbour():
    graph = dgl.graph(([0, 1], [1, 2]), num_nodes=MANY)
    game = Game(SmallGCN(), graph, torch.randn(MANY, 3, generator=torch.Generator().manual_seed(1)), hops=2)
    config = ExplainerConfig("node", explainer_inputs(game, "rich").shape[1], 3, 2, 2, hidden=16, dim=5)
    explainer = Explainer(config).eval()
    found = explain_embedded(explainer, game, embed_all(explainer, game, "rich"), torch.arange(MANY))
    assert found.players.counts.tolist() == [1, 2, 3] + [1] * (MANY - 3)
    assert found.players.player[:6].tolist() == [0, 0, 1, 0, 1, 2] and found.players.hop[:6].tolist() == [
        0,
        1,
        0,
        2,
        1,
        0,
    ]


def test_all_players_when_top_is_large_enough():
    one = bulk("walk", False)
    result = one.top(torch.arange(80), 80)
    expected = explain_embedded(one.explainer, one.game, one.embeddings, torch.arange(80)).to_frame()
    for target in range(0, 80, 9):
        mine = {int(j): s for j, s in zip(result.player[target], result.score[target], strict=True) if j >= 0}
        theirs = expected[expected.target == target]
        assert set(mine) == set(theirs.player)
        np.testing.assert_allclose([mine[j] for j in theirs.player], theirs.score, atol=1e-5)


def test_many_targets_equal_one_at_a_time_exactly():
    one = bulk("walk", False)
    together = one.top(torch.arange(80), 5)
    for target in range(80):
        alone = one.top(torch.tensor([target]), 5)
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
def test_kernels_that_were_just_compiled_say_what_loaded_ones_say(tmp_path):
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
