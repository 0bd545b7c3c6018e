"""All sweeps at once with one baseline: named wherever it shows, never paired with other sweeps, and never silent."""

import math
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from explorer.analysis.across_sweeps import against
from explorer.errors import AnalysisError
from explorer.store import frames
from explorer.store.ingest import ingest
from explorer.views.explore import Explorer
from explorer.views.explorer import choices
from explorer.views.explorer.answer import Answer, answer
from explorer.views.explorer.checked_view import refuse_unknown
from explorer.views.explorer.comparison_view import comparison_html
from explorer.views.explorer.headline import conditions, headline
from explorer.views.explorer.question import Question, from_token, to_token
from explorer.views.explorer.snapshot import Snapshot, read_snapshot
from explorer.views.explorer.tabs.curves_section import CurvesSection
from explorer.views.explorer.tabs.runs_section import RunsSection
from explorer.views.explorer.tradeoff import tradeoff_spec
from tests.builders import write_sweep

WOBBLE = (-0.0004, 0.0001, 0.0003, 0.0)


def curve(speed: float, turn: int = 0) -> dict[float, tuple[float, ...]]:
    """Accuracies of a recipe that learns `speed` times as fast, with the noise of its seeds."""
    noise = (*WOBBLE[turn:], *WOBBLE[:turn])
    return {ssr: tuple(0.93 + 0.03 * math.log2(speed * ssr) + one for one in noise) for ssr in (0.25, 0.5, 1.0)}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two sweeps of one dataset. Tests read them and leave them as they are."""
    directory = tmp_path_factory.mktemp("across") / "runs"
    write_sweep(directory, {"baseline": curve(1), "fast": curve(1.4, 1)}, sweep="digits", quartiles=(0.99, 1.01))
    other = {"baseline": curve(1, 2), "fast": curve(1.8, 3), "slow": curve(0.7)}
    write_sweep(directory, other, sweep="other", quartiles=(0.99, 1.01))
    ingest(directory)
    return directory


@pytest.fixture
def snapshot(runs: Path) -> Snapshot:
    return read_snapshot(runs)


def ratios(shown: Answer) -> dict[str, float | None]:
    return {result.label: result.ratio for result in shown.comparisons}


def test_every_recipe_is_compared_with_the_one_baseline_as_the_command_line_does(snapshot: Snapshot) -> None:
    shown = answer(snapshot, Question(sweep="*"))
    assert shown.question.baseline_sweep == "digits" and not shown.question.is_survey
    assert {result.baseline for result in shown.comparisons} == {"baseline of sweep digits"}
    own = {"fast, digits"}
    assert set(ratios(shown)) == {"fast, digits", "baseline, other", "fast, other", "slow, other"}
    told = {f"{result.label}, {result.setting.sweep}": result for result in against(_rows(snapshot), sweep="digits")}
    for result in shown.comparisons:
        if result.label not in own:
            assert (result.ratio, result.ratio_low) == (told[result.label].ratio, told[result.label].ratio_low)
    # A recipe of the baseline's own sweep is paired with it, as in the view of that sweep.
    (alone,) = answer(snapshot, Question(sweep="digits")).comparisons
    (here,) = (result for result in shown.comparisons if result.label in own)
    assert (alone.ratio, alone.ratio_low) == (here.ratio, here.ratio_low) and here.family > alone.family


def test_headline_chart_and_table_name_the_sweep_of_the_baseline(snapshot: Snapshot) -> None:
    shown = answer(snapshot, Question(sweep="*"))
    assert headline(shown).words.startswith("fast, other reaches the accuracy of the baseline of sweep digits 1.")
    assert headline(shown).chip == "wins: not paired, run both in one sweep"
    assert "compared with the baseline of sweep digits, other sweeps not paired" in conditions(shown)
    html = comparison_html(shown)
    assert html.index("baseline of sweep digits") < html.index("fast, other") and "is not paired" not in html
    assert "are compared with the baseline of another sweep: its seeds are not paired" in html
    assert shown.scene is not None
    names = {row["text"] for row in tradeoff_spec(shown.scene)["datasets"]["names"]}
    assert {"baseline of sweep digits", "fast, other"} <= names
    (target,) = tradeoff_spec(shown.scene)["datasets"]["target"]
    assert "(baseline of sweep digits at full budget)" in target["label"]


def test_another_sweep_can_be_chosen_and_a_view_carries_it(snapshot: Snapshot) -> None:
    shown = answer(snapshot, from_token("*?baseline_sweep=other"))
    assert shown.question.baseline == "baseline of sweep other"
    assert "slow, other" in ratios(shown) and "baseline, digits" in ratios(shown)
    assert from_token(to_token(shown.question)).baseline_sweep == "other"
    assert answer(snapshot, Question(sweep="*", baseline_sweep="gone")).question.baseline_sweep == "digits"
    with pytest.raises(AnalysisError, match="unknown baseline_sweep 'othr'; did you mean 'other'"):
        refuse_unknown(snapshot.runs, from_token("*?baseline_sweep=othr"))


def test_more_runs_are_a_survey_without_a_verdict(snapshot: Snapshot, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choices, "MOST_ACROSS", 10)
    shown = answer(snapshot, Question(sweep="*", baseline_sweep="other"))
    assert shown.question.is_survey and shown.verdicts == ()
    assert headline(shown).words.endswith("choose one sweep to compare its recipes with its baseline.")


@pytest.mark.slow
def test_a_view_that_is_widened_keeps_its_baseline_and_exports_what_was_recorded(runs: Path) -> None:
    page = Explorer(runs, question=Question(sweep="other"))
    page.ask(replace(page.question, sweep="*"))
    assert page.question.baseline_sweep == "other"
    assert page._controls.baseline_sweep.layout.display == "" and page._controls.baseline_sweep.value == "other"
    assert set(page.shown["recipe"]) == {"baseline", "fast", "slow"} and "recipe_in_sweep" not in page.shown
    # Curves of recipes of the same name stay apart, and cards are those of the picked runs.
    curves = cast(CurvesSection, page._sections.by_key["curves"])
    assert "fast, digits" in str(curves._chart.spec) and "fast, other" in str(curves._chart.spec)
    page._picked_recipe("fast, digits")
    page.ask(replace(page.question, section="runs"))
    cards = cast(RunsSection, page._sections.by_key["runs"])
    assert cards._cards.value.count("<article") == 4 and cards.grid.layout.display == "none"
    # What is about one sweep says so, and going back to one sweep works.
    page.ask(replace(page.question, section="confirm"))
    assert "Choose one sweep" in page._sections._said.value
    page.ask(replace(page.question, sweep="digits", section="runs"))
    assert page.question.baseline == "baseline" and cards.grid.layout.display == ""


def _rows(snapshot: Snapshot):
    return frames.results(snapshot.database)
