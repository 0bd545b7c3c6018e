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
        help="Function of your own training loop, called with `govern`; its module is imported.",
    ),
]
Spec = Annotated[Path, typer.Argument(metavar="SPEC", help="A sweep specification (YAML).")]
RUNS = Path("runs")

CANNOT_BE_TOLD = 3
"""The exit status where nothing contradicts what was asked, and some of it was erased or is sealed."""

TrustFile = Annotated[Path, typer.Option("--trust", metavar="TRUST", help="Trust file: the keys that are trusted.")]
KeyFile = Annotated[
    Path,
    typer.Option("--key", metavar="KEY", help="Key file to sign with, or a key in an SSH agent: ssh-agent:NAME."),
]
ReaderPassphraseFile = Annotated[
    Path | None,
    typer.Option(
        "--passphrase-file",
        metavar="FILE",
        help="File with the passphrase of the reader's key. Default: $EXPLORER_READER_PASSPHRASE, else a prompt.",
    ),
]
PassphraseFile = Annotated[
    Path | None,
    typer.Option(
        "--passphrase-file",
        metavar="FILE",
        help="File with the passphrase of the key. Default: $EXPLORER_PASSPHRASE, else a prompt.",
    ),
]
Believe = Annotated[
    Path | None, typer.Option("--trust", metavar="TRUST", help="Trust file, to check the signatures of signed files.")
]
SignedOut = Annotated[Path, typer.Option("--out", "-o", metavar="FILE", help="File to write, signed.")]
RunDirectory = Annotated[Path, typer.Argument(metavar="RUN", help="The directory of a governed run.")]
Steps = Annotated[
    str | None,
    typer.Option("--steps", metavar="A:B", help="Steps A up to, not including, B, counted from 0. Default: all steps."),
]
Class = Annotated[
    str | None, typer.Argument(metavar="[CLASS]", help="A class, or a branch of the taxonomy: all its classes.")
]
Records = Annotated[
    list[int] | None, typer.Option("--record", metavar="N", help="A record, by its row in the tag table; repeatable.")
]
AuthorityName = Annotated[
    str | None, typer.Option("--authority", metavar="NAME", help="All examples that this authority vouches for.")
]
Expires = Annotated[
    str | None, typer.Option("--expires", metavar="TIME", help="When the certificate expires. Default: in a year.")
]
Private = Annotated[
    Path | None,
    typer.Option(
        "--governance", metavar="DIR", help="Directory with the run's salts and the trainer's key, if it has moved."
    ),
]
Engine = Annotated[
    str,
    typer.Option("--engine", metavar="NAME", help="Notebook engine: warm, cold or inline; the results are the same."),
]
Workers = Annotated[
    int | None,
    typer.Option("--workers", min=1, metavar="N", help="Runs at the same time. Default: cores / threads per run."),
]
Directory = Annotated[Path, typer.Argument(metavar="DIR", help="The directory of a ledger.")]
Policy = Annotated[
    Path | None, typer.Option("--policy", metavar="FILE", help="Trust the keys in this policy (C2SP tlog-policy).")
]
Vkeys = Annotated[
    list[str] | None,
    typer.Option("--vkey", metavar="KEY", help="Trust this verifier key, name+id+base64; repeatable."),
]
Evidence = Annotated[
    Path | None,
    typer.Option(
        "--evidence",
        metavar="DIR",
        help="Directory for the evidence of a fork (ledger-evidence-...). Default: the working directory.",
    ),
]
State = Annotated[
    Path | None,
    typer.Option(
        "--state",
        metavar="DIR",
        help="Directory that records what this key has cosigned. Default: KEY.cosigned, next to the key.",
    ),
]
First = Annotated[bool, typer.Option("--first", help="Start a new record: this key has cosigned nothing yet.")]
AnchorTrust = Annotated[
    Path | None, typer.Option("--trust", metavar="TRUST", help="Trust the keys in this trust file.")
]


def span_of(written: str | None) -> tuple[int | None, int | None]:
    """Parse `A:B`, either of which may be left out. Raises `LedgerError` for anything else."""
    first, colon, stop = (":" if written is None else written).partition(":")
    if not colon or not all(not each or (each.isascii() and each.isdigit()) for each in (first, stop)):
        raise LedgerError(f"--steps: found {written!r:.80}, expected A:B, such as 100:200")
    return int(first) if first else None, int(stop) if stop else None


def clock() -> int:
    """Now, in seconds since 1970."""
    return int(time())


def today() -> datetime.date:
    """Return the day in UTC."""
    return datetime.datetime.fromtimestamp(clock(), datetime.UTC).date()
