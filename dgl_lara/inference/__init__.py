"""Explaining with a trained g: one target, many or all of them; storing, refining and verifying explanations."""

from dgl_lara.inference.adaptive import AT_LEAST, refine_until_confident
from dgl_lara.inference.embedder import Embedder
from dgl_lara.inference.embedding_store import EmbeddingStore
from dgl_lara.inference.fitted import Fitted
from dgl_lara.inference.fitting import agree_on, finish, hold_out, reporter, train_in_memory, training_config
from dgl_lara.inference.game_setup import create_game, place_model, user_model
from dgl_lara.inference.local import explain_nearby, game_nearby
from dgl_lara.inference.novelty import with_novelty
from dgl_lara.inference.refine import refine
from dgl_lara.inference.scorer import Scorer
from dgl_lara.inference.targets import parse_classes
from dgl_lara.inference.verification import DRAWS, verify

__all__ = [
    "AT_LEAST", "DRAWS", "Embedder", "EmbeddingStore", "Fitted", "Scorer", "agree_on", "create_game", "explain_nearby",
    "finish", "game_nearby", "hold_out", "parse_classes", "place_model", "refine", "refine_until_confident", "reporter",
    "train_in_memory", "training_config", "user_model", "verify", "with_novelty",
]  # fmt: skip
