"""`citation`, the stand-in for ogbn-arxiv: size, classes, homophily, time order, and the degrees of the real graph."""

import numpy as np
import pandas as pd
import pytest
import torch
from codes import raises

from dgl_lara.datasets import Options, load
from dgl_lara.datasets.synthetic_citation import generate
from dgl_lara.errors import InputError

# 400 nodes leave some classes with a single paper, which once ended in an IndexError.
SIZES = (400, 3000, 10_000)


@pytest.mark.parametrize("nodes", SIZES)
def test_any_size(nodes):
    dataset = load("citation", Options(nodes=nodes))
    assert dataset.graph.num_nodes() == nodes
    assert dataset.features.shape == (nodes, 128)
    assert dataset.num_classes == 40
    assert (dataset.labels.bincount(minlength=40) > 0).all()
    assert 3 < dataset.graph.num_edges() / nodes < 8
    together = torch.cat([dataset.train, dataset.val, dataset.test])
    assert torch.equal(together, torch.arange(nodes))


@pytest.mark.parametrize("nodes", SIZES)
def test_a_paper_cites_each_older_paper_once_at_the_most(nodes):
    src, dst = load("citation", Options(nodes=nodes)).graph.edges()
    assert (dst < src).all()
    assert len(torch.unique(src * nodes + dst)) == len(src)


def test_default_size_and_smallest_size():
    assert load("citation").graph.num_nodes() == 10_000
    with raises("citation.nodes", InputError, least=400, got=399):
        load("citation", Options(nodes=399))


def test_only_citation_has_a_size():
    with raises("dataset.fixed_size", InputError, name="ba-shapes"):
        load("ba-shapes", Options(nodes=500))


def test_citations_stay_in_the_class_about_as_often_as_in_ogbn_arxiv():
    dataset = load("citation")
    src, dst = dataset.graph.edges()
    same = (dataset.labels[src] == dataset.labels[dst]).float().mean().item()
    by_chance = ((dataset.labels.bincount() / len(dataset.labels)) ** 2).sum().item()
    assert by_chance < 0.1
    assert 0.58 < same < 0.70  # ogbn-arxiv: .655


def test_features_tell_the_class_better_than_chance_and_not_surely():
    dataset = load("citation")
    means = torch.stack(
        [dataset.features[dataset.train][dataset.labels[dataset.train] == k].mean(0) for k in range(40)]
    )
    nearest = torch.cdist(dataset.features[dataset.test], means).argmin(dim=1)
    right = (nearest == dataset.labels[dataset.test]).float().mean().item()
    assert 0.3 < right < 0.8


def test_undirected_has_each_edge_in_both_directions():
    one_way, both = load("citation", Options(nodes=400)), load("citation", Options(nodes=400, undirected=True))
    assert both.graph.num_edges() == 2 * one_way.graph.num_edges()  # acyclic, so no pair was there both ways
    assert both.key != one_way.key


def test_the_seed_decides():
    first, again, other = (generate(500, np.random.default_rng(seed)) for seed in (3, 3, 4))
    assert all(np.array_equal(first[name], again[name]) for name in first)
    assert not np.array_equal(first["y"], other["y"])


def test_degrees_resemble_ogbn_arxiv(real_data):
    nodes = 169_343
    real = pd.read_csv(real_data / "ogbn_arxiv" / "raw" / "edge.csv.gz", header=None).to_numpy()
    made = generate(nodes, np.random.default_rng(0))
    made = np.stack([made["src"], made["dst"]], axis=1)
    assert 0.9 < len(made) / len(real) < 1.1
    quantiles = [0.5, 0.75, 0.9, 0.99, 0.999]
    for end, what in enumerate(("cites", "is cited")):
        expected, got = (np.quantile(np.bincount(edges[:, end], minlength=nodes), quantiles) for edges in (real, made))
        assert (np.diff(expected) > 0).all()
        # within a factor 1.5, or one citation where the quantile itself is one or two
        close = (np.abs(got - expected) <= 1) | ((got / expected < 1.5) & (expected / got < 1.5))
        assert close.all(), f"{what}: {got} against {expected} of ogbn-arxiv"
    hubs = [np.bincount(edges[:, 1], minlength=nodes).max() for edges in (real, made)]
    assert 0.5 < hubs[1] / hubs[0] < 2
