"""A database from somebody else is data: what is in it reads no other file, writes none, and loads nothing."""

import multiprocessing
import re
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from explorer.errors import ExplorerError, StoreError
from explorer.store import connect, frames, queries
from explorer.store.connect import connect_in_memory, connect_to_file, reading
from explorer.store.export import export
from explorer.store.ingest import ingest
from explorer.store.published import database
from explorer.store.queries import Question
from explorer.store.run_details import run_details
from explorer.store.snapshot_tables import quoted
from explorer.store.spool_reader import CONTRIBUTIONS, select
from explorer.store.upkeep import bring_up
from tests.builders import write_sweep
from tests.cli.command import explorer

SECRET = "BEGIN PRIVATE KEY"
READS = {
    "text": "SELECT content AS c FROM read_text('{secret}')",
    "blob": "SELECT content::VARCHAR AS c FROM read_blob('{secret}')",
    "csv": "SELECT * AS c FROM read_csv('{secret}', header = false, columns = {{'c': 'VARCHAR'}})",
    "names": "SELECT file AS c FROM glob('{directory}/*')",
    "parquet": "SELECT c FROM read_parquet('{directory}/secret.parquet')",
    "file by name": "SELECT c FROM '{directory}/secret.parquet'",
    "a query as text": "SELECT content AS c FROM query('SELECT content FROM read_text(''{secret}'')')",
}
STATEMENTS = {
    "copy": "COPY (SELECT 1) TO '{directory}/written.csv'",
    "export": "EXPORT DATABASE '{directory}/written'",
    "attach": "ATTACH '{directory}/other.duckdb'",
    "load": "LOAD httpfs",
    "install": "INSTALL httpfs",
    "open up": "SET enable_external_access = true",
    "unlock": "SET lock_configuration = false",
    "directory": "SET allowed_directories = ['/']",
    "python": "SET python_enable_replacements = true",
}


@pytest.fixture(scope="module")
def ingested(tmp_path_factory: pytest.TempPathFactory) -> Path:
    runs = tmp_path_factory.mktemp("ingested") / "runs"
    write_sweep(runs, {"baseline": {1.0: (0.9, 0.91)}, "fast": {1.0: (0.92,)}})
    ingest(runs)
    return runs


@pytest.fixture
def runs(ingested: Path, tmp_path: Path) -> Path:
    runs = shutil.copytree(ingested, tmp_path / "runs")
    (tmp_path / "secret").write_text(SECRET)
    pq.write_table(pa.table({"c": [SECRET]}), tmp_path / "secret.parquet")
    return runs


def said(runs: Path, text: str) -> str:
    return text.format(secret=runs.parent / "secret", directory=runs.parent)


def plant(path: Path, view: str, body: str, *, column: str | None = None) -> None:
    """Put a view in the place of a view or table; with `column`, what it reads is shown in that one."""
    kept = f"honest_{view}"
    with duckdb.connect(path) as connection:
        found = connection.execute("SELECT table_type FROM information_schema.tables WHERE table_name = ?", [view])
        kind = "VIEW" if found.fetchone() == ("VIEW",) else "TABLE"
        connection.execute(f"ALTER {kind} {view} RENAME TO {kept}")
        shown = f"SELECT * REPLACE ((SELECT c::VARCHAR FROM ({body})) AS {column}) FROM {kept}" if column else body
        connection.execute(f"CREATE VIEW {view} AS {shown}")


@pytest.mark.parametrize("body", READS.values(), ids=READS)
def test_a_view_reads_no_file(runs: Path, body: str) -> None:
    """The control: opened as DuckDB opens it by itself, the same view gives the secret."""
    plant(database(runs), "plans", said(runs, body))
    with duckdb.connect(database(runs), read_only=True) as connection:
        assert connection.execute("SELECT count(c) FROM plans").fetchone() != (0,)
    with pytest.raises(StoreError, match="cannot be read") as refused:
        queries.select(database(runs), Question(sql="FROM plans"))
    assert "disabled" in str(refused.value) and SECRET not in str(refused.value)


READERS: dict[str, Callable[[Path], object]] = {
    "results": lambda runs: queries.results(database(runs)),
    "means": lambda runs: frames.means(database(runs)),
    "notebooks": lambda runs: frames.results(database(runs)),
    "csv": lambda runs: export(database(runs), runs.parent / "written.csv"),
    "parquet": lambda runs: export(database(runs), runs.parent / "written.parquet"),
    "details": lambda runs: run_details(database(runs), ["digits/any"]),
    "upkeep": bring_up,
}


@pytest.mark.parametrize("reader", READERS.values(), ids=READERS)
def test_no_reader_shows_a_file(runs: Path, reader: Callable[[Path], object]) -> None:
    for view, column in {"results": "recipe", "means": "recipe", "runs": "state", "problems": "reason"}.items():
        plant(database(runs), view, said(runs, READS["text"]), column=column)
    with pytest.raises(StoreError, match="cannot be read"):
        reader(runs)
    assert not list(runs.parent.glob("written*"))


@pytest.mark.parametrize(
    "words", [("results", "digits"), ("results", "digits", "--rows"), ("ask", "digits"), ("report", "digits")]
)
def test_no_command_shows_a_file(runs: Path, words: tuple[str, ...]) -> None:
    plant(database(runs), "outcomes", said(runs, READS["text"]), column="recipe")
    done = explorer(*words, "--runs", runs)
    assert done.returncode == 1
    assert SECRET not in done.stdout + done.stderr and "Traceback" not in done.stderr
    assert "explorer store rebuild" in done.stderr


def test_a_working_database_from_somebody_else_reads_no_file(runs: Path) -> None:
    """Nobody reported this one: whoever brings a directory of runs brings the ingester's own database too."""
    plant(runs / "_store" / "store.duckdb", "plans", said(runs, READS["text"]))
    with pytest.raises(StoreError, match="explorer store rebuild"):
        ingest(runs, force=True)
    with pytest.raises(ExplorerError) as refused:
        ingest(runs, force=True)
    assert SECRET not in str(refused.value)


@pytest.mark.parametrize("statement", STATEMENTS.values(), ids=STATEMENTS)
@pytest.mark.parametrize("kind", ["file", "memory"])
def test_no_statement_opens_it_up(runs: Path, kind: str, statement: str) -> None:
    connection = connect_to_file(database(runs)) if kind == "file" else connect_in_memory(runs / "_store")
    with connection, pytest.raises(duckdb.Error):
        connection.execute(said(runs, statement))
    assert not list(runs.parent.glob("written*"))


def test_a_view_sees_no_variable_of_this_process(runs: Path) -> None:
    """DuckDB takes a name that it does not know for a Python variable of whoever asks."""
    private_numbers = pa.table({"c": [SECRET]})
    with duckdb.connect() as careless:
        assert careless.execute("FROM private_numbers").fetchall() == [(SECRET,)]
    for connection in (connect_to_file(database(runs)), connect_in_memory(runs)):
        with connection, pytest.raises(duckdb.CatalogException, match="private_numbers"):
            connection.execute("FROM private_numbers")
    assert private_numbers.num_rows == 1


def test_a_connection_in_memory_reaches_its_directory_alone(tmp_path: Path) -> None:
    inside, outside = tmp_path / "it's [here]", tmp_path / "outside"
    for directory in (inside, outside):
        directory.mkdir()
        (directory / "note.txt").write_text(SECRET)
    (inside / "link.txt").symlink_to(outside / "note.txt")
    with connect_in_memory(inside) as connection:
        connection.execute(f"ATTACH '{quoted(inside / 'own.duckdb')}' AS own")
        for path in (outside / "note.txt", inside / ".." / "outside" / "note.txt", inside / "link.txt"):
            with pytest.raises(duckdb.PermissionException):
                connection.execute("SELECT content FROM read_text(?)", [str(path)])


def test_a_spool_below_a_linked_directory_is_read(tmp_path: Path) -> None:
    real = tmp_path / "real" / "contributions"
    real.mkdir(parents=True)
    row = {name: ["a"] if kind == "VARCHAR" else [0] for name, kind in CONTRIBUTIONS.items()}
    pq.write_table(pa.table(row), real / "segment-00000000.parquet")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    assert len(select(tmp_path / "link" / "contributions", CONTRIBUTIONS, "SELECT step FROM spool")) == 1


def test_there_is_one_door() -> None:
    root = Path(queries.__file__).parent.parent
    opens = re.compile(r"duckdb\s*\.\s*(connect|sql|query|execute|read_\w+|from_\w+)\(|from duckdb import")
    found = [path.relative_to(root).as_posix() for path in root.rglob("*.py") if opens.search(path.read_text())]
    assert found == ["store/connect.py"]


class TestReading:
    """A file that is read again is opened once, and never shown after another one has taken its place."""

    @pytest.fixture
    def opens(self, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
        opened: list[Path] = []

        def counted(path: Path) -> duckdb.DuckDBPyConnection:
            opened.append(path)
            return connect_to_file(path)

        monkeypatch.setattr(connect, "connect_to_file", counted)
        return opened

    @staticmethod
    def write(path: Path, value: int) -> Path:
        new = path.with_suffix(".new")
        with duckdb.connect(new) as connection:
            connection.execute("CREATE TABLE t AS SELECT ? AS value", [value])
        return new.replace(path)

    @staticmethod
    def read(path: Path) -> int:
        with reading(path) as connection:
            return connection.execute("FROM t").fetchall()[0][0]

    def test_a_file_is_opened_once_for_many_questions(self, tmp_path: Path, opens: list[Path]) -> None:
        path = self.write(tmp_path / "a.duckdb", 1)
        assert [self.read(path) for _ in range(3)] == [1, 1, 1]
        assert opens == [path]

    def test_another_file_in_its_place_is_read(self, tmp_path: Path, opens: list[Path]) -> None:
        path = self.write(tmp_path / "a.duckdb", 1)
        assert [self.read(self.write(path, value)) for value in range(3)] == [0, 1, 2]
        assert opens == [path] * 3

    def test_a_file_overwritten_in_place_is_read(self, tmp_path: Path) -> None:
        path, other = self.write(tmp_path / "a.duckdb", 1), self.write(tmp_path / "b.duckdb", 2)
        assert self.read(path) == 1
        path.write_bytes(other.read_bytes())
        assert self.read(path) == 2

    def test_control_duckdb_gives_out_the_old_file_while_one_connection_is_open(self, tmp_path: Path) -> None:
        path = self.write(tmp_path / "a.duckdb", 1)
        with connect_to_file(path), connect_to_file(self.write(path, 2)) as late:
            assert late.execute("FROM t").fetchall() == [(1,)]

    def test_a_reader_inside_a_reader_keeps_its_file(self, tmp_path: Path, opens: list[Path]) -> None:
        path, other = self.write(tmp_path / "a.duckdb", 1), self.write(tmp_path / "b.duckdb", 2)
        with reading(path) as outer:
            assert self.read(other) == 2
            assert outer.execute("FROM t").fetchall() == [(1,)]
        assert self.read(self.write(path, 3)) == 3
        assert opens == [path, other, path]

    def test_a_forked_child_reads_with_a_connection_of_its_own(self, tmp_path: Path) -> None:
        path = self.write(tmp_path / "a.duckdb", 1)
        assert self.read(path) == 1
        child = multiprocessing.get_context("fork").Process(target=self.read, args=(path,))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12: this process has threads
            child.start()
        child.join(600)
        assert child.exitcode == 0

    def test_a_missing_file_is_an_error(self, tmp_path: Path) -> None:
        with pytest.raises(duckdb.IOException), reading(tmp_path / "none.duckdb"):
            pass
