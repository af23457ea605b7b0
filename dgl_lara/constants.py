"""The words a user can choose from that are no registry's file names; light, for the command line and the code."""

VALUES = ("logit", "probability", "log-odds", "output")
EMBEDDINGS = ("dual", "single")
ENCODERS = ("residual", "plain")
INPUTS = ("features", "rich")
SCHEDULES = ("cosine", "constant")
TRAIN_ON = ("train", "all")
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
