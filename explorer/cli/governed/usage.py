"""`explorer usage`: statements of use, which tell each party how much of its data trained a model, and their check."""

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
SHOWN = 40  # most characters of a list of layers

Runs = Annotated[
    list[Path], typer.Argument(metavar="RUNS...", help="Directories of governed runs, of sweeps, or of all runs.")
]


def state(
    runs: Runs,
    by: Annotated[str, typer.Option("--by", metavar="PARTY", help="Party of a line: class, authority or source.")],
    period: Annotated[
        str | None,
        typer.Option(
            "--period",
            metavar="FROM..TO",
            help="Period in UTC, as days or times, by the times of cosignatures. Needs --trust.",
        ),
    ] = None,
    trust: options.LedgerTrust = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="DIR", help="New directory for a signed statement, with a file for each party."),
    ] = None,
    key: options.SigningKeys = None,
    passphrase_file: options.PassphraseFile = None,
) -> Answer:
    """State how much of whose data runs used: examples, tokens, steps, layers, share of the gradient.

    The word `state` may be left out. Everything is counted from the ledgers. With --out the statement is signed, and
    each party gets a file that shows its own line and hides those of others.
    """
    # What would be refused at the end is refused first: counting takes a while, and a passphrase may be asked for.
    kind, span, now = _by(by), _period(period), options.clock()
    trusted = None if trust is None else read_trust(trust)
    if out is not None and trusted is None:
        raise ProvenanceError("--out signs a statement, which takes --trust FILE: the trust file of its recipients")
    if out is not None and os.path.lexists(out):
        raise ProvenanceError(f"{out}: exists already; expected a new directory")
    surveyed = survey(find_runs(runs), by=kind, period=span, trust=trusted, now=now)
    written = None
    if out is not None and trusted is not None:
        keys = keys_for(surveyed.ledgers[0].run, key or [], passphrase_file, trust=trusted, now=now)
        written = _write(surveyed, out, keys, trust=trusted, now=now)
    if written is None:
        end = "not signed: --trust FILE --out DIR signs it and writes a file for each party"
    else:
        end = f"signed: {len(written) - 1} files in {out}, one for each party; keep {out}/{WHOLE}, which has all lines"
    total = {"total": to_json(surveyed.total)["total"], "out": written}
    return Answer(
        page=lambda: [*_page(by, period, surveyed.runs, surveyed.lines), end],
        record=lambda: {**_record(by, period, surveyed.runs, surveyed.lines), **total},
    )


def verify(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="File of a party, or the whole statement.")],
    trust: options.TrustFile,
    runs: Annotated[
        list[Path] | None,
        typer.Option(
            "--runs", metavar="DIR", help="Directory of runs to count again; repeatable. Default: check offline."
        ),
    ] = None,
) -> Answer:
    """Check a statement of use offline: its signers, its line, and the entries of the ledger that it rests on.

    With --runs every number is counted again from the ledgers. The exit status is 0 only if all of it holds.
    """
    trusted, now = read_trust(trust), options.clock()
    content = read_bytes(file, max_bytes=MAX_BYTES, error=ProvenanceError)
    checked = verify_usage(content, trust=trusted, now=now, where=str(file))
    if runs:
        recount(checked, find_runs(runs), trust=trusted, now=now)
    span = checked.usage.period
    period = None if span is None else f"{span.begins}..{span.ends}"
    statement = (checked.usage.by, period, checked.runs, checked.lines)
    return Answer(
        page=lambda: [*_page(*statement), *_signed_lines(checked, recounted=bool(runs))],
        record=lambda: {
            **_record(*statement),
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
    """Parse `2026-01-01..2026-04-01`, or moments; a day is its first moment. Raises `ProvenanceError` for the rest."""
    if words is None:
        return None
    begins, dots, ends = words.partition("..")
    if not dots:
        raise ProvenanceError(f"--period: found {words!r:.80}, expected FROM..TO, such as 2026-01-01..2026-04-01")
    moments = [end if "T" in end else f"{end}T00:00:00Z" for end in (begins, ends)]
    for moment in moments:
        parse_time(moment)
    span = Period(begins=moments[0], ends=moments[1])
    check_period(span, where="--period")
    return span


def _write(surveyed: Survey, out: Path, keys: list[Ed25519PrivateKey], *, trust: Trust, now: int) -> dict[str, str]:
    """Sign and write all files or none. Return their paths by party, and the whole statement's under `*`."""
    whole = sign(surveyed, keys=keys, trust=trust, now=now)
    content = (json.dumps(to_json(whole), indent=1) + "\n").encode()
    # A key that may not sign for the trainer fails here, before anything is written.
    verify_usage(content, trust=trust, now=now, where="the statement")
    # Written next to its place and renamed, so that a crash leaves no half of a statement.
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
            {**{key: getattr(run, key) for key in kept}, "cannot_be_told": [gap_words(gap) for gap in run.gaps]}
            for run in runs
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
    by_digest = {run_digest(run): run for run in runs}
    when = "" if period is None else f", {period} by the first cosignatures"
    marked = " (simulated provenance)" if any(run.simulated for run in runs) else ""
    yield f"use by {by}, {len(runs)} run{'s' * (len(runs) != 1)}{when}{marked}\n"
    several = len(runs) > 1
    columns = (by, *(("run",) if several else ()), "examples", "tokens", "steps", "share", "layers")
    # A party's own line is shown even if it was not used; in a survey idle parties are only counted.
    used = lines if len(lines) == 1 else [line for line in lines if not line.idle]
    rows: list[tuple[object, ...]] = []
    for line in sorted(used, key=lambda line: -line.examples):
        party = line.party or "(no source)"
        if several:
            rows.append((party, "all", line.examples, line.tokens, line.steps, None, None))
        for use in line.uses:
            name = (by_digest[use.run].run,) if several else ()
            share = _share(use.share, estimated=bool(use.apportioned))
            rows.append((party, *name, use.examples, use.tokens, use.steps, share, _layers(use.layers)))
    yield table(columns, rows, right=("examples", "tokens", "steps", "share"))
    if len(used) < len(lines):
        yield f"{len(lines) - len(used)} more: none of their examples was in a counted batch"
    # Under the table: what it could not count, and what it counted apart.
    for run in runs:
        yield f"{run.run}: {_words(run)}"
        for gap in run.gaps:
            yield f"{run.run}: {gap_words(gap)}"
    for line in used:
        for use in line.uses:
            name = f"{line.party or '(no source)'}, {by_digest[use.run].run}"
            if use.unclear:
                yield f"{name}: unknown whether {use.unclear} more examples trained"
            if use.superseded is not None and use.superseded.steps:
                again = use.superseded
                yield f"{name}: counted apart: {again.examples} examples in {again.steps} steps executed again"
    if any(use.apportioned for line in lines for use in line.uses):
        yield "~ estimated: the share of a class is split by the number of its examples that each party has"


def _words(run: UsageRun) -> str:
    counted = f"{run.steps} steps" if run.counted == run.steps else f"{run.counted} of {run.steps} steps"
    again = f"; {run.superseded} more were executed again and are counted apart" if run.superseded else ""
    return f"{counted} counted{again}" + ("" if run.outcome == "finished" else f"; the run is {run.outcome}")


def _signed_lines(checked: Checked, *, recounted: bool) -> Iterator[str]:
    usage = checked.usage
    yield f"signed by {', '.join(checked.signed_by)}, {usage.issued}; valid until {usage.expires}"
    for run in checked.runs:
        yield f"ledger {run.ledger.origin}, {run.ledger.size} entries"
    if checked.total is None:
        yield f"holds: this line, 1 of {usage.lines.count - 1}, and the entries of its ledgers are proved"
    else:
        yield f"holds: all {len(checked.lines)} lines are here and add up to the total"
    if recounted:
        yield "counted again from the ledgers: the same"
    else:
        yield "the amounts are the signer's claim; --runs DIR counts them again from the ledgers"


def _share(share: float | None, *, estimated: bool) -> str | None:
    return None if share is None else f"{'~' if estimated else ''}{share:.1%}"


def _layers(names: tuple[str, ...]) -> str:
    if not names:
        return "none"
    words = f"{len(names)}: {', '.join(names)}"
    return words if len(words) <= SHOWN else f"{len(names)}: {names[0]} to {names[-1]}"
