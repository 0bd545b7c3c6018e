"""The section on deletion: what deleting each class takes, which deletions are certified, what was erased."""

import os
import shlex
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path

from explorer.audit.withheld import read_withheld
from explorer.deletion.claims import Outcome
from explorer.deletion.run_certificates import NO_TRUST, KnownCertificate, certificates
from explorer.errors import ExplorerError
from explorer.page import amounts
from explorer.page.document import (
    Block,
    Bullets,
    Code,
    Column,
    Fold,
    Paragraph,
    Row,
    Span,
    Table,
    Text,
    clipped,
    isolated,
    with_note,
)
from explorer.provenance.deletion_certificate import MEANS
from explorer.runlog.forecast import Forecast, forecast_of
from explorer.runlog.influence import Presence
from explorer.runlog.run_keys import JOINT, OwnKeys
from explorer.runlog.run_ledger import RunLedger
from explorer.runlog.target import Target
from explorer.views.ledger.open_run import OpenRun
from explorer.views.ledger.pane import ReadSection, coded, heading, note, warning
from explorer.views.notebook import named

NOT_HERE = "No erasure is on record. Whether a secret was destroyed all the same cannot be told: they are not here."
ERASED = "Erased from the record, with the secrets that opened them: numbers {}. The model has what it learned."
SAID = "On record as entry {} of the project's ledger. Whether the run conforms cannot be told from then on."
UNSAID = "The secrets of these were destroyed, and {}: numbers {}. The run does not conform."
KEPT = "Every class still has the secret that opens its numbers: `explorer delete erase` has erased none of them."


def deletion_blocks(opened: OpenRun) -> Iterator[Block]:
    """Yield three parts; a part that fails hides no other."""
    parts: dict[str, Callable[[], Iterator[Block]]] = {
        "What deleting each class takes": lambda: deletions_table(opened.ledger),
        "Certificates": lambda: certificate_blocks(opened, here=Path.cwd()),
        "Erased from the record": lambda: erased_blocks(opened),
    }
    for title, write in parts.items():
        yield heading(title)
        try:
            yield from list(write())
        except ExplorerError as error:
            yield warning(str(error))


def erased_blocks(opened: OpenRun) -> Iterator[Block]:
    """Yield which numbers nobody can open any more, and what the project's ledger has about it. Raises `LedgerError` or
    `ProvenanceError` for secrets that cannot be used."""
    keys, withheld = opened.ledger.keys, read_withheld(opened.ledger.ledger, trust=opened.trust, now=opened.now)
    destroyed = keys.erased if isinstance(keys, OwnKeys) else frozenset[str]()
    recorded = {*withheld.erased, JOINT} if withheld.erased else set[str]()
    if recorded:
        entries = sorted({index for indices in withheld.erased.values() for index in indices})
        yield note(ERASED.format(_names(opened, recorded)))
        yield note(SAID.format(", ".join(map(str, entries))))
    if destroyed - recorded:
        yield warning(UNSAID.format(withheld.without, _names(opened, destroyed - recorded)))
    if not recorded and not destroyed:
        yield note(coded(KEPT)) if isinstance(keys, OwnKeys) else note(NOT_HERE)


def _names(opened: OpenRun, whose: Collection[str]) -> str:
    names = [f"of {path}" for path in opened.classes if path in whose]
    return ", ".join([*names, *(["over several classes"] if JOINT in whose else [])])


DELETIONS = (
    Column(title="Class"),
    Column(title="Level"),
    Column(title="First influence", number=True),
    Column(title="Steps to replay", number=True),
    Column(title="Time", number=True),
)
WAYS = {"G2": "exact by structure", "G3": "exact by replay"}
NOTE = (
    "G2: its sealed region is dropped, and nothing is trained. G3: training goes on without it from the newest state "
    "that it had not moved. Times are forecasts of the whole command. "
)


def deletions_table(run: RunLedger) -> Iterator[Block]:
    """Yield a row for each class that the run did not leave out. Raises as `explorer.runlog.forecast` does."""
    presence = Presence(run)
    classes = [path for path in run.genesis.classes if path not in presence.absent.classes]
    forecasts = {path: forecast_of(presence, Target(classes=(path,))) for path in classes}
    rows = [Row(_cells(path, forecast), quiet=bool(forecast.obstacles)) for path, forecast in forecasts.items()]
    if rows:
        yield Table(DELETIONS, rows)
    yield note(coded(f"{NOTE}`explorer delete plan` says more."))
    for obstacle in sorted({obstacle for forecast in forecasts.values() for obstacle in forecast.obstacles}):
        yield Paragraph(f"Not possible here and now: {obstacle}", "warning")


def _cells(path: str, forecast: Forecast) -> tuple[Text, ...]:
    route, time = forecast.route, forecast.time
    interval = "" if time.low is None else f"{amounts.seconds(time.low)} to {amounts.seconds(time.high)}"
    return (
        path,
        with_note(route.level, WAYS[route.level]),
        "none" if forecast.reach.first is None else f"step {forecast.reach.first:,}",
        f"{route.steps:,}",
        with_note("not measured" if time.seconds is None else amounts.seconds(time.seconds), interval),
    )


CERTIFICATES = (
    Column(title="Target"),
    Column(title="Level"),
    Column(title="Verdict"),
    Column(title="Issued"),
    Column(title="Recorded"),
    Column(title="Still there", number=True),
)
SHOWN = 5  # paths
NONE = (
    "No certificate speaks of this run, below the directory of runs or in the project's ledger. A deletion without one "
    "has shown nothing; the lineage names the runs that deletions made. `explorer delete run` ends in a certificate."
)
WORD = (
    "Deleted is said only where every claim was derived again from both ledgers and held; the steps themselves are the "
    "trainer's word, until `explorer delete verify --counterfactual` has trained the run that never had the target. "
    "When it was issued, what it did not reach and what is to be destroyed are the signer's word. An entry of a ledger "
    "has no clock."
)


def certificate_blocks(opened: OpenRun, *, here: Path) -> Iterator[Block]:
    """Yield all of them, each with its content. Raises `LedgerError` for a project's ledger that is damaged."""
    listed = certificates(opened.ledger, trust=opened.trust, now=opened.now)
    if not listed.known:
        yield Paragraph(coded(NONE), "empty")
    else:
        yield Table(CERTIFICATES, [_row(certificate) for certificate in listed.known])
        yield note(coded(WORD))
    for path in listed.damaged:
        yield warning(f"No certificate: {path}")
    for certificate in listed.known:
        yield _details(certificate, here)


def verdict(each: KnownCertificate) -> str:
    """In words, what a certificate shows."""
    if each.verified is None:
        return "not checked" if each.path is None or each.fault == NO_TRUST else "not shown"
    return "\u2713 deleted" if each.deleted else "\u2717 not shown to be deleted"


def target(each: KnownCertificate) -> str:
    """What was to be deleted, by the certificate or else by the entry that names it."""
    if each.claimed is not None:
        return each.claimed.target.words
    assert each.deletion is not None  # one of the two has told of it
    if each.deletion.classes:
        return ", ".join(each.deletion.classes)
    vouched = ", ".join(each.deletion.authorities)
    return f"what {vouched} vouches for" if vouched else amounts.count(each.deletion.records, "record")


def _row(each: KnownCertificate) -> Row:
    claimed, deletion = each.claimed, each.deletion
    level = claimed.level if claimed is not None else deletion.level if deletion is not None else amounts.MISSING
    entry = "in no entry" if each.entry is None else f"entry {each.entry}"
    still = "not looked" if each.verified is None else f"{len(each.remaining):,}"
    return Row(
        cells=(
            with_note(named(target(each)), "this run had it" if each.side == "had" else "this run is without it"),
            level if each.deleted else with_note(level, "as it claims"),
            with_note(verdict(each), clipped(_why(each), 160)),
            amounts.MISSING if claimed is None else claimed.issued,
            entry,
            still,
        ),
        strong=each.deleted,
        quiet=each.path is None,
    )


def _why(each: KnownCertificate) -> str:
    if each.verified is None:
        return each.fault or ""
    failed = [check for check in each.verified.checks if check.outcome is not Outcome.HELD]
    if failed:
        return f"{failed[0].says}: {failed[0].outcome}: {failed[0].why}"
    return f"all {len(each.verified.checks)} claims held; signed by {', '.join(each.verified.signed_by)}"


def _details(certificate: KnownCertificate, here: Path) -> Fold:
    """Return all that a certificate contains, folded away."""
    blocks: list[Block] = [Paragraph((Span("SHA-256 of what was signed: "), Span(certificate.digest, "code")))]
    if certificate.claimed is not None and certificate.path is not None:
        value = certificate.claimed
        path = shlex.quote(Path(os.path.relpath(certificate.path, here)).as_posix())
        blocks += [
            Paragraph(MEANS[value.level]),
            Paragraph((Span("From "), *named(value.old.run), Span(", made "), *named(value.new.run), Span("."))),
            Code(f"explorer delete verify {path} --old RUN --new RUN --trust TRUST.json"),
        ]
    if certificate.verified is not None:
        blocks += _list("Checked here", [f"{check.outcome}: {check.says}" for check in certificate.verified.checks])
        blocks += _list("Said by the signer, not checked", certificate.verified.said)
    if certificate.remaining:
        rest = len(certificate.remaining) - SHOWN
        more = (f"and {rest:,} more",) if rest > 0 else ()
        blocks += _list("To be destroyed, and still there", (*certificate.remaining[:SHOWN], *more))
    return Fold(f"What the certificate {certificate.digest[:12]} says", blocks)


def _list(title: str, items: Sequence[str]) -> tuple[Block, Block]:
    return Paragraph(f"{title}:"), Bullets([isolated(item, 400) for item in items])


class DeletionSection(ReadSection):
    """Section on deletion."""

    key, title = "deletion", "Deletion"

    def blocks(self, opened: OpenRun) -> Iterator[Block]:
        return deletion_blocks(opened)
