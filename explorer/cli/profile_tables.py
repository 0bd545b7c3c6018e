"""A profile as `explorer profile` prints it: a table for each budget, in the terms of SkyPilot's benchmarks."""

import datetime
import hashlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from explorer.cli.output import from_here, print_table, visible
from explorer.cli.price_list import today
from explorer.costing import Duration, Price, cost_usd, default_price, price_words
from explorer.costing.words import busy_words
from explorer.records import Hardware, ProfileRecord
from explorer.schema import to_json
from explorer.training.profile import Extrapolated

COLUMNS = ("phase", "steps", "sec/step", "interval", "EST(hr)", "EST($)", "$/step")
SPREAD = 0.25  # of the median between the quartiles: a machine that something else keeps busy shows more


def print_profile(
    profile: ProfileRecord, times: Sequence[Extrapolated], prices: Iterable[Price], written: Path | None
) -> None:
    """Everything that a profile says, with where it was written."""
    hardware = profile.hardware
    price = default_price(hardware.name, prices)
    threads = f"{hardware.threads} thread{'s' * (hardware.threads != 1)}"
    print(f"{visible(profile.recipe)} on {visible(hardware.name)}, {threads}, torch {profile.torch}, {profile.made_at}")
    print(f"price: {visible(price_words(price, hardware=hardware.name, today=today()))}\n")
    for each in times:
        print(f"budget {each.run.ssr:g}: {each.run.steps} steps")
        print_table(COLUMNS, _rows(each, price), right=COLUMNS[1:])
    windows = min(phase.windows for phase in profile.phases.values())
    print(f"sec/step: median of {windows} windows; interval: their quartiles, for training added up over its steps")
    print(f"inference: {1000 * profile.inference_seconds:.3g} ms an example")
    if words := busy_words(profile.watch.reasons if profile.watch else (), again="the same command"):
        print(visible(words))
    restless = [name for name, phase in profile.phases.items() if phase.high - phase.low > SPREAD * phase.seconds]
    if restless:
        print(f"the windows differ much in {visible(', '.join(restless))}: was the machine busy with something else?")
    full = profile.validation
    if full is None:
        print("not held against a full run: --validate trains one")
    else:
        print(
            f"a full run of {full.steps} steps took {_seconds(full.measured)} of training; predicted"
            f" {_seconds(full.predicted)}: {full.ratio:.3f} of it"
        )
    if written is not None:
        print(f"written to {visible(str(from_here(written)))}, sha256 {sha256_of(written)}")
    print()


def profile_json(
    profile: ProfileRecord, times: Sequence[Extrapolated], prices: Iterable[Price], written: Path | None
) -> dict[str, Any]:
    """The same as JSON."""
    price = default_price(profile.hardware.name, prices)
    full = profile.validation
    return to_json(profile) | {
        "key": profile.key,
        "ratio": None if full is None else full.ratio,
        "price": price_words(price, hardware=profile.hardware.name, today=today()),
        "runs": [
            {
                "run_id": each.run.run_id,
                "ssr": each.run.ssr,
                "steps": each.run.steps,
                "phases": {phase.name: phase.steps for phase in each.phases},
                "train_seconds": each.training.seconds,
                "train_seconds_low": each.training.low,
                "train_seconds_high": each.training.high,
                "evaluation_seconds": each.evaluation_seconds,
                "checkpoint_seconds": each.checkpoint_seconds,
                "whole_seconds": each.whole_seconds,
                "usd": _usd(each.training.seconds, price, profile.hardware),
            }
            for each in times
        ],
        "file": None if written is None else str(written),
        "sha256": None if written is None else sha256_of(written),
    }


def sha256_of(path: Path) -> str:
    """What names the bytes of a file that is carried from one machine to another."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _rows(found: Extrapolated, price: Price | None) -> list[tuple[object, ...]]:
    hardware = found.run.hardware
    rows = [
        (
            visible(phase.name),
            phase.steps,
            f"{phase.step.seconds:.4g}",
            _interval(phase.step),
            *_estimated(phase.total.seconds, price, hardware),
            _dollars(_usd(phase.step.seconds, price, hardware)),
        )
        for phase in found.phases
    ]
    mean = found.training.seconds / found.run.steps
    training = (
        *("training", found.run.steps, f"{mean:.4g}", _interval(found.training)),
        *_estimated(found.training.seconds, price, hardware),
        _dollars(_usd(mean, price, hardware)),
    )
    beside = (
        (f"evaluation ({found.evaluations})", found.evaluation_seconds),
        (f"checkpoints ({found.checkpoints})", found.checkpoint_seconds),
        ("in all", found.whole_seconds),
    )
    others = [(name, None, None, None, *_estimated(seconds, price, hardware), None) for name, seconds in beside]
    return [*rows, training, *others]


def _estimated(seconds: float, price: Price | None, hardware: Hardware) -> tuple[str, str | None]:
    return f"{seconds / 3600:.3g}", _dollars(_usd(seconds, price, hardware))


def _usd(seconds: float, price: Price | None, hardware: Hardware) -> float | None:
    return None if price is None else cost_usd(seconds, price, hardware.world_size)


def _dollars(usd: float | None) -> str | None:
    return None if usd is None else f"{usd:.3g}"


def _interval(found: Duration) -> str:
    return f"{found.low:.3g} to {found.high:.3g} s"


def _seconds(seconds: float) -> str:
    return f"{seconds:.2f} s" if seconds < 600 else str(datetime.timedelta(seconds=round(seconds)))
