"""The section on lineage: what the run goes on from, what goes on from it, its model and what is said about that."""

from collections.abc import Iterator

from markupsafe import Markup

from explorer.release.family import MOST, Family, family
from explorer.release.relatives import Relative, Standing
from explorer.views import text
from explorer.views.ledger_graph import Arrow, Box, graph
from explorer.views.ledger_pane import heading, note, warning
from explorer.views.ledger_runs import OpenRun
from explorer.views.tables import Column, Row, named, table, with_note

COLUMNS = (
    Column(title="What"),
    Column(title="Name"),
    Column(title="Digest"),
    Column(title="Came of"),
    Column(title="Believed"),
)
STANDINGS: dict[Standing, str] = {
    "verified": "\u2713 verified",
    "here": "? here, not checked",
    "refused": "\u2717 not believed",
    "claimed": "\u2013 claimed only",
}
CAPTION = (
    "Older to the left. A solid line: the ledger that is named is here and has had the state that is named, or a "
    "signature that you believe ties the two. Dashed: only claimed, by who names it. What was done elsewhere and never "
    "recorded here is not in it."
)
GATES = "What a gate decided is on no record; a deployer who lets a model run says so in an observation."


def lineage_html(opened: OpenRun) -> Markup:
    """The graph, and a table that says the same. Raises as `explorer.release.family` does."""
    found = family(opened.ledger, trust=opened.trust, now=opened.now)
    said = Markup("").join(warning(each) for each in found.remarks)
    if found.left_out:
        said += warning(f"{text.count(len(found.relatives), 'relative')} are shown, at most {MOST}; more were met.")
    if len(found.relatives) == 1:
        said += note("It goes on from no other run, and nothing that is recorded here goes on from it.")
    return (
        heading("Lineage")
        + graph(_boxes(found), _arrows(found), words=_words(found))
        + note(f"{CAPTION} {GATES}")
        + said
        + table(COLUMNS, _rows(found))
    )


def _boxes(found: Family) -> list[Box]:
    return [
        Box(
            key=each.key,
            title=each.name,
            line=f"{_sign(each)} {each.what} {each.digest[:12] or 'without digest'}",
            hover=f"{each.what} {each.name}, digest {each.digest or 'not known'}: {each.why}",
            column=each.generation,
            claimed=each.standing == "claimed",
            bold=each.generation == 0,
        )
        for each in found.relatives
    ]


def _arrows(found: Family) -> list[Arrow]:
    return [
        Arrow(source=each.source, target=each.target, words=each.words, claimed=not each.certain) for each in found.ties
    ]


def _words(found: Family) -> str:
    kinds = [text.count(sum(each.what == what for each in found.relatives), what) for what in ("run", "model")]
    seen = text.count(sum(each.what == "observation" for each in found.relatives), "observation")
    return f"Lineage of the run: {', '.join(kinds)}, {seen}. The table below says the same."


def _rows(found: Family) -> Iterator[Row]:
    """The oldest first."""
    names = {each.key: each.name for each in found.relatives}
    for each in sorted(found.relatives, key=lambda one: one.generation):
        ties = [tie for tie in found.ties if tie.target == each.key]
        origins = [
            with_note(named(names[tie.source]), tie.words if tie.certain else f"{tie.words}: only claimed")
            for tie in ties
        ]
        yield Row(
            cells=(
                "this run" if each.generation == 0 else each.what,
                named(each.name),
                Markup('<code title="{}">{}</code>').format(each.digest, each.digest[:16] or text.MISSING),
                Markup("<br>").join(origins) if origins else text.MISSING,
                with_note(STANDINGS[each.standing], text.clipped(each.why, 200)),
            ),
            bold=each.generation == 0,
            quiet=each.standing == "claimed",
        )


def _sign(each: Relative) -> str:
    return STANDINGS[each.standing][0]
