"""A run that was trained, with a confidential class: nothing of it is in the clear for who has all but `private`."""

import json
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from explorer import rundir
from explorer.entries.heads import read_head
from explorer.entries.kinds import Decision, Profile, State
from explorer.ledger.storage import LedgerDirectory
from explorer.provenance.commitments import destroy_salt
from explorer.provenance.envelope import write_envelope
from explorer.provenance.policy import POLICY
from explorer.report.run_report import write_run_report
from explorer.runlog.run_keys import JOINT
from explorer.runlog.run_ledger import RunLedger, class_of
from explorer.store import queries
from explorer.store.ingest import ingest
from explorer.store.published import database
from explorer.store.queries import Question
from explorer.training.replay import replay
from explorer.training.run import execute
from tests.governance import desk
from tests.provenance.people import RISK
from tests.training import recorded_runs

MIT = "open/mit"
METHODS = (
    {"routing": {"policy": "late"}},
    {"contributions": {"exact": ["*"]}},
    {"entropy": {"probes": 4, "profiles": 2, "permutations": 9}},
    {"governed_freezing": {"probes": 4, "start": 0.1, "settled": 10.0}},
    {"governed_selective_backprop": {"start": 0.1}},
)
TABLES = ("contributions", "entropy", "decisions", "metrics")


def trained(root: Path, confidential: tuple[str, ...]) -> Path:
    """A finished run below `root`/runs, of a policy with these confidential branches."""
    author = recorded_runs.documents_for_digits(root)
    policy = replace(recorded_runs.LATE, confidential=confidential)
    write_envelope(author / "policies" / "late.json", desk.document(policy, POLICY, RISK))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(recorded_runs, "METHODS", METHODS)
        run = recorded_runs.planned_run(root, author)
    execute(run)
    (root / "runs" / "test").mkdir(parents=True)
    return run.rename(root / "runs" / "test" / run.name)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trained(tmp_path_factory.mktemp("sealed"), ("open/mit",))


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trained(tmp_path_factory.mktemp("plain"), ())


def secret_numbers(run: Path) -> dict[str, np.ndarray]:
    """What the owner reads in the blobs of the class and of several classes, by entry and name. Zeros and what is not
    finite are left out: they are no secret."""
    ledger, found = RunLedger(run), dict[str, np.ndarray]()
    outline = ledger.outline
    entries = [*ledger.read(outline.profiles, Profile), *ledger.read(outline.decisions, Decision)]
    for placed in (*entries, *ledger.read([index for _, index in outline.states], State)):
        for name in placed.entry.blobs:
            if class_of(name) in (MIT, JOINT):
                content = ledger.blob(placed, name, max_bytes=2**20)
                assert content is not None
                single = isinstance(placed.entry, State) or getattr(placed.entry, "action", "") == "selection"
                behind = 4 if isinstance(placed.entry, Profile) else 0  # the number of examples
                values = np.frombuffer(content, "<f4" if single else "<f8", offset=behind)
                found[f"{placed.index} {name}"] = values[np.isfinite(values) & (values != 0)]
    return found


def neighbours(numbers: Iterable[np.ndarray]) -> Iterator[bytes]:
    """Eight bytes or more, that are not somewhere by chance: doubles, and pairs of floats; not of small whole numbers,
    which weights and ranks may be, nor of hundredths, which p-values of 99 permutations are."""
    for values in numbers:
        step = 1 if values.itemsize == 8 else 2
        for at in range(0, len(values) - step + 1, step):
            part = values[at : at + step]
            if (part != np.round(part, 2)).any():
                yield part.tobytes()


def leaks(run: Path, secret: dict[str, np.ndarray]) -> set[str]:
    """The files outside `private` in which such bytes are, and text in which such a number is."""
    wanted, found = set(neighbours(secret.values())), set[str]()
    texts = {repr(float(value)) for values in secret.values() for value in values if value != np.round(value, 2)}
    for path in run.rglob("*"):
        if path.is_file() and rundir.PRIVATE not in path.relative_to(run).parts:
            content = path.read_bytes()
            windows = {content[at : at + 8] for at in range(len(content) - 7)}
            if windows & wanted or any(
                text.encode() in content for text in texts if path.suffix in (".json", ".jsonl")
            ):
                found.add(path.relative_to(run).parts[0])
    return found


def cells(value: Any) -> Iterator[float]:
    """Every number in a row of a table, or in a JSON document."""
    if isinstance(value, float | int):
        yield float(value)
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ():
        yield from cells(inner)


def told(numbers: Iterable[float], secret: dict[str, np.ndarray]) -> int:
    """How many of these numbers are secret ones, to seven digits; whole numbers and halves are everybody's."""
    known = {f"{value:.6e}" for values in secret.values() for value in values.tolist() if value % 0.25}
    return sum(f"{number:.6e}" in known for number in numbers)


def numbers_for_an_outsider(run: Path, root: Path) -> list[float]:
    """Every number in the database, in the report and in the spool, made from a directory without `private`."""
    outside = root / "runs" / "test" / run.name
    shutil.copytree(run, outside, ignore=shutil.ignore_patterns(rundir.PRIVATE))
    assert ingest(root / "runs").problems == ()
    rows = [
        row
        for table in TABLES
        for row in queries.select(database(root / "runs"), Question(sql=f"SELECT * FROM {table}")).rows
    ]
    write_run_report(outside, root / "report.json", trust=outside / rundir.GOVERNANCE / "trust.json", format="json")
    report = json.loads((root / "report.json").read_text())
    spool = [
        pq.read_table(path).to_pylist() for path in outside.rglob("*.parquet") if path.parent.name != rundir.GOVERNANCE
    ]
    return list(cells([rows, report, spool]))


def test_an_outsider_finds_no_number_of_the_class_in_the_directory(run: Path) -> None:
    secret = secret_numbers(run)
    assert {name.partition(" ")[2].partition("/")[0] for name in secret} == {"numbers", "sketches", "evidence", "joint"}
    assert sum(map(len, secret.values())) > 1_000
    assert leaks(run, secret) == set()


def test_nor_in_what_is_made_from_it(run: Path, tmp_path: Path) -> None:
    assert told(numbers_for_an_outsider(run, tmp_path), secret_numbers(run)) == 0


@pytest.mark.slow
def test_the_same_search_finds_them_where_nothing_is_confidential(plain: Path, tmp_path: Path) -> None:
    """The control."""
    secret = secret_numbers(plain)
    assert leaks(plain, secret) == {"ledger"}  # the spool is compressed, and is read below
    assert told(numbers_for_an_outsider(plain, tmp_path), secret) > 100


def test_what_is_kept_of_training_would_tell(run: Path) -> None:
    """The control of where checkpoints are: what methods remember of the class is in them."""
    kept = b"".join(path.read_bytes() for path in (run / rundir.KEPT).iterdir())
    assert any(part in kept for part in neighbours(secret_numbers(run).values()))


def named_blobs(run: Path, *, without: tuple[str, ...] = ()) -> int:
    """How many blobs the entries behind the genesis name, but for those of these classes: those of the genesis are
    compared with what the run begins with, and not counted."""
    heads = map(read_head, LedgerDirectory(run / rundir.LEDGER).entries(1))
    return sum(class_of(name) not in without for head in heads for name in head.blobs)


@pytest.mark.slow
def test_a_replay_comes_out_as_it_is_on_record(run: Path) -> None:
    found = replay(run)
    assert found.equal and found.secrets_missing == found.sealed_missing == ()
    assert found.blobs == named_blobs(run)


@pytest.mark.slow
def test_a_replay_says_what_it_could_not_compare(run: Path, tmp_path: Path) -> None:
    made = Path(shutil.copytree(run, tmp_path / run.name))
    destroy_salt(made / rundir.SECRETS, RunLedger(run).class_(MIT))
    found = replay(made)
    assert found.equal and found.secrets_missing == found.sealed_missing == (MIT,)
    assert found.blobs == named_blobs(run, without=(MIT,))
    (made / rundir.SECRETS).unlink()
    found = replay(made)
    assert found.equal and found.sealed_missing == (JOINT, MIT)
    assert found.blobs == named_blobs(run, without=(JOINT, MIT))


def test_a_replay_with_other_secrets_finds_a_difference(run: Path, tmp_path: Path) -> None:
    """The control: sealed blobs are compared, byte for byte."""
    made = Path(shutil.copytree(run, tmp_path / run.name))
    content = bytearray((made / rundir.SECRETS).read_bytes())
    content[-1] ^= 1  # the joint one, which is last
    (made / rundir.SECRETS).write_bytes(bytes(content))
    found = replay(made)
    assert found.difference is not None and found.difference.field == "blobs.joint"
