"""Making a statement of use: runs are counted, a line is drawn for each party, and the trainer signs.

    survey    what there is to state, of runs that verify where a trust file is brought
    sign      the whole statement, which stays with the trainer
    of_party  the file of one party: its line, the runs in it, and the proofs

Where a period is asked for, a step is in it if the first cosignature that covers it is. A witness's note is replaced by
its next one; a trainer who states by the month keeps a copy of each month's note under another name in `witness/`.
"""

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from explorer import merkle, rundir
from explorer.audit.usage import Counted, count_usage
from explorer.errors import LedgerError, ProvenanceError
from explorer.ledger.trust_anchor import Anchor
from explorer.ledger.verify import Verification, verify
from explorer.provenance.spellings import LedgerName, format_time
from explorer.provenance.trust import Trust
from explorer.provenance.usage import (
    PARTY,
    WHOLE,
    By,
    Cosigned,
    Line,
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
    line_leaf,
    new_salt,
    run_digest,
    run_leaf,
    sign_usage,
    tree_over,
)
from explorer.release.usage_check import Checked, Span, moment_of, span_in, span_of
from explorer.runlog.anchor import anchor_of_trust
from explorer.runlog.run_ledger import RunLedger
from explorer.schema import parse_json, to_json

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
    """The governed runs in these directories: each of them a run, a sweep, or a directory of sweeps.

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
            uses.setdefault(party, []).append(_use(run, counted, party, name))
    lines = tuple(Line(party=party, uses=tuple(uses[party])) for party in sorted(uses))
    total = Total(total=tuple(totals))
    return Survey(by=by, period=period, ledgers=tuple(runs), runs=tuple(said), lines=lines, total=total)


def sign(found: Survey, *, keys: Collection[Ed25519PrivateKey], trust: Trust, now: int) -> WholeFile:
    """The whole statement. Raises `ProvenanceError` for a key that may not sign for it."""
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
    """The file of the party whose line this is."""
    (made,) = parties(whole, found, [index])
    return made


def parties(whole: WholeFile, found: Survey, indices: Sequence[int] | None = None) -> Iterator[PartyFile]:
    """The files of all parties, in the order of the lines, or of some. Raises `LedgerError` for a damaged ledger."""
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
            again = _use(run, counted, party, name)
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
        """The inclusion proof of a leaf."""
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
    """What verifying a ledger came to. Raises `LedgerError` unless it holds."""
    anchor = anchor_of_trust(trust, origin=run.ledger.checkpoint().origin)
    found = verify(run.ledger.path, anchor=anchor, now=now)
    if not found.ok:
        first = found.findings[0]
        raise LedgerError(f"{run.run}: the ledger does not verify: {first.path}: {first.message}")
    return found, anchor


def _dated(run: RunLedger, period: Period, *, trust: Trust, now: int) -> tuple[tuple[Cosigned, ...], Span]:
    """The earlier checkpoints that a witness cosigned, and what is in the period by all cosignatures."""
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


def _use(run: RunLedger, counted: Counted, party: str, name: str) -> Use:
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
