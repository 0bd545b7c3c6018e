"""Statements of use: a signed count of the data of each party in a trainer's runs, and the check of a party's file.

    survey    counts the runs, which have to verify where a trust file is given
    sign      makes the whole statement, which stays with the trainer
    of_party  makes the file of one party: its line, the runs in it, and the proofs

The check needs the file, a trust file and a clock. It requires that

  - a trainer in the trust file signed the statement, and the ledger of each run in it;
  - the line and the runs are those that were signed, and the ledger has the entries of the line;
  - for a statement about a period, the first cosignatures of these entries lie in the period. A step is dated by the
    first cosignature of a checkpoint that covers it, never by the trainer's clock;
  - of the whole statement, both trees have the signed roots, and the lines add up to the total.

The numbers themselves are the signer's word; `recount` counts them again from the runs.

A witness's note is replaced by its next one. A trainer who makes a statement every month keeps a copy of each month's
note under another name in `witness/`.
"""

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from explorer import merkle, note, rundir
from explorer.audit.usage_counts import Counted, count_usage
from explorer.canonical import canonical
from explorer.errors import LedgerError, NoteError, ProvenanceError
from explorer.ledger.trust_anchor import NONE, Anchor, judge
from explorer.ledger.verify import Verification, verify
from explorer.note import Note
from explorer.provenance.spellings import LedgerName, format_time, parse_time
from explorer.provenance.trust import Trust
from explorer.provenance.usage import (
    PARTY,
    WHOLE,
    By,
    Cosigned,
    Gap,
    Line,
    Opened,
    PartyFile,
    Period,
    ProvedLine,
    ProvedRun,
    RunTotal,
    SaltedLine,
    SaltedTotal,
    Total,
    Usage,
    UsageRun,
    Use,
    WholeFile,
    check_place,
    line_leaf,
    new_salt,
    open_usage,
    read_file,
    run_digest,
    run_leaf,
    sign_usage,
    tree_over,
)
from explorer.runlog.anchor import anchor_of_trust
from explorer.runlog.attested import check_checkpoint
from explorer.runlog.run_ledger import RunLedger
from explorer.schema import parse_json, to_json

# --- the check ---

TOLERANCE = 1e-6  # of the sum of a run's shares, which is 1 up to rounding


@dataclass(frozen=True, kw_only=True, slots=True)
class Checked:
    """A statement that verifies: the whole of it, or the part in a party's file."""

    opened: Opened
    runs: tuple[UsageRun, ...]  # that the lines are about
    lines: tuple[Line, ...]  # in a party's file, its own
    total: Total | None  # None in a party's file

    @property
    def usage(self) -> Usage:
        """Return the part of the statement that every party receives."""
        return self.opened.value

    @property
    def signed_by(self) -> tuple[str, ...]:
        """Return the names of the signers."""
        return tuple(authority.name for authority in self.opened.authorities)


@dataclass(frozen=True, kw_only=True, slots=True)
class Moment:
    """The latest time at which a tree reached a size, on the word of a witness and not of the trainer."""

    size: int
    time: int  # seconds since 1970


@dataclass(frozen=True, kw_only=True, slots=True)
class Span:
    """The entries of a ledger that are in a period."""

    entries: range
    covered: int  # entries that any cosignature covers


def moment_of(signed: Note, *, anchor: Anchor, now: int) -> Moment | None:
    """Return the earliest valid cosignature of a checkpoint; None: there is none.

    Raises `LedgerError` for a note that the log has not signed.
    """
    judged = judge(signed, anchor=replace(anchor, quorum=NONE), now=now)
    times = [cosignature.time for cosignature in judged.cosignatures if cosignature.fault is None]
    return Moment(size=judged.checkpoint.size, time=min(times)) if times else None


def span_of(moments: Sequence[Moment], period: Period) -> Span:
    """Return the entries whose first cosignature is in the period.

    >>> period = Period(begins="1970-01-01T00:00:10Z", ends="1970-01-01T00:00:20Z")
    >>> span_of([Moment(size=5, time=9), Moment(size=8, time=12), Moment(size=9, time=20)], period)
    Span(entries=range(5, 8), covered=9)
    """
    begins, ends = parse_time(period.begins), parse_time(period.ends)
    # Entries before `lower` were cosigned before the period began. A moment at a bound belongs to the period after it,
    # so that adjoining periods count each entry once.
    lower, upper = (max([0, *(moment.size for moment in moments if moment.time < end)]) for end in (begins, ends))
    return Span(entries=range(lower, upper), covered=max([0, *(moment.size for moment in moments)]))


def verify_usage(content: bytes, *, trust: Trust, now: int, where: str) -> Checked:
    """Check the file of a party, or the whole statement. Raises `ProvenanceError` for the first fault."""
    file = read_file(content, where=where)
    opened = open_usage(canonical(file.statement), trust=trust, now=now, where=where)
    try:
        if isinstance(file, PartyFile):
            return _party(file, opened, trust=trust, now=now, where=where)
        return _whole(file, opened, trust=trust, now=now, where=where)
    except (LedgerError, NoteError) as error:
        raise ProvenanceError(f"{where}: {error}") from error


def span_in(run: UsageRun, usage: Usage, *, trust: Trust, now: int) -> Span | None:
    """Return the entries of a run that a statement is about, by the cosignatures in it; None: all of them.

    Raises `LedgerError` or `NoteError` for a checkpoint that is not believed or that the run's does not extend.
    """
    if usage.period is None:
        if run.cosigned:
            raise LedgerError(f"{run.run}: found earlier checkpoints, expected none in a statement without a period")
        return None
    anchor = anchor_of_trust(trust, origin=run.ledger.origin)
    moments = [moment_of(note.parse(run.checkpoint.encode()), anchor=anchor, now=now)]
    for cosigned in run.cosigned:
        earlier = note.parse(cosigned.note.encode())
        checkpoint = judge(earlier, anchor=replace(anchor, quorum=NONE), now=now).checkpoint
        if checkpoint.origin != run.ledger.origin:
            raise LedgerError(f"{run.run}: a checkpoint of another ledger, {checkpoint.origin!r}")
        # Without this proof a cosigned checkpoint of a discarded history could date the entries of this one.
        merkle.check_consistency(
            [bytes.fromhex(hash_) for hash_ in cosigned.consistency],
            old_size=checkpoint.size,
            old_root=checkpoint.root,
            new_size=run.ledger.size,
            new_root=bytes.fromhex(run.ledger.root),
        )
        moments.append(moment_of(earlier, anchor=anchor, now=now))
    return span_of([moment for moment in moments if moment is not None], usage.period)


def _party(file: PartyFile, opened: Opened, *, trust: Trust, now: int, where: str) -> Checked:
    # The line is in the signed tree. Its last leaf is the total, which must not pass for a party's line.
    usage, line = opened.value, file.line
    leaf = line_leaf(line.content, line.salt)
    check_place(usage.lines, leaf, index=line.index, proof=line.proof, where=f"{where}: the line")
    if line.index == usage.lines.count - 1:
        raise ProvenanceError(f"{where}: a line in the place of the total, {line.index}")
    # The runs are those that the line names, each once.
    if any(one.index >= other.index for one, other in pairwise(file.runs)):
        raise ProvenanceError(f"{where}: runs: expected each once, in their order")
    if [use.run for use in line.content.uses] != [run_digest(proved.content) for proved in file.runs]:
        raise ProvenanceError(f"{where}: runs: not those that the line is about")
    # Each run is in the signed tree, and its ledger has the entries of the line.
    for use, proved in zip(line.content.uses, file.runs, strict=True):
        run, here = proved.content, f"{where}: {proved.content.run}"
        check_place(usage.runs, run_leaf(run), index=proved.index, proof=proved.proof, where=here)
        span = _check_run(run, opened, trust=trust, now=now, where=here)
        _check_use(use, run, span, where=here)
        hashes = [bytes.fromhex(hash_) for hash_ in proved.entries]
        if use.first is None or use.last is None:
            if hashes:
                raise ProvenanceError(f"{here}: found a proof of entries, but the line names none")
            continue
        root, size = bytes.fromhex(run.ledger.root), run.ledger.size
        merkle.check_range(hashes, size=size, first=use.first, stop=use.last + 1, root=root)
    runs = tuple(proved.content for proved in file.runs)
    return Checked(opened=opened, runs=runs, lines=(line.content,), total=None)


def _whole(file: WholeFile, opened: Opened, *, trust: Trust, now: int, where: str) -> Checked:
    # Lines and runs are exactly those that were signed: both trees are built again.
    usage = opened.value
    for what, tree, signed in (
        ("lines", tree_over(_leaves(file.lines, file.total)), usage.lines),
        ("runs", tree_over([run_leaf(run) for run in file.runs]), usage.runs),
    ):
        if tree != signed:
            raise ProvenanceError(
                f"{where}: {what}: not what was signed: found {tree.count} with root {tree.root}, expected "
                f"{signed.count} with root {signed.root}"
            )
    # Each party and each ledger appears once: nothing is counted twice, and no party has a second line.
    for what, names in (
        ("lines", [line.content.party for line in file.lines]),
        ("runs", [run.ledger.origin for run in file.runs]),
    ):
        if any(one >= other for one, other in pairwise(names)):
            raise ProvenanceError(f"{where}: {what}: expected each once, in the order of their names")
    runs = {run_digest(run): run for run in file.runs}
    if [total.run for total in file.total.content.total] != [*runs]:
        raise ProvenanceError(f"{where}: the total: not of the runs of the statement")
    # Every number is possible, and the lines add up.
    spans = {name: _check_run(run, opened, trust=trust, now=now, where=where) for name, run in runs.items()}
    for line in file.lines:
        for use in line.content.uses:
            if use.run not in runs:
                raise ProvenanceError(f"{where}: {line.content.party!r:.80}: of a run that is not in the statement")
            _check_use(use, runs[use.run], spans[use.run], where=f"{where}: {line.content.party!r:.80}")
    lines = tuple(line.content for line in file.lines)
    _check_sums(lines, file.total.content, runs, where=where)
    return Checked(opened=opened, runs=file.runs, lines=lines, total=file.total.content)


def _check_run(run: UsageRun, opened: Opened, *, trust: Trust, now: int, where: str) -> Span | None:
    """Check what the statement says about a run for all lines; return the entries that are counted, None: all."""
    by = opened.authorities
    check_checkpoint(run.checkpoint, ledger=run.ledger, by=by, trust=trust, now=now, where=where)
    if not run.shared <= run.counted <= run.steps:
        raise ProvenanceError(f"{where}: impossible: {run.shared} of {run.counted} counted steps of {run.steps}")
    return span_in(run, opened.value, trust=trust, now=now)


def _check_use(use: Use, run: UsageRun, span: Span | None, *, where: str) -> None:
    """Check that what a line says about a run is possible and lies in the period."""
    none = use.first is None or use.last is None
    if none != (use.steps == 0) or (use.examples == 0) != (use.steps == 0) or use.steps > run.counted:
        raise ProvenanceError(f"{where}: impossible: {use.examples} examples in {use.steps} of {run.counted} steps")
    if use.apportioned > use.steps or (run.shared == 0 and use.share is not None):
        raise ProvenanceError(f"{where}: a share of the gradient without a step that has one")
    expected = None if run.tokens is None else use.examples * run.tokens
    if use.tokens != expected:
        raise ProvenanceError(f"{where}: {use.tokens} tokens, expected {expected} of {use.examples} examples")
    if use.first is None or use.last is None:
        return
    if not use.first <= use.last < run.ledger.size or use.steps > use.last - use.first + 1:
        raise ProvenanceError(f"{where}: impossible: {use.steps} steps in the entries {use.first} to {use.last}")
    if span is not None and not (use.first in span.entries and use.last in span.entries):
        raise ProvenanceError(
            f"{where}: entries {use.first} to {use.last}: not in the period; by its cosignatures, the period has the "
            f"entries from {span.entries.start} to before {span.entries.stop}"
        )


def _check_sums(lines: Sequence[Line], total: Total, runs: dict[str, UsageRun], *, where: str) -> None:
    """Check that the lines of each run add up to its total."""
    uses: dict[str, list[Use]] = {name: [] for name in runs}
    for line in lines:
        for use in line.uses:
            uses[use.run].append(use)
    for run in total.total:
        of_run, name = uses[run.run], runs[run.run].run
        counted = sum(use.examples + use.denied + use.unclear for use in of_run)
        expected = run.slots - run.quarantined - run.absent - run.unplaced
        if counted != expected:
            raise ProvenanceError(f"{where}: {name}: the lines add up to {counted} examples; the total is {expected}")
        # Examples without a known party leave a part of the gradient that no line has.
        shares = [use.share for use in of_run if use.share is not None]
        unclear = any(use.unclear for use in of_run) or run.unplaced
        if shares and not unclear and abs(sum(shares) - 1) > TOLERANCE:
            raise ProvenanceError(f"{where}: {name}: the shares of the lines add up to {sum(shares):.6f}, expected 1")


def gap_words(gap: Gap) -> str:
    """Return a gap in words.

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
        "estimated": "their numbers are estimates",
        "not finite": "a gradient was not finite",
        "not closed": "no state follows them",
        "shared": "a class of theirs has several parties, and no record says which of its examples these were",
        "not cosigned": "no cosignature covers them",
    }[gap.why]
    return f"cannot be told: {what}: {why}"


# --- making a statement ---

DAYS = 3_652  # that a statement is valid, ten years: accounts are kept for longer than an attestation is of use
_SLUG = re.compile(r"[^A-Za-z0-9.-]+")


@dataclass(frozen=True, kw_only=True, slots=True)
class Survey:
    """The counts for a statement. Runs are in the order of their ledgers' origins, lines in that of the parties."""

    by: By
    period: Period | None
    ledgers: tuple[RunLedger, ...]
    runs: tuple[UsageRun, ...]
    lines: tuple[Line, ...]
    total: Total


def find_runs(paths: Sequence[Path]) -> list[RunLedger]:
    """List the governed runs in these directories: each of them a run, a sweep, or a directory of sweeps.

    Raises `LedgerError` for a directory without one, and for two runs with one ledger.
    """
    runs: dict[str, RunLedger] = {}  # by origin
    for path in paths:
        places = [path] if (path / rundir.LEDGER).is_dir() else [*_below(path)]
        if not places:
            raise LedgerError(f"{path}: no governed run: expected the directory of a run, a sweep or sweeps")
        for place in places:
            run = RunLedger(place)
            origin = run.ledger.checkpoint().origin
            if origin in runs:
                raise LedgerError(f"{place}: has the same ledger as {runs[origin].run}, {origin}")
            runs[origin] = run
    return [runs[origin] for origin in sorted(runs)]


def survey(runs: Sequence[RunLedger], *, by: By, period: Period | None, trust: Trust | None, now: int) -> Survey:
    """Count the data of each party in runs.

    Raises `LedgerError` for a ledger that does not verify, and for a period without a trust file.

    Args:
        runs: the runs, in the order of their ledgers' origins (`find_runs`).
        by: the kind of party to count by.
        period: the time to count, by cosignatures; None: everything.
        trust: the authorities whose signatures and cosignatures count; None: ledgers are not verified.
        now: the time of the check, in seconds since 1970.
    """
    if period is not None and trust is None:
        raise LedgerError("a period needs a trust file: steps are dated by the cosignatures of its authorities")
    usage_runs: list[UsageRun] = []
    totals: list[RunTotal] = []
    uses: dict[str, list[Use]] = {}
    for run in runs:
        cosigned, span = (), None
        if trust is not None and period is not None:
            cosigned, span = _dated(run, period, trust=trust, now=now)
        elif trust is not None:
            _verified(run, trust=trust, now=now)
        counted = _count(run, by=by, trust=trust, span=span, now=now)
        usage_run = _usage_run(run, counted, cosigned=cosigned)
        name = run_digest(usage_run)
        usage_runs.append(usage_run)
        totals.append(_total(counted, name))
        for party in counted.parties:
            uses.setdefault(party, []).append(_use_of(run, counted, party, name))
    lines = tuple(Line(party=party, uses=tuple(uses[party])) for party in sorted(uses))
    total = Total(total=tuple(totals))
    return Survey(by=by, period=period, ledgers=tuple(runs), runs=tuple(usage_runs), lines=lines, total=total)


def sign(counts: Survey, *, keys: Collection[Ed25519PrivateKey], trust: Trust, now: int) -> WholeFile:
    """Return the whole statement. Raises `ProvenanceError` for a key that may not sign it."""
    # The salts hide the other lines from a party: it sees hashes of them, and could try likely contents otherwise.
    lines = tuple(SaltedLine(content=line, salt=new_salt()) for line in counts.lines)
    total = SaltedTotal(content=counts.total, salt=new_salt())
    value = Usage(
        by=counts.by,
        period=counts.period,
        runs=tree_over([run_leaf(run) for run in counts.runs]),
        lines=tree_over(_leaves(lines, total)),
        issued=format_time(now),
        expires=format_time(now + DAYS * 86_400),
    )
    envelope = sign_usage(value, keys=keys, trust=trust, now=now, where="the statement of use")
    statement = parse_json(envelope.content, where="the statement", error=ProvenanceError, max_bytes=2**24)
    return WholeFile(format=WHOLE, statement=statement, lines=lines, total=total, runs=counts.runs)


def of_party(whole: WholeFile, counts: Survey, index: int) -> PartyFile:
    """Return the file of the party whose line has this index."""
    (file,) = parties(whole, counts, [index])
    return file


def parties(whole: WholeFile, counts: Survey, indices: Sequence[int] | None = None) -> Iterator[PartyFile]:
    """Yield the files of the parties with these indices, None: of all, in the order of the lines.

    Raises `LedgerError` for a damaged ledger.
    """
    lines, runs = _Tree(_leaves(whole.lines, whole.total)), _Tree([run_leaf(run) for run in whole.runs])
    places = {run_digest(run): place for place, run in enumerate(whole.runs)}
    for index in range(len(whole.lines)) if indices is None else indices:
        line = whole.lines[index]
        proved = []
        for use in line.content.uses:
            place, entries = places[use.run], ()
            if use.first is not None and use.last is not None:
                read = counts.ledgers[place].ledger.read_hashes
                entries = merkle.prove_range(whole.runs[place].ledger.size, use.first, use.last + 1, read)
            proved.append(
                ProvedRun(content=whole.runs[place], index=place, proof=runs.proof(place), entries=_hex(entries))
            )
        yield PartyFile(
            format=PARTY,
            statement=whole.statement,
            line=ProvedLine(content=line.content, salt=line.salt, index=index, proof=lines.proof(index)),
            runs=tuple(proved),
        )


def file_name(index: int, party: str) -> str:
    """Return the name of a party's file; the number distinguishes parties whose names become the same here.

    >>> file_name(3, "open/mit")
    '00003-open-mit.json'
    """
    return f"{index:05d}-{_SLUG.sub('-', party).strip('.-')[:60] or 'unnamed'}.json"


def recount(checked: Checked, runs: Sequence[RunLedger], *, trust: Trust, now: int) -> None:
    """Count the numbers of a statement again, from the directories of its runs, in the state that it names.

    Raises `ProvenanceError` for the first number that the ledgers do not give.
    """
    here = {run.ledger.checkpoint().origin: run for run in runs}
    uses = {(line.party, use.run): use for line in checked.lines for use in line.uses}
    for stated in checked.runs:
        # The directory holds the very ledger that is stated, and it verifies.
        run = here.get(stated.ledger.origin)
        if run is None:
            raise ProvenanceError(f"{stated.run}: its ledger {stated.ledger.origin} is not among those given")
        if _ledger_name(run) != stated.ledger:
            size = run.ledger.checkpoint().size
            raise ProvenanceError(f"{run.run}: {size} entries or another ledger; stated are {stated.ledger.size}")
        _verified(run, trust=trust, now=now)
        # The run is counted again. Its checkpoint may have cosignatures that came after the statement.
        span = span_in(stated, checked.usage, trust=trust, now=now)
        counted = _count(run, by=checked.usage.by, trust=trust, span=span, now=now)
        recounted = replace(_usage_run(run, counted, cosigned=stated.cosigned), checkpoint=stated.checkpoint)
        _check_same(f"{stated.run}", to_json(stated), to_json(recounted))
        # So are its lines: all of them for the whole statement, one for a party's file.
        name = run_digest(stated)
        stated_parties = {party for party, of in uses if of == name}
        if checked.total is not None and (absent := sorted(counted.parties.keys() - stated_parties)):
            raise ProvenanceError(f"{stated.run}: the ledger has a party without a line: {absent[0]!r:.80}")
        for party in sorted(stated_parties):
            if party not in counted.parties:
                raise ProvenanceError(f"{stated.run}: the ledger has no {checked.usage.by} {party!r:.80}")
            use = _use_of(run, counted, party, name)
            _check_same(f"{stated.run}: {party!r:.80}", to_json(uses[party, name]), to_json(use))
        for total in () if checked.total is None else checked.total.total:
            if total.run == name:
                _check_same(f"{stated.run}: the total", to_json(total), to_json(_total(counted, name)))


class _Tree:
    """A Merkle tree in memory, for proofs."""

    def __init__(self, leaves: Sequence[bytes]) -> None:
        self._levels = [list(leaves)]
        while len(self._levels[-1]) > 1:
            below = self._levels[-1]
            self._levels.append([merkle.node_hash(*pair) for pair in zip(below[::2], below[1::2], strict=False)])

    def proof(self, index: int) -> tuple[str, ...]:
        """Return the inclusion proof of a leaf."""
        return _hex(merkle.prove_inclusion(len(self._levels[0]), index, self._read))

    def _read(self, places: Sequence[merkle.Place]) -> list[bytes]:
        return [self._levels[place.level][place.number] for place in places]


def _below(path: Path) -> Iterator[Path]:
    """Yield the run directories in a sweep, or in a directory of sweeps."""
    if path.is_dir():
        for place in _runs_in(path):
            yield from (run_dir for run_dir in (place, *_runs_in(place)) if (run_dir / rundir.LEDGER).is_dir())


def _runs_in(path: Path) -> list[Path]:
    return sorted(
        place for place in path.iterdir() if place.is_dir() and not place.is_symlink() and place.name[0] not in "_."
    )


def _verified(run: RunLedger, *, trust: Trust, now: int) -> tuple[Verification, Anchor]:
    """Verify a ledger; return the result, and what it was verified by. Raises `LedgerError` unless it holds."""
    anchor = anchor_of_trust(trust, origin=run.ledger.checkpoint().origin)
    verification = verify(run.ledger.path, anchor=anchor, now=now)
    if not verification.ok:
        first = verification.findings[0]
        raise LedgerError(f"{run.run}: the ledger does not verify: {first.path}: {first.message}")
    return verification, anchor


def _dated(run: RunLedger, period: Period, *, trust: Trust, now: int) -> tuple[tuple[Cosigned, ...], Span]:
    """Return the earlier checkpoints that a witness cosigned, and the entries in the period by all cosignatures."""
    verification, anchor = _verified(run, trust=trust, now=now)
    moments = [moment_of(run.ledger.note(), anchor=anchor, now=now)]
    kept: set[tuple[int, str]] = set()  # a note once, however many files hold it
    for seen in verification.older:
        if (moment := moment_of(seen.note, anchor=anchor, now=now)) is not None:
            moments.append(moment)
            kept.add((moment.size, seen.note.content.decode()))
    size, read = verification.checkpoint.size, run.ledger.read_hashes
    cosigned = tuple(
        Cosigned(note=content, consistency=_hex(merkle.prove_consistency(earlier, size, read)))
        for earlier, content in sorted(kept)
    )
    return cosigned, span_of([moment for moment in moments if moment is not None], period)


def _count(run: RunLedger, *, by: By, trust: Trust | None, span: Span | None, now: int) -> Counted:
    if span is None:
        return count_usage(run, by=by, trust=trust, now=now)
    return count_usage(run, by=by, trust=trust, now=now, entries=span.entries, covered=span.covered)


def _ledger_name(run: RunLedger) -> LedgerName:
    checkpoint = run.ledger.checkpoint()
    return LedgerName(origin=checkpoint.origin, size=checkpoint.size, root=checkpoint.root.hex())


def _usage_run(run: RunLedger, counted: Counted, *, cosigned: tuple[Cosigned, ...]) -> UsageRun:
    return UsageRun(
        run=run.genesis.run,
        simulated=counted.simulated,
        ledger=_ledger_name(run),
        checkpoint=run.ledger.note().content.decode(),
        cosigned=cosigned,
        outcome=counted.outcome,
        steps=counted.steps,
        counted=counted.counted,
        shared=counted.shared,
        superseded=counted.superseded,
        tokens=counted.tokens,
        gaps=counted.gaps,
    )


def _use_of(run: RunLedger, counted: Counted, party: str, name: str) -> Use:
    count = counted.parties[party]
    return Use(
        run=name,
        first=count.first,
        last=count.last,
        steps=count.steps,
        examples=count.examples,
        denied=count.denied,
        unclear=count.unclear,
        tokens=None if counted.tokens is None else counted.tokens * count.examples,
        layers=tuple(run.genesis.layers[at] for at in sorted(count.layers)),
        share=counted.share_of(party),
        apportioned=count.apportioned,
        superseded=counted.superseded_of(party),
    )


def _total(counted: Counted, name: str) -> RunTotal:
    return RunTotal(
        run=name,
        slots=counted.slots,
        quarantined=counted.quarantined,
        absent=counted.absent,
        unplaced=counted.unplaced,
    )


def _leaves(lines: Sequence[SaltedLine], total: SaltedTotal) -> list[bytes]:
    return [*(line_leaf(line.content, line.salt) for line in lines), line_leaf(total.content, total.salt)]


def _hex(hashes: Sequence[bytes]) -> tuple[str, ...]:
    return tuple(hash_.hex() for hash_ in hashes)


def _check_same(where: str, stated: dict[str, Any], counted: dict[str, Any]) -> None:
    """Raise `ProvenanceError` for the first key whose values differ."""
    for key, value in stated.items():
        if value != counted[key]:
            raise ProvenanceError(f"{where}: {key}: stated {value!r:.120}, the ledger gives {counted[key]!r:.120}")
