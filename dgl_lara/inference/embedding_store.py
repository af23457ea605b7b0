"""p and t of everything and f's answer on disk: the second explanation costs next to nothing.

What is stored belongs to one graph, one model and one explainer; for any other it counts as not there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

from torch import Tensor

from dgl_lara._util.atomic import exclusive_file, load_tensors, save_tensors
from dgl_lara._util.progress import log_info
from dgl_lara._util.schema import Check, matrix, text, validate, validation_error
from dgl_lara.blackbox.identity import weights_hash
from dgl_lara.errors import LaraError
from dgl_lara.explainer.network import Explainer
from dgl_lara.inference.scorer import Embeddings


class EmbeddingStore:
    """`path`: the file. `model`: what is explained. `data`: a text that tells the data set from any other. `sizes`: how
    many nodes and how many targets it has."""

    def __init__(self, path: Path, model: Callable, data: str, sizes: tuple[int, int]) -> None:
        self.path, self.model, self.data, self.sizes = path, model, data, sizes

    @cached_property
    def _content(self) -> dict[str, Any]:
        """Empty where there is no file, or none that can be read."""
        if not self.path.exists():
            return {}
        try:
            return validate(load_tensors(self.path, mmap=True), {"game": text, "key": text}, self.path, ("game", "key"))
        except LaraError as damage:
            log_info(f"{damage} It is computed anew.")
            return {}

    def _stored(self, fields: dict[str, Check]) -> bool:
        """Whether these parts are there as they must be: the kernels would read beyond the end of a shorter one."""
        wrong = validation_error(self._content, fields)
        if wrong:
            log_info(f"{self.path} is damaged ({wrong}). It is computed anew.")
            self._content.clear()
        return not wrong

    @cached_property
    def _game_key(self) -> str:
        return f"{weights_hash(self.model)} {self.data}"

    def _key(self, explainer: Explainer) -> str:
        return f"{weights_hash(explainer)} {self._game_key}"

    def answer(self) -> Tensor | None:
        """What f says of the untouched graph."""
        if self._content.get("game") != self._game_key or not self._stored({"answer": matrix(self.sizes[1])}):
            return None
        return self._content["answer"]

    def embeddings(self, explainer: Explainer) -> Embeddings | None:
        nodes, targets = self.sizes
        fields = {
            "source": matrix(*explainer.source_shape(nodes)),
            "target": matrix(*explainer.task.embedding_shape(nodes, targets, explainer.config.width)),
            "answer": matrix(targets),
        }
        if self._content.get("key") != self._key(explainer) or not self._stored(fields):
            return None
        return Embeddings(self._content["source"], self._content["target"])

    @contextmanager
    def in_turn(self) -> Iterator[None]:
        """Among processes that need what is not kept yet one makes it, and those who waited find it."""
        with exclusive_file(self.path, "waiting for another process, which embeds everything") as waited:
            if waited:
                vars(self).pop("_content", None)
            yield

    def keep_answer(self, answer: Tensor) -> None:
        self._write({"game": self._game_key, "answer": answer.cpu()})

    def keep(self, answer: Tensor, explainer: Explainer, embeddings: Embeddings) -> None:
        parts = {"source": embeddings.source.cpu(), "target": embeddings.target.cpu(), "answer": answer.cpu()}
        self._write({"key": self._key(explainer), "game": self._game_key, **parts})

    def _write(self, parts: dict[str, Any]) -> None:
        self._content.update(parts)
        try:
            save_tensors(self._content, self.path)
        except OSError as error:
            log_info(f"{self.path} cannot be written ({error.strerror}); going on without it.")
