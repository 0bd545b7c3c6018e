"""The sections of a run's report about the record itself: profiles, integrity, replay, the entries."""

from explorer.audit.conditions import Contradiction
from explorer.report.page import (
    Block,
    Bullets,
    Code,
    Column,
    Facts,
    Heading,
    Paragraph,
    Picture,
    Row,
    Span,
    Table,
    sentence,
)
from explorer.report.run_cite import Citations
from explorer.report.run_content import RunContent
from explorer.report.run_depth import Measured
from explorer.report.run_page_training import inner
from explorer.views import text
from explorer.views.ledger import depth

DIGEST = 64  # digits
TOLD_WORDS = (
    "Told apart: balanced accuracy of a linear probe on probes that it was not fitted to, with a 95% interval; chance "
    "is what guessing gives. "
)


def entropy(content: RunContent, cite: Citations) -> list[Block]:
    """Classes told apart, chi and entropy by layer."""
    cited = (Span("Entropy profile "), cite(content.profiles)) if content.profiles else "Entropy profile"
    found: list[Block] = [Heading(2, cited, "entropy")]
    profiles = content.opened.profiles
    if depth.is_drawn(profiles):
        pictures = {
            "told_apart": "How far a linear probe tells the classes apart in the outputs",
            "chi": "How far the directions that the classes use differ in the outputs",
            "entropy": "The entropy of the outputs",
        }
        for measure in (each for each in pictures if depth.is_drawn(profiles, each)):
            found.append(
                Picture(
                    name=measure.replace("_", "-"),
                    draw=lambda width, measure=measure: depth.depth_profile(
                        profiles, measure=measure, width=inner(width, beside=100)
                    ),
                    description=f"{pictures[measure]} of each layer, the first and the last time that it was measured.",
                )
            )
        found.append(Paragraph(depth.CAPTION, "note"))
    elif content.profiles:
        sealed = "sealed, or " if content.confidential else ""
        found.append(
            Paragraph(f"Profiles were measured and are on record; their numbers are {sealed}not beside the ledger.")
        )
    else:
        found.append(Paragraph("No entropy profile is on record: the recipe measures none."))
    return [*found, _depth(content)] if content.depth else found


def integrity(content: RunContent, cite: Citations) -> list[Block]:
    """The ledger, the conditions of a conforming pipeline, and what the run was."""
    found: list[Block] = [Heading(2, (Span("Integrity "), cite(content.whole)), "integrity")]
    for each in content.conditions:
        looked = ", ".join(f"{number:,} {what}" for what, number in each.checked.items())
        notes = "".join(f" {note}." for note in each.notes)
        words = f"{each.outcome.capitalize()}: {each.says}.{f' Looked at: {looked}.' if looked else ''}"
        found += [Heading(4, each.name.capitalize()), Paragraph(f"{words}{notes}", "plain" if each.holds else "bad")]
        if each.contradictions:
            found.append(Bullets([_contradiction(one) for one in each.contradictions], "bad"))
        if each.more:
            found.append(Paragraph(f"And {each.more} more.", "bad"))
        if each.untold:
            found.append(Bullets([f"Not looked at: {one.message}" for one in each.untold], "bad"))
        if each.more_untold:
            found.append(Paragraph(f"And {each.more_untold} more not looked at.", "bad"))
    pairs = [(name, (Span(value, "code"),) if len(value) == DIGEST else value) for name, value in content.facts.items()]
    if content.end:
        pairs += [(name, (Span(f"{value} "), cite(content.end))) for name, value in content.metrics.items()]
    found += [Heading(3, (Span("The run "), cite(content.genesis))), Facts(pairs)]
    found += [Heading(3, "What the first entry binds beside the documents")]
    if content.pinned.environment:
        found.append(Facts(list(content.pinned.environment.items())))
    return [
        *found,
        *([Bullets([f"Not here: {each}" for each in content.pinned.absent])] if content.pinned.absent else []),
    ]


def again(content: RunContent, cite: Citations) -> list[Block]:
    """Commands, and what a replay can reach."""
    found = content.replay
    starts = ", ".join(f"{step:,}" for step in found.starts)
    words = [
        f"{text.count(found.states, 'state')} on record, each of parameters, buffers, optimiser and random numbers"
    ]
    words += [
        f"a replay can begin after {starts} steps" if starts else "no state is here that a replay could begin with"
    ]
    if found.covered < found.stop - found.begins:
        words.append(f"the last {found.stop - found.begins - found.covered:,} steps have no state behind them")
    words += ["whether one was made leaves no entry"]
    cited = (cite(content.states),) if content.states else ()
    return [
        Heading(2, "How to check it, and do it again", "again"),
        Code("\n".join(f"{command}\n    # {what}" for command, what in content.commands)),
        Heading(3, "What a replay can reach"),
        Paragraph((Span(f"{sentence('; '.join(words))} "), *cited)),
    ]


def entries(cite: Citations) -> list[Block]:
    """The list of entries."""
    found: list[Block] = [Heading(2, "Entries that the figures rest on", "entries")]
    if cite.unlisted:
        more = f"{cite.unlisted:,} more lie within the stretches that are named; "
        found.append(Paragraph((Span(more), Span("explorer ledger show", "code"), Span(" prints them."))))
    columns = (Column("Entry"), Column("Kind"), Column("Step", number=True), Column("Leaf hash"))
    rows = [
        Row(
            (
                str(each.index),
                each.kind,
                text.MISSING if each.step is None else f"{each.step:,}",
                (Span(each.leaf, "code"),),
            ),
            anchor=f"entry-{each.index}",
        )
        for each in cite.listed
    ]
    return [*found, Table(columns, rows)]


def _depth(content: RunContent) -> Table:
    """First and last time, over all classes."""
    centred = all(line.first.entropy_centred is not None for line in content.depth)
    told = any(line.last.told is not None for line in content.depth)
    columns = (
        Column("Layer"),
        *((Column("Told apart, first", number=True), Column("last", number=True), Column("p", number=True)) * told),
        Column("Chi, first", number=True),
        Column("last", number=True),
        Column("by chance", number=True),
        Column("p", number=True),
        Column("Entropy, first", number=True),
        Column("last", number=True),
    )
    rows = [
        Row(
            (
                line.layer,
                *((_told(line.first), _told(line.last), _chance(line.last.told_p_value)) if told else ()),
                _number(line.first.chi),
                _number(line.last.chi),
                _number(line.last.chi_null),
                _chance(line.last.p_value),
                _number(line.first.entropy_centred if centred else line.first.entropy),
                _number(line.last.entropy_centred if centred else line.last.entropy),
            )
        )
        for line in content.depth
    ]
    first, last = content.depth[0].first, content.depth[0].last
    caption = (
        f"Over all classes, {text.count(last.examples, 'probe')}: first after {first.step:,} steps, last after "
        f"{last.step:,}. {TOLD_WORDS if told else ''}Chi compares the directions that the classes use, in nats; 0 says "
        "that they are shared, not that the classes cannot be told apart. By chance: the mean over permuted labels; p: "
        "how often these come to as much. Entropy, in nats, is that of the outputs "
        f"{'less their mean' if centred else 'as they are, not centred'}. That classes can be told apart is no proof "
        "that training on them is why."
    )
    return Table(columns, rows, caption=caption)


def _told(measured: Measured) -> str:
    return text.MISSING if measured.told is None else measured.told.words


def _chance(value: float | None) -> str:
    """A p-value; one that is not zero does not look like it, and one that is looks like the others below."""
    return "below 0.001" if value is not None and value < 0.001 else _number(value)


def _number(value: float | None) -> str:
    return text.MISSING if value is None else f"{value:.3f}"


def _contradiction(one: Contradiction) -> str:
    where = "" if one.entry is None else f"entry {one.entry}: "
    held = "" if one.expected is None else f"; expected {one.expected}, found {one.found}"
    return f"{where}{one.message}{held}"
