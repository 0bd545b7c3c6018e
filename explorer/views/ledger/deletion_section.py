"""Section on deletion: the price of deleting each class, the certificates of deletions, and erased records."""

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

NOT_HERE = "No erasure is on record. The secrets are not here, so an unrecorded one cannot be ruled out."
ERASED = "Erased from the record, with their secrets: numbers {}. The model keeps what it learned."
RECORDED = "On record as entry {} of the project's ledger. The run can no longer be shown to conform."
UNRECORDED = "The secrets of these were destroyed, and {}: numbers {}. The run does not conform."
KEPT = "Every class still has the secret that opens its numbers: `explorer delete erase` has erased none of them."


def deletion_blocks(opened: OpenRun) -> Iterator[Block]:
    """Yield forecasts, certificates and erasures; a part that fails does not hide the others."""
    parts: dict[str, Callable[[], Iterator[Block]]] = {
        "Deletion of each class": lambda: deletions_table(opened.ledger),
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
    """Yield the numbers that can no longer be opened, and the record of their erasure. Raises `LedgerError` or
    `ProvenanceError` for secrets that cannot be used."""
    # Three cases: erased and recorded, destroyed without a record, which does not conform, and neither.
    keys, withheld = opened.ledger.keys, read_withheld(opened.ledger.ledger, trust=opened.trust, now=opened.now)
    destroyed = keys.erased if isinstance(keys, OwnKeys) else frozenset[str]()
    recorded = {*withheld.erased, JOINT} if withheld.erased else set[str]()
    if recorded:
        entries = sorted({index for indices in withheld.erased.values() for index in indices})
        yield note(ERASED.format(_names(opened, recorded)))
        yield note(RECORDED.format(", ".join(map(str, entries))))
    if destroyed - recorded:
        yield warning(UNRECORDED.format(withheld.without, _names(opened, destroyed - recorded)))
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
    "G2 drops the class's sealed region without training. G3 repeats training without the class, from the newest state "
    "that it had not influenced. Times are forecasts for the whole command. "
)


def deletions_table(run: RunLedger) -> Iterator[Block]:
    """Yield a row for each class that the run did not leave out. Raises as `explorer.runlog.forecast` does."""
    presence = Presence(run)
    classes = [path for path in run.genesis.classes if path not in presence.absent.classes]
    forecasts = {path: forecast_of(presence, Target(classes=(path,))) for path in classes}
    rows = [Row(_cells(path, forecast), quiet=bool(forecast.obstacles)) for path, forecast in forecasts.items()]
    if rows:
        yield Table(DELETIONS, rows)
    yield note(coded(f"{NOTE}`explorer delete plan` shows the details."))
    for obstacle in sorted({obstacle for forecast in forecasts.values() for obstacle in forecast.obstacles}):
        yield Paragraph(f"Not possible at the moment: {obstacle}", "warning")


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
    Column(title="Still present", number=True),
)
SHOWN = 5  # paths
NONE = (
    "No certificate about this run, in the directory of runs or in the project's ledger. A deletion without one is not "
    "shown; the lineage names the runs that deletions made. `explorer delete run` ends in a certificate."
)
MEANING = (
    "'Deleted' means that every claim was derived again from both ledgers and held. The steps themselves are only "
    "claimed by the trainer, until `explorer delete verify --counterfactual` trains the run that never had the target. "
    "The date of issue, the unreachable copies and the files to destroy are claims of the signer. Entries of a ledger "
    "carry no time."
)


def certificate_blocks(opened: OpenRun, *, here: Path) -> Iterator[Block]:
    """Yield the certificates with their content. Raises `LedgerError` for a project's ledger that is damaged."""
    listed = certificates(opened.ledger, trust=opened.trust, now=opened.now)
    if not listed.known:
        yield Paragraph(coded(NONE), "empty")
    else:
        yield Table(CERTIFICATES, [_row(certificate) for certificate in listed.known])
        yield note(coded(MEANING))
    for path in listed.damaged:
        yield warning(f"Not a certificate: {path}")
    for certificate in listed.known:
        yield _details(certificate, here)


def verdict(certificate: KnownCertificate) -> str:
    """Return the verdict on a certificate."""
    if certificate.verified is None:
        return "not checked" if certificate.path is None or certificate.fault == NO_TRUST else "not shown"
    return "\u2713 deleted" if certificate.deleted else "\u2717 deletion not shown"


def target(certificate: KnownCertificate) -> str:
    """Return the target of a deletion, from the certificate or else from the entry that names it."""
    if certificate.claimed is not None:
        return certificate.claimed.target.words
    assert certificate.deletion is not None  # a certificate is known from one of the two
    if certificate.deletion.classes:
        return ", ".join(certificate.deletion.classes)
    vouched = ", ".join(certificate.deletion.authorities)
    return f"data vouched for by {vouched}" if vouched else amounts.count(certificate.deletion.records, "record")


def _row(certificate: KnownCertificate) -> Row:
    claimed, deletion = certificate.claimed, certificate.deletion
    level = claimed.level if claimed is not None else deletion.level if deletion is not None else amounts.MISSING
    entry = "in no entry" if certificate.entry is None else f"entry {certificate.entry}"
    still = "not checked" if certificate.verified is None else f"{len(certificate.remaining):,}"
    return Row(
        cells=(
            with_note(named(target(certificate)), "in this run" if certificate.side == "had" else "not in this run"),
            level if certificate.deleted else with_note(level, "claimed"),
            with_note(verdict(certificate), clipped(_why(certificate), 160)),
            amounts.MISSING if claimed is None else claimed.issued,
            entry,
            still,
        ),
        strong=certificate.deleted,
        quiet=certificate.path is None,
    )


def _why(certificate: KnownCertificate) -> str:
    if certificate.verified is None:
        return certificate.fault or ""
    failed = [check for check in certificate.verified.checks if check.outcome is not Outcome.HELD]
    if failed:
        return f"{failed[0].says}: {failed[0].outcome}: {failed[0].why}"
    return f"all {len(certificate.verified.checks)} claims held; signed by {', '.join(certificate.verified.signed_by)}"


def _details(certificate: KnownCertificate, here: Path) -> Fold:
    """Return all that a certificate contains, folded away."""
    blocks: list[Block] = [Paragraph((Span("SHA-256 of the signed content: "), Span(certificate.digest, "code")))]
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
        blocks += _list("Stated by the signer, not checked", certificate.verified.said)
    if certificate.remaining:
        rest = len(certificate.remaining) - SHOWN
        more = (f"and {rest:,} more",) if rest > 0 else ()
        blocks += _list("To be destroyed, but still present", (*certificate.remaining[:SHOWN], *more))
    return Fold(f"Content of certificate {certificate.digest[:12]}", blocks)


def _list(title: str, items: Sequence[str]) -> tuple[Block, Block]:
    return Paragraph(f"{title}:"), Bullets([isolated(item, 400) for item in items])


class DeletionSection(ReadSection):
    """Section on deletion."""

    key, title = "deletion", "Deletion"

    def blocks(self, opened: OpenRun) -> Iterator[Block]:
        return deletion_blocks(opened)
