"""Figure 5: LARA trained on removal-based attribution and on mutual information."""

import common
import pandas as pd
from paper_figures import ONLY_PLOTTED, TABLE_2
from plots import fidelity_grid

from dgl_lara.evaluation.benchmark import lara_with
from dgl_lara.training.config import MINI_BATCHES

NAMES = ("ogbn-arxiv",)
STEPS = {True: 150, False: 3000}  # quick, full


def run(settings):
    steps = settings.steps or STEPS[settings.quick]
    batch = MINI_BATCHES["batch_size"]  # so that the running means of Eq. 10 of one step fit into memory
    same = {**MINI_BATCHES, "steps": steps, "targets": batch * steps}  # no more targets than one epoch needs
    variants = {  # each pair differs in what is learned, in nothing else
        "paper-mi": lara_with("paper's form, learns MI", "paper", objective="mutual-information"),
        "removal": lara_with("our form, learns removal", objective="running-mean", **same),
        "mi": lara_with("our form, learns MI", objective="mutual-information", **same),
    }
    methods = ("random", "lara-paper", *variants)
    records = pd.concat([common.compared(name, methods, settings, variants) for name in settings.names(NAMES)])
    relabel = {"lara, paper's form": "paper's form, learns removal"}
    records["label"] = records["label"].replace(relabel)
    title = f"Figure 5: what LARA learns; {settings.words}"
    written = [common.write_picture(settings, "figure-5", fidelity_grid(common.for_pictures(records), "paper", title))]

    def beside(data, method):
        known = TABLE_2["dual"].get(data) if method == "lara-paper" else None
        return [f"{value:.2f}" for value in known] if known else ["-", "-"]

    header = ["data", "method", *(name for name, _ in common.FIDELITY.values()), "F+, the paper", "F-, the paper"]
    notes = [
        common.NOTE_FIDELITY,
        f"Our form: both with Eq. 10, {steps} steps of {batch} targets. {ONLY_PLOTTED['figure-5']}",
        common.sources(records),
        *common.left_out(records),
    ]
    rows = common.grouped(records, common.FIDELITY, beside)
    return written + common.write_table(
        settings, "figure-5", "Figure 5: learning removal against learning mutual information", [(header, rows)],
        records, notes,
    )  # fmt: skip
