"""The names a user can choose from, in one light module that both the command line and the code read."""

VALUES = ("logit", "probability", "log-odds", "output")
OBJECTIVES = ("least-squares", "running-mean", "mutual-information")
GATES = ("none", "hop", "walk", "random-walk")
EMBEDDINGS = ("dual", "single")
ENCODERS = ("residual", "plain")
INPUTS = ("features", "rich")
PRESETS = ("default", "paper")
METRICS = ("fidelity", "agreement", "auc", "throughput", "latency")
METHODS = (
    "random", "gradient", "abs-gradient", "gnn-explainer", "pg-explainer", "graphsvx", "orphicx", "fastdnx",
    "sampled", "lara-paper", "lara", "lara-all",
)  # fmt: skip
PICTURES = (".png", ".svg", ".pdf", ".html")  # endings of what one explanation can be saved as
TABLES = (".csv", ".json", ".graphml")
