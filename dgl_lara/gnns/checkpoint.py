"""Target models on disk: our own checkpoints (.pt), and plain arrays (.npz) as the paper's authors' weights."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import torch

from dgl_lara._util.atomic import load_tensors, save_tensors, short_hash
from dgl_lara._util.schema import table, tensors, validate, word
from dgl_lara.blackbox.identity import load_exactly
from dgl_lara.datasets.cache import read_arrays
from dgl_lara.datasets.dataset import Dataset
from dgl_lara.errors import InputError, LaraError
from dgl_lara.gnns.base import ShippedModel
from dgl_lara.gnns.models import GNN, ModelConfig
from dgl_lara.gnns.registry import family_of

FORMAT = "dgl-lara target 1"


def save_gnn(model: ShippedModel, path: Path, details: dict) -> None:
    """Weights, configuration and `details` (plain values: data set, seed, accuracy) in one file."""
    content = {
        "format": FORMAT,
        "config": asdict(model.config),
        "details": details,
        "weights": model.state_dict(),
        "seal": short_hash({"config": asdict(model.config), "details": details}),
    }
    try:
        save_tensors(content, path)
    except OSError as error:
        raise LaraError(f"the target model cannot be stored in {path} ({error.strerror}).") from error


def load_gnn(path: Path, dataset: Dataset) -> tuple[ShippedModel, dict]:
    """The model in `path` and its details, refused where it does not fit the data set."""
    if not path.is_file():
        raise InputError(
            f"the target model '{path}' does not exist; train one with: dgl-lara target --dataset {dataset.name}"
        )
    model: ShippedModel
    model, details = _load_arrays(path, dataset) if path.suffix == ".npz" else _load_checkpoint(path)
    for field, value in model.config.of_dataset(dataset).items():
        got = getattr(model.config, field)
        if got != value:
            raise InputError(f"{path} does not fit {dataset.name}: its {field} is {got}, the data set's is {value}.")
    return model.eval(), details


def _load_checkpoint(path: Path) -> tuple[ShippedModel, dict]:
    content = load_tensors(path)
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        found = content.get("format") if isinstance(content, dict) else type(content).__name__
        raise InputError(f"{path} is not a target model of dgl-lara: its format must be '{FORMAT}' (got '{found}').")
    validate(content, {"config": table, "details": table, "weights": tensors}, path)
    if "seal" in content:  # not in files of 0.1.0
        validate(content, {"seal": word(_sealed(content))}, path)
    try:
        shape, build = family_of(content["config"]["architecture"])
        config, weights = shape(**content["config"]), content["weights"]
        # before anything is built: a shape that does not fit its weights could be of any size
        if sum(part.numel() for part in weights.values()) < config.fewest_weights:
            raise ValueError("the weights are too few for that shape")
        model = build(config)
        load_exactly(model, weights)
        return model, content["details"]
    except (KeyError, TypeError, ValueError, RuntimeError, AttributeError) as error:
        raise InputError(
            f"{path}: its configuration and weights do not fit together ({str(error).splitlines()[-1].strip()})."
        ) from error


def _sealed(content: dict) -> str:
    """What tells that shape and details are those that were stored."""
    try:
        return short_hash({"config": content["config"], "details": content["details"]})
    except (TypeError, ValueError):
        return "nothing that was stored"


def _load_arrays(path: Path, dataset: Dataset) -> tuple[GNN, dict]:
    """conv1..conv3.weight (in, out), .bias; lin.weight (out, in), .bias: three GCN layers and a linear head."""
    arrays = read_arrays(path)
    names = [f"{part}.{kind}" for part in ("conv1", "conv2", "conv3", "lin") for kind in ("weight", "bias")]
    missing = [name for name in names if name not in arrays]
    if missing:
        raise InputError(
            f"{path} lacks the array(s) {', '.join(missing)}; expected three GCN layers and a linear head."
        )
    for name in names:
        dims = 2 if name.endswith("weight") else 1
        if arrays[name].ndim != dims or arrays[name].dtype.kind != "f":
            raise InputError(
                f"{path}: {name} must have {dims} dimension(s) of floats (got {arrays[name].dtype} "
                f"{arrays[name].shape})."
            )
    in_dim, hidden = arrays["conv1.weight"].shape
    num_classes, width = arrays["lin.weight"].shape
    task = "graph" if width == 2 * hidden else "node"
    config = ModelConfig(
        architecture="gcn",
        task=task,
        in_dim=in_dim,
        num_classes=num_classes,
        hidden=hidden,
        readout="max-mean",
        divide_by_row_sum=task == "node",
    )
    model = GNN(config)
    weights = {f"layers.{i}.{kind}": arrays[f"conv{i + 1}.{kind}"] for i in range(3) for kind in ("weight", "bias")}
    weights |= {f"head.{kind}": arrays[f"lin.{kind}"] for kind in ("weight", "bias")}
    try:
        model.load_state_dict({name: torch.as_tensor(array) for name, array in weights.items()})
    except RuntimeError as error:
        raise InputError(f"{path}: the arrays do not fit together ({str(error).splitlines()[-1].strip()}).") from error
    return model, {"dataset": dataset.name, "weights": path.name}
