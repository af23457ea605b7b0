"""MovieLens 100K: users, films and ratings. A target is a pair of a user and a recommended film.

The graph holds the ratings of ua.base in both directions, with the rating as edge data. The targets are the liked pairs
of ua.test (4 or 5 stars), split by user. Features are age, gender and occupation (users), genres and leading directions
of the table of likes (films). The licence allows research and no redistribution, so the files are never downloaded.
"""

from __future__ import annotations

from pathlib import Path

import dgl
import numpy as np
import pandas as pd
import scipy.sparse as sp
import torch
from torch import Tensor

from dgl_lara.datasets import MOVIELENS_FILES, Options
from dgl_lara.datasets.cache import locate, text_checksum
from dgl_lara.datasets.dataset import Dataset, random_split
from dgl_lara.datasets.svd_features import svd_features
from dgl_lara.datasets.validate import validate_dataset
from dgl_lara.errors import LaraError

CHECKSUM = "a1a0a8a62be4074715c9d68da9d528c44b1911e1749341ceaa7ad4b8dd3c89d7"
LIKED = 4  # stars
FILM_DIM = 16
RATES, RATED_BY = ("user", "rates", "film"), ("film", "rated by", "user")
AGE_SCALE = 100  # years


def build(name: str, options: Options) -> Dataset:
    base, held, folder = read_ratings(options)
    return assemble(base, held, folder, options.seed, {"dataset": name, "seed": options.seed})


def read_ratings(options: Options) -> tuple[np.ndarray, np.ndarray, Path]:
    """Return rows (user, film, stars, time) of the graph, those held back, and their folder. Ids start at 0."""
    root = locate("movielens", options.data_dir)
    folder = root / "ml-100k"
    if text_checksum(*(root / file for file in MOVIELENS_FILES)) != CHECKSUM:
        raise LaraError("dataset.not_published", name="MovieLens 100K", folder=folder)
    base, held = (_table(folder / part, "\t").to_numpy() for part in ("ua.base", "ua.test"))
    first = np.array([1, 1, 0, 0])
    return base - first, held - first, folder


def _table(path: Path, separator: str) -> pd.DataFrame:
    return pd.read_csv(path, sep=separator, header=None, encoding="latin-1", keep_default_na=False)


def assemble(base: np.ndarray, held: np.ndarray, folder: Path, seed: int, key: dict) -> Dataset:
    """Build the data set from the ratings `base`, with the likes among `held` as targets."""
    people, films = _table(folder / "u.user", "|"), _table(folder / "u.item", "|")
    user, film, stars, _ = torch.as_tensor(base).T
    sizes = {"user": len(people), "film": len(films)}
    graph = dgl.heterograph({RATES: (user, film), RATED_BY: (film, user)}, sizes)
    for relation in (RATES, RATED_BY):
        graph.edges[relation].data["rating"] = stars.float()
    pairs = torch.as_tensor(held[held[:, 2] >= LIKED][:, :2])
    part_of_user = torch.empty(len(people), dtype=torch.long)
    for part, users in enumerate(random_split(len(people), seed)):
        part_of_user[users] = part
    train, val, test = ((part_of_user[pairs[:, 0]] == part).nonzero().flatten() for part in range(3))
    return validate_dataset(
        Dataset(
            name="movielens",
            task="link",
            graph=graph,
            features={"user": _people(people), "film": _films(films, graph)},
            labels=torch.zeros(len(pairs), dtype=torch.long),  # a score has one column
            train=train,
            val=val,
            test=test,
            num_classes=1,
            source=f"MovieLens 100K, ua.base, users split by seed {seed}",
            key=key,
            display_names={"nodes": {"user": _described(people), "film": tuple(films[1])}},
            pairs=pairs,
            relation=RATES,
        )
    )


def _described(people: pd.DataFrame) -> tuple[str, ...]:
    """Return a description of each user, such as: 24, M, technician."""
    return tuple(f"{age}, {gender}, {job}" for age, gender, job in zip(people[1], people[2], people[3], strict=True))


def _people(table: pd.DataFrame) -> Tensor:
    """Return age and one-hot gender and occupation."""
    kinds = pd.get_dummies(table[[2, 3]].astype(str))
    return torch.tensor(np.column_stack([table[1] / AGE_SCALE, kinds]).astype(np.float32))


def _films(table: pd.DataFrame, graph: dgl.DGLGraph) -> Tensor:
    """Return 19 genres, and the leading directions of the table of likes."""
    genres = torch.tensor(table.iloc[:, 5:].to_numpy().astype(np.float32))
    liked = graph.edges[RATES].data["rating"] >= LIKED
    user, film = (ends[liked].numpy() for ends in graph.edges(etype=RATES))
    shape = graph.num_nodes("user"), graph.num_nodes("film")
    likes = sp.csr_matrix((np.ones(len(user)), (user, film)), shape)
    return torch.cat([genres, svd_features(likes, FILM_DIM)], dim=1)
