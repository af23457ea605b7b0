"""AUC of edge masks against ground truth, and the targets that the published figures are measured on."""

import numpy as np
import torch

from dgl_lara.errors import LaraError
from dgl_lara.metrics.auc import roc_auc

# One node of each motif, the one that is attached to the rest of the graph, as the authors chose them.
STUDIED_NODES = {
    "ba-shapes": range(400, 700, 5),
    "ba-community": range(400, 700, 5),
    "tree-cycles": range(511, 871, 6),
}


def edge_auc(graph, truth, source, destination, scores):
    """Return the AUC of the scored edges of all targets, pooled, against `truth` of the graph's edges."""
    edge = graph.edge_ids(source, destination)
    return roc_auc(truth[edge].cpu().numpy(), scores.cpu().numpy())


def studied_targets(dataset):
    """Return the targets of the protocol of PGExplainer's replication study.

    Node data: the authors' nodes, on other data every node of a motif. BA-2Motifs: the authors' 200 graphs. MUTAG:
    every mutagenic molecule (class 0) with an NO2 or NH2 group. Other graph data: every graph with a motif.
    """
    if dataset.edge_truth is None or dataset.motif is None:
        raise LaraError(f"{dataset.name} has no ground truth to measure an AUC against.")
    device = dataset.labels.device
    if dataset.name in STUDIED_NODES:
        return torch.tensor(STUDIED_NODES[dataset.name], device=device)
    if dataset.task == "node":
        return (dataset.motif >= 0).nonzero().flatten()
    if dataset.name == "ba-2motifs":
        order = np.random.RandomState(42).permutation(dataset.num_targets)  # noqa: NPY002 (the authors' order)
        return torch.as_tensor(np.concatenate([order[:100], order[500:600]]), device=device)
    has_motif = torch.zeros_like(dataset.labels, dtype=torch.bool)
    has_motif[dataset.graph_of_node[dataset.motif >= 0]] = True
    if dataset.name == "mutag":
        has_motif &= dataset.labels == 0
    return has_motif.nonzero().flatten()
