"""One memory budget bounds calls of f, chunks of targets and passes of g; a container's limit counts as memory does."""

import dgl
import psutil
import pytest
import torch
from codes import raises
from games import SmallGCN, gcn_game, random_graph

from dgl_lara import LARA
from dgl_lara._util import memory
from dgl_lara._util.memory_budget import CALL_BYTES, MAX_NODES_PER_CALL, Budget
from dgl_lara.errors import InputError
from dgl_lara.game.game import Game
from dgl_lara.training.config import TrainingConfig


@pytest.mark.parametrize(
    ("files", "free"),
    [
        ({}, []),
        ({"memory.max": "max\n", "memory.current": "5\n"}, []),
        ({"memory.max": "1000\n", "memory.current": "300\n"}, [700]),
        ({"memory.max": "1000\n", "memory.current": "1300\n"}, [0]),
        ({"memory/memory.limit_in_bytes": "1000\n", "memory/memory.usage_in_bytes": "400\n"}, [600]),
        (
            {  # Slurm: the job's group lies below the machine's
                "own": "0::/slurm/job_7\n",
                "slurm/job_7/memory.max": "500\n",
                "slurm/job_7/memory.current": "100\n",
                "slurm/memory.max": "900\n",
                "slurm/memory.current": "200\n",
            },
            [400, 700],
        ),
    ],
)
def test_what_a_container_still_allows(files, free, tmp_path):
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True, parents=True)
        (tmp_path / name).write_text(text)
    assert memory.container_memory(tmp_path, tmp_path / "own") == free


def test_the_smaller_of_machine_and_container_counts(monkeypatch):
    monkeypatch.setattr(memory, "container_memory", lambda: [10_000])
    assert memory.free_memory() == 7_000
    monkeypatch.setattr(memory, "container_memory", lambda: [2**60])
    assert 0 < memory.free_memory() <= psutil.virtual_memory().total


def test_wide_features_mean_fewer_nodes_a_call():
    plenty = Budget(64 * 2**30)
    assert plenty.nodes_per_call(10) == plenty.nodes_per_call(128) == MAX_NODES_PER_CALL  # as in 0.1.0
    wide = plenty.nodes_per_call(6_805)
    assert wide * 6_805 * 4 < CALL_BYTES < 4 * wide * 6_805 * 4
    assert Budget(100 * 2**20).nodes_per_call(6_805) < wide / 10
    assert Budget(1).nodes_per_call(6_805) == 1


def test_no_call_of_f_is_larger_than_the_budget_allows():
    """Fitting, explaining and refining with wide features and little memory: every call keeps to the bound."""
    graph, memory_bytes = random_graph(300, 500, 0), 8 * 2**20
    features = torch.randn(300, 2000, generator=torch.Generator().manual_seed(1))
    weight = torch.randn(2000, 3, generator=torch.Generator().manual_seed(2)) / 50
    sizes = []

    def f(part, x):
        sizes.append(len(x))
        h = x @ weight
        return dgl.ops.copy_u_sum(part, h) + h

    lara = LARA(f, graph, features, hops=1, memory=memory_bytes, config=TrainingConfig(steps=3, masks=4))
    lara.fit(range(300))
    bound = Budget(memory_bytes).nodes_per_call(2000)
    assert bound < 300 <= max(sizes)  # the graph itself must be asked about whole; nothing larger ever is
    assert max(sizes) <= 300
    sizes.clear()
    some = lara.explain(range(40))
    lara.refine(some, 8)
    lara.verify(some)
    assert max(sizes) <= max(bound, int(some.players.counts.max()) + 50)


def test_coalitions_of_a_step_are_held_against_the_budget():
    graph, features = random_graph(60, 80, 0), torch.randn(60, 3, generator=torch.Generator().manual_seed(1))
    config = TrainingConfig(steps=1, masks=100_000, pool=0)
    with raises("memory.exceeded", InputError):
        LARA(SmallGCN(), graph, features, hops=1, memory=2**26, config=config).fit(range(60))


def test_chunks_follow_the_budget():
    game = gcn_game(nodes=40, edges=50, seed=3)
    little = Game.create(game.f, game.graph, game.features, hops=2, memory=20_000)
    assert len(game.chunks(torch.arange(40))) == 1 < len(little.chunks(torch.arange(40)))
