"""The section on access: whose keys were wrapped for the run, who read it, and what, as the project's ledger has it."""

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

MOST = 100  # entries that are shown, the last ones
COLUMNS = (
    Column(title="Entry"),
    Column(title="What"),
    Column(title="Who"),
    Column(title="What the grant covers"),
    Column(title="What was asked for"),
)
ACTIONS = {"wrapped": "keys wrapped", "read": "read", "revoked": "grant revoked"}
NO_LEDGER = (
    "There is no project's ledger in %s: that keys were wrapped for anybody, or read with, is on no record here. "
    "Where a policy seals numbers, `explorer grant` puts into it whose keys of which run were handed over, each "
    "answered request with its grant and what was asked for, and each revocation."
)
NOTHING = "None of its entries is about this run: that keys of it were wrapped, or read with, is on no record here."
CAPTION = (
    "In the order in which they were recorded; an entry has no clock. It names grant and query by digest: who that is "
    "and what was asked for, the reader's signed request says, or the file of wrapped keys beside the run. An entry "
    "says that keys were handed over, not how often they were used; and whoever has the secrets of the run reads "
    "without a grant."
)


def access_blocks(opened: OpenRun) -> Iterator[Block]:
    """Yield the log. Raises `LedgerError` for a project's ledger that is damaged."""
    yield heading("Who may read it, and who did")
    runs = runs_of(opened.ledger.run)
    badge = project_badge(runs, trust=opened.trust, now=opened.now)
    if badge is None:
        yield Paragraph(coded(NO_LEDGER % (runs / AUDIT)), "empty")
        return
    log = access_log(opened.ledger, trust=opened.trust, now=opened.now)
    yield _standing(badge)
    for entry in log.unknown[:MOST]:
        yield warning(f"{entry} is of a version that is not known here, and may be about this run.")
    if not log.logged:
        yield Paragraph(NOTHING, "empty")
        return
    shown = log.logged[-MOST:]
    yield Table(COLUMNS, [_row(logged) for logged in shown])
    if rest := len(log.logged) - len(shown):
        yield note(f"and {rest:,} before these")
    yield note(coded(CAPTION))
    yield note("A proof shows somebody far away, who trusts the signer, that an entry is in the project's ledger:")
    yield Code(prove_commands(badge.directory, shown[-1].index, here=Path.cwd()))


def _standing(badge: ProjectBadge) -> Paragraph:
    size = f"{amounts.count(badge.size, 'entry', 'entries')} in {badge.directory}, root {badge.root[:16]}"
    if not badge.anchored:
        return note(f"The project's ledger: {size}. Not checked: name a trust file.")
    if badge.findings:
        return warning(f"The project's ledger: {size}. Not believed: {badge.findings[0]}")
    cosigned = f"; cosigned by {', '.join(badge.cosigned_by)}" if badge.cosigned_by else ""
    return note(f"The project's ledger: {size}. \u2713 Verified, signed by {', '.join(badge.signed_by)}{cosigned}.")


def _row(logged: Logged) -> Row:
    action = with_note(ACTIONS[logged.action], "" if logged.fits else "of another state than this ledger has ever had")
    return Row(
        cells=(str(logged.index), action, _who(logged), _covers(logged), _asked(logged)),
        quiet=logged.action == "revoked",
    )


def _who(logged: Logged) -> Text:
    digest = f"grant {logged.id} {logged.grant[:12]}" if logged.id else f"grant {logged.grant[:12]}"
    if logged.known is None:
        return with_note("not known here", f"{digest}: its file is not beside the run")
    standing = "holds today" if logged.known.believed else logged.known.why or "nobody was asked who signed it"
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
        return with_note("in no words here", f"query {logged.query[:12]}")
    asked = logged.asked
    classes = clipped(", ".join("numbers over several" if path == JOINT else path for path in asked.classes), 120)
    steps = f"{asked.kind} entries, steps {asked.steps.start:,} to {asked.steps.stop - 1:,}"
    return with_note(classes, f"{steps}; query {logged.query[:12]}")


class AccessSection(ReadSection):
    """Section on access."""

    key, title = "access", "Access log"

    def blocks(self, opened: OpenRun) -> Iterator[Block]:
        return access_blocks(opened)
