"""How the methods of a setting compose: one question behind the explorer's panel, the command line and the report."""

from dataclasses import replace

from explorer.analysis.composing import composition
from explorer.analysis.composition import Composition
from explorer.views.answer import rows_of
from explorer.views.question import Question, settle
from explorer.views.snapshot import Snapshot


def composed(snapshot: Snapshot, asked: Question, *, ssr: float | None = None) -> Composition:
    """The composition in the setting of a question, over all of its recipes: a recipe that is not chosen for the curves
    has been run all the same.

    Raises `AnalysisError` for a budget that was not run, `StoreError` if the database cannot be read any more.
    """
    settled = settle(snapshot.results, replace(asked, recipes=()), metrics=snapshot.metrics)
    rows = rows_of(snapshot, settled)
    return composition(rows, snapshot.schedules, baseline=settled.question.baseline, ssr=ssr)
