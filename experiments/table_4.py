"""Table 4: aggregation layers of the explainer, 0 (an MLP) to 4."""

import common
from one_setting import vary
from paper_figures import TABLE_4

NAMES = ("ba-community",)
LAYERS = (0, 1, 2, 3, 4)


def run(settings):
    header = ["F+, the paper", "F-, the paper", "targets/s, the paper"]
    printed = {count: [common.number(value) for value in row] for count, row in TABLE_4.items()}
    title = "Table 4: layers of the explainer"
    return vary(settings, NAMES, "layers", LAYERS, lambda game: game.hops, "table-4", title, header, printed)
