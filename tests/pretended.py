"""A GPU that is none: tensors and graphs that say they are on "cuda" and are in main memory.

Inside `pretended_gpu()` every torch function, attribute and index is seen: whatever meets tensors of both places raises
as CUDA would, and what is made on "cuda", or from what is there, is there too. DGL's graphs carry their place along,
and what DGL gives back for one is where the graph is. So a tensor that was left behind is found without a GPU.
"""

import functools
import inspect
from collections.abc import Mapping
from contextlib import contextmanager
from unittest import mock

import dgl
import torch
from dgl.dataloading import neighbor_sampler
from dgl.view import HeteroEdgeDataView, HeteroNodeDataView
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_flatten, tree_map

CUDA, CPU = torch.device("cuda", 0), torch.device("cpu")
PLACE = "_pretended_place"
MIXED = "Expected all tensors to be on the same device, but found at least two devices, cuda:0 and cpu! ({})"


def place_of(thing):
    return getattr(thing, PLACE, CPU)


def put(thing, place):
    if isinstance(thing, torch.Tensor | dgl.DGLGraph) and place.type == "cuda":
        object.__setattr__(thing, PLACE, CUDA)
    return thing


def _parts(*things):
    return [part for part in tree_flatten(things)[0] if isinstance(part, torch.Tensor | dgl.DGLGraph)]


def _common_place(things, name):
    """Where they all are; numbers without dimensions may be anywhere, as in torch."""
    parts = _parts(things)
    places = {place_of(p).type for p in parts if not (isinstance(p, torch.Tensor) and p.dim() == 0)}
    if len(places) > 1:
        raise RuntimeError(MIXED.format(name))
    return CUDA if any(place_of(p).type == "cuda" for p in parts) else CPU


def _wanted(device):
    """A device argument as a device; None where none was meant."""
    if isinstance(device, str | int | torch.device) and not isinstance(device, bool):
        return torch.device(device) if not isinstance(device, int) else CUDA
    return None


class _Watch(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        name = getattr(func, "__name__", str(func))
        with torch._C.DisableTorchFunction():
            return self._answer(func, name, args, kwargs)

    def _answer(self, func, name, args, kwargs):
        owner = str(getattr(func, "__self__", ""))
        if name == "__get__":
            if "'device'" in owner:
                return place_of(args[0])
            if "'is_cuda'" in owner:
                return place_of(args[0]).type == "cuda"
            return put(func(*args, **kwargs), place_of(args[0]))
        if name == "__set__":
            if "'data'" in owner and place_of(args[1]).type == "cuda":
                put(args[0], CUDA)
            return func(*args, **kwargs)
        if name in ("numpy", "__array__") and place_of(args[0]).type == "cuda":
            raise TypeError("can't convert cuda:0 device type tensor to numpy. Use Tensor.cpu() first.")
        if name in ("to", "cpu", "cuda"):
            return self._moved(func, name, args, kwargs)
        if name in ("copy_", "_has_compatible_shallow_copy_type"):  # may meet both
            return func(*args, **kwargs)
        if name in ("set_", "__deepcopy__", "detach", "clone", "requires_grad_"):
            return tree_map(lambda part: put(part, place_of(args[0])), func(*args, **kwargs))
        pinned = kwargs.pop("pin_memory", False) and None
        del pinned
        wanted = _wanted(kwargs["device"]) if "device" in kwargs else None
        if wanted is not None:
            kwargs["device"] = CPU
        place = _common_place([args, {k: v for k, v in kwargs.items() if k != "out"}], name)
        if kwargs.get("generator") is not None and (wanted or place).type == "cuda":
            raise RuntimeError("Expected a 'cuda' device type for generator but found 'cpu'")
        result = func(*args, **kwargs)
        if wanted is None and name in FACTORIES:
            wanted = CPU
        return tree_map(lambda part: put(part, wanted or place), result)

    def _moved(self, func, name, args, kwargs):
        given = [CUDA] if name == "cuda" else [CPU] if name == "cpu" else [*args[1:], kwargs.get("device")]
        devices = [_wanted(one) for one in given if isinstance(one, str | torch.device)]
        others = [place_of(one) for one in given if isinstance(one, torch.Tensor)]
        place = (devices + others + [place_of(args[0])])[0]
        types = [one for one in [*args[1:], kwargs.get("dtype")] if isinstance(one, torch.dtype)]
        types += [one.dtype for one in given if isinstance(one, torch.Tensor)]
        same = place.type == place_of(args[0]).type and (not types or types[0] == args[0].dtype)
        if same and not kwargs.get("copy"):
            return args[0]
        result = args[0].to(types[0]) if types else args[0]
        return put(result.clone() if result is args[0] else result, place)


def _indexing(name):
    """`tensor[index]`, which the mode of torch 2.2 does not see."""
    func = getattr(torch.Tensor, name)

    def indexed(*args):
        with torch._C.DisableTorchFunction():
            return _indexed(func, name, args)

    return indexed


def _indexed(func, name, args):
    own, index = place_of(args[0]), _parts(args[1])
    if own.type == "cpu" and any(place_of(part).type == "cuda" and part.dim() for part in index):
        raise RuntimeError("indices should be either on cpu or on the same device as the indexed tensor (cpu)")
    if name == "__setitem__" and isinstance(args[2], torch.Tensor) and args[2].dim():
        _common_place([args[0], args[2]], name)
    return put(func(*args), own)


FACTORIES = {
    "tensor", "zeros", "ones", "empty", "full", "arange", "linspace", "logspace", "rand", "randn", "randperm", "eye",
    "from_numpy", "as_tensor", "randint",
}  # fmt: skip
LEFT_ALONE = ("to", "clone", "local_scope", "local_var")
GRAPH_FUNCTIONS = {
    dgl: ["graph", "node_subgraph", "khop_in_subgraph", "add_self_loop", "create_block", "batch", "in_subgraph",
          "to_simple", "reverse", "add_reverse_edges", "remove_self_loop"],
    neighbor_sampler: ["to_block"],
    dgl.ops: [name for name in dir(dgl.ops) if inspect.isfunction(getattr(dgl.ops, name))],
}  # fmt: skip


def _along(function, name):
    """The same function, whose results are where its arguments are."""

    @functools.wraps(function)
    def call(*args, **kwargs):
        place = _common_place([args, kwargs], name)
        return _put_all(function(*args, **kwargs), place)

    return call


def _put_all(result, place):
    if isinstance(result, tuple | list):
        for part in result:
            _put_all(part, place)
    elif isinstance(result, Mapping):  # DGL's frames too
        for part in result.values():
            _put_all(part, place)
    else:
        put(result, place)
    return result


def _moved_graph(graph, device, **_):
    """A copy elsewhere; what it holds is read where it is (see `_seen_from`)."""
    if device is None or torch.device(device).type == place_of(graph).type:
        return graph
    other = object.__new__(type(graph))  # a block stays a block
    other.__dict__.update(vars(graph))
    for frames in ("_node_frames", "_edge_frames"):
        setattr(other, frames, [frame.clone() for frame in getattr(graph, frames)])
    other.__dict__.pop(PLACE, None)
    return put(other, torch.device(device))


def _copied_parameter(parameter, memo, copy=torch.nn.Parameter.__deepcopy__):
    return put(copy(parameter, memo), place_of(parameter))


def _seen_from(read):
    """`graph.ndata[name]` is where the graph is."""
    return lambda view, key: _put_all(read(view, key), place_of(view._graph))


@contextmanager
def pretended_gpu(memory=2**33):
    """ "cuda" can be named inside; see the top of the file."""
    methods = {name: method for name, method in vars(dgl.DGLGraph).items() if inspect.isfunction(method)}
    kinds = {name: methods[name] for name in methods if name == "__getitem__" or name[:2] != "__"}
    with (
        mock.patch.object(dgl.DGLGraph, "device", property(place_of)),
        mock.patch.object(dgl.DGLGraph, "to", _moved_graph),
        mock.patch.object(torch.Tensor, "__getitem__", _indexing("__getitem__")),
        mock.patch.object(torch.Tensor, "__setitem__", _indexing("__setitem__")),
        mock.patch.object(torch.nn.Parameter, "__deepcopy__", _copied_parameter),
        mock.patch("torch.cuda.synchronize", lambda *_: None),
        mock.patch("torch.cuda.set_device", lambda *_: None),
        mock.patch("torch.cuda.mem_get_info", lambda *_: (memory, memory)),
    ):
        undo = []
        try:
            for name in kinds.keys() - set(LEFT_ALONE):
                method = kinds[name]
                undo.append((dgl.DGLGraph, name, method))
                setattr(dgl.DGLGraph, name, _along(method, f"DGLGraph.{name}"))
            for module, names in GRAPH_FUNCTIONS.items():
                for name in names:
                    if hasattr(module, name):
                        undo.append((module, name, getattr(module, name)))
                        setattr(module, name, _along(getattr(module, name), f"dgl.{name}"))
            for view in (HeteroNodeDataView, HeteroEdgeDataView):
                undo.append((view, "__getitem__", view.__getitem__))
                view.__getitem__ = _seen_from(view.__getitem__)
            with _Watch():
                yield
        finally:
            for holder, name, old in undo:
                setattr(holder, name, old)
