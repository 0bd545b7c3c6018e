"""What a tuned sweep shows of its tuning: what it took, how it went, and speedups that include it."""

from dataclasses import replace
from pathlib import Path
from statistics import fmean

import pytest

from explorer.analysis.verdict import sweep_verdicts
from explorer.page import theme
from explorer.report.sweep.measured_section import MeasuredSection
from explorer.report.sweep_report import FORMATS, read_sweep
from explorer.search.tuning_worth import Worth, worth
from explorer.store import frames
from explorer.store.ingest import ingest
from explorer.store.published import database
from explorer.views.explore import explore
from explorer.views.explorer.comparison_tables import CLAIMS_TUNING, TUNED, tuned_note
from explorer.views.explorer.tabs.tuning_chart import developed, tuning_chart
from explorer.views.explorer.tabs.tuning_section import TuningSection
from tests.builders import write_sweep
from tests.tuned_sample import QUALITIES, tuned_recipe, tuned_record, write_tuned
from tests.views.test_explore import texts


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("tuned") / "runs"
    write_tuned(directory)
    return directory


@pytest.fixture(scope="module")
def worths(runs: Path) -> dict[str, Worth]:
    rows = frames.results(database(runs), sweep="digits")
    comparisons = [verdict.comparison for verdict in sweep_verdicts(rows)]
    return {own.recipe: own for own in worth(tuned_record(), rows, comparisons)}


def test_tuning_is_priced_by_the_profiled_steps_of_each_recipe(worths: dict[str, Worth]) -> None:
    """Three points of 50 steps at 10 and 5 ms, and not the 6 s that its runs took on a busy machine."""
    assert [own.profiled for own in worths.values()] == [True, True]
    assert [own.seconds for own in worths.values()] == pytest.approx([1.5, 0.75])
    assert worths["fast"].spent(2) == pytest.approx(0.5)


def test_without_a_profile_or_with_batch_sizes_tuned_it_is_what_the_runs_measured(runs: Path) -> None:
    rows = frames.results(database(runs), sweep="digits")
    sizes = tuned_recipe("fast", [0.5, 0.7])
    points = tuple(replace(point, values={"batch_size": 32}) for point in sizes.points)
    record = tuned_record(recipes=(tuned_recipe("baseline", [0.7]), replace(sizes, points=points)))
    for given, tuned, expected in (
        (rows.iloc[:0], tuned_record(), {"baseline": 6.0, "fast": 6.0}),
        (rows, record, {"baseline": 0.5, "fast": 4.0}),
    ):
        assert {own.recipe: own.seconds for own in worth(tuned, given, [])} == pytest.approx(expected)


def test_a_speedup_with_tuning_nears_the_one_without_as_more_trainings_share_it(worths: dict[str, Worth]) -> None:
    base, fast = worths["baseline"], worths["fast"]
    assert base.time is not None and fast.time is not None and fast.speedup is not None
    one, ten, hundred = (share for share in fast.shared if share is not None)
    assert one == pytest.approx((1.5 + base.time) / (0.75 + fast.time))
    assert abs(one - fast.speedup) > abs(ten - fast.speedup) > abs(hundred - fast.speedup)
    assert base.shared == (None, None, None)


def test_the_best_is_expected_over_all_orders_and_lower_may_be_better(runs: Path) -> None:
    rows = frames.results(database(runs), sweep="digits").iloc[:0]
    (own,) = worth(tuned_record(recipes=(tuned_recipe("baseline", [0.7, 0.8, 0.6]),)), rows, [])
    assert own.best == pytest.approx((fmean((0.7, 0.8, 0.6)), fmean((0.8, 0.7, 0.8)), 0.8))
    loss = replace(tuned_record().metric, name="nll", higher_is_better=False)
    (own,) = worth(tuned_record(metric=loss, recipes=(tuned_recipe("baseline", [0.7, 0.8, 0.6]),)), rows, [])
    assert own.best == pytest.approx((0.7, fmean((0.7, 0.6, 0.6)), 0.6))


def test_the_chart_has_a_point_for_each_number_of_points(worths: dict[str, Worth]) -> None:
    frame = developed(list(worths.values()))
    assert list(frame["points"]) == [1, 2, 3, 1, 2, 3]
    look = theme.look(["baseline", "fast"], baseline="baseline")
    chart = tuning_chart(list(worths.values()), metric=tuned_record().metric, look=look).to_dict()
    assert chart["layer"][0]["encoding"]["x"]["title"] == "Tuning spent (seconds)"
    assert "fast: 56.67% with one point, 70.00% with 3 in 0.75 s" in chart["description"]
    assert chart["layer"][0]["encoding"]["color"]["scale"]["range"] == list(look.colours)


def test_the_explorer_shows_the_tuning_of_its_sweep(runs: Path) -> None:
    shown = explore(runs, sweep="digits", section="tuning")
    words = texts(shown)
    assert "Tuned every recipe: lr by 3 quasi-random points" in words
    assert "lr 0.2 is at the high end of what was tried" in words
    assert TUNED in words


def test_a_sweep_without_tuning_says_how_to_get_it(tmp_path: Path) -> None:
    write_sweep(tmp_path, QUALITIES)
    ingest(tmp_path)
    words = texts(explore(tmp_path, section=TuningSection.key))
    assert "This sweep tuned nothing by itself." in words


def test_the_report_has_what_tuning_took_and_says_who_tuned(runs: Path) -> None:
    sweep = read_sweep(runs, "digits")
    text = FORMATS["md"](sweep).decode()
    assert "## What tuning took" in text
    assert sweep.of(MeasuredSection).facts["Baseline"] == f"baseline, tuned by the sweep as {tuned_record().words}"
    assert '"sweep": "digits-tune"' in FORMATS["json"](sweep).decode()


def test_an_authors_claim_stays_a_claim() -> None:
    assert (tuned_note(tuned_record().words), tuned_note("lr by grid")) == (TUNED, CLAIMS_TUNING)
