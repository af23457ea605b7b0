"""`explain`: the whole method in one call, for a first look.

print(explain(model, graph, features, [512])[0].in_words())
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import dgl
import torch
from torch import Tensor

from dgl_lara.explanation import Explanations
from dgl_lara.lara import LARA
from dgl_lara.model.blackbox import Model


def explain(
    model: Model,
    graph: dgl.DGLGraph,
    features: Tensor,
    nodes: Tensor | Sequence[int],
    classes: Tensor | Sequence[int] | None = None,
    **settings: Any,
) -> Explanations:
    """Learn from every node (or graph; no label is needed), then explain these. `settings` are those of `LARA`.

    Most of the time goes into learning: keep a `LARA` where you will ask again.
    """
    lara = LARA(model, graph, features, **settings)
    everything = graph.num_nodes() if lara.task == "node" else graph.batch_size
    return lara.fit(torch.arange(everything)).explain(nodes, classes)
