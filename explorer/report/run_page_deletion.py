"""The section of a run's report about deletion: what the structure allows, what was done, what was said since."""

from explorer.provenance.deletion_certificate import MEANS, NEVER_HAD
from explorer.report.page import Block, Bullets, Column, Facts, Heading, Paragraph, Row, Span, Table
from explorer.report.run_certificates import Certified
from explorer.report.run_cite import Citations
from explorer.report.run_content import RunContent
from explorer.report.run_history import DeletionLine
from explorer.views import text


def deletion(content: RunContent, cite: Citations) -> list[Block]:
    """What the structure allows, and what was done."""
    columns = (Column("Class"), Column("Level"), Column("What the structure allows"), Column("From"))
    rows = [
        Row((line.path, line.deletable.level or text.MISSING, line.deletable.words, (cite(line.reference),)))
        for line in content.classes
    ]
    return [
        Heading(2, "Deletion", "deletion"),
        Paragraph(
            (
                Span(f"G2 is exact by structure. {MEANS['G2']} G3 is exact by replay. {MEANS['G3']} With "),
                Span("explorer delete verify --counterfactual", "code"),
                Span(
                    f" of either: {NEVER_HAD[0].lower()}{NEVER_HAD[1:]} What it takes here and now, in time and money"
                    " too, "
                ),
                Span("explorer delete plan", "code"),
                Span(" says."),
            )
        ),
        Table(columns, rows),
        Heading(3, "Deletions that were made"),
        *_made(content, cite),
        Heading(3, "Observations, grants and reads"),
        *_afterwards(content, cite),
    ]


def _made(content: RunContent, cite: Citations) -> list[Block]:
    history, found = content.history, list[Block]()
    for line in history.deletions:
        certified = line.certificate
        found += [Heading(4, f"{line.level}: {line.target}"), Facts(_deletion(line, certified, cite))]
        if certified:
            found += [Paragraph("Not reached, as the signer says:"), Bullets(certified.not_reached)]
    if not history.deletions and not history.unknown:
        found.append(Paragraph("None from this run is on the project's record."))
    if history.unknown:
        words = f"Here is not known what was deleted; it would stand in {history.unknown}."
        found.append(Paragraph(words, "bad" if history.fault else "note"))
    else:
        found.append(
            Paragraph(
                f"The project's ledger, {text.count(history.entries, 'entry', 'entries')}: {history.judged}.", "note"
            )
        )
    if history.unbelieved:
        found.append(Bullets([f"A certificate that is not believed: {each}" for each in history.unbelieved], "warning"))
    return found


def _deletion(
    line: DeletionLine, certified: Certified | None, cite: Citations
) -> list[tuple[str, str | tuple[Span, ...]]]:
    pairs: list[tuple[str, str | tuple[Span, ...]]] = [
        ("This run", "is what came out of it" if line.is_result else "had the target"),
        ("The other run", line.other or text.MISSING),
        ("On record in", (cite(line.reference),) if line.reference else "no project's ledger that is here"),
    ]
    if certified is None:
        named = f"sha256:{line.digest}, which is not here or not believed" if line.digest else "none"
        return [*pairs, ("Certificate", named)]
    destroy = ", ".join(f"{number} {what}" for what, number in certified.to_destroy.items())
    return [
        *pairs,
        ("Means", certified.means),
        ("Certificate", (Span(f"sha256:{certified.digest}", "code"),)),
        ("Signed by", ", ".join(certified.signed_by)),
        ("Issued, by its signer's word", f"{certified.issued}, until {certified.expires}"),
        ("Request", "none is named" if certified.request is None else f"commitment {certified.request}"),
        ("New model", (Span(f"sha256:{certified.model}", "code"),)),
        ("To be destroyed, as the signer lists", destroy or "nothing"),
    ]


def _afterwards(content: RunContent, cite: Citations) -> list[Block]:
    history = content.history
    if history.unknown:
        return [Paragraph(f"Not known here; they would stand in {history.unknown}.", "note")]
    listed = [
        (
            Span(f"{each.role}, statement {each.statement[:16]}, admits {each.admitted or 'no class by name'} "),
            cite(each.reference),
        )
        for each in history.observations
    ]
    grants = f"{text.count(history.grants, 'time')} that keys were granted or taken back"
    words = f"{grants}, {text.count(history.reads, 'read')} through a grant"
    cited = (Span(f"{words}. "), cite(history.disclosed)) if history.disclosed else "Nobody was granted keys of it."
    return [Bullets(listed) if listed else Paragraph("No observation of the model is on record."), Paragraph(cited)]
