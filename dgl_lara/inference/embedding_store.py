"""Embeddings of all nodes and outputs of f on disk, so that the next process need not compute them again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

from torch import Tensor

from dgl_lara._util.atomic import exclusive_file, load_tensors, save_tensors
from dgl_lara._util.notices import notice
from dgl_lara._util.schema import Check, matrix, text, validate, validation_error
from dgl_lara.blackbox.identity import weights_hash
from dgl_lara.errors import LaraError
from dgl_lara.explainer.network import Embeddings, Explainer


class EmbeddingStore:
    """A file with embeddings of one graph, one model and one explainer. For any others it counts as empty.

    Args:
        path: The file.
        model: The model that is explained.
        data: Text that differs for every data set.
        sizes: Number of nodes and number of targets.
    """

    def __init__(self, path: Path, model: Callable, data: str, sizes: tuple[int, int]) -> None:
        self.path, self.model, self.data, self.sizes = path, model, data, sizes

    @cached_property
    def _content(self) -> dict[str, Any]:
        if not self.path.exists():
            return {}
        try:
            return validate(load_tensors(self.path, mmap=True), {"game": text, "key": text}, self.path, ("game", "key"))
        except LaraError as damage:
            notice("store.unreadable", problem=damage)
            return {}

    def _is_valid(self, fields: dict[str, Check]) -> bool:
        """Return whether tensors have their shapes. The kernels would read beyond the end of a shorter one."""
        wrong = validation_error(self._content, fields)
        if wrong:
            notice("store.damaged", path=self.path, problem=wrong)
            self._content.clear()
        return not wrong

    @cached_property
    def _game_key(self) -> str:
        return f"{weights_hash(self.model)} {self.data}"

    def _key(self, explainer: Explainer) -> str:
        return f"{weights_hash(explainer)} {self._game_key}"

    def outputs(self) -> Tensor | None:
        """Return the outputs of the model on the full graph, None if they are not stored."""
        if self._content.get("game") != self._game_key or not self._is_valid({"answer": matrix(self.sizes[1])}):
            return None
        return self._content["answer"]

    def embeddings(self, explainer: Explainer) -> Embeddings | None:
        """Return the embeddings of an explainer, None if they are not stored."""
        num_nodes, num_targets = self.sizes
        fields = {
            "source": matrix(*explainer.source_shape(num_nodes)),
            "target": matrix(*explainer.task.embedding_shape(num_nodes, num_targets, explainer.config.width)),
            "answer": matrix(num_targets),
        }
        if self._content.get("key") != self._key(explainer) or not self._is_valid(fields):
            return None
        return Embeddings(self._content["source"], self._content["target"])

    @contextmanager
    def exclusive(self) -> Iterator[bool]:
        """Let one process at a time compute. Yields whether another process did so meanwhile."""
        with exclusive_file(self.path, "waiting for another process, which embeds everything") as has_waited:
            if has_waited:
                vars(self).pop("_content", None)
            yield has_waited

    def keep_outputs(self, outputs: Tensor) -> None:
        """Store the outputs of the model on the full graph."""
        self._write({"game": self._game_key, "answer": outputs.cpu()})

    def keep(self, outputs: Tensor, explainer: Explainer, embeddings: Embeddings) -> None:
        """Store the outputs of the model and the embeddings of an explainer."""
        tensors = {"source": embeddings.source.cpu(), "target": embeddings.target.cpu(), "answer": outputs.cpu()}
        self._write({"key": self._key(explainer), "game": self._game_key, **tensors})

    def _write(self, content: dict[str, Any]) -> None:
        self._content.update(content)
        try:
            save_tensors(self._content, self.path)
        except OSError as error:
            notice("store.unwritable", path=self.path, problem=error.strerror)
