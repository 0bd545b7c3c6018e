"""The section on deletion: what deleting each class takes, which deletions are certified, what was erased."""

import os
import shlex
from collections.abc import Callable, Collection
from pathlib import Path

from markupsafe import Markup

from explorer.audit.withheld import read_withheld
from explorer.deletion.claims import Outcome
from explorer.deletion.finish import Found, certificates
from explorer.errors import ExplorerError
from explorer.page import amounts
from explorer.page.document import clipped
from explorer.provenance.deletion_certificate import MEANS
from explorer.runlog.forecast import Forecast, forecast_of
from explorer.runlog.influence import Presence
from explorer.runlog.run_keys import JOINT, OwnKeys
from explorer.runlog.run_ledger import RunLedger
from explorer.runlog.target import Target
from explorer.views.ledger.open_run import OpenRun
from explorer.views.ledger.pane import coded, heading, note, nothing, warning
from explorer.views.tables import Column, Row, named, table, with_note

NOT_HERE = "No erasure is on record. Whether a secret was destroyed all the same cannot be told: they are not here."
ERASED = "Erased from the record, with the secrets that opened them: numbers {}. The model has what it learned."
SAID = "On record as entry {} of the project's ledger. Whether the run conforms cannot be told from then on."
UNSAID = "The secrets of these were destroyed, and {}: numbers {}. The run does not conform."
KEPT = "Every class still has the secret that opens its numbers: `explorer delete erase` has erased none of them."


def deletion_html(opened: OpenRun) -> Markup:
    """Three parts; what one of them cannot say hides no other."""
    parts = [
        heading("What deleting each class takes"),
        _part(lambda: deletions_table(opened.ledger)),
        heading("Certificates"),
        _part(lambda: certificates_html(opened, here=Path.cwd())),
        heading("Erased from the record"),
        _part(lambda: erased_html(opened)),
    ]
    return Markup("").join(parts)


def erased_html(opened: OpenRun) -> Markup:
    """Whose numbers nobody can open any more, and what the project's ledger says of it. Raises `LedgerError` or
    `ProvenanceError` for secrets that cannot be used."""
    keys, said = opened.ledger.keys, read_withheld(opened.ledger.ledger, trust=opened.trust, now=opened.now)
    destroyed = keys.erased if isinstance(keys, OwnKeys) else frozenset[str]()
    named = {*said.erased, JOINT} if said.erased else set[str]()
    found = Markup("")
    if named:
        entries = sorted({index for each in said.erased.values() for index in each})
        found += note(ERASED.format(_names(opened, named)))
        found += note(SAID.format(", ".join(map(str, entries))))
    if destroyed - named:
        found += warning(UNSAID.format(said.without, _names(opened, destroyed - named)))
    if found:
        return found
    return note(coded(KEPT)) if isinstance(keys, OwnKeys) else note(NOT_HERE)


def _names(opened: OpenRun, whose: Collection[str]) -> str:
    names = [f"of {path}" for path in opened.classes if path in whose]
    return ", ".join([*names, *(["over several classes"] if JOINT in whose else [])])


def _part(write: Callable[[], Markup]) -> Markup:
    try:
        return write()
    except ExplorerError as error:
        return warning(str(error))


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


def deletions_table(run: RunLedger) -> Markup:
    """A row for each class that the run did not leave out. Raises as `explorer.runlog.forecast` does."""
    presence = Presence(run)
    classes = [path for path in run.genesis.classes if path not in presence.absent.classes]
    found = {path: forecast_of(presence, Target(classes=(path,))) for path in classes}
    obstacles = sorted({each for forecast in found.values() for each in forecast.obstacles})
    rows = [Row(cells=_cells(path, each), quiet=bool(each.obstacles)) for path, each in found.items()]
    said = [Markup('<p class="x-note">{}<code>explorer delete plan</code> says more.</p>').format(NOTE)]
    said += [Markup('<p class="x-note x-warn">Not possible here and now: {}</p>').format(each) for each in obstacles]
    return table(DELETIONS, rows) + Markup("").join(said)


def _cells(path: str, found: Forecast) -> tuple[str | Markup, ...]:
    route, time = found.route, found.time
    interval = "" if time.low is None else f"{amounts.seconds(time.low)} to {amounts.seconds(time.high)}"
    return (
        path,
        with_note(route.level, WAYS[route.level]),
        "none" if found.reach.first is None else f"step {found.reach.first:,}",
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


def certificates_html(opened: OpenRun, *, here: Path) -> Markup:
    """All of them, each with what it says. Raises `LedgerError` for a project's ledger that is damaged."""
    found = certificates(opened.ledger, trust=opened.trust, now=opened.now)
    damaged = Markup("").join(warning(f"No certificate: {each}") for each in found.damaged)
    if not found.found:
        return nothing(coded(NONE)) + damaged
    body = table(CERTIFICATES, [_row(each) for each in found.found])
    return body + note(WORD) + damaged + Markup("").join(_details(each, here) for each in found.found)


def verdict(each: Found) -> str:
    """In words, what a certificate shows."""
    if each.verified is None:
        return "not checked" if each.path is None or (each.fault or "").startswith("nobody") else "not shown"
    return "\u2713 deleted" if each.deleted else "\u2717 not shown to be deleted"


def target(each: Found) -> str:
    """What was to be deleted, by the certificate or else by the entry that names it."""
    if each.claimed is not None:
        return each.claimed.target.words
    assert each.deletion is not None  # one of the two has told of it
    if each.deletion.classes:
        return ", ".join(each.deletion.classes)
    vouched = ", ".join(each.deletion.authorities)
    return f"what {vouched} vouches for" if vouched else amounts.count(each.deletion.records, "record")


def _row(each: Found) -> Row:
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
        bold=each.deleted,
        quiet=each.path is None,
    )


def _why(each: Found) -> str:
    if each.verified is None:
        return each.fault or ""
    failed = [check for check in each.verified.checks if check.outcome is not Outcome.HELD]
    if failed:
        return f"{failed[0].says}: {failed[0].outcome}: {failed[0].why}"
    return f"all {len(each.verified.checks)} claims held; signed by {', '.join(each.verified.signed_by)}"


def _details(each: Found, here: Path) -> Markup:
    """All that one says, folded away."""
    lines = [Markup("<p>SHA-256 of what was signed: <code>{}</code></p>").format(each.digest)]
    if each.claimed is not None and each.path is not None:
        value = each.claimed
        lines.append(Markup("<p>{}</p>").format(MEANS[value.level]))
        lines.append(Markup("<p>From <bdi>{}</bdi>, made <bdi>{}</bdi>.</p>").format(value.old.run, value.new.run))
        path = shlex.quote(Path(os.path.relpath(each.path, here)).as_posix())
        command = f"explorer delete verify {path} --old RUN --new RUN --trust TRUST.json"
        lines.append(Markup('<pre class="x-said">{}</pre>').format(command))
    if each.verified is not None:
        claims = [f"{check.outcome}: {check.says}" for check in each.verified.checks]
        lines += [_list("Checked here", claims), _list("Said by the signer, not checked", each.verified.said)]
    if each.remaining:
        rest = len(each.remaining) - SHOWN
        more = (f"and {rest:,} more",) if rest > 0 else ()
        lines.append(_list("To be destroyed, and still there", (*each.remaining[:SHOWN], *more)))
    return Markup("<details><summary>What the certificate {} says</summary>{}</details>").format(
        each.digest[:12], Markup("").join(lines)
    )


def _list(title: str, items: "list[str] | tuple[str, ...]") -> Markup:
    listed = Markup("").join(Markup("<li><bdi>{}</bdi></li>").format(clipped(each, 400)) for each in items)
    return Markup("<p>{}:</p><ul>{}</ul>").format(title, listed)
