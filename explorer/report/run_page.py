"""The governance report of a run as the neutral document that HTML, PDF and Markdown come from.

A section a function, in the order in which they are read; what a section shows is in `run_page_*.py`.
"""

import explorer
from explorer.provenance.times import format_time
from explorer.report.frameworks.mapping import mapped
from explorer.report.page import Block, Bullets, Heading, Page, Paragraph, Tone, sentence
from explorer.report.run_cite import Citations
from explorer.report.run_content import RunContent
from explorer.report.run_page_deletion import deletion
from explorer.report.run_page_forms import forms
from explorer.report.run_page_record import again, entries, entropy, integrity
from explorer.report.run_page_rules import policy, vouched
from explorer.report.run_page_training import taxonomy, training
from explorer.report.run_summary import LIMITS
from explorer.views.ledger.badge import SIGNS, Verdict

SIMULATED = (
    "Simulated provenance: this data has no real sources; the classes were cut for demonstration. Every figure below "
    "is about these made-up classes."
)

TONES: dict[Verdict, Tone] = {"verified": "good", "unchecked": "warning", "broken": "bad"}


def run_page(content: RunContent) -> Page:
    """The whole document. Raises `LedgerError` for entries that are damaged."""
    answers = mapped(content)
    cite = Citations(content, answers)
    return Page(
        title=f"Governance report of the run {content.run}{' (simulated provenance)' if content.simulated else ''}",
        subtitle=content.sentence,
        blocks=[
            *_head(content),
            *training(content, cite),
            *taxonomy(content, cite),
            *vouched(content, cite),
            *policy(content, cite),
            *entropy(content, cite),
            *deletion(content, cite),
            *integrity(content, cite),
            *again(content, cite),
            *forms(content, answers, cite),
            Heading(2, "What this record does not show", "limits"),
            Bullets(LIMITS),
            *entries(cite),
        ],
        facts=(
            ("Made", f"{format_time(content.made)} by Explorer {explorer.__version__}"),
            ("From", "the run's directory, and the ledger of its project where that is beside it"),
        ),
        made=content.made,
    )


def _head(content: RunContent) -> list[Block]:
    """What has to be known before anything else is read."""
    found: list[Block] = [Paragraph(SIMULATED, "warning")] if content.simulated else []
    words = content.integrity
    found.append(Paragraph(f"{SIGNS[words.verdict]} {words.title}.", TONES[words.verdict]))
    found.append(Paragraph(" ".join(map(sentence, words.sentences))))
    if words.findings:
        found.append(Bullets(words.findings, "bad"))
    if content.confidential:
        found.append(Paragraph(content.confidential, "warning"))
    return found
