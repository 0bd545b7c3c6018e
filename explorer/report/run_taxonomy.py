"""The taxonomy of a run: the tree of classes with what each means, and how many tagged records each has."""

from collections.abc import Mapping
from dataclasses import dataclass

from explorer.provenance.taxonomy import Source, Taxonomy

SOURCES: dict[Source, str] = {
    Source.PUBLIC: "publicly available datasets",
    Source.LICENSED: "private data, licensed from who holds the rights",
    Source.THIRD_PARTY: "private data from others, not licensed commercially",
    Source.CRAWLED: "crawled from the web",
    Source.USER: "from users of the provider's services",
    Source.SYNTHETIC: "made by models or programs",
    Source.OTHER: "other sources",
}
"""The regulator's categories in our words."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TaxonomyLine:
    """A class in the tree."""

    path: str
    depth: int  # 0: a root
    definition: str
    personal_data: bool  # whether it may hold any
    source: Source
    records: int | None  # of the tag table; None: the tags are not believed
    in_run: bool  # whether it is one of the run's classes


def taxonomy_lines(
    taxonomy: Taxonomy, *, classes: tuple[str, ...], tagged: Mapping[str, int] | None
) -> tuple[TaxonomyLine, ...]:
    """All classes, each behind the one that it lies below."""
    return tuple(
        TaxonomyLine(
            path=each.path,
            depth=each.path.count("/"),
            definition=each.definition,
            personal_data=each.personal_data,
            source=each.source,
            records=None if tagged is None else tagged.get(each.path, 0),
            in_run=each.path in classes,
        )
        for each in sorted(taxonomy.classes, key=lambda each: each.path.split("/"))
    )
