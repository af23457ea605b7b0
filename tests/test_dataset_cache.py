"""The cache of generated data: keys, atomic files, damage, and the order of data folders."""

from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest
from codes import raises

from dgl_lara._util.atomic import atomic_write
from dgl_lara.datasets import Options, load
from dgl_lara.datasets.cache import cached, checksum, data_dirs, find_files, read_arrays
from dgl_lara.errors import InputError, LaraError

ARRAYS = {"a": np.arange(1000), "b": np.linspace(0, 1, 500)}


def files_in(folder):
    return sorted(path.name for path in folder.rglob("*") if path.is_file())


def build_counter():
    calls = []

    def build():
        calls.append(None)
        return ARRAYS

    return build, calls


def test_second_call_reads_the_file(fresh_cache):
    build, calls = build_counter()
    first, second = cached("set", {"seed": 0}, build), cached("set", {"seed": 0}, build)
    assert len(calls) == 1
    assert len(files_in(fresh_cache)) == 1
    for name, array in ARRAYS.items():
        np.testing.assert_array_equal(first[name], array)
        np.testing.assert_array_equal(second[name], array)


@pytest.mark.parametrize("change", [{"seed": 1}, {"nodes": 600}, {"version": 2}, {"extra": True}])
def test_every_parameter_is_in_the_key(fresh_cache, change):
    parameters = {"seed": 0, "nodes": 500, "version": 1}
    build, calls = build_counter()
    cached("set", parameters, build)
    cached("set", {**parameters, **change}, build)
    assert len(calls) == len(files_in(fresh_cache)) == 2


def test_every_option_changes_the_key(tmp_path):
    """Cached models are found by the key."""
    base = Options(nodes=400)
    changed = {"seed": 1, "undirected": True, "nodes": 401}
    # `data_dir` does not change the content, `source` has no second value here, the others are for files of users
    own = {"target_type", "pairs", "relation", "leave_out"}
    assert {field.name for field in fields(Options)} == {*changed, "data_dir", "source", *own}
    keys = [load("citation", base).key] + [
        load("citation", replace(base, **{name: value})).key for name, value in changed.items()
    ]
    assert len({str(sorted(key.items())) for key in keys}) == 4


@pytest.mark.parametrize("name", ["ba-shapes", "molecules", "citation"])
def test_every_seed_has_its_file(name, fresh_cache):
    first, other = load(name, Options(seed=0)), load(name, Options(seed=1))
    assert len(files_in(fresh_cache)) == 2
    assert first.key != other.key


def test_builder_that_raises_leaves_no_file(fresh_cache):
    def build():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        cached("set", {}, build)
    assert not fresh_cache.exists() or files_in(fresh_cache) == []


def test_failed_write_keeps_the_old_file(tmp_path):
    path = tmp_path / "deep" / "file.txt"
    with atomic_write(path) as temporary:
        temporary.write_text("old")
        assert not path.exists()
    with pytest.raises(RuntimeError), atomic_write(path) as temporary:
        temporary.write_text("half of the n")
        raise RuntimeError
    assert path.read_text() == "old"
    assert files_in(tmp_path) == ["file.txt"]


@pytest.mark.parametrize("damage", ["truncated", "changed", "empty", "other"])
def test_damaged_cache_is_rebuilt_with_a_notice(fresh_cache, damage, notices):
    build, calls = build_counter()
    cached("set", {}, build)
    (path,) = fresh_cache.rglob("*.npz")
    content = bytearray(path.read_bytes())
    if damage == "truncated":
        content = content[: len(content) // 2]
    if damage == "changed":
        content[len(content) // 3] ^= 1
    path.write_bytes({"empty": b"", "other": b"not an archive"}.get(damage, bytes(content)))
    arrays = cached("set", {}, build)
    assert len(calls) == 2
    np.testing.assert_array_equal(arrays["a"], ARRAYS["a"])
    assert notices.codes == ["cache.rebuilt"]
    np.testing.assert_array_equal(read_arrays(path)["a"], ARRAYS["a"])


def test_npy_file_is_no_npz(tmp_path):
    with (tmp_path / "a.npz").open("wb") as file:
        np.save(file, np.arange(3))
    with raises("npz.damaged", LaraError):
        read_arrays(tmp_path / "a.npz")


def test_damaged_compressed_file(tmp_path):
    path = tmp_path / "a.npz"
    np.savez_compressed(path, a=np.random.default_rng(0).random(200))
    whole = path.read_bytes()
    for place in range(60, 1500, 40):
        content = bytearray(whole)
        content[place : place + 4] = b"\xff\x00\xff\x00"
        path.write_bytes(bytes(content))
        with raises("npz.damaged", LaraError):
            read_arrays(path)


def test_unwritable_cache_gives_a_notice(tmp_path, monkeypatch, notices):
    (tmp_path / "file").touch()
    monkeypatch.setenv("DGL_LARA_CACHE", str(tmp_path / "file"))  # a folder below a file cannot be made, even by root
    assert load("tree-cycles").graph.num_nodes() == 871
    assert notices.codes == ["cache.not_written"]


def test_order_of_look_up(tmp_path, monkeypatch):
    required = ("some/file.txt",)
    named, variable, cache = (tmp_path / name for name in ("named", "variable", "cache"))
    for folder in (named, variable, cache):
        (folder / "some").mkdir(parents=True)
        (folder / "some" / "file.txt").touch()
    monkeypatch.setenv("DGL_LARA_DATA", str(variable))
    monkeypatch.setenv("DGL_LARA_CACHE", str(cache))
    assert data_dirs(named) == [named, variable, cache]
    for expected in (named, variable, cache):
        assert find_files(required, named) == expected
        (expected / "some" / "file.txt").unlink()
    assert find_files(required, named) is None


def test_a_folder_must_hold_all_files(tmp_path):
    (tmp_path / "one").touch()
    assert find_files(("one",), tmp_path) == tmp_path
    assert find_files(("one", "two"), tmp_path) is None


def test_checksum_is_independent_of_the_type():
    assert checksum(np.array([1, 2], dtype=np.int8)) == checksum(np.array([1, 2], dtype=np.int64))
    assert checksum(np.array([1, 2])) != checksum(np.array([2, 1]))


def test_data_dir_must_be_a_folder():
    with raises("dataset.data_dir", InputError):
        load("ba-shapes", Options(data_dir=Path("nowhere")))


def test_write_errors_name_the_file_of_the_user():
    with pytest.raises(OSError) as caught, atomic_write(Path("/proc/x.csv")):
        pass
    assert caught.value.filename == "/proc/x.csv"
