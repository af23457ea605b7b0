"""What needs a CUDA device."""

import pytest
import torch
from games import SmallGCN, random_graph

from dgl_lara import LARA, TrainingConfig
from dgl_lara.datasets import load
from dgl_lara.gnns import Recipe
from dgl_lara.gnns.training import accuracy, train_gnn


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("name", ["ba-shapes", "ba-2motifs"])
def test_target_trains_on_cuda(name):
    dataset = load(name).to("cuda")
    model = train_gnn(dataset, Recipe(epochs=30, batch_size=200), seed=0)
    assert next(model.parameters()).is_cuda
    assert accuracy(model, dataset)["train"] > 0.35  # .396 on the CPU after as many epochs


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("batch_size", [0, 16])
def test_an_explainer_trains_and_explains_on_cuda_as_on_the_cpu(batch_size):
    graph, features = random_graph(60, 80, 0), torch.randn(60, 3, generator=torch.Generator().manual_seed(0))
    config = TrainingConfig(hidden=16, dim=5, masks=4, steps=8, batch_size=batch_size)

    def scores(device):
        model = SmallGCN().to(device)
        lara = LARA(model, graph.to(device), features.to(device), hops=2, config=config).fit(range(60))
        return lara.explain(range(60)).scores.cpu()

    torch.testing.assert_close(scores("cuda"), scores("cpu"), atol=1e-2, rtol=1e-2)
