"""View that a person names, in a token, by options or in code: what the results lack is refused, with the nearest name.

On the screen `choices.settle` puts another choice in the place of one that cannot be: the results may have changed
since a question was asked. Before the screen is there, a mistyped name would only be lost.
"""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from explorer.errors import AnalysisError, unknown
from explorer.page import amounts
from explorer.run_files import metric_of
from explorer.store.upkeep import bring_up
from explorer.views.explorer.choices import settle
from explorer.views.explorer.payments import PAYMENTS
from explorer.views.explorer.question import ALL, WHERE, Question, X, changed, composed, from_token
from explorer.views.explorer.snapshot import Snapshot, read_snapshot

# Fields with what is offered for them, in the order in which they narrow the results.
_OFFERED = {
    "dataset": "datasets",
    "model": "models",
    "sweep": "sweeps",
    "hardware": "hardware",
    "metric": "metrics",
    "baseline_sweep": "baseline_sweeps",
    "seeds": "seeds",
    "sources": "sources",
    "cloud": "clouds",
    "recipes": "recipes",
    "baseline": "baselines",
    "methods": "methods",
    "payment": "payments",
    "deletion_of": "deletions",
    "size": "sizes",
    "split": "splits",
    "compare": "compare",
    "baseline_hardware": "baseline_hardware",
    "versus": "recipes",
}
_NOUNS = {"recipes": "recipe", "seeds": "seed", "sources": "source", "methods": "method", "versus": "recipe"}


def view_by_options(runs: Path, view: str | None, sweep: str | None, written: Mapping[str, str]) -> str:
    """Return the token of a view in which options have the place of single fields.

    Raises `AnalysisError` for what `from_token` refuses, and for what the results lack.
    """
    token = composed(view, sweep, dict(written))
    refuse_unknown(runs, from_token(token), target=written.get("target"))
    return token


def view_by_fields(runs: Path, view: str | None, fields: Mapping[str, object]) -> Question:
    """Return a view with other fields, by their names here or in a token, after the same checks."""
    wished = dict(fields)
    target = wished.pop("target", None)
    question = changed(from_token(view) if view else Question(), wished)
    if target is not None:
        # The metric decides what a target may be, so it is read as a text, as an option's is.
        text = amounts.as_typed(target)
        question = replace(question, target=amounts.read_quality("target", text))
        refuse_unknown(runs, question, target=text)
    else:
        refuse_unknown(runs, question)
    return question


def refuse_unknown(runs: Path, asked: Question, *, target: str | None = None) -> None:
    """Raise `AnalysisError` for a field that the results of a directory cannot have; `target` is it as it was written.

    Without any results nothing is refused: the page says why it is empty. Raises `StoreError` for a damaged database.
    """
    if not runs.is_dir():
        return
    bring_up(runs)
    results = read_snapshot(runs)
    if results.facets.empty:
        return
    sweeps = [str(name) for name in results.facets["sweep"].unique()]
    if asked.sweep not in ("", ALL, *sweeps):
        raise AnalysisError(_no_sweep(results, asked.sweep, sweeps))
    settled = settle(results, asked)
    for field, choices in _OFFERED.items():
        wished, offered = getattr(asked, field), getattr(settled.choices, choices)
        for value in wished if isinstance(wished, tuple) else (wished,):
            if value not in ("", ALL, *offered):
                raise AnalysisError(f"{WHERE}: {_missing(field, value, offered)}")
    if asked.target is not None or target is not None:
        kind = metric_of(settled.rows.iloc[0].to_dict())
        amounts.read_target("target", target or amounts.as_typed(asked.target), kind)


def _no_sweep(results: Snapshot, sweep: str, known: list[str]) -> str:
    if Path(sweep).name == sweep and (results.runs / sweep).is_dir():
        return f"sweep {sweep!r} has no finished run yet; `explorer sweep status` shows its runs"
    return unknown("sweep", sweep, known)


def _missing(field: str, value: object, offered: tuple[object, ...]) -> str:
    names = [str(name) for name in offered if name != ""]
    if field == "payment" and value in PAYMENTS:
        return f"{X}: {value} is not known for these runs; known: {', '.join(names)}"
    return unknown(_NOUNS.get(field, field), str(value), names)
