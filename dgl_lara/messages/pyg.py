"""Texts of the algorithm for PyTorch Geometric."""

MESSAGES = {
    "pyg.arguments": (
        "train must get the model first, train(model, x, edge_index), and no epochs (got {got}). LARA learns in one "
        "call."
    ),
    "pyg.batch_order": "batch must be ascending. Put the nodes of each graph next to each other.",
    "pyg.data": (
        "x must be a dense tensor and edge_index a dense tensor (2, num_edges), or both dicts of these by type and by "
        "relation (got {x} and {edge_index})."
    ),
    "pyg.edge_level": (
        "LARAExplainer explains nodes and graphs, not task_level='edge'. Explain links with "
        "LARA(*from_pyg(model, data), task='link')."
    ),
    "pyg.index": "index must name outputs 0..{most} of the model ({problem}).",
    "pyg.needs_target": "target must be given for a phenomenon, which is explained by its labels.",
    "pyg.not_lara": "The algorithm of explain_each must be a LARAExplainer (got {got}).",
    "pyg.not_trained": (
        "LARAExplainer has not learned to explain by {players} yet. Call explainer.algorithm.train(model, x, "
        "edge_index) first."
    ),
    "pyg.one_column": (
        "A multiclass model must return a column for each class (got one). Use mode='binary_classification' for two "
        "classes."
    ),
    "pyg.other_data": (
        "The model can only get nodes and edges, and data with a row for each edge (got {got}). Remove other arguments."
    ),
    "pyg.other_model": "LARAExplainer was trained on another model. Call explainer.algorithm.train again.",
    "pyg.regression_value": (
        "value must be 'output' for a regression model (got {got!r}), because its output is explained as it is."
    ),
    "pyg.several_columns": (
        "A model for {mode} must return one number a row (got {got}). Explain one of them, or use "
        "mode='multiclass_classification'."
    ),
    "pyg.target": "target must hold a class for each of the model's {count} outputs (got {dtype} {shape}).",
}
