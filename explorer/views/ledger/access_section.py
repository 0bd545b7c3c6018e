"""The section on access: whose keys were wrapped for the run, who read it, and what, as the project's ledger has it."""

from pathlib import Path

from markupsafe import Markup

from explorer.audit.badges import ProjectBadge, project_badge
from explorer.disclosure.access_log import AccessLog, Logged, access_log
from explorer.page import amounts
from explorer.page.document import clipped
from explorer.project import AUDIT, runs_of
from explorer.runlog.run_keys import JOINT
from explorer.views.ledger.drilldown import prove_commands
from explorer.views.ledger.open_run import OpenRun
from explorer.views.ledger.pane import coded, heading, note, nothing, warning
from explorer.views.tables import Column, Row, named, table, with_note

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


def access_html(opened: OpenRun) -> Markup:
    """The log. Raises `LedgerError` for a project's ledger that is damaged."""
    runs = runs_of(opened.ledger.run)
    badge = project_badge(runs, trust=opened.trust, now=opened.now)
    title = heading("Who may read it, and who did")
    if badge is None:
        return title + nothing(coded(NO_LEDGER) % (runs / AUDIT))
    found = access_log(opened.ledger, trust=opened.trust, now=opened.now)
    return title + _standing(badge) + _unknown(found) + _log(found, badge)


def _log(found: AccessLog, badge: ProjectBadge) -> Markup:
    if not found.logged:
        return nothing(NOTHING)
    shown = found.logged[-MOST:]
    rest = len(found.logged) - len(shown)
    before = note(f"and {rest:,} before these") if rest else Markup("")
    commands = prove_commands(badge.directory, shown[-1].index, here=Path.cwd())
    words = note("A proof shows somebody far away, who trusts the signer, that an entry is in the project's ledger:")
    proof = Markup('<pre class="x-said">{}</pre>').format(commands)
    return table(COLUMNS, [_row(each) for each in shown]) + before + note(coded(CAPTION)) + words + proof


def _standing(badge: ProjectBadge) -> Markup:
    size = f"{amounts.count(badge.size, 'entry', 'entries')} in {badge.directory}, root {badge.root[:16]}"
    if not badge.anchored:
        return note(f"The project's ledger: {size}. Not checked: name a trust file.")
    if badge.findings:
        return warning(f"The project's ledger: {size}. Not believed: {badge.findings[0]}")
    cosigned = f"; cosigned by {', '.join(badge.cosigned_by)}" if badge.cosigned_by else ""
    return note(f"The project's ledger: {size}. \u2713 Verified, signed by {', '.join(badge.signed_by)}{cosigned}.")


def _unknown(found: AccessLog) -> Markup:
    words = "is of a version that is not known here, and may be about this run"
    return Markup("").join(warning(f"{each} {words}.") for each in found.unknown[:MOST])


def _row(each: Logged) -> Row:
    action = with_note(ACTIONS[each.action], "" if each.fits else "of another state than this ledger has ever had")
    return Row(
        cells=(str(each.index), action, _who(each), _covers(each), _asked(each)),
        quiet=each.action == "revoked",
    )


def _who(each: Logged) -> Markup:
    digest = f"grant {each.id} {each.grant[:12]}" if each.id else f"grant {each.grant[:12]}"
    if each.known is None:
        return with_note("not known here", f"{digest}: its file is not beside the run")
    standing = "holds today" if each.known.believed else each.known.why or "nobody was asked who signed it"
    return with_note(named(each.known.grant.grantee.name), f"{digest}: {clipped(standing, 160)}")


def _covers(each: Logged) -> str | Markup:
    if each.known is None:
        return amounts.MISSING
    grant = each.known.grant
    words = clipped(", ".join(grant.classes), 120)
    return with_note(words, f"{', '.join(grant.entries)} entries, until {grant.expires}")


def _asked(each: Logged) -> str | Markup:
    if each.query is None:
        return amounts.MISSING
    if each.asked is None:
        return with_note("in no words here", f"query {each.query[:12]}")
    asked = each.asked
    classes = clipped(", ".join("numbers over several" if path == JOINT else path for path in asked.classes), 120)
    steps = f"{asked.kind} entries, steps {asked.steps.start:,} to {asked.steps.stop - 1:,}"
    return with_note(classes, f"{steps}; query {each.query[:12]}")
