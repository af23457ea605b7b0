"""Figure 4: fidelity against sparsity of all methods on the six data sets."""

import common
import pandas as pd
from paper_figures import LARA_FIDELITY, ONLY_PLOTTED
from plots import fidelity_grid

from dgl_lara.evaluation.benchmark import METHODS
from dgl_lara.metrics.fidelity import fidelity_column

NAMES = common.SIX


def run(settings):
    records = pd.concat([common.compared(name, tuple(METHODS), settings) for name in settings.names(NAMES)])
    shown = common.for_pictures(records)
    title = f"Figure 4: fidelity against sparsity; {settings.words}"
    written = [common.write_picture(settings, "figure-4", fidelity_grid(shown, "paper", title))]
    if fidelity_column("F+", "kept", 0.5) in records:
        kept = fidelity_grid(shown, "kept", f"{title}; the target itself is kept", columns=4)
        written.append(common.write_picture(settings, "figure-4-kept", kept))

    def beside(data, method):
        known = LARA_FIDELITY.get(data) if method == "lara-paper" else None
        return [f"{value:.2f}" for value in known] if known else ["-", "-"]

    header = ["data", "method", *(name for name, _ in common.COMPARISON.values()), "paper's LARA F+", "paper's LARA F-"]
    rows = common.grouped(records, common.COMPARISON, beside)
    notes = [common.NOTE_FIDELITY, ONLY_PLOTTED["figure-4"], common.sources(records), *common.left_out(records)]
    return written + common.write_table(
        settings, "figure-4", "Figure 4: fidelity of all methods", [(header, rows)], records, notes
    )
