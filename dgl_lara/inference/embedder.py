"""Embeddings of all nodes: computed once, or opened from a store."""

from __future__ import annotations

import threading
from typing import Any

import torch

from dgl_lara._util.progress import status
from dgl_lara.explainer.encoder import EncoderGraph
from dgl_lara.explainer.inputs import encoder_graph
from dgl_lara.explainer.network import Embeddings, Explainer
from dgl_lara.game.game import Game
from dgl_lara.inference.embedding_store import EmbeddingStore
from dgl_lara.inference.layerwise import embed_layerwise, full_pass_bytes
from dgl_lara.inference.scorer import embed_graph


class Embedder:
    """Computes the embeddings of one explainer on one graph, at most once.

    Args:
        store: File that keeps them. None means they are kept in memory only.
        compute_device: Device of the layer-wise pass, if the data stays in main memory.
    """

    def __init__(self, store: EmbeddingStore | None = None, compute_device: torch.device | None = None) -> None:
        self.store, self.compute_device = store, compute_device
        self._lock = threading.RLock()  # other threads wait for the pass of one thread
        self._embeddings: Embeddings | None = None
        self.graph: EncoderGraph | None = None  # kept from training until all nodes are embedded

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_lock"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, _lock=threading.RLock())

    def reset(self, graph: EncoderGraph | None = None) -> None:
        """Forget the embeddings of the explainer before.

        Args:
            graph: The full graph as the explainer sees it, if it is known already.
        """
        self._embeddings, self.graph = None, graph

    def has(self, explainer: Explainer, device: torch.device) -> bool:
        """Return whether the embeddings are in memory or in the store."""
        with self._lock:
            if self._embeddings is None and self.store is not None:
                self._embeddings = self._stored(explainer, device)
            return self._embeddings is not None

    def embed(self, game: Game, explainer: Explainer, inputs: str, workers: int = 0) -> Embeddings:
        """Return the embeddings of all nodes.

        Args:
            game: The game that is explained.
            explainer: The trained g.
            inputs: Name of the input features of the explainer.
            workers: Sampler processes of a layer-wise pass.
        """
        device = game.features.device
        with self._lock:
            if not self.has(explainer, device):
                if self.store is None:
                    self._embeddings = self._compute(game, explainer, inputs, workers)
                else:
                    self._embeddings = self._compute_exclusively(self.store, game, explainer, inputs, workers)
            assert self._embeddings is not None
            return self._embeddings

    def _stored(self, explainer: Explainer, device: torch.device) -> Embeddings | None:
        stored = self.store.embeddings(explainer) if self.store else None
        return stored and Embeddings(stored.source.to(device), stored.target.to(device))

    def _compute_exclusively(
        self, store: EmbeddingStore, game: Game, explainer: Explainer, inputs: str, workers: int
    ) -> Embeddings:
        """Compute and store the embeddings, unless another process does so at this moment."""
        with store.exclusive() as has_waited:
            embeddings = self._stored(explainer, game.features.device) if has_waited else None
            if embeddings is None:
                embeddings = self._compute(game, explainer, inputs, workers)
                store.keep(game.full_outputs, explainer, embeddings)
            return embeddings

    def _compute(self, game: Game, explainer: Explainer, inputs: str, workers: int) -> Embeddings:
        device = game.features.device
        needed = full_pass_bytes(explainer, game.graph.num_nodes())
        if not self.compute_device and not game.task.exceeds_memory(needed, game.budget.memory):
            with status("one pass of the explainer over everything"):
                graph, self.graph = self.graph or encoder_graph(game, inputs), None
                return embed_graph(explainer, graph)
        try:
            found = embed_layerwise(explainer.to(self.compute_device or device), game, inputs, workers=workers)
            return Embeddings(found.source.to(device), found.target.to(device))
        finally:
            explainer.to(device)
