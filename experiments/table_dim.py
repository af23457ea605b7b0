"""Appendix: the dimension of the embeddings, 10 to 40."""

import common
from one_setting import vary
from paper_figures import TABLE_DIM

from dgl_lara.training.config import TrainingConfig

NAMES = ("ba-community",)
DIMENSIONS = (10, 20, 30, 40)
USUAL = TrainingConfig().dim


def run(settings):
    header = ["F+, the paper", "F-, the paper"]
    printed = {count: [common.number(value) for value in row] for count, row in TABLE_DIM.items()}
    title = "Appendix: dimension of the embeddings"
    return vary(settings, NAMES, "dim", DIMENSIONS, lambda game: USUAL, "table-dim", title, header, printed)
