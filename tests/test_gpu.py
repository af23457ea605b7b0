"""What needs a CUDA device."""

import pytest
import torch

from dgl_lara.datasets import load
from dgl_lara.targets import Recipe
from dgl_lara.targets.training import accuracy, train_target


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("name", ["ba-shapes", "ba-2motifs"])
def test_target_trains_on_cuda(name):
    dataset = load(name).to("cuda")
    model = train_target(dataset, Recipe(epochs=30, batch_size=200), seed=0)
    assert next(model.parameters()).is_cuda
    assert accuracy(model, dataset)["train"] > 0.45
