"""`explorer usage`: statements of use, which say how much of whose data trained what, and checking them."""

import json
import os
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from explorer.cli import options
from explorer.cli.signing import keys_for
from explorer.errors import ProvenanceError, unknown
from explorer.page.document import Block
from explorer.page.terminal import Answer, table
from explorer.provenance.keys import write_private
from explorer.provenance.spellings import parse_time
from explorer.provenance.trust import Trust, read_trust
from explorer.provenance.usage import MAX_BYTES, By, Line, Period, UsageRun, check_period, run_digest
from explorer.release.usage_statement import (
    Checked,
    Survey,
    file_name,
    find_runs,
    gap_words,
    parties,
    recount,
    sign,
    survey,
    verify_usage,
)
from explorer.rundir import read_bytes, write_bytes
from explorer.schema import to_json

STATE, WHOLE = "state", "whole.json"
PARTIES = ("class", "authority", "source")
SHOWN = 40  # characters of a list of layers

Runs = Annotated[
    list[Path], typer.Argument(metavar="RUNS...", help="Directories of governed runs, of sweeps, or of all runs.")
]


def state(
    runs: Runs,
    by: Annotated[str, typer.Option("--by", metavar="PARTY", help="Party per line: class, authority or source.")],
    period: Annotated[
        str | None,
        typer.Option(
            "--period",
            metavar="FROM..TO",
            help="Period in UTC, days or times, by the times of cosignatures. Needs --trust.",
        ),
    ] = None,
    trust: Annotated[
        Path | None, typer.Option("--trust", metavar="TRUST", help="Trust file: verify the ledgers first.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="DIR", help="New directory: sign, and write a file per party into it."),
    ] = None,
    key: Annotated[
        list[Path] | None,
        typer.Option("--key", metavar="FILE", help="Key to sign with; repeatable. Default: the trainer's key."),
    ] = None,
    passphrase_file: options.PassphraseFile = None,
) -> Answer:
    """State how much of whose data runs used: examples, tokens, steps, layers, share of the gradient.

    The word `state` may be left out. Everything is counted from the ledgers. With --out the statement is signed, and
    each party gets a file that shows its own line and hides those of others.
    """
    kind, asked, now = _by(by), _period(period), options.clock()
    believed = None if trust is None else read_trust(trust)
    if out is not None and believed is None:
        raise ProvenanceError("--out signs, which takes --trust FILE: whom those believe who get the files")
    if out is not None and os.path.lexists(out):
        raise ProvenanceError(f"{out}: is there already; statements go into a new directory")
    surveyed = survey(find_runs(runs), by=kind, period=asked, trust=believed, now=now)
    written = None
    if out is not None and believed is not None:
        keys = keys_for(surveyed.ledgers[0].run, key or [], passphrase_file, trust=believed, now=now)
        written = _write(surveyed, out, keys, trust=believed, now=now)
    if written is None:
        end = "not signed: --trust FILE --out DIR signs it and writes a file for each party"
    else:
        end = f"signed: {len(written) - 1} files in {out}, one for each party; {out}/{WHOLE} has all lines: keep it"
    total = {"total": to_json(surveyed.total)["total"], "out": written}
    return Answer(
        page=lambda: [*_page(by, period, surveyed.runs, surveyed.lines), end],
        record=lambda: {**_record(by, period, surveyed.runs, surveyed.lines), **total},
    )


def verify(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The file of a party, or the whole statement.")],
    trust: options.TrustFile,
    runs: Annotated[
        list[Path] | None,
        typer.Option("--runs", metavar="DIR", help="Recount from these runs; repeatable. Default: check offline."),
    ] = None,
) -> Answer:
    """Check a statement of use offline: who signed it, that the line is the signed one, and that the ledger has its
    entries.

    With --runs every number is counted again from the ledgers. The exit status is 0 only if all of it holds.
    """
    believed, now = read_trust(trust), options.clock()
    content = read_bytes(file, max_bytes=MAX_BYTES, error=ProvenanceError)
    checked = verify_usage(content, trust=believed, now=now, where=str(file))
    if runs:
        recount(checked, find_runs(runs), trust=believed, now=now)
    asked = checked.usage.period
    period = None if asked is None else f"{asked.begins}..{asked.ends}"
    said = (checked.usage.by, period, checked.runs, checked.lines)
    return Answer(
        page=lambda: [*_page(*said), *_signed_lines(checked, recounted=bool(runs))],
        record=lambda: {
            **_record(*said),
            "signed_by": checked.signed_by,
            "issued": checked.usage.issued,
            "statement": checked.opened.digest,
            "lines_in_all": checked.usage.lines.count - 1,
            "recounted": bool(runs),
        },
    )


def _by(words: str) -> By:
    if words not in PARTIES:
        raise ProvenanceError(f"--by: {unknown('party', words, PARTIES)}")
    return By(words)


def _period(words: str | None) -> Period | None:
    """`2026-01-01..2026-04-01`, or moments; a day is its first moment. Raises `ProvenanceError` for anything else."""
    if words is None:
        return None
    begins, dots, ends = words.partition("..")
    if not dots:
        raise ProvenanceError(f"--period: found {words!r:.80}, expected FROM..TO, such as 2026-01-01..2026-04-01")
    moments = [each if "T" in each else f"{each}T00:00:00Z" for each in (begins, ends)]
    for moment in moments:
        parse_time(moment)
    span = Period(begins=moments[0], ends=moments[1])
    check_period(span, where="--period")
    return span


def _write(surveyed: Survey, out: Path, keys: list[Ed25519PrivateKey], *, trust: Trust, now: int) -> dict[str, str]:
    """Sign and write all files or none; what was written is what verifies. Paths by party, the whole under *."""
    whole = sign(surveyed, keys=keys, trust=trust, now=now)
    content = (json.dumps(to_json(whole), indent=1) + "\n").encode()
    verify_usage(content, trust=trust, now=now, where="the statement")  # its trainer's, and no other's
    made = out.with_name(f".{out.name}.{os.getpid()}.tmp")
    try:
        made.mkdir(parents=True, mode=0o700)
        written = {}
        for index, file in enumerate(parties(whole, surveyed)):
            name = file_name(index, file.line.content.party)
            write_bytes(made / name, (json.dumps(to_json(file), separators=(",", ":")) + "\n").encode())
            written[file.line.content.party] = str(out / name)
        write_private(made / WHOLE, content)
        made.rename(out)
    except BaseException:
        shutil.rmtree(made, ignore_errors=True)
        raise
    return {**written, "*": str(out / WHOLE)}


def _record(by: str, period: str | None, runs: Sequence[UsageRun], lines: Sequence[Line]) -> dict[str, Any]:
    names = {run_digest(run): run.run for run in runs}
    kept = ("run", "simulated", "outcome", "steps", "counted", "shared", "superseded", "tokens")
    return {
        "by": str(by),
        "period": period,
        "runs": [
            {**{key: getattr(each, key) for key in kept}, "cannot_be_told": [gap_words(gap) for gap in each.gaps]}
            for each in runs
        ],
        "lines": [
            {
                "party": line.party,
                "examples": line.examples,
                "tokens": line.tokens,
                "steps": line.steps,
                "uses": [{**use, "run": names[use["run"]]} for use in to_json(line)["uses"]],
            }
            for line in lines
        ],
    }


def _page(by: str, period: str | None, runs: Sequence[UsageRun], lines: Sequence[Line]) -> Iterator[Block | str]:
    said = {run_digest(each): each for each in runs}
    when = "" if period is None else f", {period} by the first cosignatures"
    marked = " (simulated provenance)" if any(each.simulated for each in runs) else ""
    yield f"use by {by}, {len(runs)} run{'s' * (len(runs) != 1)}{when}{marked}\n"
    several = len(runs) > 1
    columns = (by, *(("run",) if several else ()), "examples", "tokens", "steps", "share", "layers")
    used = lines if len(lines) == 1 else [line for line in lines if not line.idle]
    rows: list[tuple[object, ...]] = []
    for line in sorted(used, key=lambda line: -line.examples):
        party = line.party or "(no source)"
        if several:
            rows.append((party, "all", line.examples, line.tokens, line.steps, None, None))
        for use in line.uses:
            name = (said[use.run].run,) if several else ()
            share = _share(use.share, estimated=bool(use.apportioned))
            rows.append((party, *name, use.examples, use.tokens, use.steps, share, _layers(use.layers)))
    yield table(columns, rows, right=("examples", "tokens", "steps", "share"))
    if len(used) < len(lines):
        yield f"{len(lines) - len(used)} more: no batch that is counted had an example of theirs"
    for run in runs:
        yield f"{run.run}: {_words(run)}"
        for gap in run.gaps:
            yield f"{run.run}: {gap_words(gap)}"
    for line in used:
        for use in line.uses:
            name = f"{line.party or '(no source)'}, {said[use.run].run}"
            if use.unclear:
                yield f"{name}: cannot be told whether {use.unclear} more examples trained"
            if use.superseded is not None and use.superseded.steps:
                again = use.superseded
                yield f"{name}: apart: {again.examples} examples in {again.steps} steps executed again"
    if any(use.apportioned for line in lines for use in line.uses):
        yield "~ estimated: the share of a class is split by the number of its examples that each party has"


def _words(run: UsageRun) -> str:
    counted = f"{run.steps} steps" if run.counted == run.steps else f"{run.counted} of {run.steps} steps"
    again = f"; {run.superseded} more were executed again and count apart" if run.superseded else ""
    return f"{counted} counted{again}" + ("" if run.outcome == "finished" else f"; the run is {run.outcome}")


def _signed_lines(checked: Checked, *, recounted: bool) -> Iterator[str]:
    usage = checked.usage
    yield f"signed by {', '.join(checked.signed_by)}, {usage.issued}; holds until {usage.expires}"
    for run in checked.runs:
        yield f"ledger {run.ledger.origin}, {run.ledger.size} entries"
    if checked.total is None:
        yield f"this line is 1 of {usage.lines.count - 1}; it and the entries of its ledgers are proved: holds"
    else:
        yield f"all {len(checked.lines)} lines are here and come to the total: holds"
    if recounted:
        yield "counted again from the ledgers: the same"
    else:
        yield "how much was used is the signer's word; --runs DIR counts again from the ledgers"


def _share(share: float | None, *, estimated: bool) -> str | None:
    return None if share is None else f"{'~' if estimated else ''}{share:.1%}"


def _layers(names: tuple[str, ...]) -> str:
    if not names:
        return "none"
    words = f"{len(names)}: {', '.join(names)}"
    return words if len(words) <= SHOWN else f"{len(names)}: {names[0]} to {names[-1]}"
