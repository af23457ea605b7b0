"""Words that users choose from. Light, because the command line imports it for --help."""

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
SPLITS = ("train", "val", "test")
PRESETS = ("default", "paper")
PLAYERS = ("nodes", "edges", "features")
FEATURES_OF = ("field", "target")
BASELINES = ("zero", "mean", "rows")
PICTURES = (".png", ".svg", ".pdf", ".html")  # file endings of pictures of an explanation
TABLES = (".csv", ".json", ".graphml")
SUMMARIES = (".csv", ".png", ".svg", ".pdf")  # file endings of summaries
EXPORTS = (".parquet", ".csv", ".jsonl")
RUNS = "runs"  # folder of new runs
# rows of LARA in a comparison, see evaluation/lara_method.py
LARA_FORMS = ("lara-paper", "lara", "lara-amortised", "lara-all")
