"""`explorer trace` and `explorer conform`: the recorded updates of a run, and a check that all of it was governed."""

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from explorer.audit.conditions import Condition, Outcome
from explorer.audit.conform import Conformance
from explorer.audit.conform import conform as judge
from explorer.audit.history import badge
from explorer.audit.shares import estimates
from explorer.audit.trace import Trace, with_examples
from explorer.audit.trace import trace as ask
from explorer.cli import options
from explorer.cli.verbs import part
from explorer.errors import LedgerError
from explorer.ledger.proof import SUFFIX, make_proof, write_proof
from explorer.page.document import Block
from explorer.page.terminal import Answer, table
from explorer.provenance.trust import read_trust
from explorer.runlog.run_ledger import RunLedger

MAX_PROOFS = 10_000  # most files that --proofs writes
LISTED = 5_000  # most steps whose examples are listed
SHOWN = 12  # most examples and sources on a line
BARS = " \u2581\u2582\u2583\u2584\u2585\u2586\u2587\u2588"


def trace(
    run: options.RunDirectory,
    layer: Annotated[str | None, typer.Option("--layer", metavar="L", help="Show all classes in this layer.")] = None,
    class_: Annotated[str | None, typer.Option("--class", metavar="C", help="Show this class in all layers.")] = None,
    parameter: Annotated[
        str | None, typer.Option("--parameter", metavar="P", help="Show all classes in the layer of this parameter.")
    ] = None,
    steps: options.Steps = None,
    check: Annotated[
        bool, typer.Option("--check", help="Recompute every sum from the ledger, however many segments there are.")
    ] = False,
    proofs: Annotated[
        Path | None,
        typer.Option("--proofs", metavar="DIR", help="Directory for proofs of every entry behind the answer."),
    ] = None,
    trust: options.LedgerTrust = None,
) -> Answer:
    """Show which classes and examples took part in updates, how strongly and since when, with proofs."""
    if (layer is not None) + (class_ is not None) + (parameter is not None) != 1:
        raise LedgerError("name one thing to trace: expected --layer L, --class C or --parameter P")
    ledger = RunLedger(run)
    verified = None if trust is None else _verified(ledger, trust)
    chosen = ledger.range_of(*options.span_of(steps))
    answer = ask(ledger, layer=layer, class_=class_, parameter=parameter, steps=chosen, check=check)
    if len(chosen) <= LISTED:
        answer = with_examples(ledger, answer)
    written = 0 if proofs is None else _prove(ledger, answer, proofs)
    where = [] if proofs is None else [f"proofs: {written} in {proofs}; `explorer ledger check` reads them anywhere"]
    return Answer(
        page=lambda: [*_page(answer, ledger, verified=verified), *where],
        record=lambda: {
            **_record(answer),
            **_estimates(ledger, answer),
            "verified": verified,
            "proofs": written,
            **_continued(ledger),
        },
        holds=answer.check.agrees and verified is not False,
        remark=options.warn_of_own(trust, run),
    )


def _continued(ledger: RunLedger) -> dict[str, list[str]]:
    """Return whose steps a run took over, for a record; nothing for a run that made all of its own."""
    return {"continues": [trunk.words for trunk in ledger.trunks]} if ledger.trunks else {}


def _estimates(ledger: RunLedger, answer: Trace) -> dict[str, str]:
    """Return the sentence about estimates, for a record; nothing for a run without."""
    words = estimates(ledger, range(*answer.steps))
    return {"estimates": words} if words else {}


def _verified(run: RunLedger, trust: Path) -> bool:
    return badge(run, trust=read_trust(trust), now=options.clock()).verified


def _prove(run: RunLedger, answer: Trace, directory: Path) -> int:
    """Write proofs of the steps and of the states whose blobs hold their numbers, and return how many."""
    steps = range(*answer.steps)
    indices = [*run.outline.steps[steps.start : steps.stop]]
    indices += [segment.state.index for segment in run.segments(steps)]
    if len(indices) > MAX_PROOFS:
        raise LedgerError(f"--proofs: {len(indices)} entries; at most {MAX_PROOFS} at a time: name fewer steps")
    for index in indices:
        write_proof(directory / f"entry-{index:08d}{SUFFIX}", make_proof(run.ledger, index))
    return len(indices)


def _record(answer: Trace) -> dict[str, Any]:
    # In the record the key is `class`, which cannot be the name of a field.
    value = asdict(answer)
    for row in value["rows"]:
        row["class"] = row.pop("class_")
    for key in ("participants", "separable"):
        for entry in value[key] or ():
            entry["class"] = entry.pop("class_")
    value["class"] = value.pop("class_")
    return {**value, "check": {**value["check"], "agrees": answer.check.agrees}}


def _page(answer: Trace, ledger: RunLedger, *, verified: bool | None) -> Iterator[Block | str]:
    what = f"class {answer.class_}" if answer.class_ else f"layer {answer.layer}"
    yield f"{answer.run}: {what}, steps {answer.steps[0]} to {answer.steps[1] - 1} of {ledger.steps}"
    yield from (f"  continues {words}" for words in ledger.continues)
    yield ""
    columns = ("layer" if answer.class_ else "class", "admitted", "steps", "examples", "share", "over time")
    exact = any(row.exact is not None for row in answer.rows)
    columns += ("of the update",) if exact else ()
    rows = [
        (
            row.layer if answer.class_ else row.class_,
            *("yes" if row.admitted else "no", row.steps, row.examples),
            *(_percent(row.share), _bars(row.over_time)),
            *((_percent(row.exact),) if exact else ()),
        )
        for row in answer.rows
    ]
    yield table(columns, rows, right=("steps", "examples", "share", "of the update"))
    yield from _estimates(ledger, answer).values()
    yield from _lines(answer, verified=verified)


def _lines(answer: Trace, *, verified: bool | None) -> list[str]:
    lines = []
    for path, step in answer.first_admitted.items():
        lines.append(f"{path}: {'never admitted to any layer' if step is None else f'admitted from step {step}'}")
    if answer.participants is None:
        lines.append(f"examples: not listed for more than {LISTED} steps; choose some with --steps A:B")
    for participant in answer.participants or ():
        if participant.sealed:
            lines.append(f"{participant.class_}: its chosen examples are sealed; reading them needs a grant")
            continue
        some = ", ".join(map(str, participant.examples[:SHOWN]))
        more = ", ..." if len(participant.examples) > SHOWN else ""
        count = f"{len(participant.examples)} examples in {participant.steps} steps"
        lines.append(f"{participant.class_}: {count}: {some or 'none'}{more}")
        if participant.sources:
            sources = list(participant.sources.items())
            some = ", ".join(f"{name or 'no source'} ({count})" for name, count in sources[:SHOWN])
            lines.append(f"  from {some}{', ...' if len(sources) > SHOWN else ''}")
    # Only the last profile of a layer: the earlier ones are in the record and in the ledger notebook.
    for profile in answer.separable[-1:] if answer.layer else ():
        chi, chance, p_value = (value or 0.0 for value in (profile.chi, profile.chi_null, profile.p_value))
        if profile.told is not None:
            p_told = "" if profile.told_p_value is None else f", p = {profile.told_p_value:.3g}"
            lines.append(
                f"classes in {profile.layer}, at step {profile.step}: told apart: {profile.told.words}{p_told}"
            )
        lines.append(
            f"directions of the classes in {profile.layer}, at step {profile.step}: chi {chi:.3g} nats, by chance"
            f" {chance:.3g}, p = {p_value:.3g}; 0 means that they share directions, not that they cannot be told apart"
        )
    if answer.parameter:
        lines += _parameter(answer)
    lines.append(f"sums: {answer.check}")
    lines += [f"  {reason}" for reason in answer.check.unread]
    if verified is None:
        lines.append("ledger: not verified; --trust FILE verifies it")
    else:
        lines.append(f"ledger: {'verified' if verified else 'NOT verified; `explorer ledger verify` says why'}")
    return lines


def _parameter(answer: Trace) -> list[str]:
    note = answer.parameter
    assert note is not None
    seconds = "" if note.replay_seconds is None else f", about {note.replay_seconds:.3g} s by this run's step time"
    return [
        f"{note.parameter}: numbers are recorded by layer; these are of {note.layer}. Numbers of the parameter itself "
        f"take a replay of {note.replay_steps} steps, from the checkpoint of step {note.replay_from}{seconds}"
    ]


def _percent(value: float | None) -> str | None:
    return None if value is None else f"{value:.1%}"


def _bars(values: tuple[float | None, ...]) -> str:
    """Return a bar for each part of the steps, full at 1. A negative share is a minus, an unknown one is `?`."""
    return "".join("?" if value is None else "-" if value < 0 else BARS[min(8, round(8 * value))] for value in values)


# --- explorer conform ---

FINDINGS = 5  # most lines of one kind; --json lists more

NOT_INDEPENDENT = """\
Not verified: no independent trust file given. The run's own was used, and a forged run would come with a matching one.
Give a trust file from a source other than this directory: --trust FILE."""


def conform(
    run: options.RunDirectory,
    trust: Annotated[
        Path | None,
        typer.Option("--trust", metavar="TRUST", help="Trust file: the authorities and keys to trust. Default: none."),
    ] = None,
) -> Answer:
    """Check a run's record: gradients routable, examples typed, updates reconstructible, no contradiction.

    The exit status is 0 if all of them hold and the ledger is signed by authorities of the trust file; 1 if the run
    does not conform, or without a trust file; 3 if the record cannot decide it, because what it depends on was erased
    or is sealed.
    """
    trusted = None if trust is None else read_trust(trust)
    ledger = RunLedger(run)
    conformance = judge(ledger, trust=trusted, now=options.clock())
    return Answer(
        page=lambda: _conform_page(conformance, run, ledger),
        record=lambda: {**_conform_record(conformance), **_continued(ledger)},
        holds=conformance.conforms,
        status=options.CANNOT_BE_TOLD if not conformance.conforms and conformance.outcome is Outcome.UNTOLD else None,
        faults_to_stderr=True,
        remark=options.warn_of_own(trust, run),
        then=lambda: part("governed runs, next")(run, "conform", trust=trust),
    )


def _conform_record(conformance: Conformance) -> dict[str, Any]:
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


def _conform_page(conformance: Conformance, run: Path, ledger: RunLedger) -> Iterator[str]:
    badge = conformance.badge
    yield f"{run}: {conformance.words}"
    signed = f"signed by {', '.join(badge.signed_by)}" if badge.signed_by else "no trusted signature"
    state = "verified" if badge.verified else "not verified"
    yield f"  ledger           {state}: {badge.size} entries, {badge.steps} steps, {signed}"
    if badge.anchored:
        yield from (f"    {finding}" for finding in badge.faults[:FINDINGS])
        if len(badge.faults) > FINDINGS:
            yield f"    and {len(badge.faults) - FINDINGS} more: --json lists them"
    yield from (f"    continues {words}" for words in ledger.continues)
    for condition in conformance.conditions:
        yield from _condition_lines(condition)
    if not badge.anchored:
        yield NOT_INDEPENDENT


def _condition_lines(condition: Condition) -> list[str]:
    counts = ", ".join(f"{number} {noun}" for noun, number in condition.checked.items())
    # An outcome other than success is in capitals, so that it is seen in a long page.
    outcome = condition.outcome if condition.holds else condition.outcome.upper()
    lines = [f"  {condition.name:<16} {outcome}: {condition.says}"]
    lines.append(f"    checked: {counts or 'nothing'}")
    lines += [f"    not looked at: {gap.message}" for gap in condition.untold[:FINDINGS]]
    unseen = condition.more_untold + len(condition.untold[FINDINGS:])
    lines += [f"    and {unseen} more not looked at"] if unseen else []
    lines += [f"    note: {note}" for note in condition.notes]
    for contradiction in condition.contradictions[:FINDINGS]:
        lines.append(
            f"    {'' if contradiction.entry is None else f'entry {contradiction.entry}: '}{contradiction.message}"
        )
        lines += [f"      expected {contradiction.expected}"] if contradiction.expected is not None else []
        lines += [f"      found    {contradiction.found}"] if contradiction.found is not None else []
    more = condition.more + len(condition.contradictions[FINDINGS:])
    return lines + ([f"    and {more} more"] if more else [])
