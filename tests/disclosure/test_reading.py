"""Reading with a grant: what it opens and nothing else, checked, and on record before it is read."""

import hashlib
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from explorer import rundir
from explorer.disclosure import reading
from explorer.disclosure.reading import COLUMNS, KEYS, Answer, Contents, Query, ask
from explorer.disclosure.wrapped import GrantKeys, naming, revoke
from explorer.entries.kinds import Access, Entry, State, Step
from explorer.errors import LedgerError, ProvenanceError
from explorer.ledger.storage import blob_path
from explorer.project import AUDIT, Project, read_project, runs_of
from explorer.provenance.encryption import seal
from explorer.runlog.run_keys import NoKeys
from explorer.runlog.run_ledger import RunLedger
from explorer.runlog.segments import read_numbers
from tests.audit.governed_run import CLASSES, LAYERS, STEPS, sign_again, with_blob
from tests.disclosure.grantees import (
    EVERYTHING,
    MIT,
    NEWS,
    OPEN,
    answered,
    grant_of,
    opened,
    project_of,
    signed,
    wrapped,
    write_project,
)
from tests.provenance.people import NOW


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_project(tmp_path_factory.mktemp("project"))


@pytest.fixture
def run(template: Path, tmp_path: Path) -> Path:
    runs = tmp_path / "runs"
    shutil.copytree(template.parents[1], runs)
    return runs / template.parent.name / template.name


def accesses(run: Path) -> list[Access]:
    return [each.entry for each in read_project(runs_of(run)) if isinstance(each.entry, Access)]


def table(answer: Answer) -> list[dict[str, Any]]:
    columns = KEYS + COLUMNS[answer.query.kind]
    return [dict(zip(columns, row, strict=True)) for row in answer.rows]


def recorded(run: Path, path: str) -> dict[tuple[int, str], tuple[float, float]]:
    """Weight and norm of a class by step and layer, as whoever has the secrets reads them."""
    ledger = RunLedger(run)
    found: dict[tuple[int, str], tuple[float, float]] = {}
    for segment in ledger.segments():
        for step, rows in read_numbers(ledger, segment).of_class(ledger.class_(path)).items():
            found |= {(step, layer): tuple(row) for layer, row in zip(LAYERS, rows.tolist(), strict=True)}
    return found


def test_the_numbers_of_the_granted_class(run: Path) -> None:
    answer = answered(run, wrapped(run, grant_of(run)).path)
    rows = table(answer)
    found = {(row["step"], row["layer"]): (row["weight"], row["norm"]) for row in rows}
    assert found == recorded(run, NEWS) and len(found) == len(rows)
    assert {row["class"] for row in rows} == {NEWS}
    assert all(row[name] is None for row in rows for name in ("share_num", "dot", "exact", "update_sq"))
    assert answer.unread == () and answer.checked == len({row["step"] for row in rows})
    entries = {placed.entry.step: placed.index for placed in RunLedger(run).read_steps(range(STEPS))}
    assert all(row["entry"] == entries[row["step"]] for row in rows)


def test_all_classes_give_what_several_made(run: Path) -> None:
    rows = table(answered(run, wrapped(run, grant_of(run, *EVERYTHING)).path))
    assert {row["class"] for row in rows} == {*CLASSES, "*"}
    for total in (row for row in rows if row["class"] == "*"):
        of = [r for r in rows if (r["step"], r["layer"]) == (total["step"], total["layer"]) and r["class"] != "*"]
        assert sum(row["share_num"] for row in of) == pytest.approx(total["share_den"])
        assert sum(row["dot"] for row in of) == pytest.approx(-10 * total["update_sq"], rel=1e-4, abs=1e-6)


def test_of_one_class_only_its_own_numbers_though_all_are_granted(run: Path) -> None:
    path = wrapped(run, grant_of(run, *EVERYTHING)).path
    assert {(row["class"], row["dot"]) for row in table(answered(run, path, class_=MIT))} == {(MIT, None)}
    assert {row["class"] for row in table(answered(run, path, class_="*"))} == {"*"}


def test_profiles_and_decisions(run: Path) -> None:
    path = wrapped(run, grant_of(run)).path
    profiles = answered(run, path, kind="profile")
    assert {(r["step"], r["class"], r["entropy"], r["chi"]) for r in table(profiles)} == {
        (3, NEWS, 3.5, None),
        (9, NEWS, 9.5, None),
    }
    assert profiles.checked == 2
    decisions = answered(run, path, kind="decision")
    assert [(row["step"], row["layer"], row["evidence"]) for row in table(decisions)] == [
        (3, "embed", b"3".hex()),
        (9, "embed", b"9".hex()),
    ]
    both = answered(run, wrapped(run, grant_of(run, *EVERYTHING)).path, kind="profile")
    assert {row["chi"] for row in table(both) if row["class"] == "*"} == {0.5}


def test_some_steps(run: Path) -> None:
    path = wrapped(run, grant_of(run, MIT)).path
    assert {row["step"] for row in table(answered(run, path, steps=range(4, 7)))} == {4, 5, 6}
    assert table(answered(run, path, kind="profile", steps=range(4, 7))) == []
    with pytest.raises(LedgerError, match="no steps 4:40: on record are 0:12"):
        RunLedger(run).range_of(4, 40)


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"class_": MIT}, "class open/mit: outside the grant: grant 2026-0007 of .* covers classes licensed/news"),
        ({"class_": OPEN}, "class open: outside the grant"),
        ({"class_": "*"}, "numbers over several classes: outside the grant"),
        ({"class_": "open/mitt"}, r"unknown class 'open/mitt'; did you mean 'open/mit'\?"),
        ({"kind": "profile"}, "entries of kind profile: outside the grant: .* entries step"),
        ({"kind": "stepp"}, r"unknown kind of entry with numbers 'stepp'; did you mean 'step'\?"),
    ],
)
def test_what_is_outside_of_the_grant(run: Path, how: dict[str, Any], message: str) -> None:
    path = wrapped(run, grant_of(run, NEWS, entries=("step",))).path
    with pytest.raises(ProvenanceError, match=message):
        answered(run, path, **how)
    assert accesses(run) == []


def test_a_read_is_on_record_before_anything_is_read(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = wrapped(run, grant_of(run)).path
    seen: list[int] = []

    def spy(*arguments: Any, **named: Any) -> Contents:
        seen.append(len(accesses(run)))
        project_of(run).close()  # and nobody has to wait for the reading
        return Contents(*arguments, **named)

    monkeypatch.setattr(reading, "Contents", spy)
    answer = answered(run, path)
    assert seen == [1]
    (access,) = accesses(run)
    assert access.query == answer.query.digest
    assert access.grant == naming(signed(grant_of(run))).digest
    assert access.ledger.origin == RunLedger(run).ledger.checkpoint().origin


def test_the_query_is_what_was_asked() -> None:
    query = Query(run="r", kind="step", classes=(NEWS,), steps=range(3, 9))
    text = '{"classes":["licensed/news"],"first":3,"kind":"step","run":"r","stop":9}'
    assert query.digest == hashlib.sha256(text.encode()).hexdigest()
    others = [replace(query, run="s"), replace(query, kind="profile"), replace(query, classes=("*",))]
    assert len({query.digest, *(each.digest for each in others), replace(query, steps=range(3, 8)).digest}) == 5


def unreadable(*_: Any, **__: Any) -> Any:
    raise AssertionError("nothing may be read")


def refuse_append(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> int:
        raise LedgerError("the disk is full")

    monkeypatch.setattr(Project, "append", refuse)


def replace_ledger(run: Path, _: pytest.MonkeyPatch) -> None:
    shutil.rmtree(runs_of(run) / AUDIT)
    (runs_of(run) / AUDIT).write_text("no directory")


@pytest.mark.parametrize(
    ("how", "error", "message"),
    [
        (refuse_append, LedgerError, "the disk is full"),
        (replace_ledger, LedgerError, AUDIT),
    ],
)
def test_a_read_that_cannot_be_recorded_is_none(
    run: Path,
    monkeypatch: pytest.MonkeyPatch,
    how: Callable[[Path, pytest.MonkeyPatch], None],
    error: type[Exception],
    message: str,
) -> None:
    path = wrapped(run, grant_of(run)).path
    monkeypatch.setattr(reading, "Contents", unreadable)
    how(run, monkeypatch)
    with pytest.raises(error, match=message):
        answered(run, path)


def test_a_revoked_grant_opens_nothing_though_its_file_was_kept(run: Path, tmp_path: Path) -> None:
    kept = tmp_path / "kept.json"
    shutil.copy(wrapped(run, grant_of(run)).path, kept)
    assert answered(run, kept).rows
    with project_of(run) as project:
        revoke(naming(signed(grant_of(run))), runs=runs_of(run), project=project)
    with pytest.raises(ProvenanceError, match="was revoked"):
        answered(run, kept)
    assert len(accesses(run)) == 1
    assert opened(run, kept)[1].of(NEWS, "step", 5)  # the control: the keys are good, and nobody else refuses them


def test_an_older_grant_of_the_same_id_opens_nothing(run: Path, tmp_path: Path) -> None:
    kept = tmp_path / "kept.json"
    shutil.copy(wrapped(run, grant_of(run, *EVERYTHING)).path, kept)
    path = wrapped(run, grant_of(run)).path
    with pytest.raises(ProvenanceError, match="replaced by a later grant with this id"):
        answered(run, kept)
    assert answered(run, path).rows


def test_after_its_end_it_opens_nothing(run: Path) -> None:
    path = wrapped(run, grant_of(run)).path
    with pytest.raises(ProvenanceError, match="expired"):
        answered(run, path, now=NOW + 10**8)
    assert accesses(run) == []


def reread(run: Path, keys: GrantKeys, class_: str = NEWS) -> Answer:
    """Read with these keys, whatever they are."""
    ledger, believed = RunLedger(run, keys=NoKeys()), signed(grant_of(run))
    return reading.read(ledger, ask(ledger, believed.value, class_=class_), keys)


def test_what_the_keys_do_not_reach_is_said(run: Path) -> None:
    _, keys = opened(run, wrapped(run, grant_of(run)).path)
    fewer = {of: {first: key for first, key in bundle.items() if first < 10} for of, bundle in keys.bundles.items()}
    answer = reread(run, GrantKeys(bundles=fewer))
    assert {row["step"] for row in table(answer)} == {step for step, _ in recorded(run, NEWS) if step < 10}
    (unread,) = answer.unread
    assert unread.startswith("licensed/news, steps 10 to 11: no key: recorded after the keys were wrapped, or")


def test_an_erased_blob_is_said(run: Path) -> None:
    path = wrapped(run, grant_of(run)).path
    ledger = RunLedger(run)
    state = [each.state for each in ledger.segments()][1]
    (ledger.ledger.path / blob_path(state.entry.blobs[f"numbers/{NEWS}"].sha256)).unlink()
    assert answered(run, path).unread == ("licensed/news, steps 5 to 9: not here",)


def test_steps_without_a_state_are_said(run: Path) -> None:
    sign_again(run, lambda index, entry: None if index > 18 else entry)
    path = wrapped(run, grant_of(run, MIT, entries=("step",))).path
    ledger = RunLedger(run)
    done = ledger.outline.states[-1][0]
    answer = answered(run, path)
    assert answer.unread == (f"steps {done} to {ledger.steps - 1}: their numbers are in no state entry yet",)


def test_keys_that_somebody_made_up_open_nothing(run: Path) -> None:
    """Everybody can wrap keys to a public one; sealed content and commitments tell them from the true ones."""
    wrapped(run, grant_of(run))
    made_up = {(NEWS, "step"): {5: b"x" * 32, 10: b"x" * 32}}
    with pytest.raises(LedgerError, match="the seal is broken"):
        reread(run, GrantKeys(bundles=made_up))


def test_of_an_open_class_the_commitments_tell(tmp_path: Path) -> None:
    run = write_project(tmp_path, confidential=())
    wrapped(run, grant_of(run))
    with pytest.raises(LedgerError, match=r"entry [0-9]+: licensed/news: not the numbers that were committed to"):
        reread(run, GrantKeys(bundles={(NEWS, "step"): {5: b"x" * 32, 10: b"x" * 32}}))


def test_numbers_that_were_not_committed_to_are_shown_to_nobody(run: Path) -> None:
    """The trainer itself puts other numbers in their place, seals and signs them."""
    keys = RunLedger(run).keys
    key = keys.of(NEWS, "step", 5)
    assert key is not None
    ledger = RunLedger(run)
    segment = list(ledger.segments())[1]
    content = ledger.blob(segment.state, f"numbers/{NEWS}", max_bytes=10**6)
    assert content is not None
    other = seal(key, content[:-4] + b"\0\0\x80\x3f", kind="step", name=f"numbers/{NEWS}", first=5)

    def lie(index: int, entry: Entry) -> Entry:
        return (
            with_blob(run, entry, f"numbers/{NEWS}", other) if isinstance(entry, State) and entry.step == 10 else entry
        )

    sign_again(run, lie)
    with pytest.raises(LedgerError, match=r"entry [0-9]+: licensed/news: not the numbers that were committed to"):
        answered(run, wrapped(run, grant_of(run)).path)


def test_flipped_ciphertext(run: Path) -> None:
    """A blob that is not its digest, and one whose digest was signed anew."""
    path = wrapped(run, grant_of(run)).path
    ledger = RunLedger(run)
    reference = list(ledger.segments())[1].state.entry.blobs[f"numbers/{NEWS}"]
    blob = ledger.ledger.path / blob_path(reference.sha256)
    content = blob.read_bytes()
    flipped = content[:-1] + bytes([content[-1] ^ 1])
    blob.write_bytes(flipped)
    with pytest.raises(LedgerError, match="the blob is damaged"):
        answered(run, path)
    blob.write_bytes(content)

    def lie(index: int, entry: Entry) -> Entry:
        named = isinstance(entry, State) and entry.blobs.get(f"numbers/{NEWS}") == reference
        return with_blob(run, entry, f"numbers/{NEWS}", flipped) if named else entry

    sign_again(run, lie)
    with pytest.raises(LedgerError, match="the seal is broken"):
        answered(run, wrapped(run, grant_of(run)).path)


def test_secrets_in_the_directory_open_nothing_for_a_reader(run: Path) -> None:
    """Keys come from the grant alone, though the owner's are beside them."""
    assert (run / rundir.SECRETS).exists()
    wrapped(run, grant_of(run))
    answer = reread(run, GrantKeys(bundles={}))
    assert answer.rows == () and len(answer.unread) == 2


def test_a_class_that_did_not_train_has_no_rows(run: Path) -> None:
    steps = list(RunLedger(run).read_steps(range(5)))
    assert all(isinstance(each.entry, Step) and each.entry.numbers[0] is None for each in steps)
    answer = answered(run, wrapped(run, grant_of(run)).path, steps=range(5))
    assert answer.rows == () and answer.unread == ()
