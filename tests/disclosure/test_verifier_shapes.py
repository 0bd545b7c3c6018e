"""JSON of the wrong shape, under every signature that it takes: the verifier refuses it in words, whoever signed it."""

import copy
import json
import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from explorer.disclosure import verifier
from explorer.disclosure.pack import MANIFEST, PAYLOAD_TYPE, SIGNATURE
from explorer.provenance.envelope import sign_envelope
from explorer.provenance.trust import trust_content
from tests.audit import governed_run
from tests.audit.governed_run import TRAINER
from tests.disclosure.granted import READER, confidential_run, granted
from tests.disclosure.packs import Files, opened, packed, trusted
from tests.provenance.people import GOVERNANCE, NOW, RISK, private

COUNT = 60
GRANT = "grants/2026-0007.json"
VALUES = (None, True, 0, -1, 1.5, "", "x", [], {}, [1], {"a": 1}, 2**70, "a" * 64, [[]], [{}], [None], "\ud800")


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    run = confidential_run(tmp_path_factory.mktemp("shapes"))
    return opened(packed(run, grants={"2026-0007": granted(run)}).content)


def others(value: Any, seed: int) -> Iterator[Any]:
    """The value with one or two places in it left out, doubled, or of another type."""
    draw = random.Random(seed)
    for _ in range(COUNT):
        changed = copy.deepcopy(value)
        for _ in range(draw.choice((1, 1, 2))):
            place, key = draw.choice([*_places(changed)] or [({}, "new")])
            match draw.randrange(5):
                case 0:
                    place.pop(key, None) if isinstance(place, dict) else place.pop(key)
                case 1 if isinstance(place, list):
                    place.append(copy.deepcopy(place[key]))
                case 1:
                    place["more"] = 1
                case _:
                    place[key] = copy.deepcopy(draw.choice(VALUES))
        yield changed


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    for key in range(len(value)) if isinstance(value, list) else value if isinstance(value, dict) else ():
        yield value, key
        yield from _places(value[key])


def written(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def survive(value: Any, read: Callable[[bytes], Any], *, seed: int = 1) -> None:
    """Read it as it is, and refuse or read each of its variations: no other error comes out."""
    read(written(value))
    for changed in others(value, seed):
        try:
            read(written(changed))
        except verifier.Refused as refused:
            assert str(refused)


def payload(files: Files, name: str) -> Any:
    return json.loads(verifier.decode64(json.loads(files[name])["payload"], ""))


def sound(findings: verifier.Findings) -> None:
    if findings.failed:
        raise verifier.Refused("\n".join(findings.failed))


def test_the_manifest(files: Files) -> None:
    def read(content: bytes) -> None:
        signed = sign_envelope(content, PAYLOAD_TYPE, [private(TRAINER)]).content
        changed, found = {**files, MANIFEST: content, SIGNATURE: signed}, verifier.Findings()
        with found.looking_at(""):
            verifier.verify(changed, trusted(), NOW, READER, found)
            list(verifier.host_lines(verifier.read_manifest(changed), trusted()))
        sound(found)

    survive(json.loads(files[MANIFEST]), read)


def test_the_trust_file() -> None:
    value = json.loads(trust_content(governed_run.trust(), where="trust"))
    survive(value, lambda content: verifier.read_trust(content, "trust"))


def test_grants_and_wrapped_keys(files: Files) -> None:
    note = verifier.read_note(files["ledger/checkpoint"], "checkpoint")
    run, value = verifier.read_run(files, note), json.loads(files[GRANT])

    def read(content: bytes) -> None:
        verifier.check_grant(GRANT, content, note, run, trusted(), NOW, None, verifier.Findings())

    def signed(content: bytes) -> None:
        made = sign_envelope(content, "application/vnd.explorer.grant.v1+json", [private(GOVERNANCE)])
        read(written({**value, "grant": json.loads(made.content)}))

    survive(value, read)
    survive(json.loads(verifier.decode64(value["grant"]["payload"], "")), signed)


@pytest.mark.parametrize(("kind", "by"), [("taxonomy", GOVERNANCE), ("policy", RISK)])
def test_documents(files: Files, kind: str, by: str) -> None:
    run = verifier.read_run(files, verifier.read_note(files["ledger/checkpoint"], "checkpoint"))

    def read(content: bytes) -> None:
        made = sign_envelope(content, f"application/vnd.explorer.{kind}.v1+json", [private(by)]).content
        run.entries[0] = {**run.genesis, kind: verifier.sha256(content).hex()}
        changed, found = {**files, f"governance/{kind}.json": made}, verifier.Findings()
        verifier.Reader(changed, run, {}, verifier.check_documents(changed, run, trusted(), found), found).read()

    survive(payload(files, f"governance/{kind}.json"), read)


def test_the_attestation_of_the_tags(files: Files) -> None:
    genesis = verifier.read_run(files, verifier.read_note(files["ledger/checkpoint"], "checkpoint")).genesis
    (root,) = {each["root"] for each in genesis["tags"].values()}

    def read(content: bytes) -> None:
        made = sign_envelope(content, verifier.STATEMENT, [private(GOVERNANCE)]).content
        named = {**genesis, "tags": {"train": {"root": root, "attestation": verifier.sha256(content).hex()}}}
        changed = {**files, "governance/tags.json": made}
        verifier._check_tags(changed, named, NOW, trusted(), verifier.Findings())

    survive(payload(files, "governance/tags.json"), read)


@pytest.mark.parametrize("kind", sorted(verifier.KINDS))
def test_entries(files: Files, kind: str) -> None:
    note = verifier.read_note(files["ledger/checkpoint"], "checkpoint")
    leaves = [*verifier.read_leaves(files, note.size)]
    if kind == "trunk":  # this run made all its steps itself
        at, state = next((at, entry) for at, entry in enumerate(map(json.loads, leaves)) if entry["kind"] == "state")
        origin = f"{note.origin.removesuffix(json.loads(leaves[0])['run'])}another"
        named = {"run": "another", "ledger": {"origin": origin, "size": 3, "root": "a" * 64}}
        same = {key: state[key] for key in ("version", "step", "state")}
        leaves.insert(at + 1, json.dumps({"kind": kind, "blobs": {}, **same, **named}).encode())
    index = next(at for at, leaf in enumerate(leaves) if json.loads(leaf)["kind"] == kind)
    whole = verifier.read_run(files, note)

    def read(content: bytes) -> None:
        entries = [
            verifier.read_entry(leaf, at) for at, leaf in enumerate([*leaves[:index], content, *leaves[index + 1 :]])
        ]
        run, found = verifier._in_order(entries, whole.tree), verifier.Findings()
        verifier.check_trunks(run, note.origin, found)
        verifier.check_blobs(files, run, {}, found)
        verifier.check_documents(files, run, trusted(), found)
        _, keys = verifier.check_grant(GRANT, files[GRANT], note, run, trusted(), NOW, READER, found)
        verifier.Reader(files, run, keys, ["licensed"], found).read()

    survive(json.loads(leaves[index]), read)
