"""Ground truth: AUC of edges as published for GNNExplainer and PGExplainer, and of nodes as in LARA's appendix."""

from dataclasses import replace
from functools import partial

import common
import pandas as pd
from edge_auc import edge_auc, studied_targets
from lara_edges import LaraEdges
from occlusion import EdgeOcclusion
from paper_figures import EDGE_AUC, TABLE_AUC
from plots import labels_of

from dgl_lara._util.progress import log_info
from dgl_lara._util.randomness import sample_targets
from dgl_lara.errors import LaraError
from dgl_lara.evaluation.benchmark import METHODS
from dgl_lara.game.game import Game
from dgl_lara.gnns import recipe_for
from dgl_lara.gnns.models import GNN
from dgl_lara.gnns.training import get_gnn

NAMES = ("ba-shapes", "ba-community", "tree-cycles", "ba-2motifs", "mutag")
EDGE_METHODS = {"gnn-explainer": METHODS["gnn-explainer"], "pg-explainer": METHODS["pg-explainer"],
                "lara, edges": lambda benchmark, seed: _lara(benchmark, seed),
                "one edge removed": lambda benchmark, seed: EdgeOcclusion(benchmark.game, seed)}  # fmt: skip
LEARNING = ("gnn-explainer", "pg-explainer", "lara, edges")  # several seeds; removing an edge leaves nothing to chance
MODELS = ("explained", "own")  # the model that all tables explain; one trained here
MASKS = ("in degrees", "messages only")  # what the weight of an edge does
QUICK_STUDIED = 100  # of the targets that the published figures are measured on


def masking_messages_only(model):
    """Return a copy whose edge weights do not change the degrees: a mask on the normalised adjacency."""
    twin = GNN(replace(model.config, weigh_degrees=False)).to(model.head.weight.device)
    twin.load_state_dict(model.state_dict())
    return twin.requires_grad_(False).eval()


def run(settings):
    names = settings.names(NAMES)
    edges = pd.concat([_edges(name, settings) for name in names])
    nodes = pd.concat([common.compared(name, tuple(METHODS), settings) for name in names])
    by_set = dict(list(edges.groupby("data", sort=False)))
    edge_rows = [
        [method, model, masks, *(_beside(_figure(by_set[name], method, model, masks), _published(method, name))
                                 for name in names)]
        for model in MODELS for masks in MASKS for method in EDGE_METHODS
    ]  # fmt: skip
    labels = labels_of(nodes)
    by_set = {name: common.measured(part, "AUC", 1) for name, part in nodes.groupby("data", sort=False)}
    node_rows = [
        [label, *(_beside(by_set[name][method], TABLE_AUC.get(str(method).removesuffix("-paper"), {}).get(name))
                  for name in names)]
        for method, label in labels.items()
    ]  # fmt: skip
    notes = [
        "First table: AUC of edges over the targets of the replication study; in brackets the figures that "
        "PGExplainer's authors published. PGExplainer learns from the targets it explains, as theirs does. Model "
        "'explained': that of all other tables; 'own': trained here with our recipe (MUTAG: the same). Masks 'in "
        "degrees': the weight of an edge counts in the GCN's degrees too, so that weight 0 removes it, as in all other "
        "tables; 'messages only': it does not. 'one edge removed': how far the logit moves without the edge; no "
        "explainer, but what the model itself says ('-': too many edges to take away one by one). 'lara, edges': |phi| "
        "of undirected edges, learned from these targets as PGExplainer does; it gives edges no weights.",
        f"Quick: at most {QUICK_STUDIED} of those targets." if settings.quick else "All of those targets.",
        "Second table: AUC of nodes on test targets with a motif, signed scores pooled; in brackets LARA's appendix. "
        "Best of each column in bold.",
        common.sources(nodes),
        *common.left_out(nodes),
    ]
    tables = [(["edges", "model", "masks", *names], edge_rows), (["nodes", *names], node_rows)]
    keep = ["data", "source", "method", "label", "seed", "AUC"]  # of the comparison
    frame = pd.concat([edges.assign(of="edges"), nodes.reindex(columns=keep).assign(of="nodes")])
    return common.write_table(settings, "table-auc", "AUC against ground truth", tables, frame, notes)


def _edges(name, settings):
    benchmark = common.benchmark_on(name, settings)
    targets = studied_targets(benchmark.dataset)
    if settings.quick:
        targets = sample_targets(targets, min(QUICK_STUDIED, settings.targets or QUICK_STUDIED), 0)
    rows = []
    for (model, masks), variant in _variants(benchmark).items():
        for method, make in EDGE_METHODS.items():
            if method == "lara, edges" and masks != MASKS[0]:
                continue  # LARA gives edges no weights
            seeds = settings.num_seeds if method in LEARNING else 1
            measure = partial(
                _edge_aucs, benchmark.dataset, [partial(make, variant, seed) for seed in range(seeds)], targets
            )
            found = common.kept(settings, benchmark, f"edge-auc-{method}-{model}-{masks}", measure)
            rows += [{"method": method, "model": model, "masks": masks, **row} for row in found]
    return pd.DataFrame(rows).assign(data=name, source=common.source_of(name, benchmark.dataset))


def _lara(benchmark, seed):
    return LaraEdges(benchmark.game, replace(benchmark.lara_config(), seed=seed), benchmark.dataset.val)


def _edge_aucs(dataset, makers, targets):
    return [{"seed": seed, "AUC": _edge_auc(dataset, make(), targets)} for seed, make in enumerate(makers)]


def _edge_auc(dataset, explainer, targets):
    try:
        explainer.fit(targets)
        found = explainer.explain_edges(targets)
    except LaraError as reason:
        log_info(f"{explainer.name} is left out: {reason}")
        return None
    return edge_auc(dataset.graph, dataset.edge_truth, found.source, found.destination, found.scores)


def _variants(benchmark):
    """Return {(model, masks): benchmark}."""
    dataset, explained = benchmark.dataset, benchmark.game
    own = get_gnn(dataset, recipe_for(dataset.name, dataset.task), 0)[0] if dataset.name in common.AUTHORS else None
    variants = {}
    for model, f in zip(MODELS, (explained.f, own), strict=True):
        if f is not None:
            for masks, masked in zip(MASKS, (f, masking_messages_only(f)), strict=True):
                game = Game.create(masked, dataset.graph, dataset.features, dataset.task, f.num_hops, explained.value)
                variants[model, masks] = replace(benchmark, game=game)
    return variants


def _figure(rows, method, model, masks):
    chosen = rows[(rows["method"] == method) & (rows["model"] == model) & (rows["masks"] == masks)]
    return common.figure(chosen["AUC"])


def _published(method, name):
    return EDGE_AUC.get(method, {}).get(name)


def _beside(ours, paper):
    return f"{ours} [{paper:.3f}]" if paper is not None else ours
