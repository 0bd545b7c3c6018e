"""Reading keys: each opens only its own numbers, and content that was not sealed with it is refused."""

import shutil
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

from explorer import rundir
from explorer.entries.kinds import Entry, Profile, State
from explorer.errors import ExplorerError, LedgerError, ProvenanceError
from explorer.ledger.storage import read_blob
from explorer.provenance.commitments import destroy_salt, new_salts, write_salts
from explorer.provenance.encryption import KINDS
from explorer.runlog.run_keys import JOINT, NoKeys, OwnKeys, own_keys
from explorer.runlog.run_ledger import Missing, RunLedger
from explorer.runlog.segments import open_commitments, read_numbers
from tests.audit.governed_run import CLASSES, MIT, NEWS, OPEN, USUAL, sign_again, with_blob, write_governed_run

POLICY = replace(USUAL, confidential=(NEWS, OPEN))  # which covers open/mit too
MOST = 2**20


@dataclass(frozen=True)
class Granted:
    """Somebody's keys: those of these classes and kinds, or one key for everything."""

    own: OwnKeys | NoKeys
    classes: tuple[str, ...] = (*CLASSES, JOINT)
    kinds: tuple[str, ...] = KINDS
    as_class: str | None = None  # whose keys they are in truth

    def of(self, class_path: str, kind: str, first: int) -> bytes | None:
        given = class_path in self.classes and kind in self.kinds
        return self.own.of(self.as_class or class_path, kind, first) if given else None


@pytest.fixture(scope="module")
def sealed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_governed_run(tmp_path_factory.mktemp("runs"), policy=POLICY, exact=True)


@pytest.fixture
def run(sealed: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(sealed, tmp_path / sealed.name))


def reading(run: Path, **granted: object) -> RunLedger:
    ledger = RunLedger(run)
    return RunLedger(run, keys=Granted(own_keys(run, ledger.genesis), **granted))  # pyright: ignore[reportArgumentType]


def seen(ledger: RunLedger) -> set[tuple[str, str]]:
    """What opens: kind and blob name. Which rows stood where, and the digests of tensors, everybody sees."""
    outline = ledger.outline
    entries = [*ledger.read([index for _, index in outline.states], State), *ledger.read(outline.profiles, Profile)]
    return {
        (placed.entry.KIND, name)
        for placed in entries
        for name in placed.entry.blobs
        if name not in ("slots", "tensors") and not isinstance(ledger.find(placed, name, max_bytes=MOST), Missing)
    }


def test_the_owner_reads_everything_and_a_stranger_nothing(sealed: Path, run: Path) -> None:
    everything = {
        (kind, f"{what}/{path}")
        for kind, what in (("state", "numbers"), ("state", "sketches"), ("profile", "numbers"))
        for path in CLASSES
    }
    assert seen(RunLedger(sealed)) == everything | {("state", "joint"), ("profile", "joint")}
    shutil.rmtree(run / rundir.PRIVATE)
    assert seen(RunLedger(run)) == set()
    ledger = RunLedger(run)
    found = read_numbers(ledger, next(ledger.segments()))
    assert set(found.missing.values()) == {Missing.SEALED} and not found.contents
    with pytest.raises(LedgerError, match=r"^sealed: needs a grant: numbers/.*, joint$"):
        list(found.by_step())


def test_a_reader_with_one_class_reads_only_that_class(sealed: Path) -> None:
    assert seen(reading(sealed, classes=(NEWS,))) == {
        ("state", f"numbers/{NEWS}"),
        ("state", f"sketches/{NEWS}"),
        ("profile", f"numbers/{NEWS}"),
    }
    assert seen(reading(sealed, classes=(NEWS,), kinds=("profile",))) == {("profile", f"numbers/{NEWS}")}
    ledger = reading(sealed, classes=(NEWS,))
    found = read_numbers(ledger, list(ledger.segments())[1])
    assert set(found.contents) == {CLASSES.index(NEWS)} and found.joint is None
    opened = list(open_commitments(found, ledger.keys))
    assert opened and all(path == NEWS and said == seen for _, path, said, seen in opened)


@pytest.mark.parametrize("whose", [NEWS, JOINT])
def test_one_classes_keys_open_nothing_of_another(sealed: Path, whose: str) -> None:
    """Not even for who takes them for the other's, and neither do those of the joint numbers."""
    ledger = reading(sealed, classes=(MIT,), as_class=whose)
    (segment, *_) = ledger.segments()
    with pytest.raises(LedgerError, match=rf"entry {segment.state.index}: blob numbers/{MIT}: the seal is broken"):
        ledger.blob(segment.state, f"numbers/{MIT}", max_bytes=MOST)


def test_a_classs_own_numbers_say_nothing_of_what_it_has_in_common_with_others(sealed: Path) -> None:
    """Under plain descent with one rate, inner products with the update are inner products with the others: whoever
    has them has the others' by subtraction. They are in the joint content, and a class has weight and norm alone."""
    ledger = RunLedger(sealed)
    (segment, *_) = ledger.segments()
    found = read_numbers(ledger, segment)
    assert {rows.shape[1] for index in found.contents for rows in found.of_class(index).values()} == {2}
    for _, numbers in found.by_step():
        own = np.square(numbers.weights * numbers.norms)
        others = numbers.dots / np.float32(-0.1) - own  # what the control takes
        np.testing.assert_allclose(others, (numbers.gram.sum(2).T - own), atol=1e-4)


def changed(run: Path, name: str, change: object) -> RunLedger:
    """A run whose first state has another blob of this name, signed as if it were true."""
    (segment, *_) = RunLedger(run).segments()
    content = read_blob(run / rundir.LEDGER, segment.state.entry.blobs[name].sha256)

    def lie(index: int, entry: Entry) -> Entry:
        return with_blob(run, entry, name, change(content)) if index == segment.state.index else entry  # pyright: ignore

    sign_again(run, lie)
    return RunLedger(run)


@pytest.mark.parametrize("at", [19, 60, -1])
def test_flipped_ciphertext_is_refused(run: Path, at: int) -> None:
    def flip(content: bytes) -> bytes:
        return bytes(each ^ (place == at % len(content)) for place, each in enumerate(content))

    ledger = changed(run, f"numbers/{MIT}", flip)
    with pytest.raises(LedgerError, match=rf"blob numbers/{MIT}: the seal is broken: it was changed, or sealed with"):
        read_numbers(ledger, next(ledger.segments()))


def test_a_sealed_blob_in_anothers_place_is_refused(run: Path) -> None:
    segments = list(RunLedger(run).segments())
    for name, at in ((f"sketches/{MIT}", 0), (f"numbers/{OPEN}", 0), (f"numbers/{MIT}", 1)):
        other = read_blob(run / rundir.LEDGER, segments[at].state.entry.blobs[name].sha256)
        ledger = changed(run, f"numbers/{MIT}", lambda content, other=other: other)
        with pytest.raises(LedgerError, match=rf"numbers/{MIT}: the seal is broken|of \d+ bytes, at most"):
            read_numbers(ledger, next(ledger.segments()))


def test_secrets_of_another_run_open_nothing_and_are_no_plaintext(run: Path) -> None:
    (run / rundir.SECRETS).unlink()
    write_salts(run / rundir.SECRETS, new_salts(len(CLASSES) + 1))
    ledger = RunLedger(run)
    with pytest.raises(LedgerError, match="the seal is broken"):
        read_numbers(ledger, next(ledger.segments()))


def test_a_destroyed_secret_seals_for_good(run: Path) -> None:
    destroy_salt(run / rundir.SECRETS, CLASSES.index(MIT))
    ledger = RunLedger(run)
    assert isinstance(ledger.keys, OwnKeys) and ledger.keys.erased == {MIT}
    assert read_numbers(ledger, next(ledger.segments())).missing == {f"numbers/{MIT}": Missing.SEALED}


def test_secrets_that_cannot_be_used_are_named(run: Path) -> None:
    genesis = RunLedger(run).genesis
    assert own_keys(run, genesis).of("no such class", "step", 0) is None
    (run / rundir.SECRETS).chmod(0o644)
    with pytest.raises(ProvenanceError, match="others can read or write it"):
        own_keys(run, genesis)
    (run / rundir.SECRETS).unlink()
    write_salts(run / rundir.SECRETS, new_salts(2))
    with pytest.raises(LedgerError, match="2 secrets; the run's classes and the joint one are 4"):
        own_keys(run, genesis)
    with pytest.raises(ExplorerError):
        read_numbers(RunLedger(run), next(RunLedger(run).segments()))
