"""`explorer profile run`: measure step times, and predict the time and cost of runs on this machine."""

import datetime
import hashlib
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import typer

from explorer import run_files, rundir
from explorer.analysis.bottleneck import bound_words
from explorer.cli import options
from explorer.cli.run import begin, planned_from
from explorer.costing import Duration, Price, cost_usd, default_price, load_prices, own_prices
from explorer.errors import RecipeError
from explorer.page.amounts import busy_words, price_words
from explorer.page.document import Block
from explorer.page.progress import step_bar
from explorer.page.terminal import Answer, from_here, table
from explorer.run_files import Hardware, ProfileRecord, ResultRecord, RunRecord, Validation
from explorer.schema import to_json
from explorer.sweep.plan import make_plan
from explorer.sweep.presence import timing
from explorer.sweep.spec import load_spec
from explorer.training.profile import Extrapolated, extrapolate, plan_here, profile, train_in_full, validation
from explorer.training.run_plan import PlannedRun, pace_of, recipe_of
from explorer.yaml_document import read_document


@dataclass(frozen=True, kw_only=True, slots=True)
class Subject:
    """A recipe on this machine: one planned run of it, and the runs at the budgets to predict."""

    planned: PlannedRun
    runs: tuple[RunRecord, ...]
    finished: tuple[tuple[RunRecord, ResultRecord], ...] = ()  # recorded runs of the recipe among the files named

    @property
    def longest(self) -> RunRecord:
        return max(self.runs, key=lambda run: run.steps)

    def compared(self, profile: ProfileRecord) -> Validation | None:
        """Compare the longest finished run with the profile.

        None if no run had the machine to itself, on the same hardware and software, with all its phases profiled.
        """
        fit = [
            (run, result)
            for run, result in self.finished
            if run.recipe_digest == profile.recipe_digest and set(run.phases) <= set(profile.phases)
            if result.timed_steps and not result.contended
        ]
        if not fit:
            return None
        run, result = max(fit, key=lambda pair: pair[0].steps)
        return validation(run, result, profile)


def run(
    recipes: Annotated[
        list[Path],
        typer.Argument(metavar="RECIPE...", help="Recipes or sweep specifications (YAML), or the run.json of runs."),
    ],
    budgets: Annotated[
        list[float] | None,
        typer.Option(
            "--budget", metavar="RATIO", help="Budget to predict; repeatable. Default: the budgets of the recipes."
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            metavar="FILE",
            help="Where to write the profile: a .json file, or a directory for several profiles.",
        ),
    ] = None,
    validate: Annotated[
        bool,
        typer.Option("--validate", help="Also train each recipe in full at its largest budget, and compare the times."),
    ] = False,
    runs: options.Runs = options.RUNS,
    data: options.Data = None,
    governance: Annotated[
        Path | None,
        typer.Option("--governance", metavar="DIR", help="Directory of the signed documents that govern the recipe."),
    ] = None,
) -> Answer:
    """Measure step times on this machine, and predict the time and cost of whole runs.

    Nothing else should keep the machine busy. Several recipes are measured in turns. The prediction is compared with
    the time of a finished run, given as its run.json, that had this machine to itself. A written profile can be copied
    to the machine with the results and imported there with `explorer profile import`.
    """
    subjects = subjects_of(recipes, budgets=budgets, data=data, governance=governance, runs=runs)
    if out is not None and out.suffix == ".json" and len(subjects) > 1:
        raise RecipeError(f"--out {out}: found one file for {len(subjects)} recipes; expected a directory")
    documents = {record.run_id: subject.planned.documents for subject in subjects for record in subject.runs}
    with step_bar("measuring step times") as show, timing(on_wait=_tell_wait) as reasons:
        profiles = profile(
            [record for subject in subjects for record in subject.runs],
            data=data,
            documents_of=lambda record: documents[record.run_id],
            besides=True,
            reasons=reasons,
            on_progress=show,
        )
    # Compare with full runs, predict each budget, and write the profile.
    prices = (*load_prices(), *own_prices(runs))
    profiled = []
    for subject, measured in zip(subjects, profiles, strict=True):
        compared = _trained(subject, measured, data) if validate else subject.compared(measured)
        record = replace(measured, validation=compared)
        written = None if out is None else _write(record, out)
        profiled.append((record, [extrapolate(run, record) for run in subject.runs], prices, written))
    return Answer(
        page=lambda: [block for profile in profiled for block in profile_blocks(*profile)],
        record=lambda: [profile_json(*profile) for profile in profiled],
    )


def _tell_wait(message: str) -> None:
    print(message, file=sys.stderr, flush=True)


def _trained(subject: Subject, profile: ProfileRecord, data: Path | None) -> Validation:
    """Train the longest run of a recipe in full, and compare it with the prediction."""
    with tempfile.TemporaryDirectory(prefix="explorer-") as place:
        directory = Path(place) / subject.longest.run_id
        begin(subject.planned._replace(record=subject.longest), directory)
        return train_in_full(directory, profile, data=data)


def _write(profile: ProfileRecord, out: Path) -> Path:
    path = out if out.suffix == ".json" else out / f"{profile.key}.json"
    run_files.write(path, profile)
    return path


def subjects_of(
    paths: Iterable[Path], *, budgets: Sequence[float] | None, data: Path | None, governance: Path | None, runs: Path
) -> list[Subject]:
    """Read the recipes in these files: recipes, specifications of sweeps, records of runs. Each recipe comes once.

    `budgets` replaces the budgets of the files, and `governance` the documents that a recipe names. Raises what
    planning raises, and `RunError` for a record whose data or documents are not those here.
    """
    subjects: dict[str, Subject] = {}
    for path in paths:
        planned = _of_sweep(path, data, governance, runs) or [planned_from(path, data, governance)]
        for single in planned:
            ratios = sorted(set(budgets)) if budgets else [single.record.ssr]
            here = tuple(plan_here(single.record, data=data, documents=single.documents, ssr=ssr) for ssr in ratios)
            # A recipe that several files hold is measured once, for the budgets of all of them.
            known = subjects.get(key := here[0].recipe_digest, Subject(planned=single, runs=()))
            at = {run.ssr: run for run in (*known.runs, *here)}
            subjects[key] = replace(
                known, runs=tuple(at.values()), finished=(*known.finished, *_finished(path, single.record))
            )
    return list(subjects.values())


def _of_sweep(path: Path, data: Path | None, governance: Path | None, runs: Path) -> list[PlannedRun]:
    """Plan a run of each recipe and budget of a sweep; none if the file is no specification of one."""
    if path.suffix == ".json":
        return []
    content = read_document(path).value
    if not (isinstance(content, dict) and "recipes" in content):
        return []
    if governance is not None:
        raise RecipeError(f"{path}: --governance is for a recipe; a sweep specification names its own documents")
    plan = make_plan(load_spec(path), runs=runs, data=data)
    chosen = {(run.record.recipe_digest, run.record.ssr): run for run in plan.runs}
    return [PlannedRun(record=run.record, documents=run.documents) for run in chosen.values()]


def _finished(path: Path, record: RunRecord) -> list[tuple[RunRecord, ResultRecord]]:
    """Return the run of this record, if its result is next to it."""
    result = path.with_name(rundir.RESULT)
    if path.name != rundir.RUN or not result.exists():
        return []
    return [(record, run_files.read(ResultRecord, result))]


COLUMNS = ("phase", "steps", "sec/step", "interval", "EST(hr)", "EST($)", "$/step")
SPREAD = 0.25  # of the median, between the quartiles; more than that suggests a busy machine


def profile_blocks(
    profile: ProfileRecord, times: Sequence[Extrapolated], prices: Iterable[Price], written: Path | None
) -> Iterator[Block | str]:
    """Yield a profile: its recipe and price, a table of times for each budget, its quality, and its file."""
    hardware = profile.hardware
    price = default_price(hardware.name, prices)
    threads = f"{hardware.threads} thread{'s' * (hardware.threads != 1)}"
    yield f"{profile.recipe} on {hardware.name}, {threads}, torch {profile.torch}, {profile.made_at}"
    yield f"price: {price_words(price, hardware=hardware.name, today=options.today())}\n"
    for time in times:
        yield f"budget {time.run.ssr:g}: {time.run.steps} steps"
        yield table(COLUMNS, _rows(time, price), right=COLUMNS[1:])
        yield from filter(None, (_rate(time), _bound(time, profile)))
    # Below the tables: how the times were taken, and what weakens them.
    windows = min(phase.windows for phase in profile.phases.values())
    yield f"sec/step: median of {windows} windows; interval: their quartiles, for training added up over its steps"
    yield f"inference: {1000 * profile.inference_seconds:.3g} ms per example"
    if words := busy_words(profile.watch.reasons if profile.watch else (), again="the same command"):
        yield words
    restless = [name for name, phase in profile.phases.items() if phase.high - phase.low > SPREAD * phase.seconds]
    if restless:
        yield f"the windows differ widely in {', '.join(restless)}: the machine may have been busy with something else"
    full = profile.validation
    if full is None:
        yield "not compared with a full run; --validate trains one"
    else:
        yield (
            f"a full run of {full.steps} steps took {_seconds(full.measured)} of training; predicted:"
            f" {_seconds(full.predicted)}, {full.ratio:.3f}x of that"
        )
    if written is not None:
        yield f"written to {from_here(written)}, sha256 {sha256_of(written)}"
    yield ""


def profile_json(
    profile: ProfileRecord, times: Sequence[Extrapolated], prices: Iterable[Price], written: Path | None
) -> dict[str, Any]:
    """Return the record of a profile."""
    price = default_price(profile.hardware.name, prices)
    full = profile.validation
    return to_json(profile) | {
        "key": profile.key,
        "ratio": None if full is None else full.ratio,
        "price": price_words(price, hardware=profile.hardware.name, today=options.today()),
        "runs": [
            {
                "run_id": time.run.run_id,
                "ssr": time.run.ssr,
                "steps": time.run.steps,
                "phases": {phase.name: phase.steps for phase in time.phases},
                "train_seconds": time.training.seconds,
                "train_seconds_low": time.training.low,
                "train_seconds_high": time.training.high,
                "evaluation_seconds": time.evaluation_seconds,
                "checkpoint_seconds": time.checkpoint_seconds,
                "whole_seconds": time.whole_seconds,
                "usd": _usd(time.training.seconds, price, profile.hardware),
            }
            for time in times
        ],
        "file": None if written is None else str(written),
        "sha256": None if written is None else sha256_of(written),
    }


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _rate(predicted: Extrapolated) -> str | None:
    """Return the examples that training takes in a second; None where batch sizes vary."""
    run = predicted.run
    pace = pace_of(recipe_of(run), steps=run.steps)
    if pace.position(run.steps) != run.steps * run.batch_size:
        return None
    return f"{run.steps * run.batch_size / predicted.training.seconds:,.4g} examples a second"


def _bound(predicted: Extrapolated, profile: ProfileRecord) -> str | None:
    """Return what the steps of a run are bound by: phases count with their time."""
    parts: dict[str, float] = {}
    for phase in predicted.phases:
        split = profile.phases[phase.name].split
        # Parts were timed apart from the steps, which takes longer: only their proportions count.
        scale = phase.total.seconds / max(sum(split.values()), 1e-12)
        for part, seconds in split.items():
            parts[part] = parts.get(part, 0.0) + scale * seconds
    longest = max(predicted.phases, key=lambda phase: phase.total.seconds)
    return bound_words(parts, issue=profile.phases[longest.name].issue)


def _rows(predicted: Extrapolated, price: Price | None) -> list[tuple[object, ...]]:
    hardware = predicted.run.hardware
    rows = [
        (
            phase.name,
            phase.steps,
            f"{phase.step.seconds:.4g}",
            _interval(phase.step),
            *_estimated(phase.total.seconds, price, hardware),
            _dollars(_usd(phase.step.seconds, price, hardware)),
        )
        for phase in predicted.phases
    ]
    mean = predicted.training.seconds / predicted.run.steps
    training = (
        *("training", predicted.run.steps, f"{mean:.4g}", _interval(predicted.training)),
        *_estimated(predicted.training.seconds, price, hardware),
        _dollars(_usd(mean, price, hardware)),
    )
    rest = (
        (f"evaluation ({predicted.evaluations})", predicted.evaluation_seconds),
        (f"checkpoints ({predicted.checkpoints})", predicted.checkpoint_seconds),
        ("total", predicted.whole_seconds),
    )
    others = [(name, None, None, None, *_estimated(seconds, price, hardware), None) for name, seconds in rest]
    return [*rows, training, *others]


def _estimated(seconds: float, price: Price | None, hardware: Hardware) -> tuple[str, str | None]:
    return f"{seconds / 3600:.3g}", _dollars(_usd(seconds, price, hardware))


def _usd(seconds: float, price: Price | None, hardware: Hardware) -> float | None:
    return None if price is None else cost_usd(seconds, price, hardware.world_size)


def _dollars(usd: float | None) -> str | None:
    return None if usd is None else f"{usd:.3g}"


def _interval(duration: Duration) -> str:
    return f"{duration.low:.3g} to {duration.high:.3g} s"


def _seconds(seconds: float) -> str:
    return f"{seconds:.2f} s" if seconds < 600 else str(datetime.timedelta(seconds=round(seconds)))
