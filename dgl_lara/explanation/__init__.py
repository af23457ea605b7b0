"""Results: `Explanations` of a batch of targets, `Explanation` of one, `Summary` of all."""

from dgl_lara.explanation.explanation import Explanation
from dgl_lara.explanation.explanations import Explanations
from dgl_lara.explanation.summary import Summary, save_summaries
from dgl_lara.explanation.table import COLUMNS, SOURCES, Labels, pairs_frame, to_user_ids

__all__ = [
    "COLUMNS", "SOURCES", "Explanation", "Explanations", "Labels", "Summary", "pairs_frame", "save_summaries",
    "to_user_ids",
]  # fmt: skip
