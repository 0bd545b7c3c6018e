"""What the verbs of signed documents have in common: reading a draft or a signed file, and signing one."""

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from explorer.cli.credentials import clock, load_key
from explorer.cli.output import print_json

if TYPE_CHECKING:
    from explorer.provenance.drafts import Kept, Opened
    from explorer.provenance.signed import Kind

Believe = Annotated[
    Path | None, typer.Option("--trust", metavar="TRUST", help="The trust file: whom to believe about signed files.")
]
SignedOut = Annotated[Path, typer.Option("--out", "-o", metavar="FILE", help="Where to write the signed file.")]


def open_believed(path: Path, kind: "Kind[Kept]", trust: Path | None) -> "Opened[Kept]":
    """A draft, or a signed document that the trust file vouches for."""
    from explorer.provenance.drafts import open_file
    from explorer.provenance.trust import read_trust

    return open_file(path, kind, trust=None if trust is None else read_trust(trust), now=clock())


def sign_to(
    out: Path, source: Path, kind: "Kind[Any]", *, key: Path, passphrase_file: Path | None, trust: Path, as_json: bool
) -> None:
    """Sign a draft, or add a signature to a signed file, write it, and say so."""
    from explorer.provenance.drafts import sign_file
    from explorer.provenance.envelope import key_id, write_envelope
    from explorer.provenance.keys import public_bytes
    from explorer.provenance.trust import read_trust

    believed, now = read_trust(trust), clock()
    signing = load_key(key, passphrase_file)
    envelope = sign_file(source, kind, [signing], trust=believed, now=now)
    write_envelope(out, envelope)
    signer = key_id(public_bytes(signing))
    if as_json:
        digest = hashlib.sha256(envelope.payload).hexdigest()
        print_json({"file": str(out), "digest": digest, "key": signer, "signatures": len(envelope.signatures)})
    else:
        print(f"{out}: signed with key {signer[:16]}")


def signed_words(opened: "Opened[Any]") -> str:
    """Who signed it."""
    names = ", ".join(authority.name for authority in opened.authorities)
    return f"signed by {names}" if names else "unsigned draft"
