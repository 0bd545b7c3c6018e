"""Checking a statement of use, with nothing but the file, a trust file and a clock.

Of a party's file it is checked that a trainer whom the trust file names has signed the statement, and the ledger of
each run in it; that the line and the runs are what was signed; that the ledger has the entries of the line; and, where
the statement is of a period, that the first cosignatures of these entries are in it. A step is dated by the first
cosignature of a checkpoint that covers it, and by no clock of the trainer's. Of the whole statement both trees are
built, and the lines have to come to the total.

The numbers are the signer's word. `explorer.release.usage.recount` counts them again from the runs.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from explorer import merkle, note
from explorer.canonical import canonical
from explorer.errors import LedgerError, NoteError, ProvenanceError
from explorer.ledger.trust_anchor import NONE, Anchor, judge
from explorer.note import Note
from explorer.provenance.spellings import parse_time
from explorer.provenance.trust import Trust
from explorer.provenance.usage import (
    Gap,
    Line,
    Opened,
    PartyFile,
    Period,
    Total,
    Usage,
    UsageRun,
    Use,
    WholeFile,
    check_place,
    line_leaf,
    open_usage,
    read_file,
    run_digest,
    run_leaf,
    tree_over,
)
from explorer.runlog.anchor import anchor_of_trust
from explorer.runlog.attested import check_checkpoint

TOLERANCE = 1e-6  # of the sum of shares, from 1


@dataclass(frozen=True, kw_only=True, slots=True)
class Checked:
    """A statement that is believed, as far as the file has it."""

    opened: Opened
    runs: tuple[UsageRun, ...]  # that the lines are about
    lines: tuple[Line, ...]  # of a party, its own
    total: Total | None  # of the whole statement

    @property
    def usage(self) -> Usage:
        """What all parties are told."""
        return self.opened.value

    @property
    def signed_by(self) -> tuple[str, ...]:
        """The names of who signed."""
        return tuple(one.name for one in self.opened.authorities)


@dataclass(frozen=True, kw_only=True, slots=True)
class Moment:
    """When a tree of this size was there at the latest, on the word of a witness and not of the trainer."""

    size: int
    time: int  # seconds since 1970


@dataclass(frozen=True, kw_only=True, slots=True)
class Span:
    """The entries of a ledger that are in a period, and how many entries anybody has cosigned."""

    entries: range
    covered: int


def moment_of(found: Note, *, anchor: Anchor, now: int) -> Moment | None:
    """The earliest cosignature of a checkpoint that counts; None: there is none. Raises `LedgerError` for a note that
    the log has not signed."""
    judged = judge(found, anchor=replace(anchor, quorum=NONE), now=now)
    times = [each.time for each in judged.cosignatures if each.fault is None]
    return Moment(size=judged.checkpoint.size, time=min(times)) if times else None


def span_of(moments: Sequence[Moment], period: Period) -> Span:
    """The entries whose first cosignature is in the period.

    >>> period = Period(begins="1970-01-01T00:00:10Z", ends="1970-01-01T00:00:20Z")
    >>> span_of([Moment(size=5, time=9), Moment(size=8, time=12), Moment(size=9, time=20)], period)
    Span(entries=range(5, 8), covered=9)
    """
    begins, ends = parse_time(period.begins), parse_time(period.ends)
    lower, upper = (max([0, *(each.size for each in moments if each.time < end)]) for end in (begins, ends))
    return Span(entries=range(lower, upper), covered=max([0, *(each.size for each in moments)]))


def verify_usage(content: bytes, *, trust: Trust, now: int, where: str) -> Checked:
    """Check the file of a party, or the whole statement. Raises `ProvenanceError` with what does not hold."""
    found = read_file(content, where=where)
    opened = open_usage(canonical(found.statement), trust=trust, now=now, where=where)
    try:
        if isinstance(found, PartyFile):
            return _party(found, opened, trust=trust, now=now, where=where)
        return _whole(found, opened, trust=trust, now=now, where=where)
    except (LedgerError, NoteError) as error:
        raise ProvenanceError(f"{where}: {error}") from error


def span_in(said: UsageRun, usage: Usage, *, trust: Trust, now: int) -> Span | None:
    """The entries of a run that a statement is about, by the cosignatures in it; None: all of them.

    Raises `LedgerError` or `NoteError` for a checkpoint that is not believed or that the run's does not extend.
    """
    if usage.period is None:
        if said.cosigned:
            raise LedgerError(f"{said.run}: earlier checkpoints, and no period is asked for")
        return None
    anchor = anchor_of_trust(trust, origin=said.ledger.origin)
    moments = [moment_of(note.parse(said.checkpoint.encode()), anchor=anchor, now=now)]
    for each in said.cosigned:
        earlier = note.parse(each.note.encode())
        checkpoint = judge(earlier, anchor=replace(anchor, quorum=NONE), now=now).checkpoint
        if checkpoint.origin != said.ledger.origin:
            raise LedgerError(f"{said.run}: a checkpoint of another ledger, {checkpoint.origin!r}")
        merkle.check_consistency(
            [bytes.fromhex(hash_) for hash_ in each.consistency],
            old_size=checkpoint.size,
            old_root=checkpoint.root,
            new_size=said.ledger.size,
            new_root=bytes.fromhex(said.ledger.root),
        )
        moments.append(moment_of(earlier, anchor=anchor, now=now))
    return span_of([each for each in moments if each is not None], usage.period)


def _party(found: PartyFile, opened: Opened, *, trust: Trust, now: int, where: str) -> Checked:
    usage, line = opened.value, found.line
    leaf = line_leaf(line.content, line.salt)
    check_place(usage.lines, leaf, index=line.index, proof=line.proof, where=f"{where}: the line")
    if line.index == usage.lines.count - 1:
        raise ProvenanceError(f"{where}: a line in the place of the total, {line.index}")
    if any(one.index >= other.index for one, other in pairwise(found.runs)):
        raise ProvenanceError(f"{where}: runs: expected each once, in their order")
    if [use.run for use in line.content.uses] != [run_digest(each.content) for each in found.runs]:
        raise ProvenanceError(f"{where}: runs: not those that the line is about")
    for use, proved in zip(line.content.uses, found.runs, strict=True):
        said, here = proved.content, f"{where}: {proved.content.run}"
        check_place(usage.runs, run_leaf(said), index=proved.index, proof=proved.proof, where=here)
        span = _run(said, opened, trust=trust, now=now, where=here)
        _use(use, said, span, where=here)
        hashes = [bytes.fromhex(each) for each in proved.entries]
        if use.first is None or use.last is None:
            if hashes:
                raise ProvenanceError(f"{here}: a proof of entries, and the line names none")
            continue
        root, size = bytes.fromhex(said.ledger.root), said.ledger.size
        merkle.check_range(hashes, size=size, first=use.first, stop=use.last + 1, root=root)
    return Checked(opened=opened, runs=tuple(each.content for each in found.runs), lines=(line.content,), total=None)


def _whole(found: WholeFile, opened: Opened, *, trust: Trust, now: int, where: str) -> Checked:
    usage = opened.value
    leaves = [*(line_leaf(each.content, each.salt) for each in found.lines)]
    leaves.append(line_leaf(found.total.content, found.total.salt))
    for what, tree, signed in (
        ("lines", tree_over(leaves), usage.lines),
        ("runs", tree_over([run_leaf(each) for each in found.runs]), usage.runs),
    ):
        if tree != signed:
            raise ProvenanceError(
                f"{where}: {what}: not what was signed: {tree.count} with root {tree.root}, expected {signed.count} "
                f"with root {signed.root}"
            )
    for what, names in (
        ("lines", [each.content.party for each in found.lines]),
        ("runs", [each.ledger.origin for each in found.runs]),
    ):
        if any(one >= other for one, other in pairwise(names)):
            raise ProvenanceError(f"{where}: {what}: expected each once, in the order of their names")
    runs = {run_digest(each): each for each in found.runs}
    if [each.run for each in found.total.content.total] != [*runs]:
        raise ProvenanceError(f"{where}: the total: not of the runs of the statement")
    spans = {name: _run(said, opened, trust=trust, now=now, where=where) for name, said in runs.items()}
    for line in found.lines:
        for use in line.content.uses:
            if use.run not in runs:
                raise ProvenanceError(f"{where}: {line.content.party!r:.80}: of a run that is not in the statement")
            _use(use, runs[use.run], spans[use.run], where=f"{where}: {line.content.party!r:.80}")
    lines = tuple(each.content for each in found.lines)
    _sums(lines, found.total.content, runs, where=where)
    return Checked(opened=opened, runs=found.runs, lines=lines, total=found.total.content)


def _run(said: UsageRun, opened: Opened, *, trust: Trust, now: int, where: str) -> Span | None:
    """What holds of a run whatever the line; the entries that are counted."""
    by = opened.authorities
    check_checkpoint(said.checkpoint, ledger=said.ledger, by=by, trust=trust, now=now, where=where)
    if not said.shared <= said.counted <= said.steps:
        raise ProvenanceError(f"{where}: {said.shared} of {said.counted} steps of {said.steps} cannot be")
    return span_in(said, opened.value, trust=trust, now=now)


def _use(use: Use, said: UsageRun, span: Span | None, *, where: str) -> None:
    """What a line says of a run can be, and lies in the period."""
    none = use.first is None or use.last is None
    if none != (use.steps == 0) or (use.examples == 0) != (use.steps == 0) or use.steps > said.counted:
        raise ProvenanceError(f"{where}: {use.examples} examples in {use.steps} of {said.counted} steps cannot be")
    if use.apportioned > use.steps or (said.shared == 0 and use.share is not None):
        raise ProvenanceError(f"{where}: a share of the gradient over no step that tells it")
    expected = None if said.tokens is None else use.examples * said.tokens
    if use.tokens != expected:
        raise ProvenanceError(f"{where}: {use.tokens} tokens, expected {expected} of {use.examples} examples")
    if use.first is None or use.last is None:
        return
    if not use.first <= use.last < said.ledger.size or use.steps > use.last - use.first + 1:
        raise ProvenanceError(f"{where}: {use.steps} steps in the entries {use.first} to {use.last} cannot be")
    if span is not None and not (use.first in span.entries and use.last in span.entries):
        raise ProvenanceError(
            f"{where}: entries {use.first} to {use.last}: not in the period; by their cosignatures it has those from "
            f"{span.entries.start} to before {span.entries.stop}"
        )


def _sums(lines: Sequence[Line], total: Total, runs: dict[str, UsageRun], *, where: str) -> None:
    """The lines of each run come to its total."""
    uses: dict[str, list[Use]] = {name: [] for name in runs}
    for line in lines:
        for use in line.uses:
            uses[use.run].append(use)
    for each in total.total:
        mine, name = uses[each.run], runs[each.run].run
        found = sum(use.examples + use.denied + use.unclear for use in mine)
        expected = each.slots - each.quarantined - each.absent - each.unplaced
        if found != expected:
            raise ProvenanceError(f"{where}: {name}: the lines come to {found} examples; the total says {expected}")
        shares = [use.share for use in mine if use.share is not None]
        unclear = any(use.unclear for use in mine) or each.unplaced
        if shares and not unclear and abs(sum(shares) - 1) > TOLERANCE:
            raise ProvenanceError(f"{where}: {name}: the shares of the lines come to {sum(shares):.6f}, expected 1")


def gap_words(gap: Gap) -> str:
    """What cannot be told, for people.

    >>> from explorer.provenance.usage import Untold
    >>> gap_words(Gap(what="share", steps=12, why=Untold.SEALED))
    'cannot be told: the share of the gradient in 12 steps: the numbers of several classes are sealed'
    """
    what = {
        "share": f"the share of the gradient in {gap.steps} steps",
        "examples": f"whose examples trained in {gap.steps} steps",
        "superseded": f"whose examples were in {gap.steps} steps that were executed again",
        "period": f"whether {gap.steps} steps are in the period",
    }[gap.what]
    why = {
        "erased": "their numbers were erased, as the project's ledger says",
        "not here": "their numbers are missing, and no entry of the project's ledger says that they were erased",
        "sealed": "the numbers of several classes are sealed",
        "not measured": "nothing was measured",
        "not finite": "a gradient was not finite",
        "not closed": "no state follows them",
        "shared": "a class of theirs has several parties, and which of its examples these were is on no record",
        "not cosigned": "no cosignature covers them",
    }[gap.why]
    return f"cannot be told: {what}: {why}"
