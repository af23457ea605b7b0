"""A graph of which each process holds a part, against the whole graph in one process."""

import shutil
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
import torch
from click.testing import CliRunner
from codes import raises
from parts_together import ASKED, CONFIG, STEP, dataset_of, gradients_of, some_explainer
from processes_at_work import COUNT

from dgl_lara._util.distributed import ALONE
from dgl_lara._util.randomness import generator
from dgl_lara.cli import main
from dgl_lara.datasets.partitioning import partition
from dgl_lara.game.index import Masks
from dgl_lara.graphs.indexing import in_edges
from dgl_lara.graphs.remote import RemoteGraph
from dgl_lara.inference.local import explain_nearby
from dgl_lara.training.coalitions import CoalitionBatch, evaluate_coalitions
from dgl_lara.training.objective import Step
from dgl_lara.training.objectives import OBJECTIVES
from dgl_lara.training.subgraphs import NeighborSubgraphs

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def whole():
    return some_explainer()


@pytest.fixture(scope="module")
def across(together):
    """What each of three processes found."""
    return [torch.load(together / f"part-{rank}.pt", weights_only=True) for rank in range(COUNT)]


def test_what_others_have_is_what_they_say(across, whole):
    """In-edges, degrees and features of all nodes, asked by everybody."""
    graph, everyone = whole[1].graph, torch.arange(40)
    pair, sources = in_edges(graph, everyone)
    assert len(torch.cat([part["nodes"] for part in across]).unique()) == 40
    for part in across:
        assert torch.equal(part["degrees"], graph.in_degrees()) and torch.equal(part["features"], whole[1].features)
        indptr, found = part["edges"]
        assert torch.equal(indptr.diff(), graph.in_degrees()) and torch.equal(found, sources)


def test_embeddings_and_gradients_equal_those_of_the_full_graph(across, whole):
    g, game, seen = whole
    p, t = g(seen)
    for part in across:
        torch.testing.assert_close(part["answer"], game.full_outputs[part["nodes"]], atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(part["p"], p[part["nodes"]], atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(part["t"], t[part["nodes"]], atol=1e-5, rtol=1e-5)
        assert part["unit"] == pytest.approx(game.value_scale, rel=1e-5)
    g.zero_grad()
    gradients_of(g, (p, t))
    expected = [torch.zeros_like(one) if one.grad is None else one.grad for one in g.parameters()]  # of p and t alone
    torch.testing.assert_close(across[1]["gradients"], expected, atol=1e-4, rtol=1e-4)
    assert all(float(gradient.abs().max()) > 0.1 for gradient in expected[1:4])


def test_explanations_are_those_of_one_process(across, whole):
    g, game, _ = whole
    for rank, part in enumerate(across):
        mine = ASKED[rank::COUNT]
        expected = explain_nearby(g, game, "rich", mine)
        target, player, score = part["scores"]
        assert torch.equal(player, expected.players.player)
        assert torch.equal(target, mine[expected.players.row])
        torch.testing.assert_close(score, expected.scores.detach(), atol=1e-5, rtol=1e-5)


def test_a_step_is_that_of_one_process(across, whole):
    """The same coalitions, drawn and asked about one share after the other on the whole graph: loss and gradients."""
    g, game, seen = whole
    subgraphs, parts, sign = NeighborSubgraphs(game, seen), [], []
    for rank in range(COUNT):
        mine = STEP[len(STEP) * rank // COUNT : len(STEP) * (rank + 1) // COUNT]
        coalitions = evaluate_coalitions(game, subgraphs.batch(mine), 3, generator(5 + rank))
        parts.append(Step(game, g, coalitions, subgraphs.embed(g, mine)))
        sign.append(coalitions.design(mine))

    def side_by_side(made):
        return torch.cat([made(step) for step in parts], dim=1)

    class Together(Step):
        def predicted_responses(self):
            return side_by_side(Step.predicted_responses)

    inside, outside = (
        side_by_side(lambda step: step.coalitions.inside),
        side_by_side(lambda step: step.coalitions.outside),
    )
    masks = Masks(torch.cat(sign, 1)[:, STEP.argsort()] > 0, torch.full((3,), 0.5))
    values = game.full_values[STEP], game.empty_values[STEP]
    everybody = CoalitionBatch(game, STEP, STEP.sort().values, masks, inside, outside, *values)
    loss = OBJECTIVES["balanced"].loss(Together(game, g, everybody, parts[0].embedded), None)
    g.zero_grad()
    loss.backward()
    for part in across:
        assert part["loss"] == pytest.approx(loss.item(), rel=1e-4)
        for found, parameter in zip(part["step gradients"], g.parameters(), strict=True):
            torch.testing.assert_close(found, parameter.grad, atol=1e-4, rtol=1e-3)
    assert max(float(parameter.grad.abs().max()) for parameter in g.parameters()) > 1e-2


def test_training_is_one_training(across):
    """All processes have the same weights, and have sent rows to each other."""
    first = across[0]
    for other in across[1:]:
        torch.testing.assert_close(other["trained"], first["trained"], rtol=0, atol=0)
        assert other["history"] == first["history"]
    assert first["history"][-1]["step"] == CONFIG.steps and len(first["history"]) > 1
    assert all(part["sent"] > 10_000 for part in across)


def test_as_many_processes_as_parts(tmp_path, whole):
    partition(dataset_of(whole[1]), 2, tmp_path / "parts", "order")
    with raises("partition.processes", parts=2, got=1):
        RemoteGraph(tmp_path / "parts", ALONE)


@pytest.mark.slow
def test_the_command(tmp_path, monkeypatch):
    """Two processes with a part each train and leave p and t; one process that makes them by itself finds the same."""
    monkeypatch.chdir(tmp_path)

    def run(*words):
        done = CliRunner().invoke(main, list(map(str, words)))
        assert done.exit_code == 0, done.output

    run("target", "--dataset", "ba-shapes", "--epochs", 5, "--out", "f.pt")
    run("partition", "--dataset", "ba-shapes", "--parts", 2, "--out", "parts")
    words = ["train", "--graph", "parts", "--target", "f.pt", "--hidden", "16", "--dim", "5", "--memory", "1GB"]
    words += ["--batch-size", "64", "--epochs", "1", "--processes", "2", "--out", "b"]
    done = subprocess.run([sys.executable, "-m", "dgl_lara", *words], capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout.count("validation agreement") == 1, done.stderr
    kept = {name: np.load(f"b/rows/{name}.npy") for name in ("answer", "p", "t")}
    run("explain", "--run", "b", "--all", "--top", 5, "--out", "theirs.csv")
    shutil.rmtree("b/rows")
    run("explain", "--run", "b", "--all", "--top", 5, "--out", "own.csv")
    for name, rows in kept.items():
        assert np.abs(rows).max() > 0.1
        np.testing.assert_allclose(rows, np.load(f"b/rows/{name}.npy"), atol=1e-5, rtol=1e-5)
    theirs, own = pd.read_csv("theirs.csv"), pd.read_csv("own.csv")
    assert len(own) > 3000
    np.testing.assert_allclose(theirs.score, own.score, atol=1e-5)
