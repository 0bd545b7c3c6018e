"""Files of wrapped keys: their form, wrapping what a grant covers, and taking a grant back."""

import base64
import json
import shutil
import struct
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from explorer import rundir
from explorer.canonical import canonical
from explorer.disclosure.access_log import wrapped_grants
from explorer.disclosure.grants_in_force import Named, check_standing, check_wrapped, named
from explorer.disclosure.wrapped import (
    WrappedKeys,
    decode_bundle,
    encode_bundle,
    naming,
    parse_wrapped,
    read_wrapped,
    revoke,
    words,
    wrap_keys,
)
from explorer.entries.fields import LedgerState
from explorer.entries.kinds import GrantUse, encode
from explorer.errors import ExplorerError, LedgerError, ProvenanceError, RunError
from explorer.ledger.log import Log
from explorer.note import Algorithm, Signer
from explorer.project import AUDIT, Project, read_project, runs_of
from explorer.provenance.commitments import destroy_salt
from explorer.provenance.envelope import sign_envelope
from explorer.provenance.grants import GRANT, Grant, grant_digest
from explorer.runlog.run_ledger import RunLedger
from tests.audit.governed_run import CLASSES, TRAINER
from tests.disclosure.grantees import (
    EVERYTHING,
    MIT,
    NEWS,
    OPEN,
    OTHER,
    READER,
    TRUST,
    envelope_of,
    grant_of,
    opened,
    project_of,
    signed,
    wrapped,
    write_project,
)
from tests.fuzz.mutate import inputs
from tests.provenance.people import GOVERNANCE, NOW, private

GRANT_ENVELOPE = sign_envelope(b"{}", GRANT.payload_type, [private(GOVERNANCE)])
STATE = LedgerState(origin="example.com/trainer/run", size=7, root="a" * 64)
FILE = WrappedKeys(
    grant=GRANT_ENVELOPE,
    run="run",
    ledger=STATE,
    keys={("licensed/news", "step"): b"wrapped", ("*", "profile"): b"more"},
)
VALUE: dict[str, Any] = json.loads(FILE.content)


def parsed(value: Any) -> WrappedKeys:
    return parse_wrapped(canonical(value), where="k.json")


def test_there_and_back() -> None:
    assert parse_wrapped(FILE.content, where="k.json") == FILE
    assert {
        "format": "explorer/wrapped-keys/v1",
        "grant": json.loads(GRANT_ENVELOPE.content),
        "run": "run",
        "ledger": {"origin": "example.com/trainer/run", "size": 7, "root": "a" * 64},
        "keys": [
            {"class": "licensed/news", "kind": "step", "wrapped": base64.b64encode(b"wrapped").decode()},
            {"class": "*", "kind": "profile", "wrapped": base64.b64encode(b"more").decode()},
        ],
    } == VALUE


def test_what_a_bundle_is_bound_to() -> None:
    expected = (
        '{"class":"licensed/news","format":"explorer/wrapped-keys/v1","grant":"' + grant_digest(GRANT_ENVELOPE) + '",'
        '"kind":"step","ledger":"example.com/trainer/run","run":"run"}'
    )
    assert FILE.info("licensed/news", "step").decode() == expected


def test_a_bundle() -> None:
    bundle = {40: b"b" * 32, 0: b"a" * 32}
    content = encode_bundle(bundle)
    assert content == struct.pack(">Q", 0) + b"a" * 32 + struct.pack(">Q", 40) + b"b" * 32
    assert decode_bundle(content, where="b") == bundle
    for broken in (b"", content[:-1], content + b"\0", content[40:] + content[:40], content[:40] * 2):
        with pytest.raises(ProvenanceError, match=r"^b: a bundle"):
            decode_bundle(broken, where="b")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": "explorer/wrapped-keys/v2"}, "format: input should be 'explorer/wrapped-keys/v1'"),
        ({"grant": None}, "grant: input should be an object"),
        ({"grant": {}}, "grant: payloadType is missing"),
        ({"run": "a\nb"}, "run: string should match pattern"),
        ({"ledger": {"origin": "o", "size": -1, "root": "a" * 64}}, "ledger.size: input should be greater"),
        ({"keys": []}, "keys: tuple should have at least 1 item"),
        ({"keys": [VALUE["keys"][0]] * 2}, "keys: a class and kind are listed twice"),
        ({"keys": [VALUE["keys"][0] | {"class": "../x"}]}, r"keys\[0\]\.class"),
        ({"keys": [VALUE["keys"][0] | {"class_": "open"}]}, r"keys\[0\]\.class_: unknown key"),
        ({"keys": [VALUE["keys"][0] | {"wrapped": "?"}]}, "step keys of licensed/news: not base64"),
        ({"more": 1}, "more: unknown key"),
    ],
)
def test_what_is_no_file_of_wrapped_keys(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ProvenanceError, match=f"^k.json: {message}"):
        parsed(VALUE | change)


def test_nothing_is_left_to_be_guessed() -> None:
    for name in VALUE:
        with pytest.raises(ProvenanceError, match=f"{name}: is missing"):
            parsed({key: value for key, value in VALUE.items() if key != name})


def test_hostile_input_is_refused_in_words() -> None:
    for content in inputs([FILE.content], count=200, seed=7):
        try:
            parse_wrapped(content, where="k.json")
        except ExplorerError as error:
            assert str(error).startswith("k.json: ")


def test_in_words() -> None:
    assert words("open", "step") == "step keys of open"
    assert words("*", "step") == "step keys of the numbers over several classes"


# --- wrapping and revoking ---

NEWS_OFFICE = "example.com/news-office"


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_project(tmp_path_factory.mktemp("project"))


@pytest.fixture
def run(template: Path, tmp_path: Path) -> Path:
    """A copy; the trainer's key is found where the template has it."""
    runs = tmp_path / "runs"
    shutil.copytree(template.parents[1], runs)
    return runs / template.parent.name / template.name


def uses(run: Path) -> list[GrantUse]:
    return [each.entry for each in read_project(runs_of(run)) if isinstance(each.entry, GrantUse)]


def take_back(run: Path, grant: Grant) -> tuple[int | None, tuple[Path, ...]]:
    with project_of(run) as project:
        return revoke(naming(signed(grant)), runs=runs_of(run), project=project)


def test_the_keys_of_the_granted_class_and_no_other(run: Path) -> None:
    made = wrapped(run, grant_of(run))
    assert made.path == run / rundir.GRANTS / "2026-0007.json"
    assert made.keys == {(NEWS, "decision"): 2, (NEWS, "profile"): 2, (NEWS, "step"): 2}
    assert made.erased == ()
    _, keys = opened(run, made.path)
    own = RunLedger(run).keys
    assert [keys.of(NEWS, "step", first) for first in (0, 5, 10)] == [None, *(own.of(NEWS, "step", f) for f in (5, 10))]
    assert all(keys.of(path, "step", first) is None for path in (OPEN, MIT, "*") for first in (0, 5, 10))
    assert keys.of(NEWS, "profile", 3) == own.of(NEWS, "profile", 3) != keys.of(NEWS, "step", 5)


def test_only_the_kinds_that_are_granted(run: Path) -> None:
    assert wrapped(run, grant_of(run, NEWS, entries=("profile",))).keys == {(NEWS, "profile"): 2}


def test_a_branch_is_all_classes_below_it(run: Path) -> None:
    assert wrapped(run, grant_of(run, OPEN, entries=("step",))).keys == {(OPEN, "step"): 3, (MIT, "step"): 3}


def test_the_joint_key_goes_to_whoever_is_granted_all_classes(run: Path) -> None:
    some = wrapped(run, grant_of(run, NEWS, MIT, entries=("step",)))
    assert ("*", "step") not in some.keys
    every = wrapped(run, grant_of(run, *EVERYTHING, entries=("step",)))
    assert every.keys == {("*", "step"): 3, (NEWS, "step"): 2, (OPEN, "step"): 3, (MIT, "step"): 3}


def test_it_is_on_record_with_the_ledger_that_it_was_wrapped_for(run: Path) -> None:
    made = wrapped(run, grant_of(run))
    file = read_wrapped(made.path)
    (use,) = uses(run)
    assert (use.action, use.owner, use.id) == ("wrapped", "example.com/data-governance", "2026-0007")
    assert use.grant == grant_digest(file.grant) and use.ledger == file.ledger
    assert file.ledger.root == RunLedger(run).ledger.checkpoint().root.hex()


def test_nothing_is_handed_over_that_is_not_on_record(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> int:
        raise LedgerError("the disk is full")

    monkeypatch.setattr(Project, "append", refuse)
    with pytest.raises(LedgerError, match="the disk is full"):
        wrapped(run, grant_of(run))
    assert not (run / rundir.GRANTS).exists()


def test_a_disk_that_refuses_leaves_the_file_as_it_was(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = wrapped(run, grant_of(run)).path.read_bytes()

    def refuse(path: Path, content: bytes) -> None:
        raise RunError(f"cannot write {path}")

    monkeypatch.setattr("explorer.disclosure.wrapped.rundir.write_bytes", refuse)
    with pytest.raises(RunError):
        wrapped(run, grant_of(run, NEWS, MIT))
    assert (run / rundir.GRANTS / "2026-0007.json").read_bytes() == before


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"runs": ("some-other-run",)}, "does not name this run: unknown run 'resnet8-.*; known: some-other-run"),
        ({"classes": ("licensed/newz",)}, r"unknown class 'licensed/newz'; did you mean 'licensed/news'\?"),
        ({"classes": (NEWS, "open/bsd")}, r"unknown class 'open/bsd'; did you mean"),
        ({"entries": ("step", "profil")}, r"unknown kind of entry with numbers 'profil'; did you mean 'profile'\?"),
        ({"entries": ("genesis",)}, "unknown kind of entry with numbers 'genesis'"),
    ],
)
def test_a_grant_of_what_the_run_does_not_have(run: Path, change: dict[str, Any], message: str) -> None:
    given = replace(signed(grant_of(run)), value=replace(grant_of(run), **change))
    with project_of(run) as project, pytest.raises(ProvenanceError, match=message):
        wrap_keys(RunLedger(run), given, project=project)
    assert uses(run) == [] and not (run / rundir.GRANTS).exists()


def test_where_a_secret_was_destroyed_that_is_said(run: Path) -> None:
    destroy_salt(run / rundir.SECRETS, CLASSES.index(NEWS))
    made = wrapped(run, grant_of(run, NEWS, MIT, entries=("step",)))
    assert made.keys == {(MIT, "step"): 3} and made.erased == (NEWS,)
    with pytest.raises(ProvenanceError, match="the secret of licensed/news was destroyed"):
        wrapped(run, replace(grant_of(run), id="2"))


def test_it_takes_the_secrets(run: Path) -> None:
    shutil.rmtree(run / rundir.PRIVATE)
    with pytest.raises(ProvenanceError, match="wrap keys on the host that has the run's secrets"):
        wrapped(run, grant_of(run))


def test_of_two_grants_with_one_id_the_later_counts(run: Path) -> None:
    wide, narrow = grant_of(run, *EVERYTHING), grant_of(run)
    kept = wrapped(run, wide).path.read_bytes()
    wrapped(run, narrow)
    wrapped(run, narrow)
    check_standing(read_project(runs_of(run)), naming(signed(narrow)))
    assert kept != (run / rundir.GRANTS / "2026-0007.json").read_bytes()
    with pytest.raises(ProvenanceError, match="replaced by a later grant with this id: entry 1"):
        wrapped(run, wide)


def test_an_id_that_another_owner_has_taken(run: Path) -> None:
    made = wrapped(run, grant_of(run))
    theirs = replace(grant_of(run), owner=NEWS_OFFICE)
    given = replace(signed(grant_of(run)), value=theirs, envelope=envelope_of(theirs, NEWS_OFFICE))
    with (
        project_of(run) as project,
        pytest.raises(ProvenanceError, match=r"holds keys for a grant of example\.com/data"),
    ):
        wrap_keys(RunLedger(run), given, project=project)
    assert read_wrapped(made.path).run == run.name


def test_revoked_means_on_record_removed_and_never_again(run: Path) -> None:
    other = replace(grant_of(run, key=OTHER), id="2026-0008")
    mine, theirs = wrapped(run, grant_of(run)), wrapped(run, other)
    before = theirs.path.read_bytes()
    entry, removed = take_back(run, grant_of(run))
    assert (entry, removed) == (2, (mine.path,)) and not mine.path.exists()
    assert uses(run)[2].action == "revoked" and uses(run)[2].ledger is None
    for grant in (grant_of(run), grant_of(run, MIT)):  # nor with other content
        with pytest.raises(
            ProvenanceError, match=r"grant 2026-0007 of .* was revoked: entry 2 of the project's ledger"
        ):
            wrapped(run, grant)
    assert theirs.path.read_bytes() == before
    assert wrapped(run, other).path.exists()


def test_in_every_run_of_the_project(run: Path) -> None:
    second = runs_of(run) / "another" / run.name
    shutil.copytree(run, second)
    paths = {wrapped(each, grant_of(run)).path.resolve() for each in (run, second)}
    _, removed = take_back(run, grant_of(run))
    assert set(removed) == paths


def test_to_revoke_again_removes_what_is_left(run: Path) -> None:
    made = wrapped(run, grant_of(run))
    content = made.path.read_bytes()
    take_back(run, grant_of(run))
    made.path.write_bytes(content)  # from a backup
    assert take_back(run, grant_of(run)) == (None, (made.path,))
    assert len(uses(run)) == 2


def test_a_file_of_another_owner_stays(run: Path) -> None:
    made = wrapped(run, grant_of(run))
    with project_of(run) as project:
        _, removed = revoke(
            Named(owner=NEWS_OFFICE, id="2026-0007", digest="a" * 64), runs=runs_of(run), project=project
        )
    assert removed == () and made.path.exists()


def test_a_damaged_file_of_that_id_goes_too(run: Path) -> None:
    made = wrapped(run, grant_of(run))
    made.path.write_bytes(b"{")
    assert take_back(run, grant_of(run))[1] == (made.path,)


def test_by_its_id(run: Path) -> None:
    wrapped(run, grant_of(run))
    recorded = list(read_project(runs_of(run)))
    assert named(recorded, "2026-0007") == naming(signed(grant_of(run)))
    with pytest.raises(ProvenanceError, match=r"unknown grant '2026-0070'; did you mean '2026-0007'\?"):
        named(recorded, "2026-0070")


def append_leaves(run: Path, *leaves: bytes) -> None:
    signer = Signer(name=f"{TRAINER}/{AUDIT}", algorithm=Algorithm.ED25519, private_key=private(TRAINER))
    with Log.open(runs_of(run) / AUDIT, signer=signer) as log:
        log.append(leaves)


def test_two_owners_with_one_id_are_told_apart(run: Path) -> None:
    wrapped(run, grant_of(run))
    append_leaves(
        run,
        encode(GrantUse(action="revoked", owner=NEWS_OFFICE, id="2026-0007", grant="a" * 64, ledger=None, blobs={})),
    )
    recorded = list(read_project(runs_of(run)))
    check_standing(recorded, naming(signed(grant_of(run))))
    with pytest.raises(ProvenanceError, match="have grants with the id '2026-0007': name a file instead"):
        named(recorded, "2026-0007")


def test_what_is_not_understood_may_be_a_revocation(run: Path) -> None:
    wrapped(run, grant_of(run))
    append_leaves(run, b'{"blobs":{},"kind":"weather","version":1}')
    wrapped(run, grant_of(run))
    append_leaves(run, b'{"blobs":{},"kind":"grant","version":2}')
    with pytest.raises(ProvenanceError, match="grant v2 is not known here: it may revoke a grant"):
        wrapped(run, grant_of(run))


def test_keys_count_only_if_their_wrapping_is_on_record(run: Path) -> None:
    grant = naming(signed(grant_of(run)))
    with pytest.raises(ProvenanceError, match="the project's ledger records no wrapping of keys of"):
        check_wrapped([], grant, origin="example.com/run")
    wrapped(run, grant_of(run))
    recorded = list(read_project(runs_of(run)))
    check_wrapped(recorded, grant, origin=RunLedger(run).ledger.checkpoint().origin)
    with pytest.raises(ProvenanceError, match="records no wrapping"):
        check_wrapped(recorded, grant, origin="example.com/other")


@pytest.fixture
def files(run: Path) -> Iterator[dict[str, Path]]:
    """One grant that holds, one that was revoked, and something else."""
    good, gone = grant_of(run), replace(grant_of(run), id="gone")
    paths = {"good": wrapped(run, good).path, "gone": wrapped(run, gone).path}
    content = paths["gone"].read_bytes()
    take_back(run, gone)
    paths["gone"].write_bytes(content)
    paths["bad"] = paths["good"].with_name("bad.json")
    paths["bad"].write_bytes(b"[]")
    yield paths


def test_the_list_says_of_each_whether_it_holds(run: Path, files: dict[str, Path]) -> None:
    recorded = list(read_project(runs_of(run)))
    found = {each.path.stem: each for each in wrapped_grants(RunLedger(run), recorded, trust=TRUST, now=NOW)}
    assert found["2026-0007"].fault is None and found["2026-0007"].grant == grant_of(run)
    assert "was revoked" in (found["gone"].fault or "")
    assert found["bad"].grant is None and found["bad"].fault
    later = wrapped_grants(RunLedger(run), recorded, trust=TRUST, now=NOW + 10**8)
    assert all("expired" in (each.fault or "") for each in later if each.grant)


def test_two_wrappings_differ_and_open_to_the_same(run: Path) -> None:
    first: WrappedKeys = read_wrapped(wrapped(run, grant_of(run)).path)
    path = wrapped(run, grant_of(run)).path
    assert read_wrapped(path).keys.keys() == first.keys.keys()
    assert all(read_wrapped(path).keys[of] != key for of, key in first.keys.items())
    assert opened(run, path, READER)[1].of(NEWS, "step", 5) == RunLedger(run).keys.of(NEWS, "step", 5)
