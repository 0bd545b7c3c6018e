"""The options that several verbs share, and the moment that all of them take for now.

A verb names an option as the type of a parameter: `runs: options.Runs = options.RUNS`.
"""

import datetime
from pathlib import Path
from time import time
from typing import Annotated

import typer

from explorer import rundir
from explorer.errors import LedgerError

CANNOT_BE_TOLD = 3
"""The exit status where nothing contradicts what was asked, and some of it was erased or is sealed."""

# --- runs, sweeps and datasets ---

RUNS = Path("runs")

Runs = Annotated[
    Path, typer.Option("--runs", envvar="EXPLORER_RUNS", metavar="DIR", help="Directory of all runs and results.")
]
Data = Annotated[
    Path | None,
    typer.Option(
        "--data", envvar="EXPLORER_DATA", metavar="DIR", help="Directory of the datasets that are not in the package."
    ),
]
Spec = Annotated[Path, typer.Argument(metavar="SPEC", help="A sweep specification (YAML).")]
Engine = Annotated[
    str,
    typer.Option("--engine", metavar="NAME", help="Notebook engine: warm, cold or inline. All give the same results."),
]
Workers = Annotated[
    int | None,
    typer.Option(
        "--workers",
        min=1,
        metavar="N",
        help="Number of runs at the same time. Default: cores / threads per run, or one a GPU.",
    ),
]
On = Annotated[
    str | None,
    typer.Option(
        "--on",
        metavar="CLUSTER",
        help="Dask cluster to run on: local-dask:N, tls://HOST:PORT, or tcp:// and an address of this machine."
        " Its workers have to see the same files. Default: this machine, without Dask.",
    ),
]
Device = Annotated[
    str | None,
    typer.Option(
        "--device", metavar="GPUS", help="Use these GPUs, such as 0,1: one run at a time on each. Default: all of them."
    ),
]
PlaceUrl = Annotated[
    str,
    typer.Option(
        "--at", metavar="PLACE", help="Publish the sweep here: a directory, or s3://, gs:// or az:// and a path."
    ),
]
At = Annotated[
    str | None,
    typer.Option(
        "--at",
        metavar="PLACE",
        help="Publish the sweep at this place, a directory or s3://, gs:// or az:// and a path, and execute it there,"
        " together with any `explorer run-at PLACE --claim` elsewhere.",
    ),
]
TuneAt = Annotated[
    str | None,
    typer.Option(
        "--at",
        metavar="PLACE",
        help="Execute the tuning at PLACE/tuning, together with any `explorer run-at PLACE/tuning --claim` elsewhere.",
    ),
]
ReadAt = Annotated[
    str | None,
    typer.Option(
        "--at",
        metavar="PLACE",
        help="Read what a sweep has published at this place (a directory, s3://, gs:// or az:// and a path), and not"
        " the runs of this machine.",
    ),
]
OwnLoop = Annotated[
    str | None,
    typer.Option(
        "--loop",
        metavar="MODULE:FUNCTION",
        help="Function of your own training loop, called with `govern`. Its module is imported.",
    ),
]
Ranks = Annotated[
    int | None,
    typer.Option(
        "--ranks",
        metavar="N",
        help="Processes that train the run together, at most one for each lane (train.lanes). Any number gives the same"
        " bits. Default: as the run was planned (train.ranks).",
    ),
]

Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]

# --- one governed run, and what a deletion is about ---

RunDirectory = Annotated[Path, typer.Argument(metavar="RUN", help="The directory of a governed run.")]
Steps = Annotated[
    str | None,
    typer.Option("--steps", metavar="A:B", help="Steps from A up to B, without B, counted from 0. Default: all steps."),
]
Class = Annotated[
    str | None, typer.Argument(metavar="[CLASS]", help="A class, or a branch of the taxonomy with all its classes.")
]
Records = Annotated[
    list[str] | None,
    typer.Option(
        "--record",
        metavar="N|SOURCE",
        help="A record, by its row number in the tag table, or by its source there, such as a file; repeatable.",
    ),
]
AuthorityName = Annotated[
    str | None, typer.Option("--authority", metavar="NAME", help="All examples that this authority vouches for.")
]
Private = Annotated[
    Path | None,
    typer.Option(
        "--governance", metavar="DIR", help="Directory with the run's salts and the trainer's key, if it has moved."
    ),
]
TagSalts = Annotated[
    Path | None,
    typer.Option("--governance", metavar="DIR", help="Directory with the salts of the tags, if it has moved."),
]

# --- trust, keys and signatures ---

TrustFile = Annotated[
    Path, typer.Option("--trust", metavar="TRUST", help="Trust file: the authorities and keys to trust.")
]
OptionalTrust = Annotated[
    Path | None, typer.Option("--trust", metavar="TRUST", help="Trust file, to check the signatures of signed files.")
]
OwnTrust = Annotated[
    Path | None, typer.Option("--trust", metavar="TRUST", help="Trust file. Default: the run's own copy.")
]
LedgerTrust = Annotated[
    Path | None,
    typer.Option("--trust", metavar="TRUST", help="Trust file to verify the ledger with. Default: not verified."),
]
KeyFile = Annotated[
    Path,
    typer.Option("--key", metavar="KEY", help="Key file to sign with, or a key in an SSH agent: ssh-agent:NAME."),
]
SigningKeys = Annotated[
    list[Path] | None,
    typer.Option("--key", metavar="FILE", help="Key to sign with; repeatable. Default: the key of the run's trainer."),
]
Unencrypted = Annotated[bool, typer.Option("--unencrypted", help="Write the key without a passphrase.")]
PassphraseFile = Annotated[
    Path | None,
    typer.Option(
        "--passphrase-file",
        metavar="FILE",
        help="File with the passphrase of the key. Default: $EXPLORER_PASSPHRASE, else a prompt.",
    ),
]
ReaderPassphraseFile = Annotated[
    Path | None,
    typer.Option(
        "--passphrase-file",
        metavar="FILE",
        help="File with the passphrase of the reader's key. Default: $EXPLORER_READER_PASSPHRASE, else a prompt.",
    ),
]
YEAR = 365 * 86_400  # seconds: how long a certificate or an attestation is valid, unless --expires says otherwise
SignedOut = Annotated[Path, typer.Option("--out", "-o", metavar="FILE", help="Signed file to write.")]
Expires = Annotated[
    str | None,
    typer.Option("--expires", metavar="TIME", help="End of validity, in UTC. Default: in a year."),
]
TableOut = Annotated[Path, typer.Option("--out", "-o", metavar="TABLE", help="Tag table to write.")]
SaltsOut = Annotated[Path, typer.Option("--salts", metavar="FILE", help="File to write the salts to. Keep it secret.")]

# --- ledgers: who signs, and who watches ---

Directory = Annotated[Path, typer.Argument(metavar="DIR", help="The directory of a ledger.")]
AnchorTrust = Annotated[
    Path | None, typer.Option("--trust", metavar="TRUST", help="Trust the keys in this trust file.")
]
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


def of_runs(runs: Path) -> tuple[str, ...]:
    """Return the option that a printed command needs to read these runs; none for the usual directory."""
    return () if runs == RUNS else ("--runs", str(runs))


def span_of(written: str | None) -> tuple[int | None, int | None]:
    """Parse `A:B`, either of which may be left out. Raises `LedgerError` for anything else."""
    first, colon, stop = (":" if written is None else written).partition(":")
    # `isdigit` accepts superscripts and digits of other scripts too, which `int` refuses or reads silently
    if not colon or not all(not end or (end.isascii() and end.isdigit()) for end in (first, stop)):
        raise LedgerError(f"--steps: found {written!r:.80}, expected A:B, such as 100:200")
    return int(first) if first else None, int(stop) if stop else None


def warn_of_own(trust: Path | None, *judged: Path) -> str:
    """Return a warning where a trust file lies in a run that it judges; else nothing. `judged` are directories of runs,
    or what is in one, such as its ledger."""
    runs = (path.parent if (path.parent / rundir.GOVERNANCE).is_dir() else path for path in map(Path.resolve, judged))
    if trust is None or not any(trust.resolve().is_relative_to(run) for run in runs):
        return ""
    return f"{trust}: came with the run, and a forged run would bring its own; take the trust file from its signers"


def clock() -> int:
    """Return now, in seconds since 1970."""
    return int(time())


def today() -> datetime.date:
    """Return the day in UTC."""
    return datetime.datetime.fromtimestamp(clock(), datetime.UTC).date()
