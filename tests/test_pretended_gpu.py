"""Every way through the code on a pretended GPU: a tensor that was left in main memory is found, without a GPU."""

import dgl
import pytest
import torch
from codes import raises
from games import PooledGCN, SmallGCN, random_graph
from pretended import CUDA, pretended_gpu

from dgl_lara import LARA, TrainingConfig
from dgl_lara._util.memory_budget import Budget
from dgl_lara.datasets import Options, load
from dgl_lara.errors import ModelError
from dgl_lara.evaluation.run_evaluation import Evaluation, evaluate
from dgl_lara.game.game import Game
from dgl_lara.gnns import Recipe
from dgl_lara.gnns.training import accuracy, train_gnn
from dgl_lara.metrics.common.metric import EvalCase

GRAPH, FEATURES = random_graph(60, 80, 0), torch.randn(60, 3, generator=torch.Generator().manual_seed(0))
QUICK = {"hidden": 8, "dim": 4, "masks": 1, "steps": 2}


@pytest.fixture(autouse=True)
def a_quick_judge(monkeypatch):
    monkeypatch.setattr("dgl_lara.training.validation.TARGETS", 8)
    monkeypatch.setattr("dgl_lara.training.validation.PAIRS", 8)


def test_the_pretended_gpu_notices_what_is_mixed():
    with pretended_gpu():
        here, there = torch.ones(3), torch.ones(3, device="cuda")
        assert there.device == CUDA and (there + 1).device == CUDA and here.device.type == "cpu"
        assert there.cpu().device.type == "cpu" and torch.arange(3).to(CUDA).device == CUDA
        with pytest.raises(RuntimeError, match="same device"):
            here + there
        with pytest.raises(RuntimeError, match="indices should be"):
            here[torch.zeros(1, dtype=torch.long, device="cuda")]
        with pytest.raises(TypeError, match="cuda:0 device type"):
            there.numpy()
        graph = GRAPH.to("cuda")
        assert graph.device == CUDA and graph.in_degrees().device == CUDA and graph.edges()[0].device == CUDA
        with pytest.raises((RuntimeError, dgl.DGLError)):
            dgl.ops.copy_u_sum(graph, FEATURES)
        assert dgl.ops.copy_u_sum(graph, FEATURES.to("cuda")).device == CUDA
        model = SmallGCN().to("cuda")
        assert next(model.parameters()).device == CUDA


def scores_of(device, task="node", more=None, **settings):
    """Learn, explain, refine, verify, put into words: all that a LARA does, on one device."""
    model = (SmallGCN() if task == "node" else PooledGCN()).to(device)
    graph = GRAPH if task == "node" else dgl.batch([random_graph(6, 8, seed) for seed in range(10)])
    config = TrainingConfig(**{**QUICK, **settings})
    lara = LARA(model, graph.to(device), FEATURES.to(device), task, 2, config=config, **(more or {}))
    count = 60 if task == "node" else 10
    lara.fit(range(count))
    found = lara.explain(range(count))
    refined = lara.refine(found, 4).explanations
    lara.verify(refined)
    assert found[3].in_words() and len(found[3].to_dict()["players"])
    assert found.scores.device.type == lara.features.device.type == lara.embed().source.device.type
    return found.to_frame().score, refined.to_frame().score, lara.top([3, 5], 4).score


@pytest.mark.parametrize("players", ["nodes", "edges", "features"])
def test_a_summary_stays_where_its_explanations_are(players):
    with pretended_gpu():
        lara = LARA(SmallGCN().to("cuda"), GRAPH.to("cuda"), FEATURES.to("cuda"), hops=2, players=players,
                    config=TrainingConfig(**QUICK)).fit(range(60))  # fmt: skip
        assert lara.explain(range(20)).summary().to_frame().size


@pytest.mark.parametrize(
    ("task", "settings"),
    [
        ("node", {}),
        ("graph", {"batch_size": 4}),
        *(
            pytest.param(task, settings, marks=pytest.mark.slow)
            for task, settings in (
                ("node", {"batch_size": 16}),
                ("node", {"gate": "hop"}),
                ("node", {"objective": "running-mean"}),
                ("node", {"objective": "mutual-information"}),
                ("graph", {}),
            )
        ),
    ],
    ids=str,
)
def test_fit_explain_save_and_load(task, settings):
    here = scores_of("cpu", task, **settings)
    with pretended_gpu():
        there = scores_of("cuda", task, **settings)
    for mine, theirs in zip(here, there, strict=True):
        torch.testing.assert_close(torch.as_tensor(mine), torch.as_tensor(theirs), rtol=1e-3, atol=1e-4)


@pytest.mark.slow
def test_a_pass_that_does_not_fit_goes_layer_by_layer():
    """A CUDA graph without --offload: batches are cut in main memory, and the embeddings come back to the GPU."""
    with pretended_gpu():
        scores_of("cuda", more={"memory": 20_000})


def test_one_node_offloaded_without_a_store(tmp_path):
    with pretended_gpu():
        trained = LARA(SmallGCN(), GRAPH, FEATURES, hops=2, config=TrainingConfig(**QUICK)).fit(range(60))
        trained.save(tmp_path / "lara.pt")
        lara = LARA.load(tmp_path / "lara.pt", SmallGCN(), GRAPH, FEATURES, compute_device=torch.device("cuda"))
        near = lara.explain([3])
        assert near.scores.device.type == "cpu" and near[0].in_words()
        torch.testing.assert_close(near.scores, trained.explain([3]).scores, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "recipe", [Recipe("sage", 8, 2, epochs=2, saint_nodes=300), Recipe(epochs=2, hidden=8)], ids=str
)
def test_targets_learn_there(recipe):
    with pretended_gpu():
        dataset = load("citation", Options(nodes=400)).to("cuda")
        model = train_gnn(dataset, recipe, 0)
        assert next(model.parameters()).device == CUDA and 0 <= accuracy(model, dataset)["test"] <= 1


def test_graph_targets_learn_there():
    with pretended_gpu():
        dataset = load("molecules").to("cuda")
        model = train_gnn(dataset, Recipe(epochs=1, hidden=8, batch_size=500), 0)
        assert next(model.parameters()).device == CUDA


def test_memory_is_that_of_the_device():
    with pretended_gpu(memory=1000):
        assert Budget.of(None, CUDA).memory == 700
        assert Budget.of(None, torch.device("cpu")).memory > 10**6


def test_a_function_with_tensors_on_another_device_raises():
    weight = torch.randn(3, 2)
    with pretended_gpu(), raises("model.mixed_devices", ModelError):
        Game.create(lambda graph, x: x @ weight, GRAPH.to("cuda"), FEATURES.to("cuda"))


def test_evaluation_there():
    with pretended_gpu():
        graph, features = GRAPH.to("cuda"), FEATURES.to("cuda")
        lara = LARA(SmallGCN().to("cuda"), graph, features, hops=2, config=TrainingConfig(**QUICK)).fit(range(60))
        subject = Evaluation(lara, EvalCase(lara.game, torch.arange(8, device=CUDA), None, 100, 0), 20)
        for metric in ("fidelity", "agreement"):
            assert len(evaluate(subject, metric))
