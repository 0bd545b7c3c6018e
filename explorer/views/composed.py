"""How the methods of a setting compose: one question behind the explorer's panel, the command line and the report."""

from dataclasses import replace

from explorer.analysis.composing import composition
from explorer.analysis.composition import Composition
from explorer.views.question import Question
from explorer.views.settle import settle
from explorer.views.snapshot import Snapshot


def composed(snapshot: Snapshot, asked: Question, *, ssr: float | None = None) -> Composition:
    """The composition in the setting of a question, over all of its recipes: a recipe that is not chosen for the curves
    has been run all the same.

    Raises `AnalysisError` for a budget that was not run, `StoreError` if the database cannot be read any more.
    """
    settled = settle(snapshot, replace(asked, recipes=(), methods=()))
    schedules = snapshot.schedules(settled.question.sweep)
    return composition(settled.rows, schedules, baseline=settled.question.baseline, ssr=ssr)
