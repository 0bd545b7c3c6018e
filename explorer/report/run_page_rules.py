"""The sections of a run's report about who said what: documents with their signers, keys, the policy, decisions."""

from explorer.report.page import Block, Bullets, Column, Facts, Heading, Paragraph, Picture, Row, Span, Table, sentence
from explorer.report.run_channels import UNRECORDED
from explorer.report.run_cite import Citations
from explorer.report.run_content import RunContent
from explorer.report.run_keys import KeyLine
from explorer.report.run_page_training import inner
from explorer.report.run_policy import PhaseTable
from explorer.report.run_vouchers import VoucherLine
from explorer.views import text
from explorer.views.ledger import timeline

MOST_DECISIONS = 40


def vouched(content: RunContent, cite: Citations) -> list[Block]:
    """Who vouched."""
    found: list[Block] = [Heading(2, "Who vouched", "who")]
    if content.vouched:
        found.append(Paragraph(f"The documents of this run are not believed: {content.vouched}", "warning"))
    for line in content.vouchers:
        found += _voucher(line, cite)
    if content.description:
        pairs = [(name, said) for name, said in _description(content) if said]
        found += [Heading(3, "The dataset, as its attestation describes it"), Facts(pairs)]
    if content.keys:
        found += [
            Heading(3, "Whom the run believed"),
            Paragraph(
                (Span(f"By its trust file it takes, for {'; for '.join(content.quorum)}. "), cite(content.genesis))
            ),
            _keys(content.keys),
        ]
    if content.keys_since:
        found += [
            Paragraph("The trust file that this report was made with says otherwise of these keys:"),
            _keys(content.keys_since),
        ]
    return found


def policy(content: RunContent, cite: Citations) -> list[Block]:
    """Policy and decisions, and the ways beside them."""
    found: list[Block] = [Heading(2, "Policy and decisions", "policy")]
    if content.policy:
        words = content.policy
        found += [
            Paragraph(
                f"{words.name}: rules are read from the top, the first that matches decides, and where none matches "
                "the weight is 0. 0 and 1 are guarantees; a fraction (~) is attenuation and guarantees nothing. In "
                f"this run {words.quarantine}."
            ),
            Bullets(words.rules, numbered=True),
        ]
        found += [Paragraph(sentence(words.confidential))] if words.confidential else []
        found += [Bullets(words.regions)] if words.regions else []
        for phase in words.phases:
            found += _phase(content, phase, cite)
    elif not content.vouched:
        found.append(Paragraph("The run had no policy: everything might train everything."))
    found.append(Heading(3, "Decisions of the run"))
    found += _decisions(content, cite) or [Paragraph("The run decided nothing by itself: no decision is on record.")]
    return [*found, *_channels(content, cite)]


def _voucher(line: VoucherLine, cite: Citations) -> list[Block]:
    counts = "; ".join(f"{path}: {text.count(number, 'record')}" for path, number in line.counts.items())
    signed = "; ".join(line.signed_by) or "nobody who is believed"
    pairs = [("Signed by", signed), *([("Tags", counts)] if counts else [])]
    found: list[Block] = [
        Heading(3, (Span(f"{line.what.capitalize()}: {line.name} "), cite(line.reference))),
        Facts([*pairs, ("Digest", (Span(f"sha256:{line.digest}", "code"),))]),
    ]
    if line.doubts:
        found.append(Bullets([f"Not believed, and never trained on: {words}" for words in line.doubts], "warning"))
    return found


def _description(content: RunContent) -> list[tuple[str, str]]:
    """The 22 fields, under the names that they have there; what it leaves out is not listed."""
    assert content.description
    answers = []
    for name in type(content.description).__dataclass_fields__:
        value = getattr(content.description, name)
        first = getattr(value, "first", None)
        said = f"{first} to {value.last}" if first else "" if value is None else str(value)
        answers.append((name.replace("_", " "), {"True": "yes", "False": "no"}.get(said, said)))
    return answers


def _keys(lines: tuple[KeyLine, ...]) -> Table:
    columns = (Column("Authority"), Column("Role"), Column("Key"), Column("Valid"), Column("Taken back"))
    rows = [
        Row(
            (
                line.authority,
                line.role,
                (
                    Span(line.key[:16], "code"),
                    *([Span("took over from an older key", "small")] if line.rotated else []),
                ),
                f"{line.not_before} to {line.not_after}",
                line.revoked or "no",
            )
        )
        for line in lines
    ]
    return Table(columns, rows)


def _phase(content: RunContent, phase: PhaseTable, cite: Citations) -> list[Block]:
    """The weights of a phase: a row for each class, neighbouring layers that are treated alike in one column."""
    spans = f"steps {phase.first:,} to {phase.stop - 1:,}"
    columns = [Column("Class")]
    columns += [
        Column(each.first if each.first == each.last else f"{each.first} to {each.last}") for each in phase.columns
    ]
    rows = [Row((line.path, *(each.weights[at] for each in phase.columns))) for at, line in enumerate(content.classes)]
    heading = (Span(f"Weights in force, {spans}: {phase.phase or 'all steps'} "), cite(phase.reference))
    return [Heading(3, heading), Table(columns, rows)]


def _decisions(content: RunContent, cite: Citations) -> list[Block]:
    if not content.decisions:
        return []
    opened, shown = content.opened, content.decisions[-MOST_DECISIONS:]
    left = len(content.decisions) - len(shown)
    columns = (Column("Entry"), Column("Step", number=True), Column("Decision"), Column("About"), Column("Decided by"))
    rows = [
        Row(
            (
                (cite(each.reference),),
                f"{each.step:,}",
                f"{each.action}, undone by a re-execution" if each.superseded else each.action,
                each.about,
                each.decided_by,
            ),
            quiet=each.superseded,
        )
        for each in shown
    ]
    return [
        Picture(
            name="time",
            draw=lambda width: timeline.timeline(
                opened.decisions,
                phases=opened.recorded.phases,
                steps=len(opened.recorded),
                width=inner(width, beside=100),
            ),
            caption=timeline.CAPTION,
            description=f"{len(content.decisions)} decisions over {len(opened.recorded)} steps.",
        ),
        Table(columns, rows, caption=f"And {left} before these: the JSON report has all." if left else ""),
    ]


def _channels(content: RunContent, cite: Citations) -> list[Block]:
    """Ways from one class to another that no layer shows."""
    listed = [(Span(f"{sentence(f'{each.where}: {each.words}')} "), cite(each.reference)) for each in content.channels]
    return [
        Heading(3, "Ways from one class to another besides a layer", "channels"),
        Bullets(listed) if listed else Paragraph("None is on record."),
        Paragraph(f"On no record, whether there were any: {'; '.join(UNRECORDED)}.", "note"),
    ]
