"""The entry that names the run which made the first steps: what conform and verify.py make of it, true and forged."""

import hashlib
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from explorer import rundir
from explorer.audit.conform import Conformance, conform
from explorer.disclosure import verifier
from explorer.entries.fields import LedgerState
from explorer.entries.kinds import Entry, Genesis, State, Step, Trunk, decode, encode
from explorer.errors import LedgerError
from explorer.ledger.storage import LedgerDirectory
from explorer.merkle import leaf_hash, root_of
from explorer.runlog.run_ledger import RunLedger
from explorer.runlog.same_steps import begun_with, open_named
from tests.audit import governed_run
from tests.audit.governed_run import again, rewrite, sign_again, trust
from tests.disclosure.packs import opened, packed
from tests.provenance.people import NOW

AT, SHORTER = 5, "shorter"  # steps that the two have in common, and the run that made them


@pytest.fixture(scope="module")
def honest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose ledger names the one next to it, which has other commitments."""
    run = governed_run.write_governed_run(tmp_path_factory.mktemp("runs"))
    other = governed_run.write_governed_run(tmp_path_factory.mktemp("other"))
    shutil.copytree(other, run.parent / SHORTER)
    sign_again(run.parent / SHORTER, lambda _, entry: renamed(entry))
    named(run)
    return run


@pytest.fixture
def run(honest: Path, tmp_path: Path) -> Path:
    shutil.copytree(honest.parent, tmp_path / "sweep")
    return tmp_path / "sweep" / honest.name


def renamed(entry: Entry) -> Entry:
    return replace(entry, run=SHORTER) if isinstance(entry, Genesis) else entry


def true_entry(run: Path) -> Trunk:
    """The entry about the run next to this one."""
    ledger = LedgerDirectory(run.parent / SHORTER / rundir.LEDGER)
    leaves = list(ledger.entries())
    states = [(at, entry) for at, entry in enumerate(map(decode, leaves)) if isinstance(entry, State)]
    at, state = next((at, entry) for at, entry in states if entry.step == AT)
    head = LedgerState(
        origin=ledger.checkpoint().origin, size=at + 1, root=root_of(map(leaf_hash, leaves[: at + 1])).hex()
    )
    return Trunk(step=AT, run=SHORTER, ledger=head, state=state.state, blobs={})


def named(run: Path, /, **changes: Any) -> None:
    """Sign the ledger again with the entry, in place of one that it has."""
    entry = replace(true_entry(run), **changes)

    def change(leaves: list[bytes]) -> list[bytes]:
        kept = [leaf for leaf in leaves if not isinstance(decode(leaf), Trunk)]
        at = next(at for at, leaf in enumerate(kept) if isinstance(e := decode(leaf), State) and e.step == AT)
        return [*kept[: at + 1], encode(entry), *kept[at + 1 :]]

    rewrite(run, change)


def judged(run: Path) -> Conformance:
    return conform(RunLedger(run), trust=trust(), now=NOW)


def said(run: Path) -> list[str]:
    found = judged(run).conditions[3]
    return [each.message for each in found.contradictions]


def test_what_is_said_of_the_other_run_is_true(run: Path) -> None:
    found = judged(run)
    assert found.conforms and not said(run), [each.contradictions for each in found.conditions]
    assert not any("trunk" in note for note in found.conditions[3].notes)
    assert list(begun_with(run.parent / SHORTER)) == [run.name] and list(begun_with(run)) == []


def test_where_the_other_run_is_gone_conform_says_so_and_nothing_is_broken(run: Path) -> None:
    shutil.rmtree(run.parent / SHORTER)
    found = judged(run)
    assert found.conforms
    (note,) = (note for note in found.conditions[3].notes if "trunk" in note)
    assert f"steps 0 to {AT - 1} are those of {SHORTER}, whose ledger is not here" in note


def test_an_erasure_from_the_other_run_changes_nothing(run: Path) -> None:
    shutil.rmtree(run.parent / SHORTER / rundir.LEDGER / "blobs")
    (run.parent / SHORTER / rundir.SECRETS).unlink()
    assert judged(run).conforms


def other(change: Callable[[Entry], Entry]) -> Callable[[Path], None]:
    """Change entries of the other run, and sign its ledger again."""
    return lambda run: sign_again(run.parent / SHORTER, lambda _, entry: change(entry))


def flipped(run: Path) -> None:
    """Change a byte of an entry of the other run, and leave its hashes as they are."""
    bundle = run.parent / SHORTER / rundir.LEDGER / "tile" / "entries"
    (path,) = (path for path in bundle.rglob("*") if path.is_file())
    content = path.read_bytes()
    assert content.count(b'"quarantined":0') > 0
    path.write_bytes(content.replace(b'"quarantined":0', b'"quarantined":1', 1))


def counted(entry: Entry) -> Entry:
    return replace(entry, quarantined=entry.quarantined + 1) if isinstance(entry, Step) and entry.step == 2 else entry


def renamed_here(run: Path) -> None:
    """An entry that names a ledger of the right name whose steps are other ones: signed, and named with its root."""
    other(counted)(run)
    named(run)


FORGERIES: dict[str, tuple[Callable[[Path], None], str]] = {
    "another state": (
        lambda run: named(run, state=replace(true_entry(run).state, optimizer="5" * 64)),
        f"trunk: not the state after {AT} steps",
    ),
    "the run itself": (
        lambda run: named(run, run=run.name, ledger=replace(true_entry(run).ledger, origin=f"example.com/{run.name}")),
        "trunk: not the ledger of another run",
    ),
    "another run": (lambda run: named(run, run="longer"), "trunk: not the ledger of another run"),
    "another root": (
        lambda run: named(run, ledger=replace(true_entry(run).ledger, root="5" * 64)),
        f"the ledger of {SHORTER}, here too, is another one: its first",
    ),
    "a ledger with fewer steps": (
        lambda run: named(run, ledger=fewer(run)),
        f"the ledger of {SHORTER}, here too, is another one: steps: {AT} here, 1 there",
    ),
    "the other ledger signed anew": (other(counted), f"the ledger of {SHORTER}, here too, is another one: its first"),
    "a byte of the other ledger": (flipped, f"the ledger of {SHORTER}, here too, is another one: its first"),
    "other steps": (renamed_here, "is another one: step 2: quarantined: "),
}


def fewer(run: Path) -> LedgerState:
    """The other ledger after its first step."""
    ledger = LedgerDirectory(run.parent / SHORTER / rundir.LEDGER)
    leaves = list(ledger.entries())
    size = next(at for at, leaf in enumerate(leaves) if isinstance(decode(leaf), Step)) + 1
    return LedgerState(origin=ledger.checkpoint().origin, size=size, root=root_of(map(leaf_hash, leaves[:size])).hex())


@pytest.mark.parametrize("name", FORGERIES)
def test_what_is_not_true_is_found(run: Path, name: str) -> None:
    forge, words = FORGERIES[name]
    forge(run)
    assert any(words in each for each in said(run)), said(run)


def test_another_step_than_the_clock_is_out_of_order(run: Path) -> None:
    named(run, step=AT - 1)
    assert not judged(run).conforms
    with pytest.raises(verifier.Refused, match=f"trunk at {AT - 1} steps, after {AT} were done"):
        verifier.read_run(opened(packed(run).content), note_of(run))


def note_of(run: Path) -> verifier.Note:
    return verifier.read_note((run / rundir.LEDGER / "checkpoint").read_bytes(), "checkpoint")


def test_steps_that_were_executed_again_are_no_longer_the_other_run_s(run: Path) -> None:
    rewrite(run, lambda leaves: again_from(leaves, AT - 1))
    assert RunLedger(run).outline.trunks == ()
    assert not any(words.startswith("trunk") for words in said(run))


def again_from(leaves: list[bytes], step: int) -> list[bytes]:
    """Take back a step and what follows, and make all of it again."""
    entries = [decode(leaf) for leaf in leaves]
    at = next(at for at, entry in enumerate(entries) if isinstance(entry, Step) and entry.step == step)
    end = next(at for at, entry in enumerate(entries) if isinstance(entry, Trunk)) + 1
    redone = [leaf for leaf, entry in zip(leaves[at:end], entries[at:end], strict=True) if not isinstance(entry, Trunk)]
    return [*leaves[:end], again(step), *redone, *leaves[end:]]


def test_verify_py_reads_the_entry_and_names_what_it_cannot_check(run: Path) -> None:
    read = verifier.read_run(opened(packed(run).content), note_of(run))
    assert read.unknown == 0
    findings = verifier.Findings()
    verifier.check_trunks(read, findings)
    assert any(f"that {SHORTER!r} made the first {AT} steps" in words for words in findings.unchecked)
    for change in ({"state": {**read.entries[1].get("state", {}), "random": "5" * 64}}, {"run": read.genesis["run"]}):
        forged = [{**entry, **change} if entry["kind"] == "trunk" else entry for entry in read.entries]
        with pytest.raises(verifier.Refused, match=r"not the state that|not the ledger of another"):
            verifier.check_trunks(replace(read, entries=forged), verifier.Findings())


def test_a_name_that_leads_elsewhere_is_no_run(run: Path) -> None:
    for name in ("..", f"../{run.parent.name}/{SHORTER}", "", "."):
        with pytest.raises(LedgerError, match="there is no ledger of a run"):
            open_named(run.parent, name, true_entry(run).ledger)


def test_the_result_names_the_same_run(run: Path) -> None:
    """What the result says of its beginning has an entry."""
    digest = hashlib.sha256(b"").hexdigest()
    path = run / rundir.RESULT
    result = rundir.read_json(path)
    assert isinstance(result, dict)
    rundir.write_json(path, {**result, "trunk": {"run": SHORTER, "step": AT, "state": digest}})
    assert not any("no entry names" in words for words in said(run))
    rundir.write_json(path, {**result, "trunk": {"run": "longer", "step": AT, "state": digest}})
    assert any("began with 5 steps of longer, which no entry names" in words for words in said(run))
