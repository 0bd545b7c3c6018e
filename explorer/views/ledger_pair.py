"""Two governed runs held against each other: what makes them differ, and what each of them came to.

Two runs are two runs: each was done once, so nothing here says whether a difference is more than chance. What both have
is compared, layer by layer and class by class, by name; the rest is said.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from explorer import rundir
from explorer.audit.shares import shares
from explorer.canonical import canonical
from explorer.entries.run import Genesis, Profile
from explorer.recorded.papers import POLICY, read_policy
from explorer.recorded.presence import recorded_plan
from explorer.views import ledger_heat
from explorer.views.ledger_depth import profile_frame
from explorer.views.ledger_runs import OpenRun

NONE = "none"


@dataclass(frozen=True, kw_only=True, slots=True)
class Fact:
    """Something that determines a run, as both have it."""

    name: str
    first: str
    second: str
    same: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class Common:
    """What two runs have in common, and what only one of them has."""

    both: tuple[str, ...]
    first: tuple[str, ...]
    second: tuple[str, ...]


def common(first: Sequence[str], second: Sequence[str]) -> Common:
    """Names that both have, in the order of the first, and the others."""
    return Common(
        both=tuple(name for name in first if name in second),
        first=tuple(name for name in first if name not in second),
        second=tuple(name for name in second if name not in first),
    )


def facts(first: OpenRun, second: OpenRun) -> tuple[Fact, ...]:
    """What determines each run, by the first entry of its ledger; in words where a document that it names is here.

    Raises `RunError` for damaged records, `LedgerError` or `ProvenanceError` for a policy that is not the run's.
    """
    plans = [_plan(each) for each in (first, second)]
    found = [_fact(name, said(first.ledger.genesis), said(second.ledger.genesis)) for name, said in DETERMINED.items()]
    found[1:1] = [
        _fact(name, _shown(plans[0].get(key)), _shown(plans[1].get(key)))
        for name, key in PLANNED.items()
        if any(key in plan for plan in plans)
    ]
    policies, probes = [_policy(each) for each in (first, second)], [_probes(each) for each in (first, second)]
    found += [_fact("Policy", *policies), _fact("Probes of the profiles", *probes)]
    found.append(_fact("Steps done", f"{len(first.recorded):,}", f"{len(second.recorded):,}"))
    return tuple(found)


def profiles_at(first: OpenRun, second: OpenRun) -> tuple[int | None, pd.DataFrame]:
    """The last step at which both were measured, and a row for each layer that both have: layer, and for each measure
    of the depth profile first, second and difference (`entropy_first`, ...), and `p_value_first`, `p_value_second`.

    None and no rows where they were never measured after the same number of steps.
    """
    frames = [profile_frame(each.profiles) for each in (first, second)]
    if any(frame.empty for frame in frames):
        return None, pd.DataFrame()
    steps = {*frames[0]["step"]} & {*frames[1]["step"]}
    if not steps:
        return None, pd.DataFrame()
    at = max(steps)
    one, other = (frame[frame["step"] == at].set_index("layer") for frame in frames)
    joined = one.join(other, lsuffix="_first", rsuffix="_second", how="inner")
    joined = joined.loc[[layer for layer in one.index if layer in joined.index]]
    for measure in ("entropy", "effective_rank", "chi"):
        joined[f"{measure}_difference"] = joined[f"{measure}_second"] - joined[f"{measure}_first"]
    return int(at), joined.reset_index()


def share_differences(first: OpenRun, second: OpenRun) -> pd.DataFrame:
    """A row for each layer and class that both have: layer, class, first, second and difference of the class's share in
    the summed gradient over the whole run (NaN where one of them has none), state_first, state_second.

    Raises `StoreError` or `LedgerError` as `explorer.audit.shares` does.
    """
    frames = [ledger_heat.cells(shares(each.ledger), each.recorded) for each in (first, second)]
    joined = frames[0].merge(frames[1], on=["layer", "class"], suffixes=("_first", "_second"), how="inner")
    renamed = joined.rename(columns={"share_first": "first", "share_second": "second"})
    return renamed.assign(difference=renamed["second"] - renamed["first"])[
        ["layer", "class", "first", "second", "difference", "state_first", "state_second"]
    ]


def span_of(frames: Sequence[pd.DataFrame], measure: str) -> tuple[float, float] | None:
    """The axis that holds a measure of all of them, zero included for chi; None where there is nothing to hold."""
    values = np.concatenate([frame[measure].to_numpy(float) for frame in frames if not frame.empty] or [np.array([])])
    values = values[np.isfinite(values)]
    if not len(values):
        return None
    low, high = (min(0.0, values.min()), max(0.0, values.max())) if measure == "chi" else (values.min(), values.max())
    room = 0.05 * (high - low) or 0.05 * abs(high) or 1.0
    return float(low - room), float(high + room)


def _fact(name: str, first: str, second: str) -> Fact:
    return Fact(name=name, first=first, second=second, same=first == second)


def _short(digest: str | None) -> str:
    return NONE if digest is None else digest[:16]


def _parents(genesis: Genesis) -> str:
    return "; ".join(parent.words for parent in genesis.parents) or "nothing"


def _tags(genesis: Genesis) -> str:
    return ", ".join(f"{name} {sources.root[:16]}" for name, sources in sorted(genesis.tags.items())) or NONE


DETERMINED: dict[str, Callable[[Genesis], str]] = {
    "Recipe": lambda genesis: _short(genesis.recipe),
    "Seed": lambda genesis: str(genesis.seed),
    "Data": lambda genesis: _short(genesis.data),
    "Tags": _tags,
    "Taxonomy": lambda genesis: _short(genesis.taxonomy),
    "Trust file": lambda genesis: _short(genesis.trust),
    "Code": lambda genesis: _short(genesis.code),
    "Environment": lambda genesis: _short(genesis.environment),
    "Initial parameters": lambda genesis: _short(genesis.initial),
    "Strategy": lambda genesis: genesis.strategy,
    "Goes on from": _parents,
    "Begins after": lambda genesis: f"{genesis.begins:,} steps",
}
PLANNED = {
    "Name of the recipe": "name",
    "Model": "model",
    "Dataset": "dataset",
    "Methods": "methods",
    "Training": "train",
    "Budget": "ssr",
}


def _plan(opened: OpenRun) -> dict[str, object]:
    """What `run.json` says in words, where it is the one that the ledger names."""
    record = recorded_plan(opened.ledger)
    if record is None:
        return {}
    recipe = record.identity.get("recipe")
    parts = recipe if isinstance(recipe, dict) else {}
    task = parts.get("task") if isinstance(parts.get("task"), dict) else {}
    words = {"name": record.recipe, "model": record.model, "dataset": (task or {}).get("dataset", record.dataset)}
    return words | {"methods": parts.get("methods"), "train": parts.get("train"), "ssr": f"{record.ssr:g}"}


def _shown(value: object) -> str:
    if value is None:
        return "not recorded"
    return value if isinstance(value, str) else canonical(value).decode()


def _policy(opened: OpenRun) -> str:
    if opened.ledger.genesis.policy is None or not (opened.ledger.run / rundir.GOVERNANCE / POLICY).exists():
        return _short(opened.ledger.genesis.policy)
    policy = read_policy(opened.ledger)
    assert policy is not None  # the genesis names one
    return f"{policy.name} version {policy.version}, {_short(opened.ledger.genesis.policy)}"


def _probes(opened: OpenRun) -> str:
    run = opened.ledger
    return ", ".join(sorted({_short(each.entry.probes) for each in run.read(run.outline.profiles, Profile)})) or NONE
