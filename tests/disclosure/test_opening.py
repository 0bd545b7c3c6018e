"""A grantee's keys from a file that somebody else may have made, changed, kept or put in another's place."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from explorer import merkle
from explorer.canonical import canonical
from explorer.disclosure.wrapped import WrappedKeys, believe, encode_bundle, open_keys, parse_wrapped, read_wrapped
from explorer.entries.fields import LedgerState
from explorer.errors import ProvenanceError
from explorer.provenance.grants import Grant
from explorer.provenance.keys import reader_public_text, wrap
from explorer.provenance.spellings import parse_time
from explorer.runlog.run_keys import NoKeys
from explorer.runlog.run_ledger import RunLedger
from tests.audit.governed_run import write_governed_run
from tests.disclosure.grantees import (
    EVERYTHING,
    MIT,
    NEWS,
    OTHER,
    READER,
    TRUST,
    envelope_of,
    grant_of,
    wrapped,
    write_project,
)
from tests.provenance.people import EXPIRES, GOVERNANCE, ISSUED, NOW, RISK

Change = Callable[[WrappedKeys], WrappedKeys]
STEP, PROFILE = (NEWS, "step"), (NEWS, "profile")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_project(tmp_path_factory.mktemp("project"))


@pytest.fixture(scope="module")
def file(run: Path) -> WrappedKeys:
    return read_wrapped(wrapped(run, grant_of(run)).path)


def tried(run: Path, file: WrappedKeys, *, now: int = NOW, key: Any = READER) -> Any:
    ledger = RunLedger(run, keys=NoKeys())
    signed = believe(parse_wrapped(file.content, where="k"), ledger, trust=TRUST, now=now, where="k")
    return open_keys(file, signed.value, key, where="k")


def refused(run: Path, file: WrappedKeys, message: str, **how: Any) -> None:
    with pytest.raises(ProvenanceError, match=message):
        tried(run, file, **how)


def forged(
    run: Path, grant: Grant, *seeds: str, ledger: LedgerState, keys: dict[tuple[str, str], bytes]
) -> WrappedKeys:
    """As anybody can make it: what stands in it is wrapped as it should be."""
    bare = WrappedKeys(grant=envelope_of(grant, *seeds), run=run.name, ledger=ledger, keys={})
    made = {of: wrap(bundle, grant.grantee.public_key, info=bare.info(*of)) for of, bundle in keys.items()}
    return replace(bare, keys=made)


def test_the_grantee_has_the_keys(run: Path, file: WrappedKeys) -> None:
    own = RunLedger(run).keys
    assert tried(run, file).of(NEWS, "step", 5) == own.of(NEWS, "step", 5)
    assert tried(run, file).of(NEWS, "step", 6) is None


def test_they_are_not_printed(run: Path, file: WrappedKeys) -> None:
    keys = tried(run, file)
    assert str(keys.of(NEWS, "step", 5)) not in repr(keys) and "bundles" not in repr(keys)


def test_another_readers_key(run: Path, file: WrappedKeys) -> None:
    refused(run, file, "not the key of example.com/auditor: found .*, expected", key=OTHER)


def test_the_key_of_whoever_puts_their_own_into_the_grant(run: Path, file: WrappedKeys) -> None:
    """The signature covers it; and with a signature over it the keys still do not open."""
    mine = replace(grant_of(run), grantee=replace(grant_of(run).grantee, public_key=reader_public_text(OTHER)))
    honest = envelope_of(grant_of(run))
    forgery = replace(honest, payload=envelope_of(mine).payload)
    refused(run, replace(file, grant=forgery), "forged or changed: the signature", key=OTHER)
    refused(run, replace(file, grant=envelope_of(mine)), "cannot be opened: wrapped to another reader's key", key=OTHER)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda f: {STEP: f.keys[PROFILE]}, "step keys of licensed/news: cannot be opened"),
        (lambda f: {STEP: f.keys[PROFILE], PROFILE: f.keys[STEP]}, "cannot be opened"),
        (lambda f: {(MIT, "step"): f.keys[STEP]}, "step keys of open/mit: not covered: grant 2026-0007 of .* covers"),
        (lambda f: {("*", "step"): f.keys[STEP]}, "step keys of the numbers over several classes: not covered"),
        (lambda f: {(NEWS, "state"): f.keys[STEP]}, "state keys of licensed/news: not covered"),
    ],
)
def test_keys_in_each_others_places(
    run: Path, file: WrappedKeys, change: Callable[[WrappedKeys], Any], message: str
) -> None:
    refused(run, replace(file, keys=change(file)), message)


def test_keys_of_one_class_in_the_place_of_anothers(run: Path) -> None:
    wide = read_wrapped(wrapped(run, replace(grant_of(run, *EVERYTHING), id="wide")).path)
    for other in (MIT, "*"):
        swapped = {**wide.keys, STEP: wide.keys[other, "step"], (other, "step"): wide.keys[STEP]}
        refused(run, replace(wide, keys=swapped), "cannot be opened")


def test_keys_of_a_wide_grant_in_the_file_of_a_narrow_one(run: Path, file: WrappedKeys) -> None:
    wide = read_wrapped(wrapped(run, replace(grant_of(run, *EVERYTHING), id="wide")).path)
    refused(run, replace(file, keys={STEP: wide.keys[STEP]}), "cannot be opened")
    refused(run, replace(file, keys=wide.keys), "not covered")
    refused(run, replace(wide, grant=file.grant), "not covered")


def test_every_byte_of_a_bundle(run: Path, file: WrappedKeys) -> None:
    content = file.keys[STEP]
    for at in range(0, len(content), 7):
        changed = content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :]
        refused(run, replace(file, keys={STEP: changed}), "cannot be opened")
    for size in (0, 31, 48, len(content) - 40, len(content) - 1):
        refused(run, replace(file, keys={STEP: content[:size]}), "cannot be opened")


@pytest.mark.parametrize("bundle", [b"", b"\0" * 39, encode_bundle({5: b"k" * 32}) * 2])
def test_a_bundle_that_is_none(run: Path, file: WrappedKeys, bundle: bytes) -> None:
    made = forged(run, grant_of(run), ledger=file.ledger, keys={STEP: bundle})
    refused(run, made, "k: step keys of licensed/news: a bundle")


@pytest.fixture(scope="module")
def another(run: Path) -> Path:
    """A second run of the same project."""
    found = write_governed_run(run.parents[1], steps=11)
    assert found.name != run.name
    return found


def both(run: Path, another: Path) -> Grant:
    return replace(grant_of(run), id="both", runs=(run.name, another.name))


def test_the_file_of_another_run(run: Path, another: Path) -> None:
    """Though the grant names both; and no relabelling makes its keys those of this run."""
    theirs = read_wrapped(wrapped(another, both(run, another)).path)
    mine = read_wrapped(wrapped(run, both(run, another)).path)
    refused(run, theirs, "holds keys of another run")
    refused(run, replace(theirs, run=mine.run), "holds keys of another run")
    refused(run, replace(theirs, run=mine.run, ledger=mine.ledger), "cannot be opened")
    assert tried(run, mine) and tried(another, theirs)


def test_a_grant_that_does_not_name_this_run(run: Path, another: Path, file: WrappedKeys) -> None:
    grant = replace(grant_of(run), runs=(another.name,))
    refused(run, forged(run, grant, ledger=file.ledger, keys={STEP: b""}), "does not name this run")


@pytest.mark.parametrize("state", [{"size": 10_000}, {"root": "b" * 64}, {"size": 5}])
def test_a_ledger_that_this_one_does_not_go_on_from(run: Path, file: WrappedKeys, state: dict[str, Any]) -> None:
    refused(run, replace(file, ledger=replace(file.ledger, **state)), "which this one, of [0-9]+, does not extend")


def test_the_ledger_may_have_grown(run: Path, file: WrappedKeys) -> None:
    """The root that an earlier, smaller tree had."""
    ledger = RunLedger(run).ledger
    earlier = replace(file.ledger, size=5, root=merkle.root(5, ledger.read_hashes).hex())
    assert tried(run, replace(file, ledger=earlier)).of(NEWS, "step", 5)


@pytest.mark.parametrize(
    ("moment", "message"),
    [(EXPIRES, f"expired {EXPIRES}"), ("2026-04-30T23:59:59Z", f"not yet valid: issued {ISSUED}")],
)
def test_outside_of_its_time(run: Path, file: WrappedKeys, moment: str, message: str) -> None:
    refused(run, file, message, now=parse_time(moment))


@pytest.mark.parametrize(
    ("grant", "seeds", "message"),
    [
        ({}, [RISK], "wrong role: example.com/model-risk has the role model-risk; needed is data-governance"),
        ({}, ["nobody"], "signed by no key of the trust file"),
        ({"owner": RISK}, [GOVERNANCE], "not signed by its owner example.com/model-risk"),
        ({"classes": ("licensed",)}, [GOVERNANCE], "out of branch"),
    ],
)
def test_a_grant_that_nobody_may_give(
    run: Path, file: WrappedKeys, grant: dict[str, Any], seeds: list[str], message: str
) -> None:
    bundle = encode_bundle({5: bytes(32)})
    made = forged(run, replace(grant_of(run), **grant), *seeds, ledger=file.ledger, keys={STEP: bundle})
    refused(run, made, message)


def test_every_part_of_the_file_matters(run: Path, file: WrappedKeys) -> None:
    """Changed in any place, the file opens to nothing, or to the same: its keys stand in another order."""
    value = json.loads(file.content)
    for name, other in (("run", "x"), ("format", "x"), ("grant", {**value["grant"], "payload": "e30="})):
        with pytest.raises(ProvenanceError):
            tried(run, parse_wrapped(canonical({**value, name: other}), where="k"))
    turned = parse_wrapped(canonical({**value, "keys": value["keys"][::-1]}), where="k")
    assert tried(run, turned).bundles == tried(run, file).bundles


def test_bound_to_nothing_swapped_keys_would_open(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The control: it is the binding that refuses the swaps above."""
    monkeypatch.setattr(WrappedKeys, "info", lambda *_: b"")
    wide = read_wrapped(wrapped(run, replace(grant_of(run, *EVERYTHING), id="loose")).path)
    swapped = replace(wide, keys={**wide.keys, STEP: wide.keys[MIT, "step"]})
    assert tried(run, swapped).of(NEWS, "step", 5) == RunLedger(run).keys.of(MIT, "step", 5)


def test_a_copy_of_the_directory_without_its_secrets_is_enough(run: Path, tmp_path: Path, file: WrappedKeys) -> None:
    copy = tmp_path / "runs" / "digits" / run.name
    shutil.copytree(run, copy, ignore=shutil.ignore_patterns("private"))
    assert tried(copy, file).of(NEWS, "step", 5) == RunLedger(run).keys.of(NEWS, "step", 5)
