"""The section on the course of training: the loss and the quality of a run while it trained."""

from functools import partial

from explorer.analysis.smoothing import SMOOTH
from explorer.audit.shares import is_confidential
from explorer.errors import ExplorerError
from explorer.page.document import Block, Heading, Paragraph, Picture, Span
from explorer.report.run.reported_run import ReportedRun
from explorer.report.run.shares_section import inner
from explorer.report.section import Section
from explorer.run_files import RunRecord
from explorer.rundir import METRICS
from explorer.schema import record
from explorer.store.learning_curves import curves_of_run
from explorer.views.explorer.curves_chart import LOSS, curves_chart, metric_named

CURVE = 3  # measurements that make a curve


@record
class CourseRecord:
    """Nothing of its own: the measurements are in the run."""


class CourseSection(Section[ReportedRun, CourseRecord]):
    """The course of training. A custom loop measures for itself, so its report has none."""

    record = CourseRecord

    def gather(self, run: ReportedRun) -> CourseRecord:
        return CourseRecord()

    def blocks(self, record: CourseRecord, run: ReportedRun) -> list[Block]:
        planned = run.pinned.record
        if planned is None:
            return []
        # Of a run with sealed numbers only the loss is drawn: a share on an axis could be taken for one of a class.
        names = (LOSS,) if is_confidential(run.ledger) else (LOSS, planned.quality)
        try:
            pictures = [_picture(run, planned, name) for name in names]
        except ExplorerError as error:
            pictures = []
            damaged: list[Block] = [Paragraph(str(error), "warning")]
        else:
            damaged = []
        drawn = [picture for picture in pictures if picture is not None]
        if not drawn and not damaged:
            return []
        where = (
            Span("Measured over all classes, in "),
            Span(METRICS, "code"),
            Span(": no entry of the ledger binds it."),
        )
        return [Heading(2, "Course of training", "course"), *damaged, *drawn, Paragraph(where, "note")]


def _picture(run: ReportedRun, planned: RunRecord, name: str) -> Picture | None:
    frame = curves_of_run(run.ledger.run, planned, name, points=200)
    if len(frame) < CURVE:
        return None
    kind = planned.metric(name) or metric_named(name)
    smooth = SMOOTH if name == LOSS else 0.0
    draw = partial(curves_chart, frame, metric=kind, mean=False, smooth=smooth, interactive=False, height=200)
    return Picture(
        name=f"course-{'loss' if name == LOSS else 'quality'}",
        draw=lambda width: draw(width=inner(width, margin=70)),
        description=str(draw(width=100).to_dict()["description"]),
    )
