"""Run directories for tests, written through the real records, with whatever quality and time a test asks for."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from explorer import run_files, rundir
from explorer.canonical import digest
from explorer.run_files import (
    FailureRecord,
    Hardware,
    PhaseProfile,
    ProfileRecord,
    ResultRecord,
    RunRecord,
    Timings,
    Watch,
)

CPU = Hardware(device="cpu", name="AMD EPYC 7B13", threads=1)
H200 = Hardware(device="cuda", name="NVIDIA H200", threads=8)
AT = "2026-11-21T12:00:00Z"


def run_record(
    *,
    recipe: str = "baseline",
    sweep: str = "digits",
    ssr: float = 1.0,
    seed: int = 0,
    methods: tuple[str, ...] = (),
    hardware: Hardware = CPU,
    full_steps: int = 80,
    phases: Mapping[str, int] | None = None,
    quality: str = "accuracy",
    baseline: str = "baseline",
    tuning: str | None = "lr over 5 values",
) -> RunRecord:
    """What a run of `recipe` at one budget and seed says of itself. All steps are of the phase "all" by default."""
    steps = round(full_steps * ssr) if phases is None else sum(phases.values())
    made = {"methods": [{method: {}} for method in methods], "train": {"full_steps": full_steps}}
    curve = {"recipe": made, "hardware": run_files.to_json(hardware)}
    identity = {**curve, "ssr": ssr, "seed": seed}
    return RunRecord(
        run_id=f"resnet8-digits-{recipe}-ssr{ssr:g}-s{seed}-{digest(identity)[:8]}",
        sweep=sweep,
        recipe=recipe,
        baseline=baseline,
        tuning=tuning,
        identity=identity,
        recipe_digest=digest(curve),
        dataset="digits",
        model="resnet8",
        methods=methods,
        ssr=ssr,
        seed=seed,
        steps=steps,
        batch_size=64,
        precision="fp32",
        hardware=hardware,
        quality=quality,
        phases={"all": steps} if phases is None else dict(phases),
    )


def with_identity(record: RunRecord, identity: dict[str, Any]) -> RunRecord:
    """The record with another identity, and what follows from it."""
    recipe, changes = identity.get("recipe", {}), {name: identity[name] for name in ("ssr", "seed") if name in identity}
    curve = {name: each for name, each in identity.items() if name not in ("ssr", "seed", "initial")}
    methods = tuple(next(iter(each)) for each in recipe["methods"]) if "methods" in recipe else record.methods
    task = {name: next(iter(each)) for name, each in recipe.get("task", {}).items() if isinstance(each, dict)}
    return replace(record, identity=identity, recipe_digest=digest(curve), methods=methods, **changes, **task)


def write_run(
    runs: Path,
    record: RunRecord,
    *,
    metrics: Mapping[str, float] | None = None,
    finished: bool = True,
    contended: bool = True,
    step_seconds: float = 0.01,
    losses: Sequence[float] | None = None,
) -> Path:
    """Write the run directory, with a result unless it is not `finished`; return it. `losses`: one for each step."""
    directory = runs / record.sweep / record.run_id
    final = dict(metrics or {"accuracy": 0.9, "nll": 0.3})
    run_files.write(directory / rundir.RUN, record)
    done = record.steps if finished else record.steps // 2
    lines = [{"step": step, "metric": "train_loss", "value": 2.0 / step} for step in range(1, done + 1, 7)]
    if losses is not None:
        lines = [{"step": at, "metric": "train_loss", "value": loss} for at, loss in enumerate(losses, start=1)]
    lines += [{"step": done, "metric": name, "value": value} for name, value in final.items() if finished]
    (directory / rundir.METRICS).write_text("".join(json.dumps(line) + "\n" for line in lines))
    if finished:
        run_files.write(directory / rundir.RESULT, _result(directory, record, final, contended, step_seconds))
    return directory


def write_failure(runs: Path, record: RunRecord, *, kind: str = "exception", message: str = "out of memory") -> Path:
    """Write the directory of a run whose last attempt failed."""
    directory = write_run(runs, record, finished=False)
    failure = {"run_id": record.run_id, "kind": kind, "message": message, "attempts": 2, "failed_at": AT, "format": 1}
    run_files.write(directory / rundir.FAILURE, run_files.from_json(FailureRecord, failure, where="test"))
    return directory


def write_profile(
    runs: Path,
    record: RunRecord,
    *,
    seconds: float | Mapping[str, float] = 0.01,
    split: Mapping[str, float] | None = None,
    quartiles: tuple[float, float] = (0.9, 1.2),
    inference: float = 0.001,
    inference_rounds: tuple[float, ...] = (),
    rounds: tuple[float, ...] = (),
    profile_pass: str = "",
    watch: Watch | None = None,
) -> Path:
    """Write the profile of the run's recipe on its hardware: `seconds` a step, of all phases or by phase, spent on the
    shares in `split`; `quartiles`, `rounds` and `inference_rounds` are shares of the median."""
    times = seconds if isinstance(seconds, Mapping) else {phase: seconds for phase in record.phases}
    shares = split or {"forward": 0.4}
    profile = ProfileRecord(
        recipe_digest=record.recipe_digest,
        recipe=record.recipe,
        hardware=record.hardware,
        torch="2.11.0",
        phases={
            phase: PhaseProfile(
                seconds=time,
                low=quartiles[0] * time,
                high=quartiles[1] * time,
                windows=len(rounds) or len(inference_rounds) or 5,
                split={part: share * time for part, share in shares.items()},
                rounds=tuple(share * time for share in rounds),
            )
            for phase, time in times.items()
        },
        inference_seconds=inference,
        inference_rounds=tuple(share * inference for share in inference_rounds),
        made_at=AT,
        profile_pass=profile_pass,
        watch=watch,
    )
    path = runs / record.sweep / rundir.PROFILES / f"{profile.key}.json"
    run_files.write(path, profile)
    return path


def write_sweep(
    runs: Path,
    qualities: Mapping[str, Mapping[float, tuple[float, ...]]],
    *,
    step_seconds: Mapping[str, float] | None = None,
    sweep: str = "digits",
    hardware: Hardware = CPU,
    quartiles: tuple[float, float] = (0.9, 1.2),
) -> list[RunRecord]:
    """Write a finished sweep from accuracies: recipe -> budget -> one value for each seed; each recipe profiled."""
    written = []
    for recipe, budgets in qualities.items():
        for ssr, values in budgets.items():
            for seed, accuracy in enumerate(values):
                methods = () if recipe == "baseline" else (recipe,)
                record = run_record(recipe=recipe, sweep=sweep, ssr=ssr, seed=seed, methods=methods, hardware=hardware)
                write_run(runs, record, metrics={"accuracy": accuracy, "nll": 1.0 - accuracy})
                written.append(record)
        write_profile(runs, written[-1], seconds=(step_seconds or {}).get(recipe, 0.01), quartiles=quartiles)
    return written


def plan_of(planned: Sequence[RunRecord], **changes: Any) -> dict[str, Any]:
    """The content of the `sweep.json` of a sweep that has these runs, of the machine of the first."""
    first = planned[0]
    return {
        "format": 1,
        "name": first.sweep,
        "baseline": first.baseline,
        "tuning": first.tuning,
        "source": "digits.yaml",
        "spec": {"name": first.sweep},
        "hardware": run_files.to_json(first.hardware),
        "runs": [
            {
                "run_id": record.run_id,
                "recipe": record.recipe,
                "ssr": record.ssr,
                "seed": record.seed,
                "recipe_digest": record.recipe_digest,
                "effective": record.effective_digest,
                "control": record.control,
                "control_of": list(record.control_of),
            }
            for record in planned
        ],
        **changes,
    }


def write_plan(runs: Path, planned: Sequence[RunRecord], **changes: Any) -> None:
    """Write the `sweep.json` of `plan_of`."""
    rundir.write_json(runs / planned[0].sweep / rundir.SWEEP, plan_of(planned, **changes))


def change_result(directory: Path, **changes: object) -> None:
    """Write the result again with some fields changed."""
    result = run_files.read(ResultRecord, directory / rundir.RESULT)
    run_files.write(directory / rundir.RESULT, replace(result, **changes))


def _result(
    directory: Path, record: RunRecord, metrics: dict[str, float], contended: bool, step_seconds: float
) -> ResultRecord:
    timed = max(record.steps - 4, 0)
    return ResultRecord(
        run_id=record.run_id,
        metrics=metrics,
        steps=record.steps,
        examples=record.steps * record.batch_size,
        timings=Timings(
            forward=timed * step_seconds * 0.4, backward=timed * step_seconds * 0.6, warmup=1.0, evaluation=0.5
        ),
        timed_steps=timed,
        contended=contended,
        resumed=0,
        state_digest=digest([record.run_id, metrics]),
        files={
            name: hashlib.sha256((directory / name).read_bytes()).hexdigest() for name in (rundir.RUN, rundir.METRICS)
        },
        finished_at=AT,
    )
