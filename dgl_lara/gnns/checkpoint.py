"""GNNs on disk: checkpoints (.pt), and plain arrays (.npz) such as the weights of the paper's authors."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import torch

from dgl_lara._util.atomic import load_tensors, save_tensors, short_hash
from dgl_lara._util.schema import table, tensors, text, validate
from dgl_lara._util.settings import from_dict
from dgl_lara.blackbox.identity import load_exactly
from dgl_lara.datasets.cache import read_arrays
from dgl_lara.datasets.dataset import Dataset
from dgl_lara.errors import InputError, LaraError
from dgl_lara.gnns.base import ShippedModel
from dgl_lara.gnns.models import GNN, ModelConfig
from dgl_lara.gnns.registry import FAMILIES

FORMAT = "dgl-lara gnn 1"


def save_gnn(model: ShippedModel, path: Path, details: dict) -> None:
    """Store a model in one file.

    Args:
        model: Its weights and settings are stored.
        path: The file.
        details: Plain values: data set, seed, accuracy.
    """
    shape = {"config": asdict(model.config), "details": details}
    content = {"format": FORMAT, **shape, "weights": model.state_dict(), "seal": short_hash(shape)}
    try:
        save_tensors(content, path)
    except OSError as error:
        raise LaraError("gnn.not_stored", path=path, cause=error.strerror) from error


def load_gnn(path: Path, dataset: Dataset) -> tuple[ShippedModel, dict]:
    """Return the model in a file and its details. Raise InputError if it does not fit the data set."""
    if not path.is_file():
        raise InputError("gnn.missing", path=path, dataset=dataset.name)
    model: ShippedModel
    model, details = _load_arrays(path, dataset) if path.suffix == ".npz" else _load_checkpoint(path)
    for field, value in model.config.fields_of(dataset).items():
        got = getattr(model.config, field)
        if got != value:
            raise InputError("gnn.other_data", path=path, dataset=dataset.name, field=field, expected=value, got=got)
    return model.eval(), details


def _load_checkpoint(path: Path) -> tuple[ShippedModel, dict]:
    content = load_tensors(path)
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        got = content.get("format") if isinstance(content, dict) else type(content).__name__
        raise InputError("gnn.format", path=path, expected=FORMAT, got=got)
    validate(content, {"config": table, "details": table, "weights": tensors, "seal": text}, path)
    try:
        sealed = short_hash({"config": content["config"], "details": content["details"]})
    except (TypeError, ValueError):  # values that were never stored
        sealed = ""
    if content["seal"] != sealed:
        raise LaraError("gnn.changed", path=path)
    architecture, weights = content["config"].get("architecture"), content["weights"]
    config_class, model_class = FAMILIES.get(architecture, (ModelConfig, GNN))
    config = from_dict(config_class, content["config"], path)
    # checked before anything is built, because a shape that does not fit its weights could be of any size
    if sum(tensor.numel() for tensor in weights.values()) < config.min_weights:
        raise InputError("gnn.weights", path=path, cause="there are too few weights")
    model = model_class(config)
    try:
        load_exactly(model, weights)
    except RuntimeError as error:
        raise InputError("gnn.weights", path=path, cause=_last_line(error)) from error
    return model, content["details"]


def _last_line(error: Exception) -> str:
    return str(error).splitlines()[-1].strip()


def _load_arrays(path: Path, dataset: Dataset) -> tuple[GNN, dict]:
    """Load conv1..conv3.weight (in, out), .bias and lin.weight (out, in), .bias: three GCN layers and a linear head."""
    arrays = read_arrays(path)
    names = [f"{part}.{name}" for part in ("conv1", "conv2", "conv3", "lin") for name in ("weight", "bias")]
    missing = [name for name in names if name not in arrays]
    if missing:
        raise InputError("gnn.missing_arrays", path=path, missing=", ".join(missing))
    for name in names:
        dims, array = 2 if name.endswith("weight") else 1, arrays[name]
        if array.ndim != dims or array.dtype.kind != "f":
            raise InputError("gnn.array", path=path, name=name, dims=dims, got=f"{array.dtype} {array.shape}")
    in_dim, hidden = arrays["conv1.weight"].shape
    num_classes, width = arrays["lin.weight"].shape
    task = "graph" if width == 2 * hidden else "node"
    shape = {"in_dim": in_dim, "num_classes": num_classes, "hidden": hidden}
    model = GNN(ModelConfig("gcn", task, **shape, readout="max-mean", divide_by_row_sum=task == "node"))
    weights = {f"layers.{i}.{name}": arrays[f"conv{i + 1}.{name}"] for i in range(3) for name in ("weight", "bias")}
    weights |= {f"head.{name}": arrays[f"lin.{name}"] for name in ("weight", "bias")}
    try:
        model.load_state_dict({name: torch.as_tensor(array) for name, array in weights.items()})
    except RuntimeError as error:
        raise InputError("gnn.weights", path=path, cause=_last_line(error)) from error
    return model, {"dataset": dataset.name, "weights": path.name}
