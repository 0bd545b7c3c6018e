"""How a run's report leads from a figure to the entries behind it: links to the list of entries at its end."""

from collections.abc import Iterable, Sequence

from explorer.report.frameworks.answers import Answer, Mapped
from explorer.report.page import Span
from explorer.report.run_content import RunContent, references_of
from explorer.report.run_references import Document, ListedEntry, Reference, list_entries

SHOWN = 16  # digits of a digest in a citation; the whole of it stands under "Who vouched" or "The run"


class Citations:
    """The entries that a report lists, and links to them."""

    listed: tuple[ListedEntry, ...]
    unlisted: int  # entries that are referred to and left out of the list

    def __init__(self, content: RunContent, answers: Sequence[Mapped]) -> None:
        """Raises `LedgerError` for entries that are damaged."""
        references = [*references_of(content), *references_in(answers)]
        self.listed, self.unlisted = list_entries(content.opened.ledger, references)
        self._indices = {each.index for each in self.listed}

    def __call__(self, reference: Reference) -> Span:
        """A link to the first of the entries; those of the project's ledger are not listed here."""
        if reference.of == "project":
            return Span(str(reference))
        assert reference.first in self._indices, f"{reference} is cited and not listed"
        return Span(str(reference), "link", f"#entry-{reference.first}")

    def all(self, references: Iterable[Reference], documents: Iterable[Document] = ()) -> tuple[Span, ...]:
        """Several, with the documents beneath."""
        found: list[Span] = []
        for each in references:
            found += [Span(", "), self(each)] if found else [self(each)]
        return (*found, *(Span(f"{each.what} {each.digest[:SHOWN]}", "small") for each in documents))


def references_in(answers: Sequence[Mapped]) -> Iterable[Reference]:
    """What the answers rest on."""
    for each in answers:
        for answered in each.answers:
            if isinstance(answered.answer, Answer):
                yield from answered.answer.references
