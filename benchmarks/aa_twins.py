"""Claims about recipes that are the baseline bit for bit: twenty real twins, through the whole pipeline.

    python benchmarks/aa_twins.py [--quick]

Writes aa_twins.md. The twins differ from the baseline in how often they are evaluated, which is no part of training
time: every step is the same computation, and every finished model has the same digest, which is checked. They are
planned, profiled, trained, ingested and compared like any sweep; before the comparison each digest is replaced by one
of its own, so that nothing can tell from them that the models are equal. Every claim of a difference is then false:
all of it is noise of step times. About two minutes on two cores that nothing else keeps busy; `--quick` is three twins
on short schedules, which it prints and does not write.
"""

import argparse
import os
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import pandas as pd
from pages import write_page

from explorer.analysis.equal_quality import Call, EqualQuality, equal_quality
from explorer.run_files import ProfileRecord
from explorer.store import frames
from explorer.store.ingest import ingest
from explorer.sweep.execute import Event, Settings, run_sweep
from explorer.sweep.plan import make_plan
from explorer.sweep.profiles import read_profiles
from explorer.sweep.spec import load_spec

OUT = Path(__file__).with_suffix(".md")
CLAIMS = (Call.LESS, Call.MORE)


def main() -> None:
    arguments = argparse.ArgumentParser(description="What is claimed about recipes that are the baseline bit for bit.")
    arguments.add_argument("--quick", action="store_true", help="three twins on short schedules; write nothing")
    quick = arguments.parse_args().quick
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="explorer-aa-") as place:
        content = specification(twins=3 if quick else 20, epochs=0.5 if quick else 1)
        rows, profiles = trained(content, Path(place))
    check_twins(rows)
    results = equal_quality(hidden(rows))
    text = page(results, profiles, runs=len(rows), seconds=time.monotonic() - begun)
    print(text)
    if not quick:
        write_page(OUT, text)


def specification(*, twins: int, epochs: float) -> dict[str, Any]:
    """A sweep of the baseline and of that many twins, which are evaluated more often."""
    recipes = {f"twin{number:02}": {"train": {"evaluations": number}, "methods": []} for number in range(2, twins + 2)}
    return {
        "name": "twins",
        "task": {"dataset": "digits", "model": {"resnet8": {"width": 0.5}}},
        "train": {"epochs": epochs, "batch_size": 64, "optimizer": {"sgd": {"lr": 0.1, "momentum": 0.9}}},
        "baseline": "baseline",
        "recipes": {"baseline": [], **recipes},
        "budgets": [0.5, 1.0, 1.5],
        "seeds": [0, 1, 2],
    }


def trained(content: dict[str, Any], runs: Path) -> tuple[pd.DataFrame, list[ProfileRecord]]:
    """The results of the sweep, and its profiles."""
    plan = make_plan(load_spec(content), runs=runs)
    summary = run_sweep(plan, Settings(on_event=told))
    if not summary.complete:
        raise SystemExit(f"the sweep is not complete: {summary}")
    ingest(runs)
    rows = frames.results(runs / "explorer.duckdb", sweep=content["name"])
    return rows, list(read_profiles(plan.directory).values())


def told(event: Event) -> None:
    if event.kind not in ("start", "done", "end") or event.done % 20 == 0:
        print(f"  {event.kind} {event.message} {event.done} of {event.total}", flush=True)


def check_twins(rows: pd.DataFrame) -> None:
    """Every recipe has the same model at each budget and seed, or this is no benchmark of twins."""
    for (ssr, seed), group in rows.groupby(["ssr", "seed"]):
        if group["state_digest"].nunique() != 1 or group["quality"].nunique() != 1:
            raise SystemExit(f"at budget {ssr:g} and seed {seed} the recipes differ: they are no twins")


def hidden(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows with a digest of its own for each run."""
    return rows.assign(state_digest=[f"{number:064x}" for number in range(len(rows))])


def page(results: Sequence[EqualQuality], profiles: Sequence[ProfileRecord], *, runs: int, seconds: float) -> str:
    calls = Counter(result.call for result in results)
    false = sum(calls[call] for call in CLAIMS)
    known = [(r.recipe, r.ratio, r.ratio_low, r.ratio_high, r.adjusted_low, r.adjusted_high, r.call) for r in results]
    ratios = sorted(ratio for _, ratio, *_ in known if ratio is not None)
    covered = [low <= 1 <= high for _, _, low, high, *_ in known if low is not None and high is not None]
    widths = [high / low for _, _, _, _, low, high, _ in known if low and high]
    watch = next((profile.watch for profile in profiles if profile.watch), None)
    busy = "; ".join(watch.reasons) if watch else ""
    return "\n".join(
        [
            "# Claims about twins",
            "",
            f"{len(results)} recipes that are the baseline bit for bit, in {runs} runs (ResNet-8 on digits, three"
            " budgets, three seeds), profiled, trained and compared like any sweep, with the digests of their models"
            " hidden. Every claim of a difference in time is false. Made by `benchmarks/aa_twins.py`.",
            "",
            f"- false claims, adjusted for all comparisons: **{false} of {len(results)}**",
            f"- calls: {', '.join(f'{call}: {count}' for call, count in calls.items())}",
            f"- intervals of one comparison by itself that hold 1: {sum(covered)} of {len(covered)}",
            _spread("ratios of time to equal quality", ratios),
            f"- widths of adjusted intervals, upper end over lower: median {statistics.median(widths):.3f}"
            if widths
            else "- no interval",
            f"- the profile: {'busy: ' + busy if busy else 'quiet'}",
            "",
            "| twin | ratio | its interval | adjusted | call |",
            "|---|---|---|---|---|",
            *(
                f"| {name} | {_number(ratio)} | {_span(low, high)} | {_span(least, most)} | {call} |"
                for name, ratio, low, high, least, most, call in known
            ),
            "",
            f"It took {seconds:.0f} s.",
            "",
        ]
    )


def _spread(what: str, values: Sequence[float]) -> str:
    if len(values) < 2:
        return f"- {what}: {', '.join(map(_number, values)) or 'none'}"
    low, middle, high = statistics.quantiles(values, n=4)
    return f"- {what}: {values[0]:.3f} to {values[-1]:.3f}, median {middle:.3f}, quartiles {low:.3f} and {high:.3f}"


def _number(value: float | None) -> str:
    return "none" if value is None else f"{value:.3f}"


def _span(low: float | None, high: float | None) -> str:
    return "none" if low is None or high is None else f"{low:.3f} to {high:.3f}"


if __name__ == "__main__":
    main()
