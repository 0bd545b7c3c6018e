"""Governed runs on digits whose provenance is simulated, under a demonstration's documents; a second or less each."""

import time
from pathlib import Path
from typing import Any

from explorer import run_files, rundir
from explorer.data.digits import Digits
from explorer.provenance.policy import FORMAT, Quarantine, RoutingPolicy, Rule, TaxonomyReference
from explorer.provenance.taxonomy import FORMAT as TAXONOMY_FORMAT
from explorer.provenance.taxonomy import Source, Taxonomy, TaxonomyClass
from explorer.runlog.documents import keep
from explorer.training.demonstration import demonstrate
from explorer.training.run_plan import PlannedRun, plan_single
from explorer.yaml_document import Document, document_of

CLASSES = ("simulated", "simulated/class-00", "simulated/class-01", "simulated/class-02")
BEGINS, ENDS = "2026-01-01T00:00:00Z", "2100-01-01T00:00:00Z"
DIGITS = Digits(simulated_classes=3)
TAXONOMY = Taxonomy(
    format=TAXONOMY_FORMAT,
    name="simulated",
    version=1,
    issued=BEGINS,
    expires=ENDS,
    classes=tuple(
        TaxonomyClass(path=path, definition="Made up.", personal_data=False, source=Source.OTHER) for path in CLASSES
    ),
)
METHODS: list[Any] = [{"routing": {"policy": "lower"}}, "contributions", {"recorder": {"every": 2}}]


def policy(name: str, quarantine: Quarantine) -> RoutingPolicy:
    """The first class must not touch the lower half; the others train everything."""
    return RoutingPolicy(
        format=FORMAT,
        name=name,
        version=1,
        issued=BEGINS,
        expires=ENDS,
        taxonomy=TaxonomyReference(name=TAXONOMY.name, version=TAXONOMY.version, digest=TAXONOMY.digest),
        quarantine=quarantine,
        rules=(
            Rule(classes=("simulated/class-00",), depth=(0.0, 0.5), weight=0.0),
            Rule(classes=("simulated",), weight=1.0),
        ),
    )


def documents(root: Path) -> Path:
    """A governance directory with the policies `lower`, which refuses, and `lenient`."""
    policies = (policy("lower", Quarantine.REFUSE), policy("lenient", Quarantine.WEIGHT_ZERO))
    return demonstrate(root, DIGITS, data=None, taxonomy=TAXONOMY, policies=policies, now=int(time.time()))


def recipe(governance: Path | str | None = None, *, methods: Any = None, **changes: Any) -> dict[str, Any]:
    """The content of a recipe file: four steps."""
    content = {
        "task": {
            "dataset": {"digits": {"simulated_classes": 3}},
            "model": {"resnet8": {"width": 0.5, "norm": "group"}},
        },
        "train": {"epochs": 0.285, "batch_size": 64, "optimizer": {"sgd": {"lr": 0.1}}},
        "methods": METHODS if methods is None else methods,
    }
    named = {} if governance is None else {"governance": str(governance)}
    return content | named | changes


def planned(content: dict[str, Any], *, beside: Path = Path(), governance: Path | None = None) -> PlannedRun:
    document: Document = document_of(content)
    return plan_single(
        document.value,
        name="tiny",
        where="tiny.yaml",
        data=None,
        beside=beside,
        governance=governance,
        now=int(time.time()),
    )


def begun(plan: PlannedRun, root: Path) -> Path:
    """The directory of a planned run."""
    directory = root / plan.record.run_id
    if plan.documents is not None:
        keep(plan.documents, directory)
    run_files.write(directory / rundir.RUN, plan.record)
    return directory
