"""`explorer sweep plan`: what a sweep would run, why, in which order, and what that takes."""

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from explorer.campaign.until import expected
from explorer.cli import options
from explorer.cli.sweep_status import label
from explorer.cli.verbs import part
from explorer.costing import cost_usd, load_prices, own_prices
from explorer.errors import SweepError
from explorer.page import amounts
from explorer.page.amounts import busy_words, price_words
from explorer.page.document import Block, as_baseline
from explorer.page.progress import duration, tell_rehearsal
from explorer.page.terminal import Answer, from_here, table, visible
from explorer.planned import data_option, left_out_words
from explorer.recipes.machine import this_machine
from explorer.search.stopping import spread
from explorer.sweep.chosen import is_tuned
from explorer.sweep.plan import Estimate, Plan, PlannedRun, make_plan
from explorer.sweep.profiles import busy_reasons, read_profiles
from explorer.sweep.spec import SweepSpec, load_spec
from explorer.sweep.workers import default_workers


def plan(
    spec: options.Spec,
    runs: options.Runs = options.RUNS,
    data: options.Data = None,
    workers: options.Workers = None,
) -> Answer:
    """Show what a sweep would run and why: its runs, their order, time, dollars and disk. Nothing is written."""
    asked, before = listed(load_spec(spec)), Before()
    if is_tuned(asked, runs / asked.name):
        planned = make_plan(asked, runs=runs, data=data, on_rehearse=tell_rehearsal)
    else:
        planned, before = part("sweep plan, untuned")(asked, runs=runs, data=data, workers=workers)
    estimate, at_once = estimated(planned, runs=runs, workers=workers)
    others = [(own, *estimated(own, runs=runs, workers=workers)) for own in planned.others]
    every = [(planned, estimate, at_once), *others]
    usd = [own.usd for _, own, _ in every if own.usd is not None]
    more = _more(planned, estimate, runs=runs)
    return Answer(
        page=lambda: [
            *before.blocks,
            *plan_blocks(planned, estimate, at_once, others, data=data),
            *_more_words(planned, more),
            *_next(planned, spec, runs, data),
        ],
        record=lambda: (
            planned.to_json()
            | {
                "missing": [run.record.run_id for own in planned.classes for run in own.missing],
                "other_code": [run.record.run_id for own in planned.classes for run in own.runs if run.other_code],
                "superseded": [path.name for path in planned.left_out],
                "train_seconds": sum(own.train_seconds for _, own, _ in every),
                "separate_seconds": sum(own.separate_seconds for _, own, _ in every),
                "shared": {
                    run.record.run_id: run.place.start
                    for own in planned.classes
                    for run in own.missing
                    if run.place is not None
                },
                "wall_seconds": max(own.wall_seconds for _, own, _ in every),  # classes work side by side
                "unknown": sum(own.unknown for _, own, _ in every),
                "usd": sum(usd) if len(usd) == len(every) else None,
                "workers": at_once,
                "warnings": planned.warnings,
                "known_from": planned.target.known,
                "why_not_here": planned.why_not_here,
                "busy_profile": list(_busy(planned)),
            }
            | before.record
            | ({"notes": planned.notes} if planned.notes else {})
            | ({"classes": [_class_record(*own) for own in every]} if others else {})
            | ({} if more is None else {"then": asdict(more)})
        ),
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Before:
    """The tuning that precedes the first run of a sweep, where it is not done yet."""

    blocks: Sequence[Block | str] = ()
    record: dict[str, Any] = field(default_factory=dict)


def listed(spec: SweepSpec) -> SweepSpec:
    """Return the specification if it lists its runs. Raises `SweepError` for one whose runs are chosen by results."""
    if spec.search is not None:
        again = shlex.join(("explorer", "search", spec.source))
        raise SweepError(f"{spec.source}: search: a searcher chooses its runs, one by one: `{again}` runs it")
    return spec


def _class_record(own: Plan, estimate: Estimate, at_once: int) -> dict[str, Any]:
    return {
        "machine": own.target.machine.words,
        "known_from": own.target.known,
        "why_not_here": own.why_not_here,
        "runs": [run.record.run_id for run in own.runs],
        "missing": [run.record.run_id for run in own.missing],
        "train_seconds": estimate.train_seconds,
        "wall_seconds": estimate.wall_seconds,
        "unknown": estimate.unknown,
        "usd": estimate.usd,
        "workers": at_once,
    }


FEW = 4  # names of recipes in a line
SHARED = (
    "warning: with several workers the runs share the machine, so their times are no measure of cost and stay out of"
    " every claim about time; compare by steps or examples, or leave --workers out"
)


def estimated(planned: Plan, *, runs: Path, workers: int | None) -> tuple[Estimate, int]:
    """Estimate the missing runs, and return how many of them run at the same time."""
    device = planned.runs[0].record.hardware.device
    by_one = planned.spec.command is not None or any(run.record.hardware.world_size > 1 for run in planned.runs)
    usual = 1 if by_one else default_workers(threads=planned.spec.threads, device=device)
    if not by_one and planned.why_not_here is not None:
        usual = planned.target.machine.at_once(planned.spec.threads) or usual
    at_once = workers or usual
    return planned.estimate(workers=at_once, prices=(*load_prices(), *own_prices(runs))), at_once


def plan_blocks(
    planned: Plan,
    estimate: Estimate,
    at_once: int,
    elsewhere: Sequence[tuple[Plan, Estimate, int]] = (),
    *,
    data: Path | None = None,
) -> Iterator[Block | str]:
    """Yield a plan: its question, its recipes, the runs that are done, and what the rest takes; then those for other
    classes of machines, which are `elsewhere`. `data` is the directory of the datasets, for commands."""
    yield _question(planned)
    yield from _machine_words(planned)
    yield _recipes(planned, estimate)
    if planned.spec.governance is not None:
        yield f"governed by the documents in {planned.spec.governance}, whose signatures are valid now"
    yield _counted(planned, estimate)
    yield from planned.notes
    yield from (f"warning: {warning}" for warning in planned.warnings)
    # What the number of runs leaves out or may mislead about.
    if planned.waiting:
        yield f"up to {len(planned.waiting)} more control runs, whose budgets follow from the profile"
    yield from (f"not run: {control.name}: {control.reason}" for control in planned.not_run)
    if others := sum(run.other_code for run in planned.runs):
        yield f"{others} runs were trained by other code of the same version; delete them to train them again"
    option = options.of_runs(planned.directory.parent)
    if words := left_out_words(len(planned.left_out), planned.spec.name, *option):
        yield words
    if max(planned.spec.budgets) <= 1:
        yield (
            "no budget is above 1: a recipe with faster steps than the baseline ends earlier, so its quality at the"
            " baseline's full time is not measured"
        )
    place = data_option(planned.spec.content, None if data is None else from_here(data))
    profile = shlex.join(("explorer", "sweep", "profile", planned.spec.source, *option, *place))
    if words := busy_words(_busy(planned), again=profile):
        yield words
    if planned.spec.command is not None and at_once > 1:
        yield SHARED
    if estimate.runs:
        yield _order(planned)
        hardware, of_command = planned.runs[0].record.hardware.name, planned.spec.command is not None
        yield from _shared(planned)
        yield from _forecast(estimate, at_once, hardware=hardware, of_command=of_command)
        yield _disk(planned)
    for own, estimate_of_own, at_once_there in elsewhere:
        yield ""
        yield from _machine_words(own)
        yield _recipes(own, estimate_of_own)
        yield _counted(own, estimate_of_own)
        if estimate_of_own.runs:
            hardware = own.runs[0].record.hardware.name
            yield from _forecast(estimate_of_own, at_once_there, hardware=hardware, of_command=False)


def _question(planned: Plan) -> str:
    first, others = planned.runs[0].record, len(planned.spec.trained) - 1
    task = f"{first.model} on {first.dataset}"
    if others < 1:
        return f"{planned.spec.name}: how good is {planned.spec.baseline} at each budget? ({task})"
    which = "the other recipe" if others == 1 else f"any of {others} recipes"
    quality, baseline = first.quality.replace("_", " "), planned.spec.baseline
    untuned = "" if planned.spec.tuning or planned.spec.tunes else f" than {baseline}, which is not tuned"
    words = f"does {which} reach the {quality} of {baseline} in less time{untuned}?"
    return f"{planned.spec.name}: {words} ({task})"


def _machine_words(planned: Plan) -> Iterator[str]:
    """Yield the machine that the sweep is for and why this one does not execute it, if the specification names one."""
    if not planned.spec.on:
        return
    yield f"planned for {planned.target.machine.words}, as known from {planned.target.known}"
    if (reason := planned.why_not_here) is not None:
        which = "these runs" if len(planned.spec.on) > 1 else "it"
        yield f"this machine does not execute {which}: {reason}"
        if planned.spec.command is None and planned.missing:
            yield f"its recipes were tried out on this machine ({this_machine().words}), not there"


def _counted(planned: Plan, estimate: Estimate) -> str:
    spec, total = planned.spec, len(planned.runs)
    parts = (
        amounts.count(len(spec.trained), "recipe"),
        f"{amounts.count(len(spec.budgets), 'budget')} ({', '.join(f'{budget:g}' for budget in spec.budgets)})",
        f"{amounts.count(len(spec.seeds), 'seed')} ({', '.join(map(str, spec.seeds))})",
    )
    more = ""
    if planned.decided is not None and (added := planned.decided.added):
        more = f" + {amounts.count(len(added), 'seed')} ({', '.join(map(str, added))}) of {_of(planned)}"
    return f"{total} runs, {total - len(planned.missing)} done, {estimate.runs} to do: {' x '.join(parts)}{more}"


@dataclass(frozen=True, kw_only=True, slots=True)
class _More:
    """Seeds that a sweep may add once those of its specification are done. None where it is not known."""

    seeds: int  # at most
    runs: int
    train_seconds: float | None
    usd: float | None
    expected_seeds: int | None  # by the runs that have finished
    expected_seconds: float | None
    expected_usd: float | None


def _more(planned: Plan, estimate: Estimate, *, runs: Path) -> _More | None:
    """Return the seeds that may follow; None where their number is fixed, by the specification or a decision."""
    until, spec = planned.spec.until, planned.spec
    if until is None or planned.decided is not None:
        return None
    names, most = (spec.baseline, *until.of), until.at_most - len(spec.seeds)
    of_seed = [run for run in planned.runs if run.record.recipe in names and run.record.seed == spec.seeds[0]]
    of_seed = [run for run in of_seed if run.record.control is None]
    seconds = [run.seconds for run in of_seed if run.seconds is not None]
    likely = expected(planned, until, runs=runs)

    def amount(seeds: int | None) -> tuple[float | None, float | None]:
        if seeds is None or len(seconds) < len(of_seed):
            return None, None
        total = seeds * sum(seconds)
        return total, None if estimate.price is None else cost_usd(total, estimate.price)

    (train_seconds, usd), (expected_seconds, expected_usd) = amount(most), amount(likely)
    return _More(
        seeds=most,
        runs=most * len(of_seed),
        train_seconds=train_seconds,
        usd=usd,
        expected_seeds=likely,
        expected_seconds=expected_seconds,
        expected_usd=expected_usd,
    )


def _more_words(planned: Plan, more: _More | None) -> Iterator[str]:
    """Yield how many seeds may follow, and what they take at most and probably."""
    until = planned.spec.until
    if more is None or until is None:
        return
    width = spread(until.half_width)
    yield (
        f"then: up to {amounts.count(more.seeds, 'more seed')} of {_of(planned)}, as many as a 95% interval of {width}"
        f" takes: at most {amounts.count(more.runs, 'run')}{_takes(more.train_seconds, more.usd)}"
    )
    if more.expected_seeds is not None:
        likely = _takes(more.expected_seconds, more.expected_usd)
        yield f"expected by the runs that are done: {amounts.count(more.expected_seeds, 'more seed')}{likely}"


def _takes(seconds: float | None, usd: float | None) -> str:
    if seconds is None:
        return ""
    return f", {duration(seconds)} of training" + ("" if usd is None else f", {amounts.dollars(usd)}")


def _of(planned: Plan) -> str:
    """Return the names of the recipes that get more seeds."""
    until = planned.spec.until
    return " and ".join((planned.spec.baseline, *(until.of if until else ())))


def _order(planned: Plan) -> str:
    recipes = {run.record.recipe_digest for run in planned.runs}
    profiled = planned.spec.command is not None or recipes <= read_profiles(planned.directory).keys()
    first = "" if profiled else "step times are measured first, on an idle machine; then "
    return (
        f"order: {first}small budgets before large ones, all recipes with the first seed, so that curves appear early"
    )


def _shared(planned: Plan) -> Iterator[str]:
    """Yield what the runs of a recipe and seed share, and why those of other recipes share nothing."""
    whole = sum(run.record.steps for run in planned.missing)
    made = round(sum(run.record.steps * run.share for run in planned.missing))
    if made < whole:
        yield f"shared: longer runs begin with the steps of shorter ones: {made:,} steps to train in place of {whole:,}"
    reasons: dict[str, list[str]] = {}
    for name, reason in planned.unshared.items():
        reasons.setdefault(reason, []).append(name)
    for reason, names in reasons.items():
        everything = len(names) == len(planned.spec.recipes) and len(names) > 1
        more = f" and {len(names) - FEW} more" if len(names) > FEW else ""
        which = "all recipes" if everything else f"{', '.join(names[:FEW])}{more}"
        yield f"not shared: longer runs of {which} train their first steps themselves: {reason}"


def _forecast(estimate: Estimate, workers: int, *, hardware: str, of_command: bool) -> Iterator[str]:
    if estimate.unknown == estimate.runs:
        first = "every run is timed while it trains" if of_command else "`explorer sweep run` measures them first"
        yield f"time: no step times are known on this hardware yet; {first}"
        return
    rest = f"; excludes {estimate.unknown} runs of unknown step time" if estimate.unknown else ""
    known = f"about {duration(estimate.wall_seconds)} with {workers} runs at the same time"
    saved = estimate.separate_seconds > estimate.train_seconds
    separate = f", {duration(estimate.separate_seconds)} if every run trained all its steps" if saved else ""
    yield f"time: {known}; {duration(estimate.train_seconds)} of training{separate}{rest}"
    price = visible(price_words(estimate.price, hardware=hardware, today=options.today()))
    yield f"cost: {price if estimate.usd is None else f'{amounts.dollars(estimate.usd)} at {price}'}"


def _disk(planned: Plan) -> str:
    done = [run.directory for run in planned.runs if not run.missing][:SAMPLE]
    if not done:
        return "disk: not known before the first run has finished"
    size = sum(path.stat().st_size for run in done for path in run.rglob("*") if path.is_file()) / len(done)
    return f"disk: about {_size(size * len(planned.missing))}, {_size(size)} a run"


def _size(content: float) -> str:
    """
    >>> _size(300), _size(2_500_000)
    ('0.3 kB', '2.5 MB')
    """
    return f"{content / 1e6:.3g} MB" if content >= 1e5 else f"{content / 1e3:.2g} kB"


def _next(planned: Plan, spec: Path, runs: Path, data: Path | None) -> Iterator[str]:
    option = options.of_runs(runs)
    here = planned.missing or planned.waiting or (planned.spec.until is not None and planned.decided is None)
    if here or any(own.missing or own.waiting for own in planned.others):
        place = () if data is None else ("--data", str(from_here(data)))
        where = "" if here and planned.why_not_here is None else ", on a machine of that class"
        yield f"\nnext{where}: {shlex.join(('explorer', 'sweep', 'run', str(from_here(spec)), *option, *place))}"
    else:
        yield f"\nnext: {shlex.join(('explorer', 'results', planned.spec.name, *option))}"


SAMPLE = 20  # finished runs whose size on disk is looked up


def _busy(planned: Plan) -> tuple[str, ...]:
    """Return the reasons to call the machine busy while the recipes of the plan were profiled."""
    return busy_reasons(read_profiles(planned.directory), {run.record.recipe_digest for run in planned.runs})


def _recipes(planned: Plan, estimate: Estimate) -> Block | str:
    written = {recipe.name: " + ".join(method.name for method in recipe.methods) for recipe in planned.spec.recipes}
    written |= {setting.name: ", ".join(setting.changes) for setting in planned.spec.settings}
    groups: dict[tuple[str, str | None], list[PlannedRun]] = {}
    for run in planned.runs:
        groups.setdefault((run.record.recipe, run.record.control), []).append(run)
    # The runs of a control are rows of their own: they answer another question than the recipe's.
    rows = []
    for (recipe, control), own in groups.items():
        seconds = [run.seconds for run in own if run.seconds is not None]
        done = sum(not run.missing for run in own)
        name = as_baseline(recipe) if recipe == planned.spec.baseline and control is None else label(recipe, control)
        known = len(seconds) == len(own)
        total = duration(sum(seconds)) if known else "not known"
        money = None if estimate.price is None or not known else cost_usd(sum(seconds), estimate.price)
        rows.append((name, written[recipe] or "none", len(own), done, total, amounts.dollars(money)))
    what = "methods" if planned.spec.command is None else "settings"
    columns = ("recipe", what, "runs", "done", "training time", "cost")
    shown = columns if estimate.usd is not None else columns[:-1]
    return table(shown, [row[: len(shown)] for row in rows], right=shown[2:])
