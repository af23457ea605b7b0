"""p and t of everything and f's answer on disk: the second explanation costs next to nothing.

What is stored belongs to one graph, one model and one explainer; for any other it counts as not there.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any

from torch import Tensor

from dgl_lara.errors import LaraError
from dgl_lara.explainer.network import Explainer
from dgl_lara.inference.scores import Embeddings
from dgl_lara.model.weights import weights_hash
from dgl_lara.utils.files import load_tensors, save_tensors
from dgl_lara.utils.progress import say


class EmbeddingStore:
    """`path`: the file. `model`: what is explained. `data`: a text that tells the data set from any other."""

    def __init__(self, path: Path, model: Callable, data: str) -> None:
        self.path, self.model, self.data = path, model, data

    @cached_property
    def _content(self) -> dict[str, Any]:
        """Empty where there is no file, or none that can be read."""
        try:
            return load_tensors(self.path, mmap=True) if self.path.exists() else {}
        except LaraError as damage:
            say(f"{damage} It is computed anew.")
            return {}

    @cached_property
    def _game_key(self) -> str:
        return f"{weights_hash(self.model)} {self.data}"

    def _key(self, explainer: Explainer) -> str:
        return f"{weights_hash(explainer)} {self._game_key}"

    def answer(self) -> Tensor | None:
        """What f says of the untouched graph."""
        return self._content["answer"] if self._content.get("game") == self._game_key else None

    def embeddings(self, explainer: Explainer) -> Embeddings | None:
        if self._content.get("key") != self._key(explainer):
            return None
        return Embeddings(self._content["source"], self._content["target"])

    def keep_answer(self, answer: Tensor) -> None:
        self._write({"game": self._game_key, "answer": answer.cpu()})

    def keep(self, answer: Tensor, explainer: Explainer, embeddings: Embeddings) -> None:
        parts = {"source": embeddings.source.cpu(), "target": embeddings.target.cpu(), "answer": answer.cpu()}
        self._write({"key": self._key(explainer), "game": self._game_key, **parts})

    def _write(self, parts: dict[str, Any]) -> None:
        self._content.update(parts)
        save_tensors(self._content, self.path)
