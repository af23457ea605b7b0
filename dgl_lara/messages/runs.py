"""Texts of `runs/` and of the commands that work on run folders."""

MESSAGES = {
    "groups.columns": "groups must be names with columns from 0 on, each column in one group (got {got!r}).",
    "groups.range": "groups must be columns from 0 to {most} of the features.",
    "groups.type": "groups must be lists of columns by name, such as {{'job': [1, 2, 3]}} (got {got!r}).",
    "run.changed": "{name} of {folder} was {then} in its training and is now {now}. Restore it, or start a new run.",
    "run.class_names": "The model has {outputs} outputs, but {names} classes have names. Classes are shown by number.",
    "run.damaged": (
        "{folder}/config.json lacks {missing}. Restore a copy, or train again. `dgl-lara runs delete {name}` removes "
        "the run."
    ),
    "run.data_changed": (
        "The data set {dataset} has changed since the training of {folder}. Restore it, or start a new run."
    ),
    "run.exists": "{folder} holds a run already. Name another --out, or continue it with --resume {folder}.",
    "run.in_training": "This run is being trained ({done} so far). Its scores are not corrected yet.",
    "run.newest": "run {folder} (the newest, --run names another)",
    "run.no_folder": "'{folder}' is not a run folder, it has no config.json. `dgl-lara runs` lists the runs.",
    "run.none": "There is no run{of} in runs/. Train one with: dgl-lara train --dataset {dataset}",
    "run.not_trained": "{folder} has no trained explainer yet. Continue with: {command}",
    "run.other_code": "The code of the model has changed since {folder} was trained.",
    "run.other_data": "The data set {dataset} has changed since the training of {folder}.",
    "run.other_function": "{folder} explains what {function} builds, not {got}.",
    "run.other_history": (
        "The best agreement is {history:.3f} in {folder}/metrics.csv and {explainer:.3f} in explainer.pt. One of the "
        "files is from another training."
    ),
    "run.other_samples": "{path} is not the file that the explainer was trained with.",
    "run.players": "{folder} was trained to score {known}, not {got}. Train with --players {got}.",
    "run.removed": "{folder} was removed during its training. Start a new run.",
    "run.same": "{one} and {other} are the same run, {folder}. Name two runs.",
    "run.samples_missing": "{path} is missing. Scores are not corrected.",
    "run.samples_skipped": "{problem} Scores are not corrected.",
    "run.shipped_model": "{folder} explains a model of dgl-lara. Leave out --model.",
    "run.stopped": (
        "The training of this run stopped after {done}. Its scores are not corrected. Continue with: {command}"
    ),
    "run.trust": (
        "{folder} explains a model whose code would run: {function} in {file}. Add --trust if you trust that file, or "
        "name the model again: --model {name}."
    ),
    "run.unknown": "There is no run '{name}', here or in runs/.{hint} `dgl-lara runs` lists the runs.",
}
