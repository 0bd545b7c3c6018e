"""Attacks on a pack: every kind of file in it, one value at a time, and its container.

The packs are those that `explorer pack` makes of a run, with its report and the attestation of its model, and of the
run without its sealed class, with the certificate of that deletion. The trainer changes one file, makes the manifest
again and signs it, as often as the file has values; verify.py refuses every change, or names the file among what could
not be checked.
"""

import hashlib
import io
import json
import re
import struct
import sys
import time
import warnings
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from functools import cache, partial
from pathlib import Path
from typing import Any

from attack_world import NAME_OF_TRAINER, OUTSIDER, World, attack, command, verified

from explorer.canonical import canonical
from explorer.disclosure import verifier
from explorer.disclosure.pack import MANIFEST, PAYLOAD_TYPE, SIGNATURE, container
from explorer.provenance.envelope import sign_envelope

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # so that the mutations of the tests are found

from tests.disclosure.test_pack_binding import mutations

Files = dict[str, bytes]
packs = partial(attack, "packs", by=("verify.py",))
MOST = 40  # mutations of one file


@cache
def pack_of(world: World, which: str = "deleted") -> Files:
    """The files of a pack with all that it can have without grants: of a run, or of what a deletion made of it."""
    run = world.deleted()[1] if which == "deleted" else world.copy("main")
    command("attest", run, "--trust", world.trust_file)
    path = world.scratch() / "run.pack.zip"
    status, text = command("pack", run, "--out", path, "--trust", world.trust_file)
    if status or verified(path, world.trust_file):
        raise ValueError(f"no pack to attack: {text or verified(path, world.trust_file)}")
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def signed(world: World, files: Files) -> Files:
    """These files under a manifest that names them, signed by the trainer."""
    said = json.loads(files[MANIFEST])
    others = sorted(files.keys() - {MANIFEST, SIGNATURE})
    said["files"] = [
        {"path": name, "sha256": hashlib.sha256(files[name]).hexdigest(), "size": len(files[name])} for name in others
    ]
    payload = canonical(said)
    key = world.keys[NAME_OF_TRAINER]
    return {**files, MANIFEST: payload, SIGNATURE: sign_envelope(payload, PAYLOAD_TYPE, [key]).content}


def judged(world: World, content: bytes) -> verifier.Findings:
    """Return the findings of the verifier."""
    found = verifier.Findings()
    with found.looking_at(""):
        trust = verifier.read_trust(world.trust_file.read_bytes(), "trust")
        verifier.verify(verifier.open_container(content), trust, int(time.time()) + 1, None, found)
    return found


def file(name: str, pattern: str, breaks: str, gains: str, *, of: str = "deleted", **more: Any) -> None:
    """Every value of a file, or of the first of its kind, one at a time."""

    @packs(name, breaks, gains, accepted="unchecked", **more)
    def _(world: World) -> dict[str, str]:
        files = pack_of(world, of)
        found = [each for each in files if re.fullmatch(pattern, each)]
        if not found:
            raise ValueError(f"{name}: the pack that is attacked has no such file")
        changes = [*mutations(found[0], files[found[0]])][:MOST]
        judgements = [judged(world, container(signed(world, {**files, found[0]: each}))) for each in changes]
        refused = [each.failed[0] for each in judgements if each.failed]
        named = [line for each in judgements if not each.failed for line in each.unchecked if found[0] in line]
        whole = len(refused) == len(changes)
        answers = {"verify.py": f"{len(refused)} of {len(changes)} changes: {refused[0]}" if whole else ""}
        if not whole:
            answers["named"] = f"{len(refused)} of {len(changes)} changes are refused; named: {(*named, '')[0]}"
        silent = [
            each for each in judgements if not each.failed and not any(found[0] in line for line in each.unchecked)
        ]
        return answers | ({"open": f"{len(silent)} changes are neither refused nor named"} if silent else {})


BOUND = "a file of a pack is bound by what was signed"
file("run.json", r"run\.json", BOUND, "another recipe", known=True)
file("environment.json", r"environment\.json", BOUND, "another platform", known=True)
file("origin.json", r"origin\.json", BOUND, "another deletion")
file("ledger: checkpoint", "ledger/checkpoint", BOUND, "another ledger", known=True)
file("ledger: a witness's note", r"ledger/witness/.*", BOUND, "another cosignature", known=True)
file("ledger: a tile", r"ledger/tile/0/.*", BOUND, "another tree", known=True)
file("ledger: a bundle of entries", r"ledger/tile/entries/.*", BOUND, "other entries", known=True)
file("ledger: a blob", r"ledger/blobs/.*", BOUND, "other numbers", known=True)
file("governance: trust.json", r"governance/trust\.json", BOUND, "other authorities", known=True)
file("governance: taxonomy.json", r"governance/taxonomy\.json", BOUND, "other classes", known=True)
file("governance: policy.json", r"governance/policy\.json", BOUND, "another policy", known=True)
file("governance: tags.json", r"governance/tags\.json", BOUND, "other tags", known=True)
file("governance: tags.parquet", r"governance/tags\.parquet", BOUND, "other tags", known=True)
file("a proof", r"proofs/.*", BOUND, "an entry that is not there")
file("a certificate", r"deletions/.*", BOUND, "another deletion")
file("model: attestation.json", r"model/attestation\.json", BOUND, "other claims")
file("model: model.json", r"model/model\.json", BOUND, "another model")
LISTED = "what nothing binds is named as not checked"
file("README.txt", r"README\.txt", LISTED, "words")
file("verify.py", r"verify\.py", LISTED, "a program that accepts everything")
file("report.html", r"report\.html", LISTED, "a page that runs in a browser", of="main", known=True)
file("report.json", r"report\.json", LISTED, "other figures", of="main")


def whole(name: str, breaks: str, gains: str, change: Callable[[Files], Files], **more: Any) -> None:
    """Files more or fewer, under a manifest that names them. `accepted`: what is gone has to be named."""

    @packs(name, breaks, gains, **more)
    def _(world: World) -> dict[str, str]:
        files = pack_of(world)
        made = change(files)
        found = judged(world, container(signed(world, made)))
        answers = {"verify.py": (found.failed or [""])[0]}
        gone = files.keys() - made.keys()
        named = [line for line in found.unchecked if any(each in line for each in gone)]
        if found.failed or "accepted" not in more:
            return answers
        return answers | ({"named": named[0]} if named else {"open": f"{name}: neither refused nor named"})


def _uncosigned(files: Files) -> Files:
    """Without the notes of witnesses, and without their lines under the checkpoint; the trainer's line stays."""
    text, signatures = files["ledger/checkpoint"].split(b"\n\n", 1)
    unsigned = text + b"\n\n" + signatures.splitlines(keepends=True)[0]
    return {**_without(r"ledger/witness/.*")(files), "ledger/checkpoint": unsigned}


def _without(pattern: str) -> Callable[[Files], Files]:
    def change(files: Files) -> Files:
        if not any(re.fullmatch(pattern, name) for name in files):
            raise ValueError(f"the pack that is attacked has no file {pattern}")
        return {name: content for name, content in files.items() if not re.fullmatch(pattern, name)}

    return change


NAMED = "a pack holds what its ledger names, and nothing else"
whole("a file more", NAMED, "anything in a signed pack", lambda files: {**files, "ledger/extra": b"x"}, known=True)
whole(
    "a blob that no entry names",
    NAMED,
    "anything in a signed pack",
    lambda f: {**f, f"ledger/blobs/sha256/{_sha(b'x')[:2]}/{_sha(b'x')}": b"x"},
    known=True,
)
whole(
    "a secret among the files", NAMED, "another owner's secrets", lambda f: {**f, "private/secrets": b"x"}, known=True
)
whole(
    "the blobs less",
    "a blob that is missing was erased on record",
    "numbers that convict",
    _without(r"ledger/blobs/.*"),
    known=True,
)
whole("run.json less", LISTED, "an unknown training", _without(r"run\.json"), accepted="unchecked")
whole("the cosignatures less", "a checkpoint has its quorum", "a record of one's own", _uncosigned, known=True)
whole("tags.json less", NAMED, "no vouching", _without(r"governance/tags\.json"))
whole("the policy less", NAMED, "nothing was denied", _without(r"governance/policy\.json"))


def raw(name: str, gains: str, change: Callable[[bytes, Files], bytes], **more: Any) -> None:
    """The container itself."""

    @packs(name, "a container has one reading", gains, **{"who": OUTSIDER, **more})
    def _(world: World) -> dict[str, str]:
        files = pack_of(world)
        found = judged(world, change(container(files), files))
        return {"verify.py": (found.failed or [""])[0]}


def _zipped(entries: Iterator[tuple[zipfile.ZipInfo, bytes]], kind: int = zipfile.ZIP_STORED) -> bytes:
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w", kind) as archive:
        for info, content in entries:
            archive.writestr(info, content, compress_type=kind)
    return written.getvalue()


def _entries(files: Mapping[str, bytes], **changes: Any) -> Iterator[tuple[zipfile.ZipInfo, bytes]]:
    for name, content in sorted(files.items()):
        info = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
        info.create_system, info.external_attr = 3, 0o100644 << 16
        for attribute, value in changes.items():
            setattr(info, attribute, value)
        yield info, content


def _twice(content: bytes, files: Files) -> bytes:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        both = [*_entries(files), *_entries({"run.json": b"{}"})]
        return _zipped(iter(both))


raw("bytes behind the end", "unread words", lambda c, f: c + b"more", known=True)
raw("bytes before the beginning", "a program that unpacks itself", lambda c, f: b"#!/bin/sh\n" + c, known=True)
raw("cut short", "files that are not there", lambda c, f: c[: len(c) // 2], known=True)
raw("one name twice", "two readers, two packs", _twice)
raw(
    "a bomb",
    "the reader's memory",
    lambda c, f: _zipped(_entries({**f, "report.html": bytes(10**7)}), zipfile.ZIP_DEFLATED),
)
raw("a link", "a file of the reader's", lambda c, f: _zipped(_entries(f, external_attr=0o120777 << 16)))
raw(
    "an absolute path", "a file of the reader's", lambda c, f: _zipped(_entries({**f, "/etc/passwd": b"x"})), known=True
)
raw(
    "a path that climbs",
    "a file of the reader's",
    lambda c, f: _zipped(_entries({**f, "ledger/../../x": b"x"})),
    known=True,
)
raw("names that differ only in case", "one file for another", lambda c, f: _zipped(_entries({**f, "RUN.json": b"{}"})))
raw("another day", "bytes that mean nothing", lambda c, f: _zipped(_entries(f, date_time=(2026, 1, 1, 0, 0, 0))))
raw("a comment", "unread words", lambda c, f: _zipped(_entries(f, comment=b"all is well")))
raw(
    "an entry that lies about its size",
    "two readers, two packs",
    lambda c, f: c.replace(struct.pack("<I", zlib.crc32(f["run.json"])), bytes(4)),
)
raw("empty", "nothing to refuse", lambda c, f: b"", known=True)


def _sha(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
