"""The section on learning curves: what the recipes measured while they trained."""

from functools import partial

from explorer.analysis.ladders import SEARCHED, searched
from explorer.analysis.smoothing import SMOOTH
from explorer.page.document import Block, Heading, Paragraph
from explorer.page.pictures import picture
from explorer.report.section import Section
from explorer.report.sweep.reported_sweep import ReportedSweep
from explorer.schema import record
from explorer.store.learning_curves import MOST_RUNS, ROWS, learning_curves, recorded_metrics
from explorer.views.explorer.curves_chart import LOSS, curves_chart, look_of, metric_named

CURVE = 3  # measurements of a run that make a curve
MEANS = "Means over the seeds of each recipe at its full budget"
BANDS = "; bands are 95% t intervals at each place, and end where the shortest of the runs ends"


@record
class LearningRecord:
    """Nothing of its own: the measurements are in the runs."""


class LearningSection(Section[ReportedSweep, LearningRecord]):
    """Learning curves of the recipes at their full budget."""

    record = LearningRecord

    def gather(self, sweep: ReportedSweep) -> LearningRecord:
        return LearningRecord()

    def blocks(self, record: LearningRecord, sweep: ReportedSweep) -> list[Block]:
        if not sweep.metrics:
            return []
        results = sweep.results
        full = results[results["ssr"] == results["ssr"].max()].drop_duplicates("directory")
        # The first seeds of every recipe, where there are more runs than a chart can hold.
        first = full.loc[full.groupby("recipe").cumcount().sort_values(kind="stable").index[:MOST_RUNS]]
        pictures = [block for name in _names(sweep) if (block := _picture(sweep, name, list(first["directory"])))]
        if not pictures:
            return []
        said = f"{MEANS}{f'; {SEARCHED}' if searched(results).any() else BANDS}."
        return [Heading(2, "How the recipes learned", "learning"), *pictures, Paragraph(said, "note")]


def _names(sweep: ReportedSweep) -> list[str]:
    """Return the metrics to draw: the training loss, and the quality that runs are judged by."""
    known = recorded_metrics(sweep.snapshot.database, sweep.name)
    return [name for name in (LOSS, sweep.metrics[0].metric) if name in known]


def _picture(sweep: ReportedSweep, name: str, directories: list[str]) -> Block | None:
    """Return the picture of a metric; None if no run measured it often enough."""
    points = max(1, min(200, ROWS // max(1, len(directories))))
    frame = learning_curves(sweep.snapshot.database, name, directories=directories, points=points)
    if frame.empty or frame["directory"].value_counts().max() < CURVE:
        return None
    is_loss = name == LOSS
    kind = metric_named(name, of=frame) if is_loss else sweep.metrics[0].kind
    smooth = SMOOTH if is_loss else 0.0
    draw = partial(curves_chart, frame, metric=kind, smooth=smooth, look=look_of(frame), interactive=False)
    return picture("learning-loss" if is_loss else "learning-quality", draw)
