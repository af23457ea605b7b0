"""LARA as an algorithm for `torch_geometric.explain.Explainer` (docs/pyg.md)."""

from __future__ import annotations

try:
    import torch_geometric  # noqa: F401
except ModuleNotFoundError as error:
    raise ImportError("dgl_lara.pyg needs PyTorch Geometric: pip install 'dgl-lara[pyg]'.") from error

from dgl_lara.pyg.lara_explainer import LARAExplainer, explain_each

__all__ = ["LARAExplainer", "explain_each"]
