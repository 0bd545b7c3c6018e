"""The section on tuning: what was chosen for each recipe, what that took, and speedups that include it."""

from explorer.page.document import Block, Heading
from explorer.report.section import Section
from explorer.report.sweep.reported_sweep import ReportedSweep
from explorer.schema import record
from explorer.search.tuning_worth import worth
from explorer.sweep.tuned import TunedRecord
from explorer.views.explorer.tabs.tuning_chart import tuning_blocks


@record
class TuningRecord:
    """The tuning of the recipes."""

    tuning: TunedRecord | None = None  # None: the sweep tuned nothing by itself


class TunedSection(Section[ReportedSweep, TuningRecord]):
    """The tuning of the recipes, where the sweep did it."""

    record = TuningRecord

    def gather(self, sweep: ReportedSweep) -> TuningRecord:
        return TuningRecord(tuning=sweep.snapshot.tuned(sweep.name))

    def blocks(self, record: TuningRecord, sweep: ReportedSweep) -> list[Block]:
        tuned = record.tuning
        if tuned is None or not sweep.metrics:
            return []
        answer = sweep.metrics[0].answer
        worths = worth(tuned, answer.settled.rows, answer.comparisons)
        return [Heading(2, "What tuning took", "tuning"), *tuning_blocks(tuned, worths, answer.look)]
