"""Tables of one's own: which columns become features, how rows are divided, provenance, what is refused."""

import math
import os
from pathlib import Path

import pytest
import torch

from explorer.data.dataset import TableColumn
from explorer.data.tabular import Table, Tabular
from explorer.errors import DataError

CPU = torch.device("cpu")
HEAD = "id,age,town,note,seen,one,kind\n"


def row(number: int) -> str:
    age = "" if number % 10 == 3 else str(20 + number % 7)
    kind = " yes" if number % 2 else "no"
    return f"{number},{age},{'Rome' if number % 3 else 'Oslo'},words {number},2026-01-{number % 28 + 1:02d},5,{kind}\n"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "people.csv").write_text(HEAD + "".join(map(row, range(100))))
    return tmp_path / "data"


def loaded(data: Path, text: str | bytes, **parameters: str | float) -> Table:
    (data / "other.csv").write_bytes(text if isinstance(text, bytes) else text.encode())
    return Tabular(**{"path": "other.csv", "target": "y"} | parameters).load(data)  # pyright: ignore


def test_numbers_and_texts_become_features_and_the_rest_is_left_out_with_reasons(data: Path) -> None:
    table = Tabular(path="people.csv", target="kind").load(data)
    assert table.names == ("no", "yes") and table.example_shape == (4,)  # age, its absence, Oslo, Rome
    reasons = {name: skipped.reason for skipped in table.skipped for name in skipped.names}
    assert reasons == {
        "id": "a column that numbers the rows",
        "note": "a column of more than 64 different texts",
        "seen": "a column of date32[day] values",
        "one": "a column of one value",
    }
    assert table.columns == (
        TableColumn(name="age", features=("age", "age is missing"), missing=10),
        TableColumn(name="town", features=("town = Oslo", "town = Rome"), missing=0),
    )
    assert len(table.train) == 80 and len(table.test) == 20
    assert [torch.bincount(split.labels).tolist() for split in (table.train, table.test)] == [[40, 40], [10, 10]]


def test_features_are_normalised_by_the_training_rows_and_a_missing_number_is_the_mean(data: Path) -> None:
    table = Tabular(path="people.csv", target="kind").load(data)
    prepared = table.preparation(CPU)(table.train.inputs)
    assert prepared.dtype == torch.float32 and bool(prepared.isfinite().all())
    assert prepared.mean(0).abs().max() < 1e-6 and abs(float(prepared[:, 1:].std(0, unbiased=False).mean()) - 1) < 1e-6
    missing = table.train.inputs[:, 0].isnan()
    assert bool(missing.any()) and bool((prepared[missing, 0] == 0).all())
    assert torch.equal(table.train.inputs[:, 1], missing.double())


def test_large_numbers_keep_their_digits(data: Path) -> None:
    """A time in seconds has ten digits, of which float32 has seven."""
    rows = "".join(f"{1_700_000_000 + 7 * number % 40},{number % 2}\n" for number in range(40))
    table = loaded(data, "seconds,y\n" + rows)
    assert len(table.preparation(CPU)(table.train.inputs).unique()) == len(table.train.inputs.unique()) > 20


def test_equal_rows_are_on_one_side_and_rows_that_are_added_move_few(data: Path) -> None:
    rows = [f"{number % 13},{number % 5 / 4},{number % 2}\n" for number in range(260)]
    table = loaded(data, "a,b,y\n" + "".join(rows))
    train, test = ({*map(tuple, torch.column_stack((s.inputs, s.labels)).tolist())} for s in (table.train, table.test))
    assert train and test and train.isdisjoint(test)
    more = loaded(data, "a,b,y\n" + "".join([*rows, "50,0.5,0\n", "51,0.5,1\n"]))
    again = {*map(tuple, torch.column_stack((more.test.inputs, more.test.labels)).tolist())}
    assert len(again ^ test) <= 4


@pytest.mark.parametrize("separator", [",", ";", "\t"])
def test_separators_and_a_byte_order_mark(data: Path, separator: str) -> None:
    lines = ["a b", "y", *(value for n in range(20) for value in (str(n % 7), str(n % 2)))]
    rows = "".join(f"{one}{separator}{other}\n" for one, other in zip(lines[::2], lines[1::2], strict=True))
    assert loaded(data, b"\xef\xbb\xbf" + rows.encode()).example_shape == (1,)


@pytest.mark.parametrize("first", ["4,1,0", "2,0,0", "-1,3,1e3", "7,6"])
def test_a_first_line_of_numbers_only_is_data(data: Path, first: str) -> None:
    with pytest.raises(DataError, match=f"the first line looks like data, '{first}': expected the names"):
        loaded(data, f"{first}\n" + "".join(f"{number % 7},{number % 5},{number % 2}\n" for number in range(20)))


@pytest.mark.parametrize("names", ["0,1,2", "1,2,3", "1999,2000,2001"])
def test_columns_can_be_called_by_consecutive_numbers(data: Path, names: str) -> None:
    rows = "".join(f"{number % 7},{number % 5},{number % 2}\n" for number in range(20))
    assert loaded(data, f"{names}\n{rows}", target=names.split(",")[2]).example_shape == (2,)


def test_labels_are_ordered_as_numbers_or_as_letters(data: Path) -> None:
    rows = "".join(f"{number},{label}\n" for number in range(0, 30, 3) for label in ("10", "-1", "2"))
    assert loaded(data, "x,y\n" + rows).names == ("-1", "2", "10")
    rows = "".join(f"{number},{label}\n" for number in range(0, 30, 3) for label in ("true", "false"))
    assert loaded(data, "x,y\n" + rows).names == ("false", "true")


def test_provenance_from_a_column_which_is_no_feature(data: Path) -> None:
    rows = "".join(f"{n % 9},{'St. Mary' if n % 3 else 'City'},{n % 2}\n" for n in range(60))
    source = Tabular(path="other.csv", target="y")
    plain = loaded(data, "x,Source,y\n" + rows)
    assert plain.provenance is None and plain.example_shape == (3,)
    named = source.with_classes(data)
    table = named.load(data)
    assert named.tag == "Source" and table.example_shape == (1,) and table.provenance is not None
    assert table.provenance.classes == ("source/city", "source/st.-mary") and not table.provenance.simulated
    assert table.provenance.sources[0].startswith("other.csv, row ") and len(table.provenance.codes) == len(table.train)
    paths = loaded(data, "x,tag,y\n" + rows.replace("St. Mary", "open/a").replace("City", "open/b"), tag="tag")
    assert paths.provenance is not None and paths.provenance.classes == ("open/a", "open/b")


def test_without_such_a_column_the_labels_are_simulated_provenance(data: Path) -> None:
    table = Tabular(path="people.csv", target="kind").with_classes(data).load(data)
    assert table.provenance is not None and table.provenance.simulated
    assert table.provenance.classes == ("simulated/no", "simulated/yes")


def test_the_target_is_a_usual_name_or_the_last_column(data: Path) -> None:
    for header, target in (("a,Label,b", "Label"), ("y,a,b", "y"), ("a,b,c", "c")):
        (data / "t.csv").write_text(f"{header}\n1,2,3\n")
        found = Tabular.of_path(data / "t.csv")
        assert found is not None and found.target == target
    assert Tabular.of_path(data) is None
    (data / "t.txt").write_text("a,b\n")
    assert Tabular.of_path(data / "t.txt") is None


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "an empty file"),
        ("a\n1\n", "found 1 columns"),
        ("a,b,a\n1,2,3\n", "two columns are called 'a'"),
        ("5.1,3.5,y\n4.9,3.0,1\n", "found the number 5.1 in line 1: expected the names"),
        ("a,y\n1,0\n1,2,3\n", r"expected a table \(CSV\) in UTF-8"),
        (b"a,y\n\xff\xfe,1\n\x00,2\n", "column 'a' is not UTF-8"),
        ("a,x\n1,0\n2,1\n", "unknown column 'y'"),
        ("a,y\n1,0\n2,\n", "row 2: found nothing in column 'y'"),
        ("a,y\n1,0.5\n2,1.25\n", "other numbers is predicted with predict: number"),
        ("a,y\n1,0\n2,0\n", "found 1 different values in column 'y'"),
        ("a,y\n1,0\n2,0\n3,0\n4,1\n", "label '1' of column 'y' has one row"),
        ("a,y\n" + "1,0\n2,1\n" * 4, "or equal rows only"),
        ("a,y\n" + "".join(f"w{n},{n % 2}\n" for n in range(200)), "'a' is a column of more than 64 different texts"),
    ],
)
def test_what_is_no_table_is_refused_in_a_sentence(data: Path, text: str | bytes, words: str) -> None:
    with pytest.raises(DataError, match=words) as error:
        loaded(data, text)
    assert len(str(error.value)) < 400 and "\n" not in str(error.value)


def test_no_path_leads_out_and_no_pipe_is_opened(data: Path) -> None:
    os.mkfifo(data / "pipe.csv")
    for path, words in (
        ("../people.csv", "leaves the data directory"),
        ("pipe.csv", "no file"),
        ("none.csv", "no file"),
    ):
        for call in (Tabular(path=path, target="kind").load, Tabular(path=path, target="kind").digest):
            with pytest.raises(DataError, match=words):
                call(data)
    assert Tabular.of_path(data / "pipe.csv") is None


def test_infinite_numbers_are_missing(data: Path) -> None:
    rows = "".join(f"{'inf' if n == 4 else n % 6},{n % 2}\n" for n in range(30))
    table = loaded(data, "x,y\n" + rows)
    assert not any(
        math.isinf(value) for split in (table.train, table.test) for value in split.inputs.flatten().tolist()
    )
