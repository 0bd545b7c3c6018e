"""Files of the user's own: how they are found, named and hashed; class tables, and every way one can be wrong."""

import hashlib
import os
from pathlib import Path

import numpy as np
import pytest

from explorer.data.local import (
    Fault,
    LocalFile,
    below,
    check_class,
    classes_of,
    first_of_each,
    listed,
    matching,
    named_classes,
    parse_class_table,
    read_class_table,
    shown,
    skipped,
)
from explorer.errors import DataError

# --- files -----------------------------------------------------------------------------------------------------------


def test_names_are_those_below_the_directory_in_order(tmp_path: Path) -> None:
    for name in ("b", "a/c", "a/b"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(name.encode())
    files = listed(tmp_path)
    assert [file.name for file in files] == ["a/b", "a/c", "b"]
    assert [file.read(max_bytes=10) for file in files] == [b"a/b", b"a/c", b"b"]


def test_what_is_hidden_is_left_out(tmp_path: Path) -> None:
    for name in ("a/b", "a/.DS_Store", ".ipynb_checkpoints/a", "a/.cache/b/c"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"x")
    (tmp_path / ".link").symlink_to(tmp_path / "a")
    assert [file.name for file in listed(tmp_path)] == ["a/b"]
    assert sorted(matching(tmp_path, "*/*")) == [tmp_path / "a/b"] and [*matching(tmp_path, "*")] == [tmp_path / "a"]
    hidden = tmp_path / "a" / ".cache"  # itself what is asked for
    assert [file.name for file in listed(hidden)] == ["b/c"] and [*matching(hidden, "*")] == [hidden / "b"]


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


# --- class tables ----------------------------------------------------------------------------------------------------

TABLE = b"path,class\n.,open\na,open/permissive/mit\na/b/1.txt,personal/customer\n\n"


def test_the_longest_path_counts() -> None:
    table = parse_class_table(TABLE, where="t")
    names = ["1.txt", "a/1.txt", "a/b/1.txt", "a/b/2.txt", "ab/1.txt"]
    expected = ["open", "open/permissive/mit", "personal/customer", "open/permissive/mit", "open"]
    assert classes_of(names, table, where="t") == expected


def test_a_file_without_a_row_and_a_row_without_a_file() -> None:
    table = parse_class_table(b"path,class\ncats,open/mit\n", where="t")
    with pytest.raises(DataError, match=r"t: no row covers 'dogs/1': expected one, or a row '\.' for all"):
        classes_of(["cats/1", "dogs/1"], table, where="t")
    table = parse_class_table(b"path,class\n.,open\ncasts,licensed/x\n", where="t")
    with pytest.raises(DataError, match="t: 'casts' is no file or directory that is read"):
        classes_of(["cats/1"], table, where="t")


WRONG = {
    "no header": (b"cats,open\n", "begins with the line: path,class"),
    "empty": (b"", "begins with the line: path,class"),
    "three fields": (b"path,class\na,b,c\n", "row 2: found 3 fields"),
    "no path": (b"path,class\n,open\n", "row 2: found path ''"),
    "out": (b"path,class\n../x,open\n", r"row 2: found path '\.\./x'"),
    "absolute": (b"path,class\n/etc,open\n", "row 2: found path '/etc'"),
    "class": (b"path,class\n.,Open Source\n", "row 2: found class 'Open Source': expected a path as in a taxonomy"),
    "class with a line end": (b'path,class\n.,"open\n"\n', r"found class 'open\\n'"),
    "long class": (b"path,class\n.," + b"a" * 201, "found class"),
    "twice": (b"path,class\na,open\na/,open\n", "row 3: 'a' is listed twice"),
    "not UTF-8": (b"path,class\n\xff,open\n", "not CSV in UTF-8"),
    "open quote": (b'path,class\n"a,open\n', "not CSV in UTF-8"),
    "field too long": (b"path,class\n" + b"a" * 200_000 + b",open\n", "not CSV in UTF-8"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_tables(name: str) -> None:
    content, message = WRONG[name]
    with pytest.raises(DataError, match=f"^t.*{message}"):
        parse_class_table(content, where="t")


def test_bounds(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("explorer.data.local.MAX_ROWS", 2)
    with pytest.raises(DataError, match="t: more than 2 rows"):
        parse_class_table(b"path,class\n" + b"".join(b"%d,open\n" % n for n in range(3)), where="t")
    monkeypatch.setattr("explorer.data.local.MAX_BYTES", 10)
    (tmp_path / "t.csv").write_bytes(TABLE)
    with pytest.raises(DataError, match="too large"):
        read_class_table(tmp_path / "t.csv")
    with pytest.raises(DataError, match=r"no file .*none\.csv"):
        read_class_table(tmp_path / "none.csv")


@pytest.mark.parametrize("path", [None, 5, "", "/open", "open/", "Open", "a//b", "open\n", "a" * 201])
def test_no_class(path: object) -> None:
    with pytest.raises(DataError, match="here: found class"):
        check_class(path, where="here")


def test_a_class_for_every_folder() -> None:
    names = ["cats", "Cats", "My dogs!", "..", "\udce9", "a/../../etc", "x" * 300]
    classes = named_classes(names)
    assert classes["My dogs!"] == "folders/my-dogs" and classes["Cats"] == "folders/cats"
    assert len(set(classes.values())) == len(names) and named_classes(reversed(names)) == classes
    for path in classes.values():
        assert check_class(path, where="here") == path and path.count("/") == 1
