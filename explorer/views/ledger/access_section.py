"""Section on access: wrapped keys, reads and revocations of a run, as the project's ledger records them."""

from collections.abc import Iterator
from pathlib import Path

from explorer.audit.badges import ProjectBadge, project_badge
from explorer.disclosure.access_log import Logged, access_log
from explorer.page import amounts
from explorer.page.document import Block, Code, Column, Paragraph, Row, Table, Text, clipped, with_note
from explorer.project import AUDIT, runs_of
from explorer.runlog.run_keys import JOINT
from explorer.views.ledger.drilldown import prove_commands
from explorer.views.ledger.open_run import OpenRun
from explorer.views.ledger.pane import ReadSection, coded, heading, note, warning
from explorer.views.notebook import named

MOST = 100  # entries; the last ones are shown
COLUMNS = (
    Column(title="Entry"),
    Column(title="Action"),
    Column(title="Reader"),
    Column(title="Granted"),
    Column(title="Requested"),
)
ACTIONS = {"wrapped": "keys wrapped", "read": "read", "revoked": "grant revoked"}
NO_LEDGER = (
    "There is no project's ledger in %s, so no access is on record here. Where a policy seals numbers, `explorer "
    "grant` records there the keys that were wrapped, each answered request with its grant and query, and each "
    "revocation."
)
NOTHING = "No entry of the project's ledger is about this run, so no access to it is on record here."
CAPTION = (
    "In the order of the entries, which carry no time. An entry names grant and query only by digest; reader and "
    "request come from the signed request, or from the file of wrapped keys in the run. An entry proves that keys "
    "were handed over, not how often they were used. A holder of the run's secrets needs no grant."
)


def access_blocks(opened: OpenRun) -> Iterator[Block]:
    """Yield the log. Raises `LedgerError` for a project's ledger that is damaged."""
    yield heading("Access granted and used")
    runs = runs_of(opened.ledger.run)
    badge = project_badge(runs, trust=opened.trust, now=opened.now)
    if badge is None:
        yield Paragraph(coded(NO_LEDGER % (runs / AUDIT)), "empty")
        return
    log = access_log(opened.ledger, trust=opened.trust, now=opened.now)
    yield _standing(badge)
    for entry in log.unknown[:MOST]:
        yield warning(f"{entry} has an unknown version, and may be about this run.")
    if not log.logged:
        yield Paragraph(NOTHING, "empty")
        return
    # The latest entries are shown: an auditor begins with the last access.
    shown = log.logged[-MOST:]
    yield Table(COLUMNS, [_row(logged) for logged in shown])
    if rest := len(log.logged) - len(shown):
        yield note(f"and {rest:,} before these")
    yield note(coded(CAPTION))
    yield note("A proof shows anyone who trusts the signer that an entry is in the project's ledger:")
    yield Code(prove_commands(badge.directory, shown[-1].index, here=Path.cwd()))


def _standing(badge: ProjectBadge) -> Paragraph:
    size = f"{amounts.count(badge.size, 'entry', 'entries')} in {badge.directory}, root {badge.root[:16]}"
    # Without a trust file any ledger agrees with itself, so it is not called verified.
    if not badge.anchored:
        return note(f"The project's ledger: {size}. Not verified: no trust file given.")
    if badge.findings:
        return warning(f"The project's ledger: {size}. Not trusted: {badge.findings[0]}")
    cosigned = f"; cosigned by {', '.join(badge.cosigned_by)}" if badge.cosigned_by else ""
    return note(f"The project's ledger: {size}. \u2713 Verified, signed by {', '.join(badge.signed_by)}{cosigned}.")


def _row(logged: Logged) -> Row:
    action = with_note(ACTIONS[logged.action], "" if logged.fits else "for a state that this ledger never had")
    return Row(
        cells=(str(logged.index), action, _who(logged), _covers(logged), _asked(logged)),
        quiet=logged.action == "revoked",
    )


def _who(logged: Logged) -> Text:
    digest = f"grant {logged.id} {logged.grant[:12]}" if logged.id else f"grant {logged.grant[:12]}"
    # The ledger holds only digests; names come from the grant's own file, which may be elsewhere.
    if logged.known is None:
        return with_note("unknown", f"{digest}: its file is not in the run")
    standing = "holds today" if logged.known.believed else logged.known.why or "its signature was not checked"
    return with_note(named(logged.known.grant.grantee.name), f"{digest}: {clipped(standing, 160)}")


def _covers(logged: Logged) -> Text:
    if logged.known is None:
        return amounts.MISSING
    grant = logged.known.grant
    words = clipped(", ".join(grant.classes), 120)
    return with_note(words, f"{', '.join(grant.entries)} entries, until {grant.expires}")


def _asked(logged: Logged) -> Text:
    if logged.query is None:
        return amounts.MISSING
    if logged.asked is None:
        return with_note("request not here", f"query {logged.query[:12]}")
    asked = logged.asked
    classes = clipped(", ".join("numbers over several" if path == JOINT else path for path in asked.classes), 120)
    steps = f"{asked.kind} entries, steps {asked.steps.start:,} to {asked.steps.stop - 1:,}"
    return with_note(classes, f"{steps}; query {logged.query[:12]}")


class AccessSection(ReadSection):
    """Section on access."""

    key, title = "access", "Access log"

    def blocks(self, opened: OpenRun) -> Iterator[Block]:
        return access_blocks(opened)
