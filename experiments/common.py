"""Settings, data, target models, the benchmark and tables, shared by the scripts of `dgl-lara reproduce`."""

import json
import time
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

import pandas as pd

from dgl_lara._util.atomic import atomic_write
from dgl_lara._util.progress import log_info
from dgl_lara._util.tables import markdown_table
from dgl_lara.cli.options import choose_device
from dgl_lara.datasets import DATASETS, Options, load
from dgl_lara.datasets.cache import find_files
from dgl_lara.evaluation.benchmark import METHODS, Benchmark, quick_note, results_folder, run_benchmark
from dgl_lara.evaluation.lara_method import LaraMethod
from dgl_lara.game.game import Game
from dgl_lara.gnns import recipe_for
from dgl_lara.gnns.checkpoint import load_gnn
from dgl_lara.gnns.training import get_gnn
from dgl_lara.metrics.fidelity import fidelity_column

RESULTS = Path(__file__).parent / "results"
AUTHORS = ("ba-shapes", "ba-community", "tree-cycles", "ba-2motifs")  # whose target models can be had
SIX = ("ba-shapes", "ba-community", "tree-cycles", "ogbn-arxiv", "ba-2motifs", "mutag")  # the paper's, in its order
LONGEST_FIRST = ("ogbn-arxiv", "ba-community", "mutag", "ba-shapes", "ba-2motifs", "tree-cycles")
STAND_IN_NODES = 10_000  # of `citation`, where ogbn-arxiv is not at hand
MEASURES = ("fidelity", "agreement", "auc")
QUICK_SEEDS, QUICK_TARGETS = 1, 100
FULL_SEEDS, FULL_TARGETS = 5, 200


@dataclass(frozen=True)
class Settings:
    """Settings of a reproduction."""

    quick: bool = False
    seeds: int | None = None
    targets: int | None = None
    data_dir: Path | None = None
    out: Path = RESULTS
    device: str = "auto"
    value: str = "logit"
    datasets: tuple[str, ...] = ()  # in the place of those a script would take
    only: str | None = None  # of those a script would take, this one; its speed is measured later, with nothing beside
    steps: int | None = None  # of LARA; None: the usual ones

    @property
    def num_seeds(self):
        return self.seeds or (QUICK_SEEDS if self.quick else FULL_SEEDS)

    @property
    def num_targets(self):
        return self.targets or (QUICK_TARGETS if self.quick else FULL_TARGETS)

    def names(self, usual):
        """Return the data sets of a script."""
        return self.datasets or tuple(name for name in usual if self.only in (None, name))

    @property
    def tables(self):
        """Return the folder of tables and plots. Those of a single data set are intermediate results."""
        return self.out / "parts" / self.only if self.only else self.out

    @property
    def words(self):
        """Return the settings as the text above every table."""
        training = f"{self.steps} training steps" if self.steps else "quick" if self.quick else "full training"
        seeds = "1 seed" if self.num_seeds == 1 else f"{self.num_seeds} seeds"
        return f"{training}, {seeds}, at most {self.num_targets} test targets, explained value: {self.value}"


# --- data and target models ---------------------------------------------------------------------------------------


def setting(name, data_dir, value="logit", device="cpu"):
    """Return the data set and the game on it: the authors' files and target models if they are there, else our own."""
    dataset, model = _model(name, data_dir, device)
    return dataset, Game.create(model, dataset.graph, dataset.features, dataset.task, model.num_hops, value)


@lru_cache(maxsize=1)
def _model(name, data_dir, device):
    entry_files = {"ba-2motifs": "ba_2motifs/ba2motifs.npz"}.get(name, f"synthetic/{name.replace('-', '_')}.npz")
    weights = f"target_models/{name.replace('-', '_')}.npz"
    original = find_files((entry_files, weights), data_dir) if name in AUTHORS else None
    name, nodes = present(name, data_dir)
    where = choose_device(device)
    dataset = load(name, Options("original" if original else "auto", nodes=nodes, data_dir=data_dir)).to(where)
    if original:
        return dataset, load_gnn(original / weights, dataset)[0].to(where)
    return dataset, get_gnn(dataset, recipe_for(name, dataset.task), 0)[0]


def present(name, data_dir):
    """Return the name, or its generated stand-in if its files are missing, and the number of nodes to generate."""
    entry = DATASETS[name]
    if entry.generated or find_files(entry.files, data_dir):
        return name, None
    log_info(
        f"{name} is not in the data folder; its stand-in '{entry.stand_in}' takes its place, and the tables say so."
    )
    return entry.stand_in, STAND_IN_NODES if entry.stand_in == "citation" else None


def source_of(name, dataset):
    """Return the source of the data, and whether it is a stand-in."""
    return dataset.source if dataset.name == name else f"stand-in '{dataset.name}', {dataset.source}"


@lru_cache(maxsize=1)  # with its estimate of phi, which takes a while
def benchmark_on(name, settings):
    """Return the benchmark on a data set. Variants of LARA are added to its makers."""
    dataset, game = setting(name, settings.data_dir, settings.value, settings.device)
    benchmark = Benchmark.on(dataset, game, settings.num_targets, settings.quick, settings.steps)
    return replace(benchmark, makers=dict(METHODS))


# --- the benchmark, run once for all tables and figures -------------------------------------------------------------


def folder_of(benchmark, settings):
    return results_folder(benchmark, MEASURES, settings.out)


def compared(name, methods, settings, variants=None):
    """Return a row per method and seed, with the columns `data` and `source`.

    `variants` are forms of LARA, name -> maker.
    """
    log_info(f"== {name}: {', '.join(methods)}")
    benchmark = benchmark_on(name, settings)
    benchmark.makers.update(variants or {})
    measures = MEASURES if settings.only else (*MEASURES, "throughput")
    records = run_benchmark(benchmark, methods, measures, settings.num_seeds, folder_of(benchmark, settings))
    records.insert(0, "data", name)
    records.insert(1, "source", source_of(name, benchmark.dataset))
    return records


def lara_on(name, settings):
    """Return the benchmark, and LARA with seed 0 as it was trained there."""
    compared(name, ("lara",), settings)
    benchmark = benchmark_on(name, settings)
    method = METHODS["lara"](benchmark, 0)
    assert isinstance(method, LaraMethod)
    method.load(folder_of(benchmark, settings) / "lara-0.pt")
    return benchmark, method


def kept(settings, benchmark, stem, make):
    """Return the rows of `make()`, which are stored with the benchmark and computed once."""
    path = folder_of(benchmark, settings) / f"{stem.replace(' ', '-')}-x{settings.num_seeds}.json"
    if not path.exists():
        log_info(f"== {benchmark.dataset.name}: {stem}")
        rows = make()
        with atomic_write(path) as temporary:
            temporary.write_text(json.dumps(rows, indent=1))
    return json.loads(path.read_text())


# --- tables ---------------------------------------------------------------------------------------------------------

FIDELITY = {  # column of the comparison -> its title, and +1 where high is good
    fidelity_column("F+", "paper"): ("F+", 1),
    fidelity_column("F-", "paper"): ("F-", -1),
    fidelity_column("F+", "kept"): ("F+ kept", 1),
    fidelity_column("F-", "kept"): ("F- kept", -1),
    "R2": ("R2 with phi", 1),
}
NOTE_FIDELITY = (
    "F+ (high is good), F- (low is good): averages over sparsity 0.3 ... 0.7; 'kept': the target itself stays. R2, "
    "rank correlation: agreement with phi on the same targets. Best of each group in bold."
)
COMPARISON = {  # the same where scores of rivals are on no common scale
    fidelity_column("F+", "paper"): ("F+", 1),
    fidelity_column("F-", "paper"): ("F-", -1),
    fidelity_column("Delta", "paper"): ("ΔF", 1),
    fidelity_column("F+", "kept"): ("F+ kept", 1),
    fidelity_column("F-", "kept"): ("F- kept", -1),
    fidelity_column("Delta", "kept"): ("ΔF kept", 1),
    "rank correlation": ("rank correlation with phi", 1),
}


def seconds_of(work, repeats=1):
    """Return the seconds of each call."""
    spent = []
    for _ in range(repeats):
        started = time.perf_counter()
        work()
        spent.append(time.perf_counter() - started)
    return spent


def figure(values, digits=2):
    """Format '1.23 ± 0.04' over the seeds."""
    values = pd.Series(values, dtype=float).dropna()
    if values.empty:
        return "-"
    spread = f" ± {number(values.std(ddof=0), digits)}" if len(values) > 1 else ""
    return number(values.mean(), digits) + spread


def number(value, digits=2):
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.1f}" if abs(value) >= 100 else f"{value:.{digits}f}"


def measured(records, column, sign=0):
    """Return {method: text} in the order of the records, the best in bold."""
    groups = dict(list(records.groupby("method", sort=False)))
    means = pd.Series({name: group[column].mean() if column in group else None for name, group in groups.items()})
    means = means.astype(float).dropna()
    best = (sign * means).idxmax() if sign and len(means) else None
    texts = {name: figure(group[column]) if column in group else "-" for name, group in groups.items()}
    return {name: f"**{text}**" if name == best else text for name, text in texts.items()}


def grouped(records, columns, beside=lambda data, method: []):
    """Return a row per data set and method: its values, then what `beside` has from the paper."""
    rows = []
    for data, group in records.groupby("data", sort=False):
        cells = [measured(group, column, sign) for column, (_, sign) in columns.items()]
        labels = group.groupby("method", sort=False)["label"].last()
        for method, label in labels.items():
            rows.append([data, label, *(texts[method] for texts in cells), *beside(data, method)])
    return rows


def shown_as(name, source):
    """Return the name of a data set in plots, marked if it is not the published one."""
    kind = (
        " (substitute features)" if "substitute" in source else " (stand-in)" if source.startswith("stand-in") else ""
    )
    return name + kind


def for_pictures(records):
    names = [shown_as(name, source) for name, source in zip(records["data"], records["source"], strict=True)]
    return records.assign(data=names)


def sources(records):
    """Return the sources of the data."""
    pairs = records[["data", "source"]].drop_duplicates().itertuples(index=False)
    return "Data: " + "; ".join(f"{name}: {source}" for name, source in pairs) + "."


def left_out(records):
    """Return a line for each method that is left out, with the reason."""
    if "left out" not in records:
        return []
    rows = records.dropna(subset="left out").drop_duplicates(["data", "method"])
    return [f"- left out on {row['data']}: {row['method']}: {row['left out']}" for _, row in rows.iterrows()]


def write_table(settings, stem, title, tables, frame, notes=()):
    """Write <stem>.md with a table for each (header, rows), and <stem>.csv with every value."""
    lines = [f"# {title}", "", f"Ours: {settings.words}.", *([quick_note()] if settings.quick else []), ""]
    for header, rows in tables:
        lines += [markdown_table(header, [list(map(str, row)) for row in rows]), ""]
    lines += [line for note in notes for line in (note, "")]
    with atomic_write(settings.tables / f"{stem}.md") as temporary:
        temporary.write_text("\n".join(lines).rstrip() + "\n")
    with atomic_write(settings.tables / f"{stem}.csv") as temporary:
        frame.to_csv(temporary, index=False, float_format="%.5g")
    return [settings.tables / f"{stem}.md", settings.tables / f"{stem}.csv"]


def write_picture(settings, stem, drawn):
    path = settings.tables / f"{stem}.png"
    with atomic_write(path) as temporary:
        drawn.savefig(temporary, format="png", dpi=110, facecolor="white")
    return path
