"""Files of the user's own: how they are found, named and hashed."""

import hashlib
import os
from pathlib import Path

import numpy as np
import pytest

from explorer.data.local import Fault, LocalFile, below, first_of_each, listed, shown, skipped
from explorer.errors import DataError


def test_names_are_those_below_the_directory_in_order(tmp_path: Path) -> None:
    for name in ("b", "a/c", "a/b"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(name.encode())
    files = listed(tmp_path)
    assert [file.name for file in files] == ["a/b", "a/c", "b"]
    assert [file.read(max_bytes=10) for file in files] == [b"a/b", b"a/c", b"b"]


def test_a_directory_that_cannot_be_listed_is_a_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "closed").mkdir()
    real = os.scandir

    def scan(path: os.PathLike[str] | str) -> object:
        if str(path).endswith("closed"):
            raise PermissionError(13, "Permission denied", str(path))
        return real(path)

    monkeypatch.setattr("os.scandir", scan)
    assert [(file.name, file.fault) for file in listed(tmp_path)] == [("closed", Fault.UNREADABLE)]


def test_reading_and_hashing_are_bounded(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"12345")
    (file,) = listed(tmp_path)
    assert file.read(max_bytes=5) == b"12345" and file.read(max_bytes=4) == Fault.TOO_LARGE
    assert file.digest(max_bytes=5) == hashlib.sha256(b"12345").hexdigest()
    assert file.digest(max_bytes=4) == Fault.TOO_LARGE
    gone = LocalFile(name="b", path=tmp_path / "b")
    assert gone.read(max_bytes=5) == gone.digest(max_bytes=5) == Fault.UNREADABLE


def test_a_changed_file_is_hashed_again_even_if_its_time_is_put_back(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"old")
    (file,) = listed(tmp_path)
    before, times = file.digest(max_bytes=5), path.stat()
    path.write_bytes(b"new")
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert path.stat().st_mtime_ns == times.st_mtime_ns
    assert file.digest(max_bytes=5) != before


def test_no_more_than_so_many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("explorer.data.local.MAX_FILES", 2)
    for name in "abc":
        (tmp_path / name).write_bytes(b"")
    with pytest.raises(DataError, match="more than 2 files"):
        listed(tmp_path)


@pytest.mark.parametrize("path", ["/etc", "../x", "a/../../x", "a\0b"])
def test_paths_that_lead_out(path: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="leaves the data directory: expected a path below it"):
        below(tmp_path, path, dataset="x")


def test_names_as_they_are_shown() -> None:
    assert shown("a b/ü.png") == "a b/ü.png"
    assert shown("a\n\x1b[2J\u202e\udcff") == r"a\n\x1b[2J\u202e\udcff"


def test_what_was_passed_over_is_counted_by_reason() -> None:
    faults = [(str(n), Fault.DAMAGED) for n in range(7)] + [("x", Fault.SPECIAL)]
    first, second = skipped(faults)
    assert (first.reason, first.count, first.names) == (Fault.SPECIAL.value, 1, ("x",))
    assert (second.reason, second.count, second.names) == (Fault.DAMAGED.value, 7, tuple("01234"))


def test_the_first_of_each_class_in_turns() -> None:
    codes = np.array([1, 1, 1, 0, 1, 0, 2])
    assert first_of_each(codes, 3, dataset="x").tolist() == [0, 3, 6]
    assert first_of_each(codes, 5, dataset="x").tolist() == [0, 1, 3, 5, 6]
    assert first_of_each(codes, 7, dataset="x").tolist() == first_of_each(codes, None, dataset="x").tolist()
    with pytest.raises(DataError, match=r"dataset 'x': found examples: 8, expected 3 \(one of each class\) to 7"):
        first_of_each(codes, 8, dataset="x")
