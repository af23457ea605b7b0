"""Every test has a cache of its own and sees no data folder, unless it asks for `real_data`."""

import os
from pathlib import Path

import pytest

import dgl_lara  # noqa: F401 (first: it sets what dgl and OpenMP read when they load)

REAL_DATA = os.environ.get("DGL_LARA_DATA")


@pytest.fixture(scope="session")
def session_cache(tmp_path_factory):
    """Shared by all tests, so that a data set is generated once."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(autouse=True)
def own_folders(session_cache, monkeypatch):
    monkeypatch.setenv("DGL_LARA_CACHE", str(session_cache))
    monkeypatch.delenv("DGL_LARA_DATA", raising=False)


@pytest.fixture
def fresh_cache(own_folders, tmp_path, monkeypatch):
    """An empty cache for this test alone."""
    folder = tmp_path / "fresh-cache"
    monkeypatch.setenv("DGL_LARA_CACHE", str(folder))
    return folder


@pytest.fixture
def real_data(own_folders, monkeypatch):
    """The folder with the authors' files, named by DGL_LARA_DATA when pytest was started."""
    if not REAL_DATA:
        pytest.skip("needs the original data: set DGL_LARA_DATA to a folder laid out as data/README.md says")
    folder = Path(REAL_DATA).resolve()
    monkeypatch.setenv("DGL_LARA_DATA", str(folder))
    return folder
