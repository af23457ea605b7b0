"""ogbn-arxiv, and downloads from a server on this machine."""

import functools
import gzip
import http.server
import io
import shutil
import socket
import sys
import threading
import zipfile

import numpy as np
import pandas as pd
import pytest
import torch
from codes import raises

from dgl_lara.datasets import MUTAG_FILES, Options, load, mutagenicity, ogbn_arxiv
from dgl_lara.errors import LaraError


class NoPrompt(io.TextIOBase):
    def readline(self, *_):
        raise AssertionError("asked on stdin")


def unreachable_url():
    """A port that nobody listens on."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{taken.getsockname()[1]}/data.zip"


@pytest.mark.parametrize(
    ("name", "module", "file", "stand_in"),
    [
        ("ogbn-arxiv", ogbn_arxiv, "ogbn_arxiv/raw/node-feat.csv.gz", "citation"),
        ("mutag", mutagenicity, "Mutagenicity/Mutagenicity_A.txt", "molecules"),
    ],
)
def test_no_network_raises_without_a_prompt(name, module, file, stand_in, fresh_cache, monkeypatch):
    monkeypatch.setattr(module, "URL", unreachable_url())
    monkeypatch.setattr(sys, "stdin", NoPrompt())
    with raises("download.failed", LaraError) as caught:
        load(name)
    assert "\n" not in str(caught.value)
    for part in (file, "--data-dir", "DGL_LARA_DATA", str(fresh_cache), f"--dataset {stand_in}"):
        assert part in caught.value.fields["remedy"]
    assert list(fresh_cache.rglob("*")) == []


def test_an_incomplete_cached_folder_is_left_alone(fresh_cache, monkeypatch):
    monkeypatch.setattr(mutagenicity, "URL", unreachable_url())
    mine = fresh_cache / "Mutagenicity" / "Mutagenicity_A.txt"
    mine.parent.mkdir(parents=True)
    mine.write_text("1, 2\n")
    with raises("download.incomplete_folder", LaraError):
        load("mutag")
    assert mine.read_text() == "1, 2\n"


# --- the whole set ----------------------------------------------------------------------------------------------


def complete_folder(real_data, root, columns):
    """The real graph with substitute features: the label, one-hot (as far as the columns reach)."""
    target = root / "ogbn_arxiv"
    shutil.copytree(real_data / "ogbn_arxiv", target, copy_function=shutil.copyfile)
    (target / "raw").chmod(0o755)
    labels = pd.read_csv(target / "raw" / "node-label.csv.gz", header=None)[0]
    rows = [",".join("1" if place == label else "0" for place in range(columns)) for label in range(40)]
    with gzip.open(target / "raw" / "node-feat.csv.gz", "wt", compresslevel=1) as file:
        file.write("\n".join(rows[label] for label in labels) + "\n")
    return root


def check_published_figures(dataset):
    assert (dataset.graph.num_nodes(), dataset.graph.num_edges()) == (169_343, 1_166_243)
    assert int(dataset.labels.max()) + 1 == dataset.num_classes == 40
    assert [len(dataset.train), len(dataset.val), len(dataset.test)] == [90_941, 29_799, 48_603]
    known = dataset.labels < dataset.features.shape[1]
    assert torch.equal(dataset.features[known].argmax(dim=1), dataset.labels[known])


def test_complete_folder_loads_and_stays_untouched(real_data, tmp_path, fresh_cache, monkeypatch, capfd):
    folder = complete_folder(real_data, tmp_path / "data", columns=2)
    other = {part: torch.arange(3) for part in ("train", "valid", "test")}
    torch.save(other, folder / "ogbn_arxiv/split/time/split_dict.pt")  # ogb would take it before the published lists
    before = sorted(folder.rglob("*"))
    monkeypatch.setattr(sys, "stdin", NoPrompt())
    dataset = load("ogbn-arxiv", Options(data_dir=folder))
    check_published_figures(dataset)
    assert sorted(folder.rglob("*")) == before
    assert capfd.readouterr().out == ""

    undirected = load("ogbn-arxiv", Options(data_dir=folder, undirected=True))  # read from ogb's own cache
    assert undirected.graph.num_edges() == 2_315_598
    assert undirected.key != dataset.key

    (processed,) = fresh_cache.rglob("dgl_data_processed")
    processed.write_bytes(processed.read_bytes()[:1000])
    check_published_figures(load("ogbn-arxiv", Options(data_dir=folder)))


@pytest.mark.slow
def test_complete_folder_with_128_features(real_data, tmp_path, fresh_cache):
    dataset = load("ogbn-arxiv", Options(data_dir=complete_folder(real_data, tmp_path, columns=128)))
    check_published_figures(dataset)
    assert dataset.features.shape == (169_343, 128)


def test_changed_edges_raise(real_data, tmp_path, fresh_cache):
    folder = complete_folder(real_data, tmp_path, columns=1)
    labels = folder / "ogbn_arxiv" / "raw" / "node-label.csv.gz"
    values = gzip.decompress(labels.read_bytes()).splitlines(keepends=True)
    labels.write_bytes(gzip.compress(b"".join([b"7\n", *values[1:]]), compresslevel=1))
    with raises("dataset.not_published", LaraError, name="ogbn-arxiv"):
        load("ogbn-arxiv", Options(data_dir=folder))
    labels.write_bytes(labels.read_bytes()[:5000])
    with raises("dataset.unreadable", LaraError, name="ogbn-arxiv"):
        load("ogbn-arxiv", Options(data_dir=folder))


def test_unwritable_cache_raises(real_data, tmp_path, monkeypatch):
    folder = complete_folder(real_data, tmp_path, columns=1)
    (tmp_path / "file").touch()
    monkeypatch.setenv("DGL_LARA_CACHE", str(tmp_path / "file" / "cache"))
    with raises("arxiv.cache", LaraError):
        load("ogbn-arxiv", Options(data_dir=folder))


# --- download ---------------------------------------------------------------------------------------------------


class Handler(http.server.SimpleHTTPRequestHandler):
    short_by = 0  # bytes that are announced and never sent

    def log_message(self, *_):
        pass

    def copyfile(self, source, outputfile):
        content = source.read()
        outputfile.write(content[: len(content) - self.short_by])


@pytest.fixture
def server(tmp_path, fresh_cache, monkeypatch):
    """Serves tmp_path/served; mutag's address points to it."""
    folder = tmp_path / "served"
    folder.mkdir()
    handler = type("ThisHandler", (Handler,), {})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(handler, directory=folder)) as running:
        threading.Thread(target=running.serve_forever, daemon=True).start()
        monkeypatch.setattr(mutagenicity, "URL", f"http://127.0.0.1:{running.server_port}/Mutagenicity.zip")
        yield folder, handler
        running.shutdown()


def write_zip(path, contents):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in contents.items():
            archive.writestr(name, text)


def test_download_then_cache(real_data, server, fresh_cache, monkeypatch):
    monkeypatch.delenv("DGL_LARA_DATA")
    folder, _ = server
    write_zip(folder / "Mutagenicity.zip", {file: (real_data / file).read_text() for file in MUTAG_FILES})
    dataset = load("mutag")
    assert dataset.graph.num_edges() == 266_894
    assert dataset.source.endswith("derived")
    assert [path.name for path in fresh_cache.iterdir()] == ["Mutagenicity"]
    (folder / "Mutagenicity.zip").unlink()
    assert load("mutag").graph.num_edges() == 266_894


def test_download_with_another_content_raises(server):
    folder, _ = server
    write_zip(
        folder / "Mutagenicity.zip", {file: "1, 2\n" if file.endswith("_A.txt") else "1\n" for file in MUTAG_FILES}
    )
    with raises("dataset.not_published", LaraError, name="TU Mutagenicity"):
        load("mutag")


def test_download_without_the_files_raises(server, fresh_cache):
    folder, _ = server
    write_zip(folder / "Mutagenicity.zip", {"Mutagenicity/readme.txt": "nothing here"})
    with raises("download.content", LaraError, archive="Mutagenicity.zip"):
        load("mutag")
    assert list(fresh_cache.iterdir()) == []


def test_download_that_breaks_off_leaves_nothing(server, fresh_cache):
    folder, handler = server
    handler.short_by = 100
    (folder / "Mutagenicity.zip").write_bytes(np.random.default_rng(0).bytes(5000))
    with raises("download.failed", LaraError) as caught:
        load("mutag")
    assert "4900 of 5000 bytes" in str(caught.value.fields["cause"])
    assert list(fresh_cache.iterdir()) == []


@pytest.mark.parametrize("damage", ["no zip", "flipped"])
def test_damaged_archive_is_removed(server, fresh_cache, damage):
    folder, _ = server
    archive = folder / "Mutagenicity.zip"
    write_zip(archive, dict.fromkeys(MUTAG_FILES, "1, 2\n" * 500))
    content = bytearray(archive.read_bytes())
    start = 30 + len(MUTAG_FILES[0])  # of the packed bytes: after the first entry's header
    content[start : start + 4] = b"\xff" * 4
    archive.write_bytes(bytes(content) if damage == "flipped" else b"<html>Not found</html>")
    with raises("download.damaged", LaraError):
        load("mutag")
    assert list(fresh_cache.iterdir()) == []


def test_missing_page_raises(server, fresh_cache):
    with raises("download.failed", LaraError):
        load("mutag")
