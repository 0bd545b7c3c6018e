"""The run that never had a target: the same plan, the target's places in the batches empty.

What it is follows from the record of the run that had it, and from nothing else: the recipe's `routing` leaves the
target out, and budget, seed, data, machine, versions and documents are the same. So its name can be told before
anything is trained, and by anybody who has both records.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, TypeVar

from explorer.canonical import digest
from explorer.errors import RunError
from explorer.records import LoopRecord, Plan, RunRecord, listed_methods
from explorer.runlog.target import Target
from explorer.schema import from_json

SWEEP = "deletions"  # the directory that runs without a target share
ROUTING = "routing"  # the method that leaves something out, and its parameters
CLASSES, AUTHORITIES, RECORDS = "without", "without_authorities", "without_records"

AnyPlan = TypeVar("AnyPlan", bound=RunRecord | LoopRecord)


def counterfactual(record: AnyPlan, target: Target) -> AnyPlan:
    """The record of the run without the target, and without what this one leaves out already.

    Raises `RunError` for a run that routes nothing, and for one that leaves all of the target out already.
    """
    before = left_out(record)
    after = {
        CLASSES: sorted({*before.classes, *target.classes}),
        AUTHORITIES: sorted({*before.authorities, *target.authorities}),
        RECORDS: sorted({*before.records, *target.records}),
    }
    if [*after.values()] == [[*each] for each in (before.classes, before.authorities, before.records)]:
        raise RunError(f"run {record.run_id}: leaves out {target.words} already: there is nothing to delete")
    methods = [
        {ROUTING: {**_parameters(each), **after}} if _name(each) == ROUTING else each for each in listed_methods(record)
    ]
    identity = {**record.identity, "recipe": {**record.identity["recipe"], "methods": methods}}
    if isinstance(record, LoopRecord):
        name = record.run_id.removesuffix(f"-{digest(record.identity)[:8]}")
        return replace(record, run_id=f"{name}-{digest(identity)[:8]}", identity=identity)
    common = {name: value for name, value in identity.items() if name not in ("ssr", "seed")}
    return replace(
        record,
        run_id=record.run_id[:-8] + digest(identity)[:8],
        sweep=SWEEP,
        identity=identity,
        recipe_digest=digest(common),
    )


def left_out(record: Plan) -> Target:
    """What a run's recipe leaves out; here several kinds may have members. Raises `RunError` for a run that routes
    nothing: of such a run nothing can be left out."""
    for method in listed_methods(record):
        if _name(method) == ROUTING:
            found = _parameters(method)
            given = {
                "classes": found.get(CLASSES, []),
                "authorities": found.get(AUTHORITIES, []),
                "records": found.get(RECORDS, []),
            }
            return from_json(Target, given, where=f"run {record.run_id}: damaged: {ROUTING}", error=RunError)
    raise RunError(f"run {record.run_id}: its recipe has no {ROUTING!r}: nothing can be left out of it")


def _name(method: Mapping[str, Any]) -> str:
    return next(iter(method))


def _parameters(method: Mapping[str, Any]) -> Mapping[str, Any]:
    found = method[_name(method)]
    if not isinstance(found, Mapping):
        raise RunError(f"{ROUTING}: damaged: expected its parameters, found {found!r:.80}")
    return found
