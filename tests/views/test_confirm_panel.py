"""Winners in the notebook: one press shows what fresh seeds take, another starts them, and the verdict is shown."""

import asyncio
import json
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from explorer.store.ingest import ingest
from explorer.views import sweep_process
from explorer.views.explore import explore
from explorer.views.explorer.answer import Answer, answer
from explorer.views.explorer.question import Question
from explorer.views.explorer.snapshot import read_snapshot
from explorer.views.explorer.tabs.confirm_section import ConfirmSection, Winner, plan_words
from tests.builders import run_record, write_profile, write_run

PLAN: dict[str, Any] = {
    "seeds": [3, 4, 5], "runs": 12, "missing": 12, "unknown": 0, "wall_seconds": 90.0, "usd": 0.5, "workers": 2,
    "spec": "x.yaml",
}  # fmt: skip
QUIET = (0.998, 1.002)  # of the windows of a profile
END = {"event": "end", "run": None, "done": 12, "failed": 0, "total": 12, "fraction": 1.0, "seconds_left": None}


def write(runs: Path, *, sweep: str = "digits", seeds: tuple[int, ...] = (0, 1, 2), gain: float = 0.006) -> None:
    for recipe, methods in (("baseline", ()), ("fast", ("fast",))):
        for ssr, value in ((0.5, 0.97), (1.0, 0.98)):
            for seed in seeds:
                record = run_record(recipe=recipe, sweep=sweep, ssr=ssr, seed=seed, methods=methods)
                noise = 0.0003 * (seed % 3) if not methods else gain + 0.0004 * ((seed + 1) % 3)
                write_run(runs, record, metrics={"accuracy": value + noise})
        write_profile(runs, run_record(recipe=recipe, sweep=sweep, methods=methods), seconds=0.04, quartiles=QUIET)
    ingest(runs)


def asked(runs: Path, **question: Any) -> Answer:
    return answer(read_snapshot(runs), Question(sweep="digits", **question))


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory of runs with a winner. Tests copy it."""
    directory = tmp_path_factory.mktemp("winner") / "runs"
    write(directory)
    return directory


@pytest.fixture
def runs(written: Path, tmp_path: Path) -> Path:
    return shutil.copytree(written, tmp_path / "runs")


@pytest.fixture
def panel(runs: Path) -> ConfirmSection:
    shown = ConfirmSection(lambda **_: None)
    shown.show(read_snapshot(runs), asked(runs))
    return shown


def command(monkeypatch: pytest.MonkeyPatch, *, plan: dict[str, Any], code: int = 0) -> None:
    """A command line that writes down what it was called with, and answers as it is told."""
    script = (
        "import json, sys\n"
        "from pathlib import Path\n"
        "runs = Path(sys.argv[sys.argv.index('--runs') + 1])\n"
        "with (runs / 'called').open('a') as file: file.write(json.dumps(sys.argv[1:]) + chr(10))\n"
        f"print({json.dumps(plan)!r} if '--plan' in sys.argv else {json.dumps(END)!r})\n"
        f"if {code}: print('explorer: it broke <b>', file=sys.stderr)\n"
        f"sys.exit({code})\n"
    )
    monkeypatch.setattr(
        sweep_process, "command", lambda *arguments: [sys.executable, "-c", script, *map(str, arguments)]
    )


def called(runs: Path) -> list[list[str]]:
    return [json.loads(line) for line in (runs / "called").read_text().splitlines()]


def winner(panel: ConfirmSection) -> Winner:
    (found,) = panel.winners
    return found


def has_button(found: Winner) -> bool:
    return found.children[1].layout.display != "none"


def test_a_winner_is_marked_and_has_a_button(panel: ConfirmSection, runs: Path) -> None:
    found = winner(panel)
    words = found.words.value
    assert "<strong>fast</strong> speedup 1." in words and "x (" in words and "confirm on fresh seeds" in words
    assert found.button.description == "Confirm fast on 3 fresh seeds" and has_button(found)
    assert not (runs / "_panel").exists()


def test_the_first_press_shows_what_it_takes_and_starts_nothing(
    panel: ConfirmSection, runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command(monkeypatch, plan=PLAN)
    asyncio.run(winner(panel).plan())
    assert plan_words(PLAN) in winner(panel).state.value
    assert winner(panel).button.description == "Start 12 runs"
    options = ["confirm", "--plan", "--json", "--seeds", "3", "--runs", str(runs), "--", "digits", "fast"]
    assert called(runs) == [options]


def test_the_second_press_runs_it_and_the_verdict_takes_the_place_of_the_button(
    panel: ConfirmSection, runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command(monkeypatch, plan=PLAN)
    asyncio.run(winner(panel).plan())
    write(runs, sweep="digits-confirm-fast", seeds=(3, 4, 5))  # what the process leaves
    asyncio.run(winner(panel).run())
    assert called(runs)[-1] == ["sweep", "run", "x.yaml", "--runs", str(runs), "--json"]
    assert winner(panel).bar.value == 1.0
    assert "confirmed on 3 fresh seeds: 1." in winner(panel).words.value
    assert not has_button(winner(panel))


def test_a_winner_by_noise_says_so(panel: ConfirmSection, runs: Path) -> None:
    write(runs, sweep="again", seeds=(3, 4, 5), gain=-0.0003)
    panel.show(read_snapshot(runs), asked(runs))
    assert "not confirmed on 3 fresh seeds" in winner(panel).words.value and not has_button(winner(panel))


@pytest.mark.slow
def test_an_unfinished_confirmation_goes_on(panel: ConfirmSection, runs: Path) -> None:
    write(runs, sweep="again", seeds=(3, 4, 5))
    last = run_record(recipe="fast", sweep="again", seed=5, methods=("fast",))
    (runs / "again" / last.run_id / "result.json").unlink()
    ingest(runs)
    panel.show(read_snapshot(runs), asked(runs))
    assert "is in progress" in winner(panel).words.value and has_button(winner(panel))


def test_what_the_command_line_refuses_is_shown(
    panel: ConfirmSection, runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command(monkeypatch, plan=PLAN, code=1)
    asyncio.run(winner(panel).plan())
    assert "it broke &lt;b&gt;" in winner(panel).state.value and 'role="alert"' in winner(panel).state.value
    assert winner(panel).button.description == "Confirm fast on 3 fresh seeds"
    winner(panel)._spec = Path("x.yaml")
    asyncio.run(winner(panel).run())
    assert "it broke &lt;b&gt;" in winner(panel).state.value and not winner(panel).button.disabled


def test_any_recipe_can_be_confirmed_with_a_number_of_seeds_of_ones_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, gain=-0.0002)  # not a winner
    panel = ConfirmSection(lambda **_: None)
    panel.show(read_snapshot(tmp_path), asked(tmp_path))
    assert [label for label, _ in panel.recipe.options] == ["fast (not reached)"] and has_button(winner(panel))
    command(monkeypatch, plan=PLAN)
    panel.seeds.value = 7
    assert winner(panel).button.description == "Confirm fast on 7 fresh seeds"
    asyncio.run(winner(panel).start())  # plans and runs at once
    planned, started = called(tmp_path)
    assert planned[:5] == ["confirm", "--plan", "--json", "--seeds", "7"] and started[:2] == ["sweep", "run"]


def test_an_inconclusive_recipe_shows_the_seeds_that_would_decide(tmp_path: Path) -> None:
    write(tmp_path, gain=0.0009)
    panel = ConfirmSection(lambda **_: None)
    panel.show(read_snapshot(tmp_path), asked(tmp_path))
    words = winner(panel).words.value
    assert "inconclusive" in words and "more seeds of fast and baseline would decide (" in words and "about" in words
    seeds = panel.seeds.value
    assert seeds == winner(panel).seeds and f"on {seeds} fresh" in winner(panel).button.description


@pytest.mark.slow
def test_the_docked_line_offers_these_runs_and_a_press_starts_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, gain=0.0009)
    page = explore(tmp_path)
    docked = page._dock.html
    assert "more seeds of fast and baseline would decide (" in docked
    assert 'data-click="action"' in docked
    command(monkeypatch, plan=PLAN)

    async def press() -> None:
        page._dock._event("click", "action", "", False)
        section = page._sections.by_key["confirm"]
        assert isinstance(section, ConfirmSection)
        await asyncio.gather(*section._background._tasks)

    asyncio.run(press())
    assert page.question.section == "confirm"
    planned, started = called(tmp_path)
    assert planned[0] == "confirm" and started[:2] == ["sweep", "run"]


def test_a_comparison_with_another_recipe_cannot_be_confirmed_from_here(panel: ConfirmSection, runs: Path) -> None:
    """`explorer confirm` runs the sweep's own baseline."""
    found = asked(runs)
    others = [replace(each, comparison=replace(each.comparison, baseline="fast")) for each in found.verdicts]
    panel.show(read_snapshot(runs), replace(found, verdicts=tuple(others), all_verdicts=tuple(others)))
    assert panel.winners == [] and "own baseline" in panel.children[0].value
    panel.show(read_snapshot(runs), found)
    assert len(panel.winners) == 1
