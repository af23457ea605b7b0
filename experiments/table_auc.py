"""Ground truth: AUC of edges as published for GNNExplainer and PGExplainer, and of nodes as in LARA's appendix."""

from functools import partial

import common
import pandas as pd
from paper_figures import EDGE_AUC, TABLE_AUC

from dgl_lara.benchmark import METHODS as MAKERS
from dgl_lara.choices import METHODS
from dgl_lara.metrics.auc import edge_auc, studied_targets
from dgl_lara.sampling import some_targets

NAMES = ("ba-shapes", "ba-community", "tree-cycles", "ba-2motifs", "mutag")
EDGE_METHODS = ("gnn-explainer", "pg-explainer")
QUICK_STUDIED = 100  # of the targets that the published figures are measured on


def run(settings):
    names = settings.names(NAMES)
    edges = pd.concat([_edges(name, settings) for name in names])
    nodes = pd.concat([common.compared(name, METHODS, settings) for name in names])
    edge_rows = [
        [method, *(_beside(common.measured(part, "AUC", 1).get(method, "-"), EDGE_AUC[method].get(name))
                   for name, part in edges.groupby("data", sort=False))]
        for method in EDGE_METHODS
    ]  # fmt: skip
    labels = nodes.groupby("method", sort=False)["label"].last()
    by_set = {name: common.measured(part, "AUC", 1) for name, part in nodes.groupby("data", sort=False)}
    node_rows = [
        [label, *(_beside(by_set[name][method], TABLE_AUC.get(method.removesuffix("-paper"), {}).get(name))
                  for name in names)]
        for method, label in labels.items()
    ]  # fmt: skip
    notes = [
        "First table: AUC of edges over the targets of the replication study; in brackets the figures that "
        "PGExplainer's authors published. PGExplainer learns from the targets it explains, as theirs does.",
        f"Quick: at most {QUICK_STUDIED} of those targets." if settings.quick else "All of those targets.",
        "Second table: AUC of nodes on test targets with a motif, signed scores pooled; in brackets LARA's appendix. "
        "Best of each column in bold.",
        common.sources(nodes),
        *common.left_out(nodes),
    ]
    tables = [(["edges", *names], edge_rows), (["nodes", *names], node_rows)]
    keep = ["data", "source", "method", "label", "seed", "AUC"]
    frame = pd.concat([edges.assign(of="edges"), nodes.reindex(columns=keep).assign(of="nodes")])
    return common.write_table(settings, "table-auc", "AUC against ground truth", tables, frame, notes)


def _edges(name, settings):
    contest = common.contest_on(name, settings)
    rows = common.kept(settings, contest, "edge-auc", partial(_edge_rows, contest, settings))
    return pd.DataFrame(rows).assign(data=name, source=common.source_of(name, contest.dataset))


def _edge_rows(contest, settings):
    dataset, rows = contest.dataset, []
    targets = studied_targets(dataset)
    if settings.quick:
        targets = some_targets(targets, min(QUICK_STUDIED, settings.targets or QUICK_STUDIED), 0)
    for method in EDGE_METHODS:
        for seed in range(settings.num_seeds):
            explainer = MAKERS[method](contest, seed)
            explainer.fit(targets)
            found = explainer.explain_edges(targets)
            figure = edge_auc(dataset.graph, dataset.edge_truth, found.source, found.destination, found.scores)
            rows.append({"method": method, "label": method, "seed": seed, "AUC": figure})
    return rows


def _beside(ours, paper):
    return f"{ours} [{paper:.3f}]" if paper is not None else ours
