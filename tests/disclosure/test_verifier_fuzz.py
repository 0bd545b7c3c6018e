"""Hostile input to every part of the verifier: it refuses in words, and lets no other error out."""

import time
from collections.abc import Callable
from typing import Any

import pytest

from explorer.disclosure import verifier
from explorer.disclosure.pack import MANIFEST, SIGNATURE, container
from explorer.provenance.trust import trust_content
from tests.audit import governed_run
from tests.disclosure.granted import READER, confidential_run, granted
from tests.disclosure.packs import Files, findings, opened, packed, signed_again, trusted
from tests.fuzz.mutate import inputs
from tests.provenance.people import NOW

SECONDS = 5.0
GRANT = "grants/2026-0007.json"


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    run = confidential_run(tmp_path_factory.mktemp("fuzz"))
    return opened(packed(run, grants={"2026-0007": granted(run)}).content)


def survive(read: Callable[[bytes], Any], seeds: list[bytes], *, count: int) -> int:
    """Feed it; return how many inputs it read without complaint."""
    sound = 0
    for content in inputs(seeds, count=count, seed=5):
        began = time.monotonic()
        try:
            read(content)
            sound += 1
        except verifier.Refused as refused:
            assert str(refused), f"refused without words: {content!r}"
        assert time.monotonic() - began < SECONDS, content
    return sound


def test_whole_packs(files: Files) -> None:
    small = {name: content for name, content in files.items() if len(content) < 300}
    assert survive(verifier.open_container, [container(small)[:8000]], count=300) < 30


def test_texts(files: Files) -> None:
    note, proof = files["ledger/checkpoint"], next(name for name in files if name.startswith("proofs/"))
    read = verifier.read_note(note, "checkpoint")
    run = verifier.read_run(files, read)
    usual = trust_content(governed_run.trust(), where="trust")
    trust = trusted()
    readers: list[tuple[Callable[[bytes], Any], bytes]] = [
        (lambda content: verifier.read_trust(content, "trust"), usual),
        (lambda content: verifier.judge(verifier.read_note(content, "note"), [], trust, NOW), note),
        (lambda content: verifier.check_proof(proof, content, note, read, run), files[proof]),
        (
            lambda content: verifier.check_grant(GRANT, content, read, run, trust, NOW, READER, verifier.Findings()),
            files[GRANT],
        ),
        (lambda content: verifier.read_manifest({**files, MANIFEST: content}), files[MANIFEST]),
        (lambda content: verifier.seconds(content.decode(errors="replace"), "time"), b"2026-01-31T12:00:00Z"),
    ]
    for reader, seed in readers:
        reader(seed)
        survive(reader, [seed], count=150)


def test_entries_and_their_order(files: Files) -> None:
    leaves = verifier.read_leaves(files, int(files["ledger/checkpoint"].split(b"\n")[1]))
    by_kind = {verifier.read_entry(leaf, 0)["kind"]: leaf for leaf in leaves}

    def read(content: bytes) -> None:
        for at in range(2):  # as the genesis, and behind one
            entries = [verifier.read_entry(leaf, 0) for leaf in ([content] if at == 0 else [leaves[0], content])]
            run = verifier._in_order(entries, verifier.Tree([]))
            verifier.Reader(files, run, {}, [], verifier.Findings()).read()

    assert survive(read, [*by_kind.values()], count=600) < 60


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [SIGNATURE, "governance/taxonomy.json", "governance/policy.json", "governance/tags.json", "governance/trust.json"],
)
def test_documents_under_the_trainers_signature(files: Files, name: str) -> None:
    def read(content: bytes) -> None:
        changed = {**files, name: content}
        found = findings(changed if name == SIGNATURE else signed_again(changed))
        if found.failed:
            raise verifier.Refused("\n".join(found.failed))

    survive(read, [files[name]], count=40)
