"""Single records by their sources: found where one row has it, refused with the nearest; and what is said of a row."""

import shutil
from pathlib import Path

import pytest

from explorer import rundir
from explorer.errors import LedgerError
from explorer.provenance.tags_file import Row, TagFile, write_table
from explorer.runlog.documents import TABLE_FILE
from explorer.runlog.run_ledger import RunLedger
from explorer.runlog.tagged_records import SHOWN, numbers_of, words_of
from explorer.runlog.target import Target
from tests.audit.governed_run import NEWS, write_governed_run
from tests.provenance.people import GOVERNANCE


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunLedger:
    """A run whose rows come from files, the last two of them from one file, and one from nowhere."""
    directory = write_governed_run(tmp_path_factory.mktemp("run"))
    sources = [f"news/{number:03}.jpg" for number in range(10)] + ["news/both.txt"] * 2 + [""]
    rows = (Row(bytes(32), NEWS, source, GOVERNANCE) for source in sources)
    write_table(directory / rundir.GOVERNANCE / TABLE_FILE, rows)
    return RunLedger(directory)


def test_a_record_is_a_number_or_a_source_that_one_row_has(run: RunLedger) -> None:
    assert numbers_of(run, ["news/007.jpg", "3", "-7", "news/002.jpg"]) == (7, 3, -7, 2)
    assert numbers_of(run, []) == ()


def test_numbers_alone_need_no_table(run: RunLedger, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(run.run, tmp_path / "copy"))
    (copy / rundir.GOVERNANCE / TABLE_FILE).unlink()
    assert numbers_of(RunLedger(copy), ["3"]) == (3,)
    assert words_of(RunLedger(copy), Target(classes=(NEWS,))) == NEWS


@pytest.mark.parametrize(
    ("written", "words"),
    [
        ("photos/news/007.jpg", "no row of the tag table has this source; did you mean 'news/007.jpg'?"),
        ("zzz", "its sources are such as 'news/000.jpg'. The table has training examples only."),
        ("\u0667", "no row of the tag table has this source"),  # a digit, but none that is a number here
        ("news/both.txt", "the source of 2 rows of the tag table, expected one: give a row number of 10, 11;"),
    ],
)
def test_other_sources_are_refused(run: RunLedger, written: str, words: str) -> None:
    with pytest.raises(LedgerError) as refused:
        numbers_of(run, ["3", written])
    assert words in str(refused.value)


def test_what_the_table_says_of_records(run: RunLedger) -> None:
    assert words_of(run, Target(records=(7,))) == f"record 7 (news/007.jpg, class {NEWS})"
    assert words_of(run, Target(records=(12,))) == f"record 12 (class {NEWS})"
    assert words_of(run, Target(records=(1, 7))) == (
        f"2 records: 1 (news/001.jpg, class {NEWS}); 7 (news/007.jpg, class {NEWS})"
    )
    assert words_of(run, Target(records=tuple(range(SHOWN + 2)))).endswith("; and 2 more")


def test_rows_are_found_across_batches(run: RunLedger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("explorer.provenance.tags_file.BATCH", 4)
    assert numbers_of(run, ["news/009.jpg"]) == (9,)
    with TagFile(run.run / rundir.GOVERNANCE / TABLE_FILE) as table:
        found = dict(table.rows_at([9, 2, 99]))
    assert {number: row.source for number, row in found.items()} == {2: "news/002.jpg", 9: "news/009.jpg"}
