"""Packs of a made-up governed run, and what somebody could do to one: with no key, or with the trainer's."""

import hashlib
import io
import json
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from explorer.canonical import canonical
from explorer.disclosure import verifier
from explorer.disclosure.pack import MANIFEST, PAYLOAD_TYPE, SIGNATURE, Pack, container, make_pack
from explorer.disclosure.wrapped import WrappedKeys
from explorer.provenance.envelope import sign_envelope
from explorer.provenance.keys import write_key
from explorer.provenance.trust import Trust, trust_content
from explorer.runlog.run_ledger import RunLedger
from tests.audit import governed_run
from tests.audit.governed_run import TRAINER
from tests.provenance.people import NOW, private

REPORT = b"<!doctype html><title>report</title>"
Files = dict[str, bytes]


def governed(root: Path, **how: Any) -> Path:
    """A governed run, and the trainer's key where its documents say."""
    run = governed_run.write_governed_run(root / "runs", **how)
    if not (run.parent / "trainer.pem").exists():
        write_key(run.parent / "trainer.pem", private(TRAINER), None)
    return run


def packed(run: Path, *, grants: Mapping[str, WrappedKeys] | None = None, report: bytes = REPORT) -> Pack:
    return make_pack(
        RunLedger(run),
        grants=grants or {},
        report=report,
        key=private(TRAINER),
        trust=governed_run.trust(),
        now=NOW,
    )


def opened(content: bytes) -> Files:
    """The files of a pack, as everybody's zip reads them."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def manifest_of(files: Files) -> dict[str, Any]:
    """The manifest, naming the files as they are now."""
    said = json.loads(files[MANIFEST])
    others = sorted(files.keys() - {MANIFEST, SIGNATURE})
    said["files"] = [
        {"path": name, "sha256": hashlib.sha256(files[name]).hexdigest(), "size": len(files[name])} for name in others
    ]
    said["grants"] = [name[len("grants/") : -len(".json")] for name in others if name.startswith("grants/")]
    return said


def signed_again(files: Files, *, by: str = TRAINER, change: Callable[[dict[str, Any]], object] | None = None) -> Files:
    """The files with a manifest that names them, signed: what somebody with this key can make of a pack."""
    said = manifest_of(files)
    if change is not None:
        change(said)
    payload = canonical(said)
    return {**files, MANIFEST: payload, SIGNATURE: sign_envelope(payload, PAYLOAD_TYPE, [private(by)]).content}


def trusted(trust: Trust | None = None) -> verifier.Trust:
    """A trust file as the verifier reads it."""
    return verifier.read_trust(trust_content(trust or governed_run.trust(), where="trust.json"), "trust.json")


def findings(
    content: bytes | Files,
    *,
    trust: Trust | None = None,
    now: int = NOW,
    key: Any = None,
    believing: bool = True,
) -> verifier.Findings:
    """What the verifier finds in a pack, or in one made of these files."""
    found = verifier.Findings()
    with found.looking_at(""):
        files = verifier.open_container(content if isinstance(content, bytes) else container(content))
        verifier.verify(files, trusted(trust) if believing else None, now, key, found)
    return found


def faults(content: bytes | Files, **how: Any) -> str:
    """What does not hold, in one text."""
    return "\n".join(findings(content, **how).failed)
