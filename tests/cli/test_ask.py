"""`explorer ask`: the exit status says whether a recipe holds the limits, the text says why not."""

import json
import re
import shlex
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from explorer.store.ingest import ingest
from tests.builders import change_result, run_record, write_profile, write_run
from tests.cli.command import Done, explorer, refused

PRICED = "provider,instance,region,tenancy,accelerator,count,usd_per_hour,effective,retrieved,source\n"


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory of runs with one sweep. Tests read it and leave it as it is."""
    directory = tmp_path_factory.mktemp("ask") / "runs"
    write_small(directory)
    ingest(directory)
    return directory


def write_small(runs: Path, *, sweep: str = "digits", seeds: tuple[int, ...] = (0, 1, 2), fast: str = "fast") -> None:
    """Two recipes at two budgets; `fast` learns a little more in the same time."""
    quality = {"baseline": (0.97, 0.98), fast: (0.976, 0.986)}
    for recipe, values in quality.items():
        methods = ("fast",) if recipe == fast else ()
        records = [
            run_record(recipe=recipe, sweep=sweep, ssr=ssr, seed=seed, methods=methods)
            for ssr in (0.5, 1.0)
            for seed in seeds
        ]
        for record in records:
            named = replace(record, run_id=f"run-{record.run_id[-8:]}")  # the recipe's name may be no file's
            noise = record.seed % 3 * (0.0004 if methods else 0.0003)
            write_run(runs, named, metrics={"accuracy": values[record.ssr == 1.0] + noise})
        seconds, rounds = 0.02 if recipe == fast else 0.04, (1.0, 0.99, 1.0, 1.01, 1.0)
        write_profile(runs, records[-1], seconds=seconds, inference_rounds=rounds)


def ask(runs: Path, *arguments: str) -> Done:
    done = explorer("ask", *arguments, "--runs", runs)
    assert "Traceback" not in done.stderr
    return done


def as_json(runs: Path, *arguments: str) -> dict[str, Any]:
    return json.loads(ask(runs, *arguments, "--json").stdout)


def test_the_results_name_the_target_where_it_is_not_the_mean_beside_it(tmp_path: Path) -> None:
    """A smaller budget was better, so the curve that never falls lies above the mean at full budget; `ask` shows the
    same number. The control: curves that rise have the mean as their target."""
    for name, middle in (("pooled", 0.9), ("rising", 0.85)):
        for recipe, gain in (("baseline", 0.0), ("fast", 0.01)):
            for ssr, quality in ((0.25, 0.8), (0.5, middle), (1.0, 0.89)):
                for seed in (0, 1):
                    record = run_record(
                        recipe=recipe, sweep=name, ssr=ssr, seed=seed, methods=(recipe,) if gain else ()
                    )
                    accuracy = quality + gain + 0.001 * seed
                    write_run(
                        tmp_path / "runs",
                        replace(record, run_id=f"{name}-{record.run_id[-8:]}"),
                        metrics={"accuracy": accuracy},
                    )
            write_profile(tmp_path / "runs", record, seconds=0.02 if gain else 0.04)
    ingest(tmp_path / "runs")
    pooled = explorer("results", "pooled", "--runs", tmp_path / "runs").stdout
    assert "training time to reach baseline's (89.55%, monotone fit)" in pooled
    assert "accuracy 89.55% (the baseline's, monotone fit)" in ask(tmp_path / "runs", "pooled").stdout
    rising = explorer("results", "rising", "--runs", tmp_path / "runs").stdout
    assert "training time to reach baseline's" in rising and "monotone fit" not in rising


@pytest.mark.slow
def test_memory_is_a_limit_once_it_was_measured(runs: Path, tmp_path: Path) -> None:
    shutil.copytree(runs, tmp_path / "runs")
    unknown = ask(runs, "--max-memory", "2GiB")
    assert unknown.returncode == 1 and "peak memory unknown: it was not measured in all of its runs" in unknown.stdout
    for result in (tmp_path / "runs" / "digits").glob("run-*/result.json"):
        record = json.loads((result.parent / "run.json").read_text())
        change_result(result.parent, peak_memory=2**29 if record["recipe"] == "fast" else 2**31)
    assert explorer("store", "rebuild", "--runs", tmp_path / "runs").returncode == 0
    done = ask(tmp_path / "runs", "--quality", "97%", "--max-memory", "1 GiB")
    assert done.stdout.startswith("asked: accuracy at least 97.00%, at most 1 GiB of peak memory\n")
    assert "takes 2 GiB of memory, at most 1 GiB allowed" in done.stdout
    assert "Peak memory, the most of each recipe's runs: fast 512 MiB, baseline 2 GiB." in done.stdout
    assert as_json(tmp_path / "runs", "--max-memory", "1GiB")["asked"]["max_memory"] == 2**30
    said = refused("ask", "--runs", runs, "--max-memory", "2 apples")
    assert "--max-memory: found '2 apples'; expected memory above 0 with its unit" in said


def test_it_answers_with_the_evidence_and_the_command_that_confirms_it(runs: Path) -> None:
    done = ask(runs, "--quality", "98%", "--max-time", "1h", "--max-inference", "1.5x")
    assert done.returncode == 0
    head = done.stdout.splitlines()
    assert (
        head[0] == "asked: accuracy at least 98.00%, at most 1 h of training, at most 1.50x of the baseline's inference"
    )
    assert head[1].startswith("fast reaches accuracy 98.00% in ") and head[1].endswith("; confirm on fresh seeds.")
    assert head[2].startswith("Runner-up: baseline in ")
    assert "Extrapolated: nothing." in done.stdout
    assert "Price: no price for AMD EPYC 7B13." in done.stdout
    assert f"explorer confirm --runs {runs} digits fast" in done.stdout


def test_the_same_as_json(runs: Path) -> None:
    found = as_json(runs, "--quality", "0.98")
    assert (found["best"], found["runner_up"], found["holds"], found["extrapolated"]) == ("fast", "baseline", True, [])
    assert found["confirm"] == f"explorer confirm --runs {runs} digits fast"
    first = found["candidates"][0]
    assert first["seconds_low"] < first["seconds"] < first["seconds_high"]
    assert [each["standing"] for each in first["limits"]] == ["holds"]


def test_a_forecast_is_no_part_of_the_answer(tmp_path: Path) -> None:
    for recipe, floor in (("baseline", 0.02), ("fast", 0.015)):
        for ssr in (0.25, 0.5, 1.0, 1.5):
            for seed in (0, 1):
                record = run_record(recipe=recipe, sweep="digits", ssr=ssr, seed=seed)
                write_run(tmp_path, record, metrics={"accuracy": 1 - floor - 0.04 * ssr**-0.7 + 0.0002 * seed / ssr})
        write_profile(tmp_path, record, seconds=0.02)
    ingest(tmp_path)
    for quality, status in (("90%", 0), ("96.5%", 1)):  # the latter is less than `fast` is forecast to have
        plain, more = ask(tmp_path, "--quality", quality), ask(tmp_path, "--quality", quality, "--forecast", "3")
        assert plain.returncode == more.returncode == status
        assert more.stdout.startswith(plain.stdout) and "forecast" not in plain.stdout
        said = more.stdout[len(plain.stdout) :]
        assert "forecast at budget 3, which was not run; no part of the answer" in said
        assert re.search(r"fast +\N{WHITE CIRCLE} 96\.\d\d% +9\d\.\d\d% to 9\d\.\d\d% .*4 budgets x 2 seeds", said)
        assert "A forecast assumes that quality keeps to the law" in said
    without, found = as_json(tmp_path), as_json(tmp_path, "--forecast", "3")
    ahead = found.pop("forecast")
    assert found == without and ahead["budget"] == 3.0
    (fast,) = (one for one in ahead["recipes"] if one["recipe"] == "fast")
    assert fast["low"] < fast["quality"] < fast["high"] and fast["reason"] == ""


def test_a_forecast_that_cannot_be_made_says_why(runs: Path) -> None:
    done = ask(runs, "--quality", "98%", "--forecast", "2")
    assert done.returncode == 0 and done.stdout.count("none: 2 budgets with 2 seeds or more; a law needs 4") == 2
    for budget in ("1", "5", "nan"):
        said = refused("ask", "--runs", runs, "--forecast", budget)
        assert f"forecast: found the budget {budget}; expected one above 1 and up to 4, 4 times" in said


def test_nothing_feasible_names_the_nearest_miss(runs: Path) -> None:
    done = ask(runs, "digits", "--quality", "0.999")
    assert done.returncode == 1
    assert "No recipe holds these limits. The nearest is " in done.stdout
    assert "accuracy not reached: best 98." in done.stdout and "asked 99.90%" in done.stdout
    assert "explorer confirm" not in done.stdout
    late = as_json(runs, "--max-time", "1ms")
    assert late["best"] is None and late["nearest"] == "fast"


def test_what_is_not_known_is_said_and_does_not_hold(runs: Path) -> None:
    wanted = "open/mit=g2, at most 1% of training"
    done = ask(runs, "--max-cost", "5", "--deletable", wanted, "--max-deletion", "5min")
    assert done.returncode == 1
    assert "No recipe is known to hold these limits." in done.stdout
    assert "open/mit deletable at G2, repeating at most 1% of training within 5 min" in done.stdout
    assert "Unknown, and not guessed: cost unknown: no price for AMD EPYC 7B13 (every recipe)." in done.stdout
    assert "its runs keep no ledger (every recipe)." in done.stdout


def test_a_price_makes_cost_an_answer(tmp_path: Path) -> None:
    write_small(tmp_path)
    (tmp_path / "prices.csv").write_text(f"{PRICED}own,box,,on demand,EPYC 7B13,1,36,2020-01,,the bill\n")
    ingest(tmp_path)
    done = ask(tmp_path, "--max-cost", "5")
    assert done.returncode == 0 and "the least cost of 2 candidates" in done.stdout
    assert "$36.00/h as of 2020-01 (over " in done.stdout and "months old), own box" in done.stdout


def test_one_seed_is_no_answer(tmp_path: Path) -> None:
    write_small(tmp_path, seeds=(0,))
    ingest(tmp_path)
    done = ask(tmp_path, "--quality", "0.975")
    assert done.returncode == 1
    assert "No recipe is sure to hold these limits. The best guess: fast reaches " in done.stdout
    assert "quality uncertain: one seed" in done.stdout


def test_fresh_seeds_are_found_whatever_they_are_called(tmp_path: Path) -> None:
    write_small(tmp_path)
    write_small(tmp_path, sweep="by-hand", seeds=(7, 8, 9))
    ingest(tmp_path)
    done = ask(tmp_path, "digits")
    assert "; confirmed on 3 fresh seeds: " in done.stdout and "x faster" in done.stdout
    assert "2 sweeps; name one of them: by-hand, digits" in refused("ask", "--runs", tmp_path)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--max-time", "5"), "--max-time: found '5'; expected a time above 0 with its unit (us, ms, s, min, h, d)"),
        (("--max-time", "0s"), "--max-time: found '0s'"),
        (("--max-time", "nans"), "--max-time: found 'nans'"),
        (("--quality", "high"), "--quality: found 'high'; expected a number such as 0.93, or a percentage"),
        (("--quality", "93"), "accuracy is a fraction from 0 to 1"),
        (("--max-cost", "5 euros"), "--max-cost: found '5 euros'; expected US dollars above 0"),
        (("--max-inference", "3"), "--max-inference: found '3'; expected a time such as 3ms, or a ratio"),
        (("--deletable", "open/mit"), "--deletable: found 'open/mit'; expected CLASS=LEVEL"),
        (("--deletable", "open/mit=G9"), "unknown level of deletion 'G9'"),
        (("--deletable", "open/mit=G2, at most 1%"), "--deletable: found '1%'; expected 0% to 100% of training"),
        (("--deletable", "open/mit=G2, at most a bit"), "expected a share of training such as 1% of training"),
        (("--max-deletion", "1h"), "needs the class that is to be deleted"),
        (("--hardware", "EPYC"), "unknown hardware 'EPYC'"),
        (("--metric", "accurracy"), "did you mean 'accuracy'?"),
        (("digitz",), "did you mean 'digits'?"),
    ],
)
def test_what_cannot_be_asked_is_refused_in_one_line(runs: Path, arguments: tuple[str, ...], words: str) -> None:
    message = refused("ask", *arguments, "--runs", runs)
    assert words in message and "\n" not in message


def test_names_of_anybody_do_no_harm(tmp_path: Path) -> None:
    name = "<script>$(rm -rf ~)'\u202e" + "x" * 10_000
    write_small(tmp_path, fast=name)
    assert ingest(tmp_path).problems == ()
    done = ask(tmp_path, "--quality", "0.975")
    assert done.returncode == 0 and "\u202e" not in done.stdout
    assert max(map(len, done.stdout.splitlines()[:3])) < 700


def test_a_printed_command_reads_the_same_runs(tmp_path: Path) -> None:
    for place, options in (("my runs", "--runs 'my runs'"), ("runs", "")):
        write_small(tmp_path / place)
        given = ("--runs", place) if options else ()
        shown = explorer("results", "digits", *given, cwd=tmp_path).stdout
        (command,) = (line.partition("runs: ")[2] for line in shown.splitlines() if line.startswith("all "))
        assert command == f"explorer results digits --rows {options}".rstrip()
        rows = explorer(*shlex.split(command)[1:], cwd=tmp_path)
        assert rows.returncode == 0 and "seed" in rows.stdout, rows.stderr
    # The control: without the option, a command in another place finds no such runs.
    (tmp_path / "elsewhere").mkdir()
    assert explorer("results", "digits", cwd=tmp_path / "elsewhere").returncode == 1
