"""Texts about models, their adapters and their inputs."""

ADAPTERS = "dgl_lara.blackbox.adapters"

MESSAGES = {
    "adapter.head": "head must be a number or 'mean' (got '{got}').",
    "adapter.head_range": "head must be a number from 0 to {most} (got {got}).",
    "adapter.head_shape": "The outputs of a model with heads must be (rows, heads, classes) (got {got}).",
    "adapter.no_edge_data": "The model takes the edge data '{column}', but the edges carry {carried}. "
    "Store it as graph.edata['{column}'].",
    "adapter.no_element": "The model's output has no element {which!r} (it has {got}).",
    "adapter.score": "score must be 'dot' or a function of the embeddings of both ends (got {got!r}).",
    "adapter.types": "types must name the node types of both ends, two of {types} (got {got}). "
    "For example: link_predictor(encoder, types=('user', 'item')).",
    "edge_data.complex": "The edge data '{name}' must hold real numbers (got {got}).",
    "edge_data.not_finite": "The edge data '{name}' must be finite (some are NaN or infinity). Fill or remove them.",
    "features.device": "The graph is on {graph} and the features are on {got}. Move one of them.",
    "features.missing_type": "The features of the node type '{type}' are missing. A type without features of its own "
    "can have a column of ones, torch.ones({count}, 1).",
    "features.not_a_tensor": "The features of '{type}' must be a tensor with one row per node (got {got}).",
    "features.not_by_type": "The features of a heterogeneous graph must be given by type, {{'{example}': x, ...}} "
    "(got {got}).",
    "features.rows": "features must have one row per node, {count} (got {got}).",
    "features.rows_by_type": "The features of '{type}' must have one row per node, ({count}, columns) (got {got}).",
    "features.unknown_type": "features must be of the node types {types} (got '{got}').",
    "model.changes_inputs": "The model changes the {changed} in place, so its outputs are not reproducible. "
    "Let it work on a copy, {copy}.",
    "model.complex_output": "The model must return real numbers (got {got}).",
    "model.device": "The model is on {got} and the features are on {features}. Move one of them, "
    "e.g. model.to('{features}').",
    "model.failed": "The model failed on {nodes} nodes, {edges} edges and features {features} ({cause}).",
    "model.feature_columns": "The features must have {expected} columns, as the model expects (got {got}).",
    "model.feature_dtype": "The model fails on features of type {got} ({cause}). Use features.float().",
    "model.features_not_finite": "The model returned NaN or infinity on {nodes} nodes and {edges} edges, and the "
    "features themselves hold such values. Fill or remove them.",
    "model.heads": "The model must return one row of logits per {target}, ({rows}, classes) (got {got}). "
    f"Choose a head with {ADAPTERS}.head(model, NUMBER), or 'mean'.",
    "model.missing_key": "The model reads {key}, which is not there. Its inputs are the features and the graph, whose "
    f"edges carry {{carried}}. If it reads features from graph.ndata, use {ADAPTERS}.features_in_graph(model).",
    "model.mixed_devices": "The model holds tensors on another device than the features, which are on {features}. "
    "Create tensors on graph.device, or use --device cpu.",
    "model.not_deterministic": "The model returns different outputs for the same input (by up to {difference:.3g}). "
    "If dropout is the cause, pass the torch module itself, or call .eval() on it first.",
    "model.not_finite": "The model returned NaN or infinity on {nodes} nodes and {edges} edges. "
    "Such a prediction cannot be explained.",
    "model.numpy_output": "The model must return a torch tensor (got a NumPy array). Use torch.from_numpy.",
    "model.output_device": "The model must return its output on {expected}, the device of the features (got {got}).",
    "model.output_type": "The model must return a tensor of logits (got {got}). "
    f"Choose a part of its output with {ADAPTERS}.element(model, WHICH).",
    "model.output_types": "The model must return logits of the type '{expected}' (got those of {got}).",
    "model.rows": "The model must return one row of logits per {target}, ({rows}, classes) (got {got}).",
    "model.sparse_output": "The model must return a dense tensor (got {got}). Return output.to_dense().",
    "model.unwrapped_pyg": "The model is from PyTorch Geometric, which takes (x, edge_index) ({cause}). Wrap it: "
    f"LARA(*{ADAPTERS}.from_pyg(model, data)), or return {ADAPTERS}.pyg(model) from the function of --model.",
    "model.zero_in_degree": "The model does not accept nodes without incoming edges, which removal creates. Build its "
    "layers with allow_zero_in_degree=True, or add self-loops (dgl.add_self_loop).",
    "pyg.cached_layer": "The layer '{layer}' must have cached=False, because removal changes the graph. "
    "Build the model again and load its weights.",
    "pyg.data_type": "data must be PyG data (got a {got}). The order is from_pyg(model, data).",
    "pyg.edge_index_range": "edge_index must hold nodes 0..{most}, the rows of x (got {got}).",
    "pyg.edge_index_shape": "edge_index must have two rows, sources and targets (got shape {got}).",
    "pyg.missing": "The PyG data must have {name} (it has {got}).",
    "pyg.missing_edge_index": "The PyG data must have edge_index for every relation (none for {relation}).",
    "pyg.missing_x": "The PyG data must have x for every node type (none for '{type}'). Use a column of ones, "
    "data['{type}'].x = torch.ones({count}, 1), or the ids that the model embeds.",
    "pyg.reversed_layer": "The layer '{layer}' must have flow='source_to_target'. Build it so and reverse the edges "
    "(edge_index.flip(0)).",
    "target_type.missing": "A heterogeneous graph needs target_type, the type of the nodes to explain: {types}.",
    "target_type.unknown": "target_type must be one of {types} (got '{got}').",
    "user_model.arguments": "{function} in {file} must take no arguments or (in_dim, num_classes) (it takes {got}).",
    "user_model.failed": "{function} in {file} failed ({cause}).",
    "user_model.file_gone": "The model's code, {file}, no longer exists. Restore it to use this model.",
    "user_model.file_name": "--model must name a module without .py: {expected} (got '{got}').",
    "user_model.import_failed": "{file} cannot be imported ({cause}).",
    "user_model.name": "--model must name a module and a function, e.g. my_module:build_model (got '{got}').",
    "user_model.no_classes": "{function} in {file} takes num_classes, but this graph has no labels. "
    "Let it take no arguments.",
    "user_model.no_function": "{file} has no function '{function}'. --model must name one that exists.",
    "user_model.no_module": "There is no module '{got}' in {folder} or on Python's path. Check --model.",
    "user_model.not_callable": "{function} in {file} must return a callable model (got {got!r}).",
    "weights.missing": "The file of weights '{path}' does not exist.",
    "weights.names": "{path} does not fit the model (missing: {missing}, unexpected: {unexpected}).",
    "weights.no_module": "{path} cannot be loaded, because the model is a {got} and not a torch module.",
    "weights.not_a_state_dict": "{path} must hold a state dict, names with tensors (got {got}). "
    "Store one with torch.save(model.state_dict(), FILE).",
    "weights.shape": "{path} does not fit the model: {name} must be {expected} (got {got}).",
    "weights.unreadable": "{path} is not a file of weights. Store one with torch.save(model.state_dict(), FILE).",
}
