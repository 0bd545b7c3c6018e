"""The view `results`: times, costs and inference as they follow from runs, profiles and prices."""

import dataclasses

import pytest

from explorer import costing, run_files, rundir
from explorer.costing import default_price, load_prices
from explorer.errors import PriceError, StoreError
from explorer.run_files import Energy, Flops, ProfileRecord, Watch
from explorer.store import frames, queries, snapshot_tables
from explorer.store.examine import examine
from explorer.store.ingest import ingest, rebuild
from explorer.store.published import database
from tests.builders import (
    CPU,
    H200,
    change_result,
    run_record,
    write_failure,
    write_profile,
    write_run,
    write_sweep,
)
from tests.store.test_predicted import imported

HEADER = "provider,instance,region,tenancy,accelerator,count,usd_per_hour,effective,retrieved,source"
COLUMNS = [
    *("sweep", "run_id", "recipe", "methods", "dataset", "model", "precision", "batch_size", "ssr", "seed", "steps"),
    *("examples", "metric", "quality", "unit", "higher_is_better", "format"),
    *("train_seconds", "train_seconds_low", "train_seconds_high", "time_source", "inference_seconds"),
    *("inference_ratio", "device", "hardware", "threads", "world_size"),
    *("usd_per_hour", "price_source", "price_as_of", "cost_usd"),
    *("deletion_level", "deletion_class", "deletion_seconds", "deletion_seconds_low", "deletion_seconds_high"),
    *("deletion_usd", "baseline", "is_baseline", "tuning", "control", "control_of", "contended"),
    *("wall_seconds", "state_digest", "directory", "recipe_digest"),
    *("policy", "chi", "ledger_overhead", "ledger_size", "ledger_root"),
    *("train_seconds_windows", "profile_pass", "busy_profile", "inference_windows"),
]


def rows(runs, **asked):
    table = queries.results(database(runs), **asked)
    return [dict(zip(table.columns, row, strict=True)) for row in table.rows]


def one(runs, **asked):
    (row,) = rows(runs, **asked)
    return row


def test_columns(tmp_path):
    write_run(tmp_path, run_record())
    ingest(tmp_path)
    assert queries.results(database(tmp_path)).columns == tuple(COLUMNS)
    assert list(frames.results(database(tmp_path)).columns) == [*COLUMNS, *queries.LATER]


def test_peak_memory_is_a_column_once_a_run_has_it(tmp_path):
    record = run_record()
    write_run(tmp_path, run_record(seed=1))
    change_result(write_run(tmp_path, record), peak_memory=3 * 2**28)
    ingest(tmp_path)
    assert {row["seed"]: row["peak_memory"] for row in rows(tmp_path)} == {0: 3 * 2**28, 1: None}
    assert frames.means(database(tmp_path))["peak_memory"].tolist() == [3 * 2**28]
    # On a machine that the run was not trained on, nothing is known of its memory.
    imported(tmp_path, record)
    ingest(tmp_path)
    assert {row["time_source"]: row["peak_memory"] for row in rows(tmp_path) if row["seed"] == 0}["predicted"] is None


def test_energy_and_operations_are_columns_once_a_run_has_them(tmp_path):
    record = run_record()
    write_run(tmp_path, run_record(seed=1))
    directory = write_run(tmp_path, record, contended=False)
    # An amount that no portable integer holds.
    counted = Flops(phases={"all": 1e21}, total=8e22, peak=1e24 / 2, peak_source="data sheet")
    change_result(directory, flops=counted, energy=Energy(joules=1.8e6, steps=40, source="RAPL package"))
    ingest(tmp_path)
    seen = {row["seed"]: (row["flops"], row["energy_kwh"]) for row in rows(tmp_path)}
    assert seen == {0: (8e22, 1.0), 1: (None, None)}, "half of the steps were measured, all count"
    ((utilisation, seconds),) = [(row["utilisation"], row["wall_seconds"]) for row in rows(tmp_path) if not row["seed"]]
    assert seconds > 0 and 0.1 < utilisation < 1
    assert frames.means(database(tmp_path))["energy_kwh"].tolist() == [1.0]
    # On a machine that the run was not trained on, its operations are the same, and its energy is not known.
    imported(tmp_path, record)
    ingest(tmp_path)
    (other,) = [row for row in rows(tmp_path) if row["time_source"] == "predicted" and row["seed"] == 0]
    assert (other["flops"], other["energy_kwh"], other["utilisation"]) == (8e22, None, None)


def test_a_contended_run_has_no_utilisation_and_more_steps_than_were_timed_are_a_fault(tmp_path):
    counted = Flops(phases={"all": 1e9}, total=8e10, peak=1e11, peak_source="data sheet")
    directory = write_run(tmp_path, run_record(), contended=True)
    change_result(directory, flops=counted)
    ingest(tmp_path)
    assert "utilisation" not in one(tmp_path) and one(tmp_path)["flops"] == 8e10
    change_result(directory, energy=Energy(joules=1.0, steps=77, source="RAPL package"))
    assert "energy of 77 steps, of 76 timed ones" in str(examine(directory).problem)
    change_result(directory, energy=Energy(joules=1.0, steps=76, source="RAPL package"))  # the control
    assert examine(directory).problem is None


def test_runs_that_did_not_finish_say_why_and_what_their_budget_would_take(tmp_path):
    write_run(tmp_path, run_record())
    lost = run_record(recipe="hot", ssr=0.5, full_steps=100)
    write_failure(tmp_path, lost, kind="diverged", message="training diverged: the loss is nan at step 36")
    write_failure(tmp_path, run_record(recipe="bad"), message="out of memory")
    write_profile(tmp_path, lost, seconds=0.5)
    ingest(tmp_path)
    shown = frames.unfinished(database(tmp_path), sweep="digits").set_index("recipe")
    assert shown["state"].to_dict() == {"bad": "failed", "hot": "diverged"}
    columns = ["message", "ssr", "seed", "steps", "train_seconds"]
    assert shown[columns].T.to_dict("list")["hot"] == [
        "training diverged: the loss is nan at step 36",
        *(0.5, 0, 50, 25.0),
    ]
    assert queries.states(database(tmp_path)) == {"diverged": 1, "failed": 1, "finished": 1}
    assert {row["recipe"] for row in rows(tmp_path)} == {"baseline"}


def test_what_the_run_says_is_there(tmp_path):
    record = run_record(recipe="fast", methods=("blurpool", "ema"), tuning=None, ssr=0.5, seed=3)
    directory = write_run(tmp_path, record)
    ingest(tmp_path)
    row = one(tmp_path)
    assert row["run_id"] == record.run_id
    assert row["directory"] == str(directory.relative_to(tmp_path))
    assert (row["methods"], row["tuning"], row["baseline"], row["is_baseline"]) == (
        "blurpool+ema",
        None,
        "baseline",
        False,
    )
    assert (row["metric"], row["quality"], row["unit"], row["higher_is_better"]) == ("accuracy", 0.9, "fraction", True)
    assert (row["steps"], row["examples"], row["ssr"], row["seed"]) == (40, 40 * 64, 0.5, 3)
    assert row["wall_seconds"] == pytest.approx(36 * 0.01 + 1.5)


def test_what_a_run_is_the_control_of_is_there(tmp_path):
    """A rescaled baseline is a run of the baseline; older records, which say nothing of controls, are none."""
    plain, rescaled = run_record(ssr=0.5), run_record(ssr=1.5)
    write_run(tmp_path, plain)
    write_run(tmp_path, dataclasses.replace(rescaled, control="rescaled-baseline", control_of=("fast", "slow")))
    twin = run_record(recipe="fast-random", methods=("random_subset",))
    write_run(tmp_path, dataclasses.replace(twin, control="random-subset", control_of=("fast",)))
    older = run_record(seed=1)
    directory = write_run(tmp_path, older, finished=False)
    said = rundir.read_json(directory / rundir.RUN)
    del said["control"], said["control_of"]
    rundir.write_json(directory / rundir.RUN, said)
    ingest(tmp_path)
    found = {
        (row["recipe"], row["ssr"]): (row["control"], row["control_of"], row["is_baseline"]) for row in rows(tmp_path)
    }
    assert found == {
        ("baseline", 0.5): (None, None, True),
        ("baseline", 1.5): ("rescaled-baseline", "fast+slow", True),
        ("fast-random", 1.0): ("random-subset", "fast", False),
    }
    runs = queries.runs(database(tmp_path))
    states = {row[runs.columns.index("run_id")]: row[runs.columns.index("state")] for row in runs.rows}
    assert states[older.run_id] == "interrupted"


def test_profiled_time_is_what_costing_says(tmp_path):
    record = run_record(phases={"small": 30, "large": 50, "none": 0})
    write_run(tmp_path, record)
    path = write_profile(tmp_path, record, seconds={"small": 0.01, "large": 0.03})
    ingest(tmp_path)
    expected = costing.train_seconds(record.phases, run_files.read(ProfileRecord, path).phases)
    row = one(tmp_path)
    assert row["time_source"] == "profiled"
    assert row["train_seconds"] == pytest.approx(expected.seconds) == pytest.approx(1.8)
    assert row["train_seconds_low"] == pytest.approx(expected.low)
    assert row["train_seconds_high"] == pytest.approx(expected.high)


def test_the_windows_of_a_time_are_those_of_its_phases_added_up_round_by_round(tmp_path):
    record = run_record(phases={"small": 30, "large": 10})
    write_run(tmp_path, record)
    quiet = Watch(cores=2, load=0.1, others=0.0, stolen=0.0)
    seconds, rounds = {"small": 0.01, "large": 0.04}, (1.1, 0.9, 1.0)
    write_profile(tmp_path, record, seconds=seconds, rounds=rounds, profile_pass="p1", watch=quiet)
    ingest(tmp_path)
    row = one(tmp_path)
    assert row["train_seconds_windows"] == pytest.approx([0.7 * share for share in rounds])
    assert (row["profile_pass"], row["busy_profile"]) == ("p1", False)


@pytest.mark.parametrize("rounds", [(), (1.0, 1.1)], ids=["an older file", "another number in one phase"])
def test_windows_that_do_not_belong_together_are_unknown(tmp_path, rounds):
    record = run_record(phases={"small": 30, "large": 10})
    write_run(tmp_path, record)
    path = write_profile(tmp_path, record, seconds={"small": 0.01, "large": 0.04}, rounds=(1.1, 0.9, 1.0))
    profile = run_files.read(ProfileRecord, path)
    changed = dataclasses.replace(profile.phases["small"], rounds=rounds, windows=len(rounds) or 3)
    run_files.write(path, dataclasses.replace(profile, phases=profile.phases | {"small": changed}))
    ingest(tmp_path)
    row = one(tmp_path)
    assert row["train_seconds"] == pytest.approx(0.7)
    assert (row["train_seconds_windows"], row["profile_pass"], row["busy_profile"]) == (None, None, None)


def test_a_time_from_no_profile_has_no_windows_and_no_busy_machine(tmp_path):
    write_run(tmp_path, run_record(), contended=False)
    ingest(tmp_path)
    row = one(tmp_path)
    assert row["time_source"] == "measured"
    assert (row["train_seconds_windows"], row["profile_pass"], row["busy_profile"]) == (None, None, None)


def test_a_busy_machine_is_known_of_the_run_and_of_its_recipe(tmp_path):
    record = run_record()
    write_run(tmp_path, record)
    busy = Watch(cores=2, load=3.0, others=0.5, stolen=None, reasons=("other processes took 50% of its cores",))
    write_profile(tmp_path, record, watch=busy)
    ingest(tmp_path)
    assert one(tmp_path)["busy_profile"] is True
    assert frames.means(database(tmp_path))["busy_profile"].tolist() == [True]
    assert frames.profiles(database(tmp_path))["busy"].tolist() == [busy.reasons[0]]


def test_a_phase_that_was_not_profiled_makes_the_time_unknown(tmp_path):
    record = run_record(phases={"small": 30, "large": 50})
    write_run(tmp_path, record)
    write_profile(tmp_path, record, seconds={"small": 0.01})
    ingest(tmp_path)
    row = one(tmp_path)
    assert (row["train_seconds"], row["time_source"], row["cost_usd"]) == (None, None, None)


def test_a_profile_on_other_hardware_is_not_used(tmp_path):
    record = run_record()
    write_run(tmp_path, record)
    other = run_record(hardware=run_files.Hardware(device="cpu", name=CPU.name, threads=2))
    write_profile(tmp_path, run_files.from_json(type(other), run_files.to_json(other), where="test"))
    ingest(tmp_path)
    assert one(tmp_path)["train_seconds"] is None


def test_a_contended_run_without_a_profile_has_no_time_and_an_uncontended_one_is_measured(tmp_path):
    write_run(tmp_path, run_record(seed=0), contended=True)
    write_run(tmp_path, run_record(seed=1), contended=False, step_seconds=0.02)
    ingest(tmp_path)
    contended, alone = rows(tmp_path)
    assert (contended["train_seconds"], contended["time_source"]) == (None, None)
    assert (alone["train_seconds"], alone["time_source"]) == (pytest.approx(80 * 0.02), "measured")
    assert alone["train_seconds_low"] is None


def test_a_profile_is_preferred_to_a_measurement(tmp_path):
    record = run_record()
    write_run(tmp_path, record, contended=False, step_seconds=0.02)
    write_profile(tmp_path, record, seconds=0.01)
    ingest(tmp_path)
    assert one(tmp_path)["time_source"] == "profiled"
    assert one(tmp_path)["train_seconds"] == pytest.approx(0.8)


def test_a_run_too_short_to_be_timed_has_no_time(tmp_path):
    write_run(tmp_path, run_record(phases={"all": 3}), contended=False)
    ingest(tmp_path)
    assert one(tmp_path)["train_seconds"] is None


def test_hardware_without_a_price_has_no_cost_and_never_zero(tmp_path):
    write_sweep(tmp_path, {"baseline": {1.0: (0.9,)}}, hardware=CPU)
    ingest(tmp_path)
    row = one(tmp_path)
    assert row["train_seconds"] is not None
    assert [row[name] for name in ("usd_per_hour", "price_source", "price_as_of", "cost_usd")] == [None] * 4


def test_cost_is_what_costing_says(tmp_path):
    hardware = run_files.Hardware(device="cuda", name="NVIDIA H200", threads=8, world_size=4)
    write_sweep(tmp_path, {"baseline": {1.0: (0.9,)}}, hardware=hardware)
    ingest(tmp_path)
    price = default_price("NVIDIA H200", load_prices())
    assert price is not None
    row = one(tmp_path)
    assert row["cost_usd"] == pytest.approx(costing.cost_usd(row["train_seconds"], price, world_size=4))
    assert row["usd_per_hour"] == pytest.approx(4 * price.usd_per_accelerator_hour)
    assert row["price_as_of"] == "2026-08-06"
    assert "p5en.48xlarge" in row["price_source"]


def own_price(runs, usd_per_hour, accelerator="H200", currency="USD"):
    row = f"own,box,,on demand,{accelerator},1,{usd_per_hour},,2026-11,invoice,{currency}\n"
    (runs / "prices.csv").write_text(f"{HEADER},currency\n{row}")


def test_a_users_price_reprices_history_and_nothing_else_is_computed_again(tmp_path, monkeypatch):
    write_sweep(tmp_path, {"baseline": {1.0: (0.9,)}}, hardware=H200)
    ingest(tmp_path)
    before = one(tmp_path)
    monkeypatch.setattr(snapshot_tables, "_fill", lambda *_, **__: pytest.fail("made the snapshot anew"))
    (tmp_path / "prices.csv").write_text(f"{HEADER}\nown,box,,on demand,H200,1,3600,,2026-11,invoice\n")
    assert ingest(tmp_path).published
    after = one(tmp_path)
    assert after["cost_usd"] == pytest.approx(after["train_seconds"])
    assert after["price_as_of"] == "2026-11"
    assert {name for name in after if after[name] != before[name]} == {
        *("usd_per_hour", "price_source", "price_as_of", "cost_usd")
    }
    assert len(frames.prices(database(tmp_path))) == len(load_prices()) + 1
    assert not ingest(tmp_path).published
    (tmp_path / "prices.csv").unlink()
    assert ingest(tmp_path).published
    assert one(tmp_path) == before


def test_other_prices_and_other_runs_make_it_anew(tmp_path):
    write_sweep(tmp_path, {"baseline": {1.0: (0.9,)}}, hardware=H200)
    ingest(tmp_path)
    own_price(tmp_path, 3600)
    write_run(tmp_path, run_record(seed=1, hardware=CPU))
    ingest(tmp_path)
    assert {row["hardware"]: row["usd_per_hour"] for row in rows(tmp_path)} == {H200.name: 3600.0, CPU.name: None}
    own_price(tmp_path, 7200, accelerator="EPYC")
    ingest(tmp_path)
    assert {row["hardware"]: row["usd_per_hour"] for row in rows(tmp_path)}[CPU.name] == 7200.0


def test_a_price_in_another_currency_is_kept_and_is_no_cost(tmp_path):
    write_sweep(tmp_path, {"baseline": {1.0: (0.9,)}}, hardware=CPU)
    own_price(tmp_path, 3600, accelerator="EPYC", currency="EUR")
    ingest(tmp_path)
    assert [one(tmp_path)[name] for name in ("usd_per_hour", "price_source", "cost_usd")] == [None] * 3
    assert set(frames.prices(database(tmp_path))["currency"]) == {"USD", "EUR"}


def test_damaged_prices_are_one_error_and_the_database_stays(tmp_path):
    write_sweep(tmp_path, {"baseline": {1.0: (0.9,)}}, hardware=H200)
    ingest(tmp_path)
    before = one(tmp_path)
    write_run(tmp_path, run_record(seed=1))
    (tmp_path / "prices.csv").write_text("x\n")
    for make in (ingest, rebuild):
        with pytest.raises(PriceError, match=r"prices\.csv, line 1"):
            make(tmp_path)
        assert one(tmp_path) == before
    own_price(tmp_path, 3600)
    assert ingest(tmp_path).added == 1
    assert len(rows(tmp_path)) == 2


def test_a_torn_snapshot_is_not_repriced_but_made_anew(tmp_path, monkeypatch):
    write_sweep(tmp_path, {"baseline": {1.0: (0.9,)}}, hardware=H200)
    ingest(tmp_path)
    expected = one(tmp_path)["train_seconds"]
    own_price(tmp_path, 3600)
    content = bytearray(database(tmp_path).read_bytes())
    at = content.rindex(b"NVIDIA H200")
    content[at - 64 : at + 64] = b"\xaa" * 128
    database(tmp_path).write_bytes(content)
    fill, filled = snapshot_tables._fill, []
    monkeypatch.setattr(snapshot_tables, "_fill", lambda *given, **named: filled.append(fill(*given, **named)))
    ingest(tmp_path)
    assert len(filled) == 1
    assert one(tmp_path)["cost_usd"] == pytest.approx(expected)


def test_the_inference_times_of_all_rounds_are_there(tmp_path):
    for recipe, rounds in (("baseline", (0.9, 1.0, 1.2)), ("old", ())):
        record = run_record(recipe=recipe, methods=(recipe,))
        write_run(tmp_path, record)
        write_profile(tmp_path, record, inference=0.002, inference_rounds=rounds)
    ingest(tmp_path)
    found = {row["recipe"]: row["inference_windows"] for row in rows(tmp_path)}
    assert found == {"baseline": pytest.approx([0.0018, 0.002, 0.0024]), "old": None}


def test_inference_is_relative_to_the_sweeps_baseline_on_the_same_hardware(tmp_path):
    slow_gpu = run_files.Hardware(device="cuda", name="Tesla T4", threads=8)
    for hardware, scale in ((CPU, 1.0), (slow_gpu, 5.0)):
        for recipe, seconds in (("baseline", 0.001), ("fast", 0.0015)):
            record = run_record(recipe=recipe, methods=(recipe,), hardware=hardware)
            write_run(tmp_path, record)
            write_profile(tmp_path, record, inference=seconds * scale)
    alone = run_record(recipe="alone", sweep="other")
    write_run(tmp_path, alone)
    write_profile(tmp_path, alone)
    ingest(tmp_path)
    found = {(row["recipe"], row["hardware"]): row["inference_ratio"] for row in rows(tmp_path)}
    assert found[("fast", CPU.name)] == pytest.approx(1.5)
    assert found[("fast", "Tesla T4")] == pytest.approx(1.5)
    assert found[("baseline", CPU.name)] == 1.0
    assert found[("alone", CPU.name)] is None


def test_another_metric_takes_the_place_of_quality(tmp_path):
    write_sweep(tmp_path, {"baseline": {1.0: (0.9, 0.8)}, "fast": {0.5: (0.7,)}})
    ingest(tmp_path)
    found = rows(tmp_path, metric="nll")
    assert [row["quality"] for row in found] == pytest.approx([0.1, 0.2, 0.3])
    assert {(row["metric"], row["unit"], row["higher_is_better"]) for row in found} == {("nll", "nats", False)}
    frame = frames.results(database(tmp_path), metric="nll", sweep="digits")
    assert list(frame["quality"]) == pytest.approx([0.1, 0.2, 0.3])
    assert frame["higher_is_better"].dtype == bool
    assert queries.metrics(database(tmp_path)) == ["accuracy", "nll"]


def test_unknown_names_are_errors_with_the_nearest_known(tmp_path):
    write_sweep(tmp_path, {"baseline": {1.0: (0.9,)}})
    ingest(tmp_path)
    for asked in (queries.results, frames.results):
        with pytest.raises(StoreError, match="unknown sweep 'digit'; did you mean 'digits'"):
            asked(database(tmp_path), sweep="digit")
        with pytest.raises(StoreError, match="unknown metric 'acuracy'; did you mean 'accuracy'"):
            asked(database(tmp_path), metric="acuracy")
    with pytest.raises(StoreError, match="unknown sweep"):
        frames.runs(database(tmp_path), sweep="x' OR 1=1 --")


def test_frames_have_the_rows_of_one_sweep(tmp_path):
    write_sweep(tmp_path, {"baseline": {1.0: (0.9, 0.8)}})
    write_sweep(tmp_path, {"baseline": {1.0: (0.9,)}}, sweep="second")
    ingest(tmp_path)
    path = database(tmp_path)
    for ask in (frames.results, frames.runs, frames.qualities, frames.metrics, frames.timings, frames.profiles):
        everything, second = ask(path), ask(path, sweep="second")
        assert set(everything["sweep"]) == {"digits", "second"}
        assert set(second["sweep"]) == {"second"}
        assert 0 < len(second) < len(everything)
    run_id = frames.runs(path)["run_id"].iloc[0]
    assert set(frames.metrics(path, sweep="digits", run_id=run_id)["run_id"]) == {run_id}
    assert len(frames.prices(path)) == len(load_prices())
    timings = frames.timings(path, sweep="second")
    assert timings.loc[timings["part"] == "warmup", "seconds"].tolist() == [1.0]
