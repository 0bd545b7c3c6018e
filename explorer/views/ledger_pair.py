"""Two governed runs held against each other: what makes them differ, and what each of them came to.

Two runs are two runs: each was done once, so nothing here says whether a difference is more than chance. What both have
is compared, layer by layer and class by class, by name; the rest is said.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from explorer import rundir
from explorer.audit.shares import shares
from explorer.canonical import canonical
from explorer.entries.run import Genesis, Profile
from explorer.records import RunRecord
from explorer.runlog.papers import POLICY, read_policy
from explorer.runlog.presence import recorded_plan
from explorer.views import ledger_heat
from explorer.views.ledger_depth import MEASURES, profile_frame
from explorer.views.ledger_runs import OpenRun

NONE = "none"
DEPTH = 5  # of nested settings


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
    one, other = first.ledger.genesis, second.ledger.genesis
    found = [_fact(name, said(one), said(other)) for name, said in DETERMINED.items()]
    found[1:1] = _settings(_plan(first), _plan(second))
    policies, probes = [_policy(each) for each in (first, second)], [_probes(each) for each in (first, second)]
    found += [_fact("Policy", *policies), _fact("Probes of the profiles", *probes)]
    found.append(_fact("Steps done", f"{len(first.recorded):,}", f"{len(second.recorded):,}"))
    return tuple(found)


def profiles_at(first: OpenRun, second: OpenRun) -> tuple[int | None, pd.DataFrame]:
    """The last step at which both were measured, and a row for each layer that both have: layer, and for each measure
    of the depth profile first, second and difference (`entropy_first`, ...), and p-values (`p_value_first`, ...).

    None and no rows where they were never measured after the same number of steps.
    """
    frames = [profile_frame(each.profiles) for each in (first, second)]
    if any(frame.empty for frame in frames):
        return None, pd.DataFrame()
    steps = {*frames[0]["step"]} & {*frames[1]["step"]}
    if not steps:
        return None, pd.DataFrame()
    at = max(steps)
    one, other = (frame[frame["step"] == at] for frame in frames)
    joined = one.merge(other, on="layer", suffixes=("_first", "_second"))  # in the order of the first
    for measure in MEASURES:
        joined[f"{measure}_difference"] = joined[f"{measure}_second"] - joined[f"{measure}_first"]
    return int(at), joined


def share_differences(first: OpenRun, second: OpenRun) -> pd.DataFrame:
    """A row for each layer and class that both have: layer, class, first, second and difference of the class's share in
    the summed gradient (NaN where one of them has none), state_first, state_second. It is over the whole of each run;
    where a deletion made one of them, over the steps since then. No rows where one has no such step.

    Raises `StoreError` or `LedgerError` as `explorer.audit.shares` does.
    """
    begins = max(first.ledger.begins, second.ledger.begins)
    steps = [range(begins, each.ledger.steps) for each in (first, second)]
    if not all(steps):
        return pd.DataFrame()
    pairs = zip((first, second), steps, strict=True)
    frames = [ledger_heat.cells(shares(each.ledger, some), each.recorded) for each, some in pairs]
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


def _plan(opened: OpenRun) -> dict[str, str]:
    """The settings of the recipe, or of the loop, in words, where its record is the one that the ledger names."""
    record = recorded_plan(opened.ledger)
    if record is None:
        return {}
    found: dict[str, str] = {}
    if isinstance(record, RunRecord):
        found = {"name of the recipe": record.recipe, "budget": f"{record.ssr:g} of the full schedule"}
    recipe = record.identity.get("recipe")
    return found | dict(_flat("", recipe if isinstance(recipe, dict) else {}, DEPTH))


def _flat(path: str, value: object, depth: int) -> Iterator[tuple[str, str]]:
    """Every setting by its path: methods, which are a list of one name each, by that name."""
    names = isinstance(value, list) and bool(value) and all(isinstance(each, dict) and len(each) == 1 for each in value)
    if names and isinstance(value, list):
        yield f"{path} in order", ", ".join(str(name) for each in value for name in each)
        value = {name: inner for each in value for name, inner in each.items()}
    if isinstance(value, dict) and value and depth:
        for name, inner in value.items():
            yield from _flat(f"{path} {name}".strip(), inner, depth - 1)
    else:
        yield path, value if isinstance(value, str) else canonical(value).decode()


def _settings(first: dict[str, str], second: dict[str, str]) -> list[Fact]:
    """The settings that differ, and a fact for all the others."""
    if not first or not second:
        words = ("in words" if first else "not recorded here", "in words" if second else "not recorded here")
        return [_fact("Settings of the recipe", *words)] if words[0] != words[1] else []
    names = dict.fromkeys([*first, *second])
    pairs = {name: (first.get(name, "not set"), second.get(name, "not set")) for name in names}
    return [*(_fact(name, *pair) for name, pair in pairs.items() if pair[0] != pair[1])]


def _policy(opened: OpenRun) -> str:
    if opened.ledger.genesis.policy is None or not (opened.ledger.run / rundir.GOVERNANCE / POLICY).exists():
        return _short(opened.ledger.genesis.policy)
    policy = read_policy(opened.ledger)
    assert policy is not None  # the genesis names one
    return f"{policy.name} version {policy.version}, {_short(opened.ledger.genesis.policy)}"


def _probes(opened: OpenRun) -> str:
    run = opened.ledger
    return ", ".join(sorted({_short(each.entry.probes) for each in run.read(run.outline.profiles, Profile)})) or NONE
