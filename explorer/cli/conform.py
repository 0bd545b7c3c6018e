"""`explorer conform`: whether a run kept the conditions of a governed pipeline."""

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from explorer.audit.conditions import Condition, Outcome
from explorer.audit.conform import Conformance
from explorer.audit.conform import conform as judge
from explorer.cli.options import CANNOT_BE_TOLD, RunDirectory, clock
from explorer.page.terminal import Answer
from explorer.provenance.trust import read_trust
from explorer.runlog.run_ledger import RunLedger

SHOWN = 5  # lines of one kind; --json has more

NOBODY = """\
Not verified against an independent trust file: the run's own was used, and a forger's would agree with a forged run
just as well. Give a trust file from a source other than this directory: --trust FILE."""


def conform(
    run: RunDirectory,
    trust: Annotated[
        Path | None, typer.Option("--trust", metavar="TRUST", help="Trust file: the keys that are trusted.")
    ] = None,
) -> Answer:
    """Check a run's record: gradients routable, examples typed, updates reconstructible, no contradiction.

    The exit status is 0 if all of them hold and the ledger is signed by those whom the trust file names; 1 if it does
    not conform; 3 if that cannot be told, because what it depends on was erased or is sealed.
    """
    believed = None if trust is None else read_trust(trust)
    conformance = judge(RunLedger(run), trust=believed, now=clock())
    return Answer(
        page=lambda: _page(conformance, run),
        record=lambda: _record(conformance),
        holds=conformance.conforms,
        status=CANNOT_BE_TOLD if not conformance.conforms and conformance.outcome is Outcome.UNTOLD else None,
        faults_to_stderr=True,
    )


def _record(conformance: Conformance) -> dict[str, Any]:
    conditions = [
        {**asdict(condition), "holds": condition.holds, "outcome": condition.outcome}
        for condition in conformance.conditions
    ]
    return {
        "conforms": conformance.conforms,
        "outcome": conformance.words,
        "ledger": {**asdict(conformance.badge), "verified": conformance.badge.verified},
        "conditions": conditions,
    }


def _page(conformance: Conformance, run: Path) -> Iterator[str]:
    badge = conformance.badge
    yield f"{run}: {conformance.words}"
    signed = f"signed by {', '.join(badge.signed_by)}" if badge.signed_by else "no trusted signature"
    state = "verified" if badge.verified else "not verified"
    yield f"  ledger           {state}: {badge.size} entries, {badge.steps} steps, {signed}"
    if badge.anchored:
        yield from (f"    {finding}" for finding in badge.faults[:SHOWN])
        if len(badge.faults) > SHOWN:
            yield f"    and {len(badge.faults) - SHOWN} more: --json lists them"
    for condition in conformance.conditions:
        yield from _lines(condition)
    if not badge.anchored:
        yield NOBODY


def _lines(condition: Condition) -> list[str]:
    counts = ", ".join(f"{number} {what}" for what, number in condition.checked.items())
    outcome = condition.outcome if condition.holds else condition.outcome.upper()
    lines = [f"  {condition.name:<16} {outcome}: {condition.says}"]
    lines.append(f"    checked: {counts or 'nothing'}")
    lines += [f"    not looked at: {each.message}" for each in condition.untold[:SHOWN]]
    unseen = condition.more_untold + len(condition.untold[SHOWN:])
    lines += [f"    and {unseen} more not looked at"] if unseen else []
    lines += [f"    note: {note}" for note in condition.notes]
    for contradiction in condition.contradictions[:SHOWN]:
        lines.append(
            f"    {'' if contradiction.entry is None else f'entry {contradiction.entry}: '}{contradiction.message}"
        )
        lines += [f"      expected {contradiction.expected}"] if contradiction.expected is not None else []
        lines += [f"      found    {contradiction.found}"] if contradiction.found is not None else []
    more = condition.more + len(condition.contradictions[SHOWN:])
    return lines + ([f"    and {more} more"] if more else [])
