"""Figure 1: Fidelity+ and throughput of the methods, as radars, from the benchmark of Figure 4."""

import common
import pandas as pd
from paper_figures import LARA_FIDELITY, ONLY_PLOTTED, TABLE_1
from plots import labels_of, radars

from dgl_lara.evaluation.benchmark import METHODS
from dgl_lara.metrics.fidelity import fidelity_column

NAMES = common.SIX
PLUS = fidelity_column("F+", "paper")
COMPARED = ("gnn-explainer", "pg-explainer", "graphsvx", "orphicx", "lara-paper", "lara")  # as the paper's, and ours


def run(settings):
    records = pd.concat([common.compared(name, tuple(METHODS), settings) for name in settings.names(NAMES)])
    small = records[records["method"].isin(COMPARED)]
    plus, rate = (
        small.pivot_table(values=column, index="method", columns="data", sort=False).reindex(
            index=[method for method in COMPARED if method in set(small["method"])], columns=settings.names(NAMES)
        )
        for column in (PLUS, "targets/s")
    )
    labels = labels_of(records)
    where = dict(zip(records["data"], records["source"], strict=True))
    called = {name: common.shown_as(name, where[name]) for name in plus.columns}
    panels = [
        ("Fidelity+, as a share of the best (rim: best value)", plus.rename(columns=called), False),
        (
            "targets a second, logarithmic: a ring is about a factor of 18 (rim: best value)",
            rate.rename(columns=called),
            True,
        ),
    ]
    title = f"Figure 1: Fidelity+ and throughput; {settings.words}"
    written = [common.write_picture(settings, "figure-1", radars(panels, labels, title))]

    rows = []
    for data in plus.columns:
        for method in plus.index:
            paper_rate = TABLE_1.get(method.removesuffix("-paper"), {}).get(data)
            paper_plus = LARA_FIDELITY.get(data) if method == "lara-paper" else None
            ours = [common.figure([table.loc[method, data]]) for table in (plus, rate)]
            theirs = [common.number(known[0]) if known else "-" for known in (paper_plus, paper_rate)]
            rows.append([data, labels[method], ours[0], theirs[0], ours[1], theirs[1]])
    header = ["data", "method", "F+", "F+, the paper", "targets/s", "targets/s, the paper (GPU)"]
    notes = [ONLY_PLOTTED["figure-1"], common.sources(records), *common.left_out(small)]
    return written + common.write_table(
        settings, "figure-1", "Figure 1: Fidelity+ and throughput", [(header, rows)],
        small[["data", "method", "seed", PLUS, "targets/s"]], notes,
    )  # fmt: skip
