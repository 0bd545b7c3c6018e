"""What the verbs that sign have in common: key files, passphrases, the trust file and the clock.

A passphrase comes from `--passphrase-file`, else from EXPLORER_PASSPHRASE (that of a reader's key: from
EXPLORER_READER_PASSPHRASE), else from the terminal. It is never an argument, because other people can list the
arguments of a process, and it is never printed.
"""

import getpass
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from explorer.errors import ProvenanceError
from explorer.provenance.private import PASSPHRASE, READER_PASSPHRASE

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    from explorer.provenance.reader_keys import ReaderKey

MAX_FILE = 10_000

TrustFile = Annotated[Path, typer.Option("--trust", metavar="TRUST", help="The trust file: whom to believe.")]
KeyFile = Annotated[
    Path,
    typer.Option("--key", metavar="KEY", help="The key file to sign with, or a key in an SSH agent: ssh-agent:NAME."),
]
ReaderPassphraseFile = Annotated[
    Path | None,
    typer.Option(
        "--passphrase-file",
        metavar="FILE",
        help=f"Holds the passphrase of the reader's key. Default: ${READER_PASSPHRASE}, else it is asked for.",
    ),
]
PassphraseFile = Annotated[
    Path | None,
    typer.Option(
        "--passphrase-file",
        metavar="FILE",
        help=f"Holds the passphrase of the key. Default: ${PASSPHRASE}, else it is asked for.",
    ),
]


def load_key(path: Path, passphrase_file: Path | None) -> "Ed25519PrivateKey":
    """The key in a file or in an SSH agent; ask for a passphrase only if it needs one."""
    from explorer.provenance.keys import read_key

    return read_key(path, known_passphrase(path, passphrase_file))


def load_reader_key(path: Path, passphrase_file: Path | None) -> "ReaderKey":
    """Read the key file of a reader; ask for a passphrase only if it needs one."""
    from explorer.provenance.reader_keys import read_reader_key

    return read_reader_key(path, known_passphrase(path, passphrase_file, variable=READER_PASSPHRASE))


def provide_passphrase(path: Path) -> None:
    """Make sure that this process and those it starts can read a key file; ask for a passphrase only if it needs one.

    Raises `ProvenanceError` for a passphrase that is wrong, and for an SSH agent without the key that the file names,
    before anything starts.
    """
    from explorer.provenance.keys import agent_name, is_encrypted, read_key

    if agent_name(path) is not None:
        read_key(path, None)  # the agent has it
    elif is_encrypted(path):
        if not os.environ.get(PASSPHRASE):
            os.environ[PASSPHRASE] = _ask(
                f"Passphrase of {path}: ", variable=PASSPHRASE, else_say=f"{path}: its passphrase is needed:"
            )
        read_key(path, os.environ[PASSPHRASE])


def new_passphrase(path: Path, passphrase_file: Path | None, *, variable: str = PASSPHRASE) -> str:
    """A passphrase for a key file that is about to be written; typed twice where it is typed."""
    known = _known(passphrase_file, variable)
    if known is not None:
        return known
    typed = _ask(f"New passphrase for {path}: ", variable=variable)
    if _ask("Once more: ", variable=variable) != typed:
        raise ProvenanceError("the two passphrases differ; nothing was written")
    return typed


def known_passphrase(path: Path, passphrase_file: Path | None, *, variable: str = PASSPHRASE) -> str | None:
    """The passphrase of a key file; None for one that needs none."""
    from explorer.provenance.keys import is_encrypted

    if not is_encrypted(path):
        return None
    known = _known(passphrase_file, variable)
    return _ask(f"Passphrase of {path}: ", variable=variable) if known is None else known


def memory_place(key: Path, state: Path | None) -> Path:
    """Where it is kept what a key has cosigned. Raises `ProvenanceError` for a key in an SSH agent, beside which there
    is no place, unless one is named."""
    from explorer.ledger.cosign import memory_of
    from explorer.provenance.keys import is_in_agent

    if state is None and is_in_agent(key):
        raise ProvenanceError(f"{key}: has no file, beside which to keep what it has cosigned: say --state DIR")
    return state or memory_of(key)


def clock() -> int:
    """Now, in seconds since 1970."""
    return int(time.time())


def _known(file: Path | None, variable: str) -> str | None:
    return os.environ.get(variable) or None if file is None else _passphrase_in(file)


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


def _ask(
    question: str, *, variable: str, else_say: str = "a passphrase is needed: say --passphrase-file FILE or"
) -> str:
    if not sys.stdin.isatty():
        raise ProvenanceError(f"{else_say} set {variable}")
    return getpass.getpass(question)
