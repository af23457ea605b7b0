"""Plots of explanations, as in the paper's section 5.3 and appendix: two targets per data set."""

import common
import pandas as pd
import torch
from paper_figures import ONLY_PLOTTED

from dgl_lara._util.progress import log_info

NAMES = common.SIX
EACH = 2
FEWEST, MOST = 5, 30  # players: of a target that is shown, in a picture


def run(settings):
    rows, written = [], []
    for name in settings.names(NAMES):
        benchmark, lara = common.lara_on(name, settings)
        log_info(f"== {name}: pictures")
        dataset = benchmark.dataset
        batch = lara.explain(_shown(benchmark)).named(labels=dataset.names["labels"], motif=dataset.motif)
        for place, explanation in enumerate(batch):
            stem = f"qualitative-{name}-{place + 1}"
            written.append(common.write_picture(settings, stem, explanation.plot(MOST)))
            source = common.source_of(name, dataset)
            rows.append([f"[{stem}]({stem}.png)", _found(explanation, dataset), explanation.in_words(), source])
    header = ["picture", "motif nodes among as many best", "in words", "data"]
    frame = pd.DataFrame(rows, columns=header)
    notes = [
        "Vermilion speaks for the explained class, blue against it; the target wears a ring, ground truth a green rim.",
        ONLY_PLOTTED["qualitative"],
    ]
    title = "Qualitative results: explanations by LARA"
    return written + common.write_table(settings, "qualitative", title, [(header, rows)], frame, notes)


def _shown(benchmark):
    """Return the first correctly predicted test targets of different classes with a motif and enough players."""
    dataset, game, targets = benchmark.dataset, benchmark.game, benchmark.targets
    predicted = game.explained_class[targets]
    fit = (predicted == dataset.labels[targets]) & (game.players(targets).counts >= FEWEST)
    if dataset.motif is not None:
        holders = (dataset.motif >= 0).nonzero().flatten()
        holders = holders if dataset.task == "node" else dataset.graph_of_node[holders]
        fit &= torch.isin(targets, holders)
    chosen = targets[fit] if int(fit.sum()) else targets
    classes = game.explained_class[chosen].tolist()
    firsts = [classes.index(c) for c in dict.fromkeys(classes)]
    rest = [place for place in range(len(chosen)) if place not in firsts]
    return chosen[torch.tensor((firsts + rest)[:EACH], device=chosen.device)]


def _found(explanation, dataset):
    """Return how many nodes of the motif are among the best players, the paper's 'consistent with the ground truth'."""
    if dataset.motif is None:
        return "-"
    truth = explanation.batch.in_motif(dataset.motif)
    best = explanation.batch.rank() < truth.sum()
    return f"{int((truth & best).sum())} of {int(truth.sum())}"
