"""What the verbs that sign have in common: key files, passphrases, the trust file and the clock.

A passphrase comes from `--passphrase-file`, else from EXPLORER_PASSPHRASE, else from whoever sits at the terminal. It
is never an argument, because other people can list the arguments of a process, and it is never printed.
"""

import getpass
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from explorer.errors import ProvenanceError
from explorer.provenance.private import PASSPHRASE

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

MAX_FILE = 10_000

TrustFile = Annotated[Path, typer.Option("--trust", metavar="TRUST", help="The trust file: whom to believe.")]
KeyFile = Annotated[Path, typer.Option("--key", metavar="FILE", help="The key file to sign with.")]
PassphraseFile = Annotated[
    Path | None,
    typer.Option(
        "--passphrase-file",
        metavar="FILE",
        help=f"Holds the passphrase of the key. Default: ${PASSPHRASE}, else it is asked for.",
    ),
]


def load_key(path: Path, passphrase_file: Path | None) -> "Ed25519PrivateKey":
    """Read a key file; ask for a passphrase only if it needs one."""
    from explorer.provenance.keys import read_key

    return read_key(path, _passphrase_for(path, passphrase_file))


def load_reader_key(path: Path, passphrase_file: Path | None) -> "X25519PrivateKey":
    """Read the key file of a reader; ask for a passphrase only if it needs one."""
    from explorer.provenance.reader_keys import read_reader_key

    return read_reader_key(path, _passphrase_for(path, passphrase_file))


def provide_passphrase(path: Path) -> None:
    """Make sure that this process and those it starts can read a key file; ask for a passphrase only if it needs one.

    Raises `ProvenanceError` for a passphrase that is wrong, before anything starts.
    """
    from explorer.provenance.keys import is_encrypted, read_key

    if is_encrypted(path):
        if not os.environ.get(PASSPHRASE):
            os.environ[PASSPHRASE] = _ask(f"Passphrase of {path}: ", else_say=f"{path}: its passphrase is needed: set")
        read_key(path, os.environ[PASSPHRASE])


def new_passphrase(path: Path, passphrase_file: Path | None) -> str:
    """A passphrase for a key that is about to be made; typed twice where it is typed."""
    known = _known(passphrase_file)
    if known is not None:
        return known
    typed = _ask(f"New passphrase for {path}: ")
    if _ask("Once more: ") != typed:
        raise ProvenanceError("the two passphrases differ; nothing was written")
    return typed


def clock() -> int:
    """Now, in seconds since 1970."""
    return int(time.time())


def _passphrase_for(path: Path, passphrase_file: Path | None) -> str | None:
    """The passphrase of a key file; None for one that needs none."""
    from explorer.provenance.keys import is_encrypted

    if not is_encrypted(path):
        return None
    known = _known(passphrase_file)
    return _ask(f"Passphrase of {path}: ") if known is None else known


def _known(file: Path | None) -> str | None:
    if file is not None:
        return _passphrase_in(file)
    return os.environ.get(PASSPHRASE) or None


def _passphrase_in(path: Path) -> str:
    """The passphrase in a file or a pipe that nobody else can read."""
    try:
        with path.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode & 0o777
            content = file.read(MAX_FILE + 1)
    except OSError as error:
        raise ProvenanceError(f"cannot read {path}: {error.strerror or error}") from error
    if mode & 0o077:
        raise ProvenanceError(f"{path}: others can read or write it (mode {mode:04o}); first: chmod 600 {path}")
    if len(content) > MAX_FILE:
        raise ProvenanceError(f"{path}: too large for a passphrase")
    try:
        passphrase = content.decode().removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError as error:
        raise ProvenanceError(f"{path}: a passphrase is UTF-8 text") from error
    if "\n" in passphrase:
        raise ProvenanceError(f"{path}: more than one line; a passphrase is one, which can be typed too")
    return passphrase


def _ask(question: str, *, else_say: str = "a passphrase is needed: say --passphrase-file FILE or set") -> str:
    if not sys.stdin.isatty():
        raise ProvenanceError(f"{else_say} {PASSPHRASE}")
    return getpass.getpass(question)
