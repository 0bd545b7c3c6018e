"""The private keys that lie on a host: whoever can write there can sign as these, whatever the trust file says.

Looked at are the files beside the trainer's key. An encrypted one is listed and not opened: whose it is nobody can tell
from here, and its passphrase may or may not be on this host too.
"""

import base64
from pathlib import Path
from typing import Literal

from cryptography.exceptions import InternalError, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from explorer.errors import ProvenanceError
from explorer.provenance.keys import MAX_FILE, PublicKey
from explorer.provenance.lines import Line
from explorer.schema import record

_MARK, _ENCRYPTED = b"PRIVATE KEY-----", b"ENCRYPTED PRIVATE KEY-----"


@record
class HostKey:
    """A file with a private key, and whose key it is."""

    file: Line
    public_key: PublicKey | None  # None: it could not be told
    state: Literal["readable", "encrypted, not looked into", "damaged, or of another kind"]


def host_keys(directory: Path) -> tuple[HostKey, ...]:
    """The keys in a directory, by the name of the file. Raises `ProvenanceError` if it cannot be listed."""
    try:
        paths = sorted(path for path in directory.iterdir() if path.is_file())
        contents = {path.name: _beginning(path) for path in paths}
    except OSError as error:
        raise ProvenanceError(f"cannot look for keys in {directory}: {error.strerror or error}") from error
    return tuple(_host_key(name, content) for name, content in contents.items() if _MARK in content)


def _beginning(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(MAX_FILE)


def _host_key(name: str, content: bytes) -> HostKey:
    shown = name if name.isprintable() else ascii(name)
    if _ENCRYPTED in content:
        return HostKey(file=shown, public_key=None, state="encrypted, not looked into")
    try:
        key = load_pem_private_key(content, None)
    except (ValueError, TypeError, UnsupportedAlgorithm, InternalError):
        key = None
    if not isinstance(key, Ed25519PrivateKey | X25519PrivateKey):
        return HostKey(file=shown, public_key=None, state="damaged, or of another kind")
    public = base64.b64encode(key.public_key().public_bytes_raw()).decode()
    return HostKey(file=shown, public_key=public, state="readable")
