"""A tuned sweep as its directory shows it, without training: `fast` needs half the time, and found less by tuning."""

from pathlib import Path
from typing import Any

from explorer.run_files import Hardware, Metric
from explorer.schema import to_json
from explorer.store.ingest import ingest
from explorer.sweep.tuned import EdgeRecord, PointRecord, TunedRecipe, TunedRecord
from tests.builders import write_plan, write_sweep

QUALITIES = {
    "baseline": {0.5: (0.80, 0.81), 1.0: (0.90, 0.91), 2.0: (0.92, 0.93)},
    "fast": {0.5: (0.81, 0.82), 1.0: (0.90, 0.92), 2.0: (0.93, 0.93)},
}


def tuned_recipe(recipe: str, qualities: list[float | None], **changes: Any) -> TunedRecipe:
    points = tuple(
        PointRecord(values={"lr": 0.1 * at}, quality=quality, seconds=2.0, steps=50, runs=(f"{recipe}-p{at}",))
        for at, quality in enumerate(qualities, start=1)
    )
    best = max(range(len(points)), key=lambda at: -1.0 if qualities[at] is None else qualities[at])  # pyright: ignore
    return TunedRecipe(**{"recipe": recipe, "points": points, "chosen": best, "edges": (), **changes})


def tuned_record(**changes: Any) -> TunedRecord:
    return TunedRecord(
        **{
            "question": "ab" * 32,
            "sweep": "digits-tune",
            "sampler": "quasi-random",
            "runs": 3,
            "budget": 0.5,
            "seeds": (100,),
            "metric": Metric(name="accuracy", unit="fraction", higher_is_better=True),
            "hardware": Hardware(device="cpu", name="AMD EPYC 7B13", threads=1),
            "contended": True,
            "recipes": (
                tuned_recipe("baseline", [0.7, 0.8, 0.6]),
                tuned_recipe("fast", [0.5, 0.7, None], edges=(EdgeRecord(key="lr", side="high", wider=(0.1, 1.0)),)),
            ),
            **changes,
        }
    )


def write_tuned(runs: Path, record: TunedRecord | None = None) -> TunedRecord:
    record = record or tuned_record()
    planned = write_sweep(runs, QUALITIES, step_seconds={"fast": 0.005})
    write_plan(runs, planned, tuned=to_json(record), tuning=record.words)
    ingest(runs)
    return record
