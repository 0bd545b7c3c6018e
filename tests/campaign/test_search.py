"""Searches on real training: what they spend, what they remember when killed, and that no worker waits."""

import json
import shutil
import signal
import time
from dataclasses import replace

import pytest

from explorer import rundir
from explorer.analysis.equal_quality import Call
from explorer.analysis.verdict import sweep_verdicts
from explorer.campaign.searching import OWN, run_search
from explorer.errors import RunError, SpecError, SweepError
from explorer.place.leases import claims_of
from explorer.place.published_sweep import Published
from explorer.planned import read_plan
from explorer.search.searcher import Trial
from explorer.store import frames
from explorer.store.frames import with_confirming
from explorer.store.ingest import ingest
from explorer.store.published import database
from explorer.sweep.confirm import check_same, confirmation
from explorer.sweep.execute import Settings, run_sweep
from explorer.sweep.plan import make_plan
from explorer.sweep.run_at import Worker, missing_at, run_at
from explorer.sweep.search_key import SearchKey
from explorer.sweep.spec import load_spec
from tests.campaign.searches import execute, journal, prepared, searching, start
from tests.sweep.sweeps import outcomes

pytestmark = [pytest.mark.notebook, pytest.mark.slow]


@pytest.fixture(scope="module")
def calm(tmp_path_factory):
    """The directory and the answer of a search that nothing disturbed; its step times serve the others."""
    runs = tmp_path_factory.mktemp("calm")
    return runs, execute(runs, searching())[1]


def fresh(tmp_path, calm):
    """A directory that has the step times of the undisturbed search, and nothing else."""
    shutil.copytree(calm[0] / "tiny" / OWN / rundir.PROFILES, tmp_path / "tiny" / OWN / rundir.PROFILES)
    return tmp_path


def spent(space, runs):
    return sum(space.seconds(frozenset(methods), budget) for kind, methods, budget, _ in runs if kind == "ended")


def test_it_tries_every_recipe_that_there_is_time_for_and_answers(calm):
    runs, answer = calm
    assert answer.recipes == 6 and answer.runs == 12 and not answer.failed
    assert answer.ended == "nothing is worth its time"
    assert {place.recipe for place in answer.ranking} == {"baseline", "ema", "mixup", "swa", "ema-mixup", "mixup-swa"}
    assert [place.regret is None for place in answer.ranking] == sorted(
        place.regret is None for place in answer.ranking
    )
    (left_out,) = answer.left_out
    assert left_out.name == "ema-swa"
    # The baseline's ladder comes first, and every run is one of the plan.
    assert [line[1:3] for line in journal(runs) if line[0] == "ended"][:2] == [((), 0.5), ((), 1.0)]
    plan = read_plan(runs / "tiny")
    assert {run["run_id"] for run in plan["runs"]} == outcomes(runs).keys()
    recorded = json.loads((runs / "tiny" / "search.json").read_text())
    assert recorded["runs"] == 12 and recorded["spent"] < recorded["spend"]
    # Moments of the history: what is spent only grows, and the last one is the answer.
    history = answer.history
    assert [moment.spent for moment in history] == sorted(moment.spent for moment in history)
    assert history[-1].recipe == answer.ranking[0].recipe
    assert history[-1].spent == pytest.approx(answer.spent)


def test_the_same_command_after_the_end_trains_nothing(calm, tmp_path):
    shutil.copytree(calm[0], tmp_path, dirs_exist_ok=True)
    before = journal(tmp_path)
    summary, answer = execute(tmp_path, searching())
    assert summary.executed == 0 and journal(tmp_path) == before
    assert (answer.ranking, answer.history) == (calm[1].ranking, calm[1].history)


def test_it_spends_no_more_than_it_may(calm, tmp_path):
    runs = fresh(tmp_path, calm)
    space = prepared(runs, searching()).space
    base = sum(space.seconds(frozenset(), budget) for budget in space.ladder)
    content = searching({"spend": 3 * base})
    _, answer = execute(runs, content)
    assert 2 < answer.runs < 12 and answer.ended == "the time is spent"
    assert spent(space, journal(runs)) == pytest.approx(answer.spent) and answer.spent <= 3 * base
    with pytest.raises(SpecError, match=r"search\.spend: found .* the baseline by itself takes"):
        prepared(runs, searching({"spend": base / 2}))
    # More to spend continues the same search.
    before = journal(runs)
    assert execute(runs, searching())[1].runs == 12 and journal(runs)[: len(before)] == before


def test_killed_anywhere_it_ends_with_the_same_answer(calm, tmp_path):
    runs = fresh(tmp_path, calm)
    content = searching()
    for lines in (3, 9):
        process = start(runs, content)
        deadline = time.monotonic() + 300
        path = runs / "tiny" / OWN / "journal.jsonl"
        while not path.exists() or len(path.read_bytes().splitlines()) < lines:
            assert time.monotonic() < deadline and process.poll() is None, process.communicate()
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
        process.communicate()
    # A line that was being written when the power failed.
    with path.open("ab") as file:
        file.write(b'{"asked": {"methods": ["em')
    _, answer = execute(runs, content)
    assert (answer.ranking, answer.history) == (calm[1].ranking, calm[1].history)
    assert [line for line in journal(runs) if line[0] == "ended"] == [
        line for line in journal(calm[0]) if line[0] == "ended"
    ]
    assert outcomes(runs) == outcomes(calm[0])


def test_a_run_that_ended_before_the_journal_was_told_is_not_trained_again(calm, tmp_path):
    shutil.copytree(calm[0], tmp_path, dirs_exist_ok=True)
    path = tmp_path / "tiny" / OWN / "journal.jsonl"
    whole = path.read_bytes()
    path.write_bytes(b"".join(whole.splitlines(keepends=True)[:-1]))
    summary, answer = execute(tmp_path, searching())
    assert summary.executed == 0 and path.read_bytes() == whole
    assert answer.ranking == calm[1].ranking
    # Negative control: without its result it is trained again.
    path.write_bytes(b"".join(whole.splitlines(keepends=True)[:-1]))
    _, methods, budget, seed = journal(tmp_path)[-1]
    (last,) = [
        path
        for path in rundir.run_directories(tmp_path / "tiny")
        if f"-ssr{budget:g}-s{seed}-" in path.name and f"digits-{'-'.join(methods) or 'baseline'}-ssr" in path.name
    ]
    (last / rundir.RESULT).unlink()
    assert execute(tmp_path, searching())[0].executed == 1


def test_a_damaged_journal_is_an_error(calm, tmp_path):
    runs = fresh(tmp_path, calm)
    path = runs / "tiny" / OWN / "journal.jsonl"
    for line in (b"[]\n", b'{"asked": 1}\n', b'{"lost": {"methods": [], "budget": 1.0, "seed": 0}}\n', b"\xff\n"):
        path.write_bytes(line)
        with pytest.raises(RunError, match=r"journal\.jsonl:1: damaged; expected a line of a search"):
            prepared(runs, searching())


def test_a_run_that_diverges_is_seen_as_one_without_quality(calm, tmp_path, monkeypatch):
    runs = fresh(tmp_path, calm)
    ready, build = prepared(runs, searching()), SearchKey.recipe
    times = ready.space.seconds.__self__  # pyright: ignore[reportFunctionMemberAccess]

    def wild(self, names):
        recipe = build(self, names)
        return replace(recipe, optimizer=replace(recipe.optimizer, lr=1e30)) if "swa" in names else recipe

    monkeypatch.setattr(SearchKey, "recipe", wild)
    summary, answer = run_search(ready, Settings(engine="inline", workers=1, profile=False))
    # The first run of both recipes with it diverges, and no other follows: another budget would not mend it.
    assert answer.failed == 2 == len(summary.failures) and answer.runs == 10
    assert all("swa" not in place.methods for place in answer.ranking)
    # It stays seen: the next start, with the times of the sound recipes, does not try it again.
    monkeypatch.setattr("explorer.campaign.searching._foreseen", lambda *_: times)
    again, answer = run_search(prepared(runs, searching()), Settings(engine="inline", workers=1, profile=False))
    assert not again.executed and answer.failed == 2


def idle(lines):
    """How often a run ended while fewer than two were under way, although others were still to come."""
    pending, count, last = 2, 0, len(lines) - 1 - [kind for kind, *_ in lines][::-1].index("asked")
    for at, (kind, *_) in enumerate(lines[:last]):
        # Runs that end within the same moment are settled together.
        if kind == "ended" and (at == 0 or lines[at - 1][0] == "asked"):
            count += pending < 2
        pending += 1 if kind == "asked" else -1
    return count


def test_two_workers_are_busy_until_the_end(calm, tmp_path):
    runs = fresh(tmp_path, calm)
    _, answer = execute(runs, searching(), workers=2, engine="warm")
    assert answer.runs == 12 and not answer.failed
    assert idle(journal(runs)) == 0
    assert idle(journal(calm[0])) > 5  # negative control: a single worker
    # Which run ends first has no influence on what a run is.
    assert outcomes(runs) == outcomes(calm[0])


def test_a_search_at_a_place_takes_the_same_decisions(calm, tmp_path):
    place = tmp_path / "place"
    for home in ("one", "another"):  # of two machines, whose step times are the same here
        runs = fresh(tmp_path / home, calm)
        _, answer = execute(runs, searching(), place=str(place))
        assert journal(runs) == journal(calm[0])
        assert outcomes(runs) == outcomes(calm[0])
        assert answer.ranking == calm[1].ranking
    at = Published.at(str(place))
    assert len(at.plan().runs) == 12 and at.names("results") == set(at.plan().runs)
    # The second one took what the first one had trained.
    assert [len(claims_of(at.objects, run_id)) for run_id in at.plan().runs] == [1] * 12


def test_a_cluster_trains_what_is_asked_for(calm, tmp_path):
    engine = pytest.importorskip("explorer.sweep.dask_engine", reason="needs the extra `cluster`")
    runs, place = fresh(tmp_path / "home", calm), str(tmp_path / "place")
    planned = prepared(runs, searching()).plan
    classes = [(planned.runs[0].record, planned.target.machine)]
    with engine.DaskWorkers("local-dask:2", threads=1, classes=classes) as workers:
        _, answer = execute(runs, searching(), engine="warm", workers=None, place=place, executor=workers)
    assert answer.runs == 12 and not answer.failed
    assert outcomes(runs) == outcomes(calm[0])
    assert len(Published.at(place).names("results")) == 12


def test_workers_elsewhere_may_train_what_is_asked_for(calm, tmp_path):
    runs, place, helped = fresh(tmp_path / "home", calm), str(tmp_path / "place"), []

    def help_out(event):
        if event.kind == "start":
            return
        # Another worker takes a run between two that this process trains.
        helped.extend(run_at(Worker(place=place, engine="inline"), run_id).state for run_id in missing_at(place)[:1])

    _, answer = execute(runs, searching(), place=place, on_event=help_out)
    assert answer.runs == 12 and not answer.failed
    assert outcomes(runs) == outcomes(calm[0])
    assert helped.count("done") > 0


def test_a_searcher_that_asks_for_an_impossible_run_is_stopped(calm, tmp_path, monkeypatch):
    runs = fresh(tmp_path, calm)
    for trial in (Trial(frozenset(), 1.0, 0), Trial(frozenset({"ema", "swa"}), 1.0, 0), Trial(frozenset(), 0.7, 0)):
        ready = prepared(runs, searching())
        monkeypatch.setattr(type(ready.searcher), "next", lambda self, seen, pending=(), trial=trial: trial)
        with pytest.raises(SweepError, match="asked for a run that it cannot have"):
            run_search(ready, Settings(engine="inline", workers=1, profile=False))


def test_its_winner_is_a_claim_only_on_fresh_seeds(calm, tmp_path):
    runs = tmp_path / "runs"
    shutil.copytree(calm[0], runs)
    ingest(runs)
    rows = frames.results(database(runs), sweep="tiny")
    assert rows["searched"].all()
    # An ordinary sweep of the same recipes is the negative control: it is not searched.
    content = confirmation(runs, "tiny", "mixup-swa", seeds=1)
    assert content["budgets"] == [0.5, 1.0] and content["seeds"] == [1]
    assert set(content["recipes"]) == {"baseline", "mixup-swa"} and "search" not in content
    planned = make_plan(load_spec(content), runs=runs)
    check_same(planned, read_plan(runs / "tiny"))
    assert run_sweep(planned, Settings(engine="inline", workers=1, profile=False)).complete
    ingest(runs)
    assert not frames.results(database(runs), sweep=content["name"])["searched"].any()
    # Steps are counted without a profile, so both can be compared by them.
    fresh = with_confirming(database(runs), "tiny")
    verdicts = sweep_verdicts(frames.results(database(runs), sweep="tiny"), fresh, x="steps")
    (mine,) = [verdict for verdict in verdicts if verdict.comparison.recipe == "mixup-swa"]
    assert all(verdict.call is Call.SEARCHED for verdict in verdicts)
    assert mine.confirmation is not None and mine.confirmation.seeds == (1,)
    assert all(verdict.confirmation is None for verdict in verdicts if verdict is not mine)


def test_only_recipes_of_the_search_can_be_confirmed(calm):
    with pytest.raises(SweepError, match=r"unknown recipe 'ema-swa'; .*known: .*mixup-swa"):
        confirmation(calm[0], "tiny", "ema-swa")
    with pytest.raises(SweepError, match="is the baseline, so there is nothing to confirm"):
        confirmation(calm[0], "tiny", "baseline")
