"""Keys, passphrases and signed files, for the verbs that sign.

A passphrase comes from `--passphrase-file`, else from EXPLORER_PASSPHRASE (that of a reader's key: from
EXPLORER_READER_PASSPHRASE), else from the terminal. It is never an argument, because other people can list the
arguments of a process, and it is never printed.
"""

import getpass
import hashlib
import os
import sys
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from explorer.cli import options
from explorer.errors import ProvenanceError
from explorer.page.terminal import Answer
from explorer.provenance.envelope import key_id, write_envelope
from explorer.provenance.keys import (
    PASSPHRASE,
    READER_PASSPHRASE,
    ReaderKey,
    agent_name,
    is_encrypted,
    public_bytes,
    read_key,
    read_reader_key,
)
from explorer.provenance.signing import Kind, Opened, Value, open_file, sign_file
from explorer.provenance.trust import Trust, read_trust
from explorer.runlog.documents import TRAINER_FILE, source_of, trainer_key

MAX_FILE = 10_000  # bytes of a passphrase file


def load_key(path: Path, passphrase_file: Path | None) -> Ed25519PrivateKey:
    """Read a key from a file or an SSH agent; ask for a passphrase only if it needs one."""
    return read_key(path, known_passphrase(path, passphrase_file))


def load_reader_key(path: Path, passphrase_file: Path | None) -> ReaderKey:
    """Read the key file of a reader; ask for a passphrase only if it needs one."""
    return read_reader_key(path, known_passphrase(path, passphrase_file, variable=READER_PASSPHRASE))


def provide_passphrase(path: Path) -> None:
    """Make sure that this process and its children can read a key file; ask for a passphrase only if it needs one.

    Raises `ProvenanceError` for a passphrase that is wrong, and for an SSH agent without the key that the file names,
    before anything starts.
    """
    if agent_name(path) is not None:
        read_key(path, None)  # an agent without the key refuses now
    elif is_encrypted(path):
        if not os.environ.get(PASSPHRASE):
            os.environ[PASSPHRASE] = _ask(
                f"Passphrase of {path}: ", variable=PASSPHRASE, else_say=f"{path}: needs its passphrase:"
            )
        read_key(path, os.environ[PASSPHRASE])


def provide_trainer(run: Path, *, private: Path | None = None) -> None:
    """Make sure that the key of a run's trainer can be read. A key that is no file here is left to `trainer_key`."""
    key = (Path(source_of(run).private) if private is None else private) / TRAINER_FILE
    if key.exists():
        provide_passphrase(key)


def keys_for(
    run: Path, paths: list[Path], passphrase_file: Path | None, *, trust: Trust, now: int
) -> list[Ed25519PrivateKey]:
    """Return the keys that were named, or the key of a run's trainer."""
    if paths:
        return [load_key(path, passphrase_file) for path in paths]
    if passphrase_file is not None:
        return [load_key(Path(source_of(run).private) / TRAINER_FILE, passphrase_file)]
    provide_trainer(run)
    return [trainer_key(run, trust=trust, now=now)[1]]


def new_passphrase(path: Path, passphrase_file: Path | None, *, variable: str = PASSPHRASE) -> str:
    """Return a passphrase for a new key file; at a prompt it is typed twice."""
    known = _known(passphrase_file, variable)
    if known is not None:
        return known
    typed = _ask(f"New passphrase for {path}: ", variable=variable)
    if _ask("Once more: ", variable=variable) != typed:
        raise ProvenanceError("the two passphrases differ; nothing was written")
    return typed


def known_passphrase(path: Path, passphrase_file: Path | None, *, variable: str = PASSPHRASE) -> str | None:
    """Return the passphrase of a key file; None for one that needs none."""
    if not is_encrypted(path):
        return None
    known = _known(passphrase_file, variable)
    return _ask(f"Passphrase of {path}: ", variable=variable) if known is None else known


def _known(file: Path | None, variable: str) -> str | None:
    return os.environ.get(variable) or None if file is None else _passphrase_in(file)


def _passphrase_in(path: Path) -> str:
    """Read the passphrase in a file or a pipe that no other user can read."""
    try:
        with path.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode & 0o777
            content = file.read(MAX_FILE + 1)
    except OSError as error:
        raise ProvenanceError(f"cannot read {path}: {error.strerror or error}") from error
    # A readable passphrase protects nothing, so the file has to be as private as the key.
    if mode & 0o077:
        raise ProvenanceError(f"{path}: others can read or write it (mode {mode:04o}); first: chmod 600 {path}")
    if len(content) > MAX_FILE:
        raise ProvenanceError(f"{path}: found more than {MAX_FILE:,} bytes; expected a passphrase")
    try:
        passphrase = content.decode().removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError as error:
        raise ProvenanceError(f"{path}: found bytes that are not UTF-8; expected a passphrase") from error
    if "\n" in passphrase:
        raise ProvenanceError(f"{path}: found several lines; expected one, because a passphrase has to be typeable")
    return passphrase


def _ask(
    question: str, *, variable: str, else_say: str = "a passphrase is needed: give --passphrase-file FILE or"
) -> str:
    if not sys.stdin.isatty():
        raise ProvenanceError(f"{else_say} set {variable}")
    return getpass.getpass(question)


def open_trusted(path: Path, kind: Kind[Value], trust: Path | None) -> Opened[Value]:
    """Open a draft, or a signed document whose signatures the trust file accepts."""
    return open_file(path, kind, trust=None if trust is None else read_trust(trust), now=options.clock())


def sign_to(
    out: Path, source: Path, kind: Kind[Any], *, key: Path, passphrase_file: Path | None, trust: Path
) -> Answer:
    """Sign a draft, or add a signature to a signed file, and write it."""
    trusted, now = read_trust(trust), options.clock()
    signing = load_key(key, passphrase_file)
    envelope = sign_file(source, kind, [signing], trust=trusted, now=now)
    write_envelope(out, envelope)
    signer = key_id(public_bytes(signing))
    digest = hashlib.sha256(envelope.payload).hexdigest()
    return Answer(
        page=lambda: [f"{out}: signed with key {signer[:16]}"],
        record=lambda: {"file": str(out), "digest": digest, "key": signer, "signatures": len(envelope.signatures)},
    )


def signed_words(opened: Opened[Any]) -> str:
    """Return who signed a document, in words."""
    names = ", ".join(authority.name for authority in opened.authorities)
    return f"signed by {names}" if names else "unsigned draft"
