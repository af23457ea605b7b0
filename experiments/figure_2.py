"""Figure 2: correlation of mutual information and removal-based attribution of random node sets with Fidelity+."""

from functools import partial

import common
import pandas as pd
from correlation import MIN_PLAYERS, correlations, random_sets
from paper_figures import ONLY_PLOTTED
from plots import scatters

from dgl_lara._util.randomness import sample_targets

NAMES = ("ba-community", "ogbn-arxiv")
SETS = 100  # pairs (J, target), as in the appendix
PAIRS = {True: 300, False: 2000}  # coalition pairs of phi; quick, full
SEEN = {False: "paper's definition", True: "target kept"}


def run(settings):
    sets, rows, panels, note = [], [], [], []
    for name in settings.names(NAMES):
        benchmark = common.benchmark_on(name, settings)
        dataset, game = benchmark.dataset, benchmark.game
        source = common.source_of(name, dataset)
        shown = common.shown_as(name, source)
        note.append(f"{name}: {source}")
        targets = _targets(dataset, game, SETS if settings.targets is None else settings.targets)
        for keep_target, definition in SEEN.items():
            if keep_target and not game.task.has_distances:
                continue
            make = partial(_sets, game, targets, PAIRS[settings.quick], keep_target)
            found = pd.DataFrame(common.kept(settings, benchmark, f"correlation-{definition}-{len(targets)}", make))
            sets.append(found.assign(data=name, definition=definition))
            table = correlations(found)
            best = table["pearson"].abs().idxmax()
            for index, row in table.iterrows():
                text = f"{row['pearson']:.2f}"
                text = f"**{text}**" if index == best else text
                players = f"{found['players'].median():.0f}"
                rows.append(
                    [name, definition, row["attribution"], text, f"{row['spearman']:.2f}", len(found), players, "-"]
                )
                if not keep_target:
                    panels.append((f"{shown}: r = {row['pearson']:.2f}", row["attribution"], found))
    title = "Figure 2: fidelity of random node sets J (filled: J holds the target itself)"
    written = [common.write_picture(settings, "figure-2", scatters(panels, title))]
    header = ["data", "definition", "attribution of J", "Pearson with F+", "Spearman", "sets", "players (median)",
              "the paper"]  # fmt: skip
    notes = [
        ONLY_PLOTTED["figure-2"],
        f"Here: at most {settings.targets or SETS} random sets J, one a test target with at least three players. MI "
        "value and 'one node at a time' as the appendix writes them; 'phi, Eq. 5' is the attribution that LARA learns, "
        "averaged over J.",
        "Data: " + "; ".join(note) + ".",
    ]
    return written + common.write_table(
        settings, "figure-2", "Figure 2: correlation with fidelity", [(header, rows)], pd.concat(sets), notes
    )


def _targets(dataset, game, most):
    """Return test targets with at least three players. On ogbn-arxiv most have fewer."""
    candidates = sample_targets(dataset.test, 20 * most, 0)
    return sample_targets(candidates[game.players(candidates).counts >= MIN_PLAYERS], most, 0)


def _sets(game, targets, pairs, keep_target):
    return random_sets(game, targets, pairs, 0, keep_target).to_dict("records")
