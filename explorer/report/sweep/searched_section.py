"""The section on a search: the winner, what it took, how it came about, and the command that would make a claim."""

from explorer.page.document import Block, Heading
from explorer.report.section import Section
from explorer.report.sweep.reported_sweep import ReportedSweep
from explorer.schema import record
from explorer.search.search_answer import Answer
from explorer.views.explorer.tabs.search_chart import search_blocks, searched


@record
class SearchRecord:
    """The search that chose the runs."""

    search: Answer | None = None  # None: no search chose them


class SearchedSection(Section[ReportedSweep, SearchRecord]):
    """The search that chose the runs, where one did."""

    record = SearchRecord

    def gather(self, sweep: ReportedSweep) -> SearchRecord:
        return SearchRecord(search=searched(sweep.runs, sweep.name))

    def blocks(self, record: SearchRecord, sweep: ReportedSweep) -> list[Block]:
        if record.search is None:
            return []
        return [Heading(2, "What the search found", "search"), *search_blocks(record.search)]
