"""The words a user can choose from that are no registry's file names; light, for the command line and the code."""

from typing import Literal, get_args

Embedding = Literal["dual", "single"]
Encoder = Literal["residual", "plain"]
Inputs = Literal["features", "rich"]
LearningRate = Literal["cosine", "constant"]
TrainOn = Literal["train", "all"]

VALUES = ("logit", "probability", "log-odds", "output")
EMBEDDINGS = get_args(Embedding)
ENCODERS = get_args(Encoder)
INPUTS = get_args(Inputs)
TRAIN_ON = get_args(TrainOn)
PRESETS = ("default", "paper")
PLAYERS = ("nodes", "edges", "features")
FEATURES_OF = ("field", "target")
BASELINES = ("zero", "mean", "rows")
PICTURES = (".png", ".svg", ".pdf", ".html")  # endings of what one explanation can be saved as
TABLES = (".csv", ".json", ".graphml")
SUMMARIES = (".csv", ".png", ".svg", ".pdf")  # of what a summary can be saved as
EXPORTS = (".parquet", ".csv", ".jsonl")
RUNS = "runs"  # the folder that new runs are put into
# LARA's own rows in a comparison; see evaluation/lara_method.py
LARA_FORMS = ("lara-paper", "lara", "lara-amortised", "lara-all")
