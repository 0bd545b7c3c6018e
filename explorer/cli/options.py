"""The options that several verbs share, and the moment that all of them take for now."""

import datetime
from pathlib import Path
from time import time
from typing import Annotated

import typer

from explorer.errors import LedgerError

Runs = Annotated[
    Path, typer.Option("--runs", envvar="EXPLORER_RUNS", metavar="DIR", help="Directory of all runs and results.")
]
Data = Annotated[
    Path | None,
    typer.Option("--data", envvar="EXPLORER_DATA", metavar="DIR", help="Directory of datasets that are not embedded."),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
OwnLoop = Annotated[
    str | None,
    typer.Option(
        "--loop",
        metavar="MODULE:FUNCTION",
        help="Of a loop of your own: the function that trains by the `govern` it is handed. Its module is executed.",
    ),
]
Spec = Annotated[Path, typer.Argument(metavar="SPEC", help="A sweep specification (YAML).")]
RUNS = Path("runs")

CANNOT_BE_TOLD = 3
"""The exit status where nothing contradicts what was asked, and some of it was erased or is sealed."""

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
        help="Holds the passphrase of the reader's key. Default: $EXPLORER_READER_PASSPHRASE, else it is asked for.",
    ),
]
PassphraseFile = Annotated[
    Path | None,
    typer.Option(
        "--passphrase-file",
        metavar="FILE",
        help="Holds the passphrase of the key. Default: $EXPLORER_PASSPHRASE, else it is asked for.",
    ),
]
Believe = Annotated[
    Path | None, typer.Option("--trust", metavar="TRUST", help="The trust file: whom to believe about signed files.")
]
SignedOut = Annotated[Path, typer.Option("--out", "-o", metavar="FILE", help="Where to write the signed file.")]
RunDirectory = Annotated[Path, typer.Argument(metavar="RUN", help="The directory of a governed run.")]
Steps = Annotated[
    str | None, typer.Option("--steps", metavar="A:B", help="From step A, before step B, from 0. Default: all of them.")
]
Class = Annotated[str | None, typer.Argument(metavar="[CLASS]", help="A class, or a branch: all classes of it.")]
Records = Annotated[
    list[int] | None, typer.Option("--record", metavar="N", help="A record: its row in the tag table. Repeatable.")
]
AuthorityName = Annotated[
    str | None, typer.Option("--authority", metavar="NAME", help="Everything that this authority vouches for.")
]
Expires = Annotated[
    str | None, typer.Option("--expires", metavar="TIME", help="Of the certificate. Default: a year from now.")
]
Private = Annotated[
    Path | None,
    typer.Option("--governance", metavar="DIR", help="Where the run's salts and the trainer's key are now."),
]
Engine = Annotated[
    str,
    typer.Option("--engine", metavar="NAME", help="Notebook engine: warm, cold or inline; the results are the same."),
]
Workers = Annotated[
    int | None,
    typer.Option("--workers", min=1, metavar="N", help="Runs side by side. Default: cores / threads of a run."),
]
Directory = Annotated[Path, typer.Argument(metavar="DIR", help="The directory of a ledger.")]
Policy = Annotated[
    Path | None, typer.Option("--policy", metavar="FILE", help="Believe whom this policy names (C2SP tlog-policy).")
]
Vkeys = Annotated[
    list[str] | None,
    typer.Option("--vkey", metavar="KEY", help="Believe this verifier key, name+id+base64; may be repeated."),
]
Evidence = Annotated[
    Path | None,
    typer.Option(
        "--evidence", metavar="DIR", help="Where to keep the evidence of a fork, as ledger-evidence-... Default: here."
    ),
]
State = Annotated[
    Path | None,
    typer.Option("--state", metavar="DIR", help="What this key has cosigned. Default: KEY.cosigned, beside the key."),
]
First = Annotated[
    bool, typer.Option("--first", help="This key has cosigned nothing yet: there is no memory that could be lost.")
]
AnchorTrust = Annotated[
    Path | None, typer.Option("--trust", metavar="TRUST", help="Believe whom this trust file names.")
]


def span_of(written: str | None) -> tuple[int | None, int | None]:
    """The steps that `A:B` says, either of them left out if need be. Raises `LedgerError` for anything else."""
    first, colon, stop = (":" if written is None else written).partition(":")
    if not colon or not all(not each or (each.isascii() and each.isdigit()) for each in (first, stop)):
        raise LedgerError(f"--steps: found {written!r:.80}, expected A:B, such as 100:200")
    return int(first) if first else None, int(stop) if stop else None


def clock() -> int:
    """Now, in seconds since 1970."""
    return int(time())


def today() -> datetime.date:
    """The day in UTC, by the same clock."""
    return datetime.datetime.fromtimestamp(clock(), datetime.UTC).date()
