"""The section on deletion: how far classes can be deleted, and what happened to the run after its ledger was closed.

Deletions, observations, grants and reads are in the project's ledger next to the run. Certificates of deletions lie in
the run, in the runs that deletions made of it, or in a pack. A reader who has a run without its project knows only the
certificates that came with it; everything else is reported as unknown.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from explorer import rundir
from explorer.deletion.finish import CERTIFICATE
from explorer.entries.fields import LedgerState, read_float
from explorer.entries.kinds import Access, Deletion, GrantUse, Observation
from explorer.errors import ExplorerError, LedgerError, ProvenanceError
from explorer.ledger.storage import LedgerDirectory
from explorer.ledger.verify import verify
from explorer.page import amounts
from explorer.page.document import Block, Bullets, Column, Facts, Heading, Paragraph, Row, Span, Table, Text
from explorer.project import AUDIT, Recorded, read_project, runs_of
from explorer.provenance.deletion_certificate import MEANS, NEVER_HAD, UNREACHED, Opened, open_certificate
from explorer.provenance.envelope import MAX_BYTES
from explorer.provenance.trust import Trust
from explorer.report.run.references import Citations, Reference, refer
from explorer.report.run.reported_run import ReportedRun
from explorer.report.section import Section
from explorer.runlog.anchor import anchor_of_ledger
from explorer.runlog.run_ledger import RunLedger
from explorer.runlog.target import SWEEP
from explorer.schema import record

KEPT_COPIES = "deletions"  # the folder of a pack that holds certificates, by run
MAX_CERTIFICATES = 1_000  # a bound on signatures to verify: anybody can put files into a pack
UNVERIFIED = "not verified"


@dataclass(frozen=True, kw_only=True, slots=True)
class Certified:
    """A certificate of a deletion that is believed."""

    digest: str  # of the signed statement
    old: str  # the run that had the target
    new: str  # the run without it
    target: str
    level: str
    means: str
    signed_by: tuple[str, ...]
    issued: str
    expires: str
    request: str | None  # a salted commitment
    model: str  # SHA-256 of the new model's file
    not_reached: tuple[str, ...]  # according to the signer
    to_destroy: Mapping[str, int]  # number of files by kind, according to the signer


@dataclass(frozen=True, kw_only=True, slots=True)
class DeletionLine:
    """A deletion: on the project's record, or certified, or both."""

    target: str
    level: str
    is_result: bool  # this run is its result
    other: str  # the origin of the other run's ledger
    certificate: Certified | None
    digest: str | None  # of the certificate that the entry names
    reference: Reference | None  # None: the project's ledger is not here


@dataclass(frozen=True, kw_only=True, slots=True)
class ObservationLine:
    """Something that was said about the run's model; by whom, its statement says."""

    role: str
    admitted: str
    statement: str  # digest
    reference: Reference


@dataclass(frozen=True, kw_only=True, slots=True)
class History:
    """All of it."""

    judged: str | None  # the verdict on the project's ledger; None: there is none that can be read
    fault: str | None  # why the one next to the run cannot be read; None: it can, or there is none
    entries: int  # of the project's ledger
    deletions: tuple[DeletionLine, ...]
    observations: tuple[ObservationLine, ...]
    grants: int  # of keys of this run, and their revocations
    reads: int  # through a grant
    disclosed: Reference | None  # the entries of grants and reads
    unbelieved: tuple[str, ...]  # certificates that are not trusted, and why

    @property
    def unknown(self) -> str:
        """The reason why the project's ledger tells nothing; empty: it can be read."""
        if self.fault:
            return f"the project's ledger, which cannot be read: {self.fault}"
        return "the project's ledger, which is not next to this run" if self.judged is None else ""

    @property
    def doubt(self) -> str:
        """The verdict on the project's ledger where that is not verified; empty: it is, or it was not checked."""
        return self.judged if self.judged is not None and self.judged.startswith(UNVERIFIED) else ""


@record
class HistoryRecord:
    """Deletions."""

    history: History


class HistorySection(Section[ReportedRun, HistoryRecord]):
    """Deletability of every class, and the deletions that were made."""

    record = HistoryRecord

    def gather(self, run: ReportedRun) -> HistoryRecord:
        trust, own = run.opened.trust, run.pinned.trust
        return HistoryRecord(history=history_of(run.ledger, trust=trust, own=own, now=run.opened.now))

    def blocks(self, record: HistoryRecord, run: ReportedRun) -> list[Block]:
        never = f", for either level: {NEVER_HAD[0].lower()}{NEVER_HAD[1:]} The time and money that a deletion takes: "
        said = (
            Span(f"G2 is exact by structure. {MEANS['G2']} G3 is exact by replay. {MEANS['G3']} With "),
            Span("explorer delete verify --counterfactual", "code"),
            Span(never),
            Span("explorer delete plan", "code"),
            Span("."),
        )
        # The possible deletions come first, then those that were made, then everything else about the closed run.
        columns = (Column("Class"), Column("Level"), Column("How it can be deleted"), Column("Evidence"))
        rows = []
        for line in run.classes:
            level = line.deletable.level or amounts.MISSING
            rows.append(Row((line.path, level, line.deletable.words, (run.cite(line.reference),))))
        return [
            Heading(2, "Deletion", "deletion"),
            Paragraph(said),
            Table(columns, rows),
            Heading(3, "Deletions that were made"),
            *_deletions(record.history, run.cite),
            Heading(3, "Observations, grants and reads"),
            *_afterwards(record.history, run.cite),
        ]


# --- gathering ---


def history_of(run: RunLedger, *, trust: Trust | None, own: Trust | None, now: int) -> History:
    """Read the project's ledger and the certificates.

    run    the run's ledger
    trust  the reader's trust file; None: the reader brought none
    own    the run's own trust file, which judges certificates in that case
    now    seconds since 1970
    """
    origin, runs = run.ledger.checkpoint().origin, runs_of(run.run)
    recorded, fault = _read(runs)
    trusted, faults = certificates(run, origin, trust=trust or own, now=now)
    # The project's ledger covers all runs of the project.
    mine = [(item.index, item.entry) for item in recorded if _is_about(item.entry, origin)]
    # Deletions on record come first, then those that only a certificate mentions.
    lines = [_recorded(index, entry, origin, trusted) for index, entry in mine if isinstance(entry, Deletion)]
    named = {line.digest for line in lines}
    lines += [_certified(value, run.genesis.run) for digest, value in trusted.items() if digest not in named]
    disclosed = [index for index, entry in mine if isinstance(entry, GrantUse | Access)]
    return History(
        judged=_judged(runs / AUDIT, trust=trust, now=now) if recorded else None,
        fault=fault,
        entries=len(recorded),
        deletions=tuple(lines),
        observations=tuple(_observed(index, entry) for index, entry in mine if isinstance(entry, Observation)),
        grants=sum(isinstance(entry, GrantUse) for _, entry in mine),
        reads=sum(isinstance(entry, Access) for _, entry in mine),
        disclosed=refer(disclosed, of="project") if disclosed else None,
        unbelieved=tuple(faults),
    )


def certificates(
    run: RunLedger, origin: str, *, trust: Trust | None, now: int
) -> tuple[dict[str, Certified], list[str]]:
    """Open the certificates about this run: return the trusted ones by digest, and why others are not trusted."""
    trusted: dict[str, Certified] = {}
    faults: list[str] = []
    for path in [*_places(run.run)][:MAX_CERTIFICATES]:
        try:
            if trust is None:
                raise ProvenanceError(f"{path.name}: no trust file to verify it with")
            content = rundir.read_bytes(path, max_bytes=MAX_BYTES, error=ProvenanceError)
            opened = open_certificate(content, trust=trust, now=now, where=path.name)
        except ExplorerError as error:
            faults.append(str(error))
            continue
        # A certificate of another run may lie in a pack too: it is valid, but about something else.
        if origin in (opened.value.old.ledger.origin, opened.value.new.ledger.origin):
            trusted[opened.digest] = _opened(opened)
    return trusted, faults


def _places(run: Path) -> Iterator[Path]:
    """Yield certificates: in the run, in the folder of a pack, and in the runs that deletions made."""
    places = [run / CERTIFICATE, *sorted((run / KEPT_COPIES).glob("*.json"))]
    places += [
        made / CERTIFICATE for made in rundir.run_directories(runs_of(run) / SWEEP, loops=True) if made != run.resolve()
    ]
    return (path for path in places if path.is_file() and not path.is_symlink())  # a link could lead anywhere


def _opened(opened: Opened) -> Certified:
    value = opened.value
    return Certified(
        digest=opened.digest,
        old=value.old.run,
        new=value.new.run,
        target=value.target.words,
        level=value.level,
        means=MEANS[value.level],
        signed_by=tuple(authority.name for authority in opened.authorities),
        issued=value.issued,
        expires=value.expires,
        request=value.request,
        model=opened.model,
        not_reached=tuple(f"{UNREACHED[place.what]}: {place.detail}" for place in value.not_reached),
        to_destroy=dict(Counter(str(item.what) for item in value.to_destroy)),
    )


def _read(runs: Path) -> tuple[list[Recorded], str | None]:
    """Return the entries of the project's ledger, or why they cannot be read."""
    try:
        return list(read_project(runs)), None
    except LedgerError as error:
        return [], str(error)


def _is_about(entry: object, origin: str) -> bool:
    ledgers: list[LedgerState | None] = []
    if isinstance(entry, Deletion | GrantUse | Access | Observation):
        ledgers = [entry.ledger, entry.result if isinstance(entry, Deletion) else None]
    return any(ledger is not None and ledger.origin == origin for ledger in ledgers)


def _recorded(index: int, entry: Deletion, origin: str, trusted: Mapping[str, Certified]) -> DeletionLine:
    # The entry names two ledgers: this run is either the one that had the target, or the result.
    is_result = entry.result is not None and entry.result.origin == origin
    other = entry.ledger if is_result else entry.result
    asked = [", ".join(entry.classes)] if entry.classes else []
    asked += [f"everything that {', '.join(entry.authorities)} vouches for"] if entry.authorities else []
    asked += [f"{entry.records} single records"] if entry.records else []
    digest = entry.evidence.get("certificate")
    return DeletionLine(
        target="; ".join(asked),
        level=entry.level,
        is_result=is_result,
        other=other.origin if other else "",
        certificate=trusted.get(digest or ""),
        digest=digest,
        reference=refer([index], of="project"),
    )


def _certified(certificate: Certified, run: str) -> DeletionLine:
    is_result = certificate.new == run
    return DeletionLine(
        target=certificate.target,
        level=certificate.level,
        is_result=is_result,
        other=certificate.old if is_result else certificate.new,
        certificate=certificate,
        digest=certificate.digest,
        reference=None,
    )


def _observed(index: int, entry: Observation) -> ObservationLine:
    admitted = ", ".join(f"{path} {read_float(weight):g}" for path, weight in entry.admitted.items())
    reference = refer([index], of="project")
    return ObservationLine(role=entry.role, admitted=admitted, statement=entry.statement, reference=reference)


def _judged(directory: Path, *, trust: Trust | None, now: int) -> str:
    if trust is None:
        return "not checked: no trust file was given"  # as the head of the report says about the run's own ledger
    try:
        anchor = anchor_of_ledger(LedgerDirectory(directory), trust)
        verification = verify(directory, anchor=anchor, now=now)
    except (LedgerError, ProvenanceError) as error:
        return f"{UNVERIFIED}: {error}"
    return "verified" if verification.ok else f"{UNVERIFIED}: {verification.findings[0].message}"


# --- showing ---


def _deletions(history: History, cite: Citations) -> list[Block]:
    blocks: list[Block] = []
    for line in history.deletions:
        blocks += [Heading(4, f"{line.level}: {line.target}"), Facts(_facts(line, cite))]
        if line.certificate:
            blocks += [Paragraph("Not reached, according to the signer:"), Bullets(line.certificate.not_reached)]
    # "None" is a claim that only a ledger that could be read supports; otherwise deletions are unknown.
    if not history.deletions and not history.unknown:
        blocks.append(Paragraph("The project's ledger has no deletion from this run."))
    if history.unknown:
        words = f"Deletions are unknown; they would be in {history.unknown}."
        blocks.append(Paragraph(words, "bad" if history.fault else "note"))
    else:
        entries = amounts.count(history.entries, "entry", "entries")
        hint = " `explorer next` prints how it is cosigned." if history.doubt and not history.fault else ""
        blocks.append(Paragraph(f"The project's ledger, {entries}: {history.judged}.{hint}", "note"))
    if history.unbelieved:
        faults = [f"A certificate that is not trusted: {fault}" for fault in history.unbelieved]
        blocks.append(Bullets(faults, "warning"))
    return blocks


def _facts(line: DeletionLine, cite: Citations) -> list[tuple[str, Text]]:
    # Facts of the ledger first; the rest is known only from a certificate, which may be missing.
    pairs: list[tuple[str, Text]] = [
        ("This run", "is the result" if line.is_result else "had the target"),
        ("The other run", line.other or amounts.MISSING),
        ("On record in", (cite(line.reference),) if line.reference else "no ledger here"),
    ]
    certified = line.certificate
    if certified is None:
        named = f"sha256:{line.digest}, which is missing or not trusted" if line.digest else "none"
        return [*pairs, ("Certificate", named)]
    destroy = ", ".join(f"{number} {what}" for what, number in certified.to_destroy.items())
    return [
        *pairs,
        ("Meaning", certified.means),
        ("Certificate", (Span(f"sha256:{certified.digest}", "code"),)),
        ("Signed by", ", ".join(certified.signed_by)),
        ("Issued, according to the signer", f"{certified.issued}, valid until {certified.expires}"),
        ("Request", "none" if certified.request is None else f"commitment {certified.request}"),
        ("New model", (Span(f"sha256:{certified.model}", "code"),)),
        ("Files to destroy, according to the signer", destroy or "none"),
    ]


def _afterwards(history: History, cite: Citations) -> list[Block]:
    if history.unknown:
        return [Paragraph(f"Unknown; they would be in {history.unknown}.", "note")]
    listed = [
        (
            Span(f"{line.role}, statement {line.statement[:16]}, admits {line.admitted or 'no class by name'} "),
            cite(line.reference),
        )
        for line in history.observations
    ]
    grants = amounts.count(history.grants, "grant or revocation of keys", "grants or revocations of keys")
    words = f"{grants}, {amounts.count(history.reads, 'read')} through a grant"
    cited = (Span(f"{words}. "), cite(history.disclosed)) if history.disclosed else "No reader was granted its keys."
    return [Bullets(listed) if listed else Paragraph("No observation of the model is on record."), Paragraph(cited)]
