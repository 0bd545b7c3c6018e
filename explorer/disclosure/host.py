"""The private keys that lie on a host: whoever can write there can sign as these, whatever the trust file says.

Looked at are the files beside the trainer's key, those one directory further up, and those beside and above the runs of
the project: where people keep keys who follow the README. An encrypted key is opened where the passphrase of the
trainer's key opens it, since whoever has the one then has the other; else it is listed, and whose it is is not known.
Of the keys in an SSH agent those of the trust file are listed; others are nobody's business. Keys in other places, on
other machines that can be reached from here, and in memory are not seen.
"""

import base64
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Literal

from cryptography.exceptions import InternalError, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from explorer.errors import ProvenanceError
from explorer.provenance.agent import agent_public_keys
from explorer.provenance.keys import MAX_FILE, PublicKey, public_text, read_any
from explorer.provenance.spellings import Line
from explorer.provenance.trust import Trust
from explorer.schema import record

MAX_LISTED = 2_000  # names in one directory that are looked at
_MARK, _ENCRYPTED = b"PRIVATE KEY-----", b"ENCRYPTED PRIVATE KEY-----"
_SUFFIXES = (".pem", ".key")

State = Literal[
    "readable",
    "opens with the passphrase of the trainer's key",
    "signed this pack",
    "in an SSH agent that answers here",
    "encrypted, not opened",
    "damaged, or of another kind",
    "cannot be read by this process",
    "more names than are looked at",
]


@record
class HostKey:
    """A file with a private key, and whose key it is."""

    file: Line  # below the directory of the trainer's key, ../ for the one above; runs/ and runs/../ for the project's
    public_key: PublicKey | None  # None: it could not be told
    state: State


def host_keys(
    private: Path, runs: Path, *, signer: Ed25519PrivateKey, passphrase: str | None, trust: Trust
) -> tuple[HostKey, ...]:
    """The keys on this host. `private` is the directory of the trainer's key, `runs` that of the project; `signer` is
    the key that signs the pack, and `passphrase` that of its file; `trust` says which keys of an agent count.

    Raises `ProvenanceError` if the directory of the trainer's key cannot be listed.
    """
    try:
        next(private.iterdir(), None)
    except OSError as error:
        raise ProvenanceError(f"cannot look for keys in {private}: {error.strerror or error}") from error
    places = [("", private), ("../", private / ".."), ("runs/", runs), ("runs/../", runs / "..")]
    seen: set[Path] = set()
    found: list[HostKey] = []
    for prefix, place in places:
        if (resolved := place.resolve()) not in seen:
            seen.add(resolved)
            found += _in_directory(prefix, resolved, passphrase)
    own = public_text(signer)
    return (*(_signing(each, own) for each in found), *_in_agent(trust))


def _signing(key: HostKey, own: str) -> HostKey:
    """The signer's key file says so itself, even where it holds no key but says where it is."""
    untold = key.file == "trainer.pem" and key.public_key is None
    return HostKey(file=key.file, public_key=own, state="signed this pack") if untold else key


def _in_agent(trust: Trust) -> Iterator[HostKey]:
    try:
        public_keys = agent_public_keys()
    except ProvenanceError:
        yield HostKey(file="ssh-agent", public_key=None, state="cannot be read by this process")
        return
    for public in public_keys:
        if trust.owner(public) is not None:
            text = base64.b64encode(public).decode()
            yield HostKey(file="ssh-agent", public_key=text, state="in an SSH agent that answers here")


def _in_directory(prefix: str, directory: Path, passphrase: str | None) -> Iterator[HostKey]:
    try:
        paths = sorted(directory.iterdir())
    except OSError:
        yield HostKey(file=prefix or "./", public_key=None, state="cannot be read by this process")
        return
    for path in paths[:MAX_LISTED]:
        yield from _host_key(prefix, path, passphrase)
    if len(paths) > MAX_LISTED:
        yield HostKey(file=prefix or "./", public_key=None, state="more names than are looked at")


def _host_key(prefix: str, path: Path, passphrase: str | None) -> Iterable[HostKey]:
    name = prefix + (path.name if path.name.isprintable() else ascii(path.name))
    try:
        if not path.is_file():
            return ()
        with path.open("rb") as file:
            content = file.read(MAX_FILE)
    except OSError:
        state: State = "cannot be read by this process"
        return (HostKey(file=name, public_key=None, state=state),) if path.suffix in _SUFFIXES else ()
    if _MARK not in content:
        signs = name == "trainer.pem"  # a file that says where the key is, such as an agent
        return (HostKey(file=name, public_key=None, state="damaged, or of another kind"),) if signs else ()
    key, state = _opened(path, content, passphrase)
    if not isinstance(key, Ed25519PrivateKey | X25519PrivateKey):
        return (HostKey(file=name, public_key=None, state=state),)
    public = base64.b64encode(key.public_key().public_bytes_raw()).decode()
    return (HostKey(file=name, public_key=public, state=state),)


def _opened(path: Path, content: bytes, passphrase: str | None) -> tuple[object, State]:
    if _ENCRYPTED in content:
        try:
            key = read_any(path, passphrase)
        except ProvenanceError:
            return None, "encrypted, not opened"
        return key, "opens with the passphrase of the trainer's key"
    try:
        key = load_pem_private_key(content, None)
    except (ValueError, TypeError, UnsupportedAlgorithm, InternalError):
        key = None
    known = isinstance(key, Ed25519PrivateKey | X25519PrivateKey)
    return key, "readable" if known else "damaged, or of another kind"
