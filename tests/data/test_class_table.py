"""Tables of provenance classes: which row counts, and every way in which a table can be wrong."""

from pathlib import Path

import pytest

from explorer.data.class_table import check_class, classes_of, parse_class_table, read_class_table
from explorer.errors import DataError

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
    "twice": (b"path,class\na,open\na/,open\n", "row 3: 'a' stands twice"),
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
    monkeypatch.setattr("explorer.data.class_table.MAX_ROWS", 2)
    with pytest.raises(DataError, match="t: more than 2 rows"):
        parse_class_table(b"path,class\n" + b"".join(b"%d,open\n" % n for n in range(3)), where="t")
    monkeypatch.setattr("explorer.data.class_table.MAX_BYTES", 10)
    (tmp_path / "t.csv").write_bytes(TABLE)
    with pytest.raises(DataError, match="too large"):
        read_class_table(tmp_path / "t.csv")
    with pytest.raises(DataError, match=r"no file .*none\.csv"):
        read_class_table(tmp_path / "none.csv")


@pytest.mark.parametrize("path", [None, 5, "", "/open", "open/", "Open", "a//b", "open\n", "a" * 201])
def test_no_class(path: object) -> None:
    with pytest.raises(DataError, match="here: found class"):
        check_class(path, where="here")
