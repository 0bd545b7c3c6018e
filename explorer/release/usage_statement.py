"""Statements of use: runs are counted, each party gets a line, the trainer signs; and the check of a party's file.

    survey    what there is to state, of runs that verify where a trust file is brought
    sign      the whole statement, which stays with the trainer
    of_party  the file of one party: its line, the runs in it, and the proofs

The check needs the file, a trust file and a clock. A trainer whom the trust file names has to have signed the statement
and the ledger of each run in it; the line and the runs have to be those that were signed; the ledger has to have the
entries of the line; and, where the statement is of a period, the first cosignatures of these entries have to be in it.
A step is dated by the first cosignature of a checkpoint that covers it, never by a clock of the trainer's. Of the whole
statement both trees are built, and the lines have to add up to the total. The numbers are the signer's word; `recount`
counts them again from the runs.

A witness's note is replaced by its next one; a trainer who states by the month keeps a copy of each month's note under
another name in `witness/`.
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
        """Return what all parties are told."""
        return self.opened.value

    @property
    def signed_by(self) -> tuple[str, ...]:
        """Return the names of who signed."""
        return tuple(one.name for one in self.opened.authorities)


@dataclass(frozen=True, kw_only=True, slots=True)
class Moment:
    """When a tree of this size was there at the latest, on the word of a witness and not of the trainer."""

    size: int
    time: int  # seconds since 1970


@dataclass(frozen=True, kw_only=True, slots=True)
class Span:
    """The entries of a ledger that are in a period, and how many entries anyone has cosigned."""

    entries: range
    covered: int


def moment_of(found: Note, *, anchor: Anchor, now: int) -> Moment | None:
    """Return the earliest cosignature of a checkpoint that counts; None: there is none. Raises `LedgerError` for a note
    that the log has not signed."""
    judged = judge(found, anchor=replace(anchor, quorum=NONE), now=now)
    times = [each.time for each in judged.cosignatures if each.fault is None]
    return Moment(size=judged.checkpoint.size, time=min(times)) if times else None


def span_of(moments: Sequence[Moment], period: Period) -> Span:
    """Return the entries whose first cosignature is in the period.

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
    """Return the entries of a run that a statement is about, by the cosignatures in it; None: all of them.

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
    """Return the entries that are counted, and what holds of a run for every line."""
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
    """Return what cannot be told, for people.

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


# --- the statement ---

DAYS = 3_652  # that a statement holds: accounts are looked at for longer than an attestation is of use
_SLUG = re.compile(r"[^A-Za-z0-9.-]+")


@dataclass(frozen=True, kw_only=True, slots=True)
class Survey:
    """What there is to state. Runs are in the order of their ledgers' origins, lines in that of the parties."""

    by: By
    period: Period | None
    ledgers: tuple[RunLedger, ...]
    runs: tuple[UsageRun, ...]
    lines: tuple[Line, ...]
    total: Total


def find_runs(paths: Sequence[Path]) -> list[RunLedger]:
    """List the governed runs in these directories: each of them a run, a sweep, or a directory of sweeps.

    Raises `LedgerError` where there is none, and for two of one ledger.
    """
    found: dict[str, RunLedger] = {}
    for path in paths:
        places = [path] if (path / rundir.LEDGER).is_dir() else [*_below(path)]
        if not places:
            raise LedgerError(f"{path}: no governed run: expected a run's directory, or one of runs or sweeps")
        for place in places:
            run = RunLedger(place)
            origin = run.ledger.checkpoint().origin
            if origin in found:
                raise LedgerError(f"{place}: the ledger {origin} once more; {found[origin].run} has it")
            found[origin] = run
    return [found[origin] for origin in sorted(found)]


def survey(runs: Sequence[RunLedger], *, by: By, period: Period | None, trust: Trust | None, now: int) -> Survey:
    """Count runs. Raises `LedgerError` for a ledger that does not verify, and for a period without a trust file, which
    says whose cosignatures count."""
    if period is not None and trust is None:
        raise LedgerError("a period takes a trust file: steps are dated by the cosignatures of those whom it names")
    said: list[UsageRun] = []
    totals: list[RunTotal] = []
    uses: dict[str, list[Use]] = {}
    for run in runs:
        cosigned, span = (), None
        if trust is not None and period is not None:
            cosigned, span = _dated(run, period, trust=trust, now=now)
        elif trust is not None:
            _verified(run, trust=trust, now=now)
        counted = _count(run, by=by, trust=trust, span=span, now=now)
        each = _said(run, counted, cosigned=cosigned)
        name = run_digest(each)
        said.append(each)
        totals.append(_total(counted, name))
        for party in counted.parties:
            uses.setdefault(party, []).append(_use_of(run, counted, party, name))
    lines = tuple(Line(party=party, uses=tuple(uses[party])) for party in sorted(uses))
    total = Total(total=tuple(totals))
    return Survey(by=by, period=period, ledgers=tuple(runs), runs=tuple(said), lines=lines, total=total)


def sign(found: Survey, *, keys: Collection[Ed25519PrivateKey], trust: Trust, now: int) -> WholeFile:
    """Return the whole statement. Raises `ProvenanceError` for a key that may not sign for it."""
    lines = tuple(SaltedLine(content=each, salt=new_salt()) for each in found.lines)
    total = SaltedTotal(content=found.total, salt=new_salt())
    value = Usage(
        by=found.by,
        period=found.period,
        runs=tree_over([run_leaf(each) for each in found.runs]),
        lines=tree_over(_leaves(lines, total)),
        issued=format_time(now),
        expires=format_time(now + DAYS * 86_400),
    )
    envelope = sign_usage(value, keys=keys, trust=trust, now=now, where="the statement of use")
    statement = parse_json(envelope.content, where="the statement", error=ProvenanceError, max_bytes=2**24)
    return WholeFile(format=WHOLE, statement=statement, lines=lines, total=total, runs=found.runs)


def of_party(whole: WholeFile, found: Survey, index: int) -> PartyFile:
    """Return the file of the party whose line this is."""
    (made,) = parties(whole, found, [index])
    return made


def parties(whole: WholeFile, found: Survey, indices: Sequence[int] | None = None) -> Iterator[PartyFile]:
    """Yield the files of all parties, in the order of the lines, or of some. Raises `LedgerError` for a damaged
    ledger."""
    lines, runs = _Tree(_leaves(whole.lines, whole.total)), _Tree([run_leaf(each) for each in whole.runs])
    places = {run_digest(each): place for place, each in enumerate(whole.runs)}
    for index in range(len(whole.lines)) if indices is None else indices:
        line = whole.lines[index]
        proved = []
        for use in line.content.uses:
            place, entries = places[use.run], ()
            if use.first is not None and use.last is not None:
                read = found.ledgers[place].ledger.read_hashes
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
    """Of a party's file; the number tells apart what becomes the same in a file's name.

    >>> file_name(3, "open/mit")
    '00003-open-mit.json'
    """
    return f"{index:05d}-{_SLUG.sub('-', party).strip('.-')[:60] or 'unnamed'}.json"


def recount(checked: Checked, runs: Sequence[RunLedger], *, trust: Trust, now: int) -> None:
    """Count again what a statement says, from the directories of its runs, in the state that it names.

    Raises `ProvenanceError` with the first number that the ledgers do not give.
    """
    here = {run.ledger.checkpoint().origin: run for run in runs}
    uses = {(line.party, use.run): use for line in checked.lines for use in line.uses}
    for said in checked.runs:
        run = here.get(said.ledger.origin)
        if run is None:
            raise ProvenanceError(f"{said.run}: its ledger {said.ledger.origin} is not among those given")
        if _named(run) != said.ledger:
            size = run.ledger.checkpoint().size
            raise ProvenanceError(f"{run.run}: {size} entries or another ledger; stated are {said.ledger.size}")
        _verified(run, trust=trust, now=now)
        span = span_in(said, checked.usage, trust=trust, now=now)
        counted = _count(run, by=checked.usage.by, trust=trust, span=span, now=now)
        found = replace(_said(run, counted, cosigned=said.cosigned), checkpoint=said.checkpoint)
        _same(f"{said.run}", to_json(said), to_json(found))
        name = run_digest(said)
        mine = {party for party, of in uses if of == name}
        if checked.total is not None and (absent := sorted(counted.parties.keys() - mine)):
            raise ProvenanceError(f"{said.run}: the ledger has a party without a line: {absent[0]!r:.80}")
        for party in sorted(mine):
            if party not in counted.parties:
                raise ProvenanceError(f"{said.run}: the ledger has no {checked.usage.by} {party!r:.80}")
            again = _use_of(run, counted, party, name)
            _same(f"{said.run}: {party!r:.80}", to_json(uses[party, name]), to_json(again))
        for total in () if checked.total is None else checked.total.total:
            if total.run == name:
                _same(f"{said.run}: the total", to_json(total), to_json(_total(counted, name)))


class _Tree:
    """A tree in memory, for proofs."""

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
    """Run directories in a sweep or in a directory of sweeps."""
    if path.is_dir():
        for place in _runs_in(path):
            yield from (each for each in (place, *_runs_in(place)) if (each / rundir.LEDGER).is_dir())


def _runs_in(path: Path) -> list[Path]:
    return sorted(
        each for each in path.iterdir() if each.is_dir() and not each.is_symlink() and each.name[0] not in "_."
    )


def _verified(run: RunLedger, *, trust: Trust, now: int) -> tuple[Verification, Anchor]:
    """Return what verifying a ledger came to. Raises `LedgerError` unless it holds."""
    anchor = anchor_of_trust(trust, origin=run.ledger.checkpoint().origin)
    found = verify(run.ledger.path, anchor=anchor, now=now)
    if not found.ok:
        first = found.findings[0]
        raise LedgerError(f"{run.run}: the ledger does not verify: {first.path}: {first.message}")
    return found, anchor


def _dated(run: RunLedger, period: Period, *, trust: Trust, now: int) -> tuple[tuple[Cosigned, ...], Span]:
    """Return the earlier checkpoints that a witness cosigned, and what is in the period by all cosignatures."""
    found, anchor = _verified(run, trust=trust, now=now)
    moments = [moment_of(run.ledger.note(), anchor=anchor, now=now)]
    kept: set[tuple[int, str]] = set()
    for seen in found.older:
        if (moment := moment_of(seen.note, anchor=anchor, now=now)) is not None:
            moments.append(moment)
            kept.add((moment.size, seen.note.content.decode()))
    size, read = found.checkpoint.size, run.ledger.read_hashes
    cosigned = tuple(
        Cosigned(note=content, consistency=_hex(merkle.prove_consistency(earlier, size, read)))
        for earlier, content in sorted(kept)
    )
    return cosigned, span_of([each for each in moments if each is not None], period)


def _count(run: RunLedger, *, by: By, trust: Trust | None, span: Span | None, now: int) -> Counted:
    if span is None:
        return count_usage(run, by=by, trust=trust, now=now)
    return count_usage(run, by=by, trust=trust, now=now, entries=span.entries, covered=span.covered)


def _named(run: RunLedger) -> LedgerName:
    checkpoint = run.ledger.checkpoint()
    return LedgerName(origin=checkpoint.origin, size=checkpoint.size, root=checkpoint.root.hex())


def _said(run: RunLedger, counted: Counted, *, cosigned: tuple[Cosigned, ...]) -> UsageRun:
    return UsageRun(
        run=run.genesis.run,
        simulated=counted.simulated,
        ledger=_named(run),
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
    found = counted.parties[party]
    return Use(
        run=name,
        first=found.first,
        last=found.last,
        steps=found.steps,
        examples=found.examples,
        denied=found.denied,
        unclear=found.unclear,
        tokens=None if counted.tokens is None else counted.tokens * found.examples,
        layers=tuple(run.genesis.layers[at] for at in sorted(found.layers)),
        share=counted.share_of(party),
        apportioned=found.apportioned,
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
    return [*(line_leaf(each.content, each.salt) for each in lines), line_leaf(total.content, total.salt)]


def _hex(hashes: Sequence[bytes]) -> tuple[str, ...]:
    return tuple(each.hex() for each in hashes)


def _same(where: str, said: dict[str, Any], found: dict[str, Any]) -> None:
    """Raise `ProvenanceError` with the first key whose values differ."""
    for key, value in said.items():
        if value != found[key]:
            raise ProvenanceError(f"{where}: {key}: stated {value!r:.120}, the ledger gives {found[key]!r:.120}")
