"""What comes out: `Explanations` of a batch of targets, `Explanation` of one, `Summary` of all."""

from dgl_lara.explanation.batch import Explanations
from dgl_lara.explanation.score_table import COLUMNS, SOURCES, Labels, in_own_numbers, pairs_frame
from dgl_lara.explanation.single import Explanation
from dgl_lara.explanation.summary import Summary, save_summaries

__all__ = [
    "COLUMNS", "SOURCES", "Explanation", "Explanations", "Labels", "Summary", "in_own_numbers", "pairs_frame",
    "save_summaries",
]  # fmt: skip
