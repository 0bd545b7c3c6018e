"""The limits of a deletion: what deleting a target does not reach, named for this run in the words of certificates.

Everything listed holds the target or may have been formed by it; often that can no longer be determined. The list is
complete: anything else is reached by the deletion, or does not exist for this run.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path

from explorer import rundir
from explorer.canonical import digest
from explorer.entries.kinds import Genesis, Observation, decode
from explorer.errors import ExplorerError
from explorer.ledger.storage import CHECKPOINT, LedgerDirectory
from explorer.project import read_project, runs_of
from explorer.provenance.deletion_certificate import NotReached
from explorer.provenance.regions import region_of
from explorer.provenance.spellings import UNKNOWN_TEXTS
from explorer.run_files import RunRecord, read_plan
from explorer.runlog.influence import Presence, Reach
from explorer.runlog.same_steps import sharing_steps
from explorer.runlog.target import Target, left_out

SHOWN = 3  # names in a line
MOST = 480  # characters of a line


def beyond(presence: Presence, reached: Reach) -> tuple[NotReached, ...]:
    """List what a deletion of this target cannot reach, for a signer to put into the certificate. Raises `LedgerError`
    for a project's ledger that is damaged."""
    run = presence.run.run
    limits = [
        NotReached(what="number", detail=_number(presence, reached)),
        *_fitted(presence),
        NotReached(what="hyper-parameters", detail=_chosen(presence)),
        *_shaped(presence, reached),
        NotReached(
            what="published-copies",
            detail=f"copies of {run.name}/{rundir.MODEL} and of its checkpoints, wherever they were sent",
        ),
        *_descendants(presence, reached.target),
        NotReached(what="measurements", detail=_measured(run)),
        NotReached(
            what="data",
            detail="the examples themselves; and copies of them under another tag: commitments are salted, so that"
            " equal content cannot be told from the tags",
        ),
        NotReached(what="backups", detail="of the run's directory, salts and secrets; disks that keep old blocks"),
    ]
    return tuple(limits)


def _number(presence: Presence, reached: Reach) -> str:
    steps = sum(count > 0 for count in reached.slots)
    return (
        f"the target trained in {steps} of {presence.run.steps} steps, in {sum(reached.slots)} slots, which remains"
        " known: the slots stay, empty"
    )


def _fitted(presence: Presence) -> Iterator[NotReached]:
    """Yield the constants and tokenisers that were fitted on examples; unknown ones are listed as unknown."""
    fitted = presence.run.genesis.fitted
    recipe = presence.recipe if isinstance(presence.recipe, RunRecord) else None
    if fitted is not None:
        for what, words in fitted.items():
            known = "" if UNKNOWN_TEXTS in words else "; the target's are among them"
            yield NotReached(what=what, detail=_line(f"{words}{known}"))
        return
    whose = f"the dataset {recipe.dataset}" if recipe else "the data of this loop"
    yield NotReached(what="normalisation", detail=_line(f"constants that {whose} was normalised by are not known here"))
    yield NotReached(what="tokeniser", detail=_line(f"whether {whose} went through a tokeniser is not known here"))


def _chosen(presence: Presence) -> str:
    """Describe the choices that may rest on runs with the target."""
    recipe = presence.recipe
    if not isinstance(recipe, RunRecord):
        return "how the custom loop's settings were chosen is on no record"
    runs = rundir.run_directories(presence.run.run.parent)
    tuned = f"the sweep's baseline was tuned ({recipe.tuning})" if recipe.tuning else "no tuning is on record"
    return _line(
        f"{tuned}; runs in {presence.run.run.resolve().parent.name}: {len(runs)}, and a choice among them, or by their"
        " evaluations, depended on the target"
    )


def _shaped(presence: Presence, reached: Reach) -> Iterator[NotReached]:
    """Yield the regions that the policy made for the target: a replay leaves them in the model, untrained."""
    policy, layers = presence.policy, presence.run.genesis.layers
    if policy is None or not reached.regions or reached.structural:
        return
    names = {region.name for layer in layers if (region := region_of(policy.sealed, layer))} & {*reached.regions}
    regions = ", ".join(sorted(names))
    yield NotReached(what="architecture", detail=_line(f"the sealed regions {regions} stay in the model, without it"))


def _descendants(presence: Presence, target: Target) -> Iterator[NotReached]:
    """Yield the models known here that continue this one, apart from those that a deletion of the target made. Runs
    that share steps with it are among them: their models learned the same from the target."""
    run = presence.run
    origin, runs = run.ledger.checkpoint().origin, runs_of(run.run)
    observed = (entry.entry for entry in read_project(runs) if isinstance(entry.entry, Observation))
    tuned = [seen for seen in observed if seen.ledger.origin == origin and seen.role == "fine-tuner"]
    made = [
        path.name
        for path, genesis in _geneses(runs)
        if any(parent.ledger.origin == origin for parent in genesis.parents) and not _leaves_out(path, genesis, target)
    ]
    sharing, trunks = sharing_steps(run.run), run.run.parent / rundir.TRUNKS
    if tuned or made or sharing or trunks.exists():
        parts = [_some("runs here: ", made)] if made else []
        parts += [_some("runs that share steps with it: ", sharing)] if sharing else []
        parts += [f"states in {trunks.name}, which longer runs begin with"] if trunks.exists() else []
        parts += [f"{len(tuned)} fine-tunings in the project's ledger"] if tuned else []
        yield NotReached(what="descendants", detail=_line("; ".join(parts)))


def _leaves_out(run: Path, genesis: Genesis, target: Target) -> bool:
    """Return whether a deletion made the run, and its plan, which the genesis names, leaves out the target."""
    if all(parent.kind != "deletion" for parent in genesis.parents):
        return False
    try:
        record = read_plan(run)
        if record is None:
            return False
        out = left_out(record)
    except ExplorerError:
        return False  # in doubt the run counts as a descendant with the target
    pairs = (target.classes, out.classes), (target.authorities, out.authorities), (target.records, out.records)
    return digest(record.identity) == genesis.recipe and all({*mine} <= {*theirs} for mine, theirs in pairs)


def _geneses(runs: Path) -> Iterator[tuple[Path, Genesis]]:
    """Yield the runs of the project, each with the first entry of its ledger. Unreadable ones have no known parents."""
    for checkpoint in sorted(runs.glob(f"[!_.]*/*/{rundir.LEDGER}/{CHECKPOINT}")):
        try:
            first = decode(next(iter(LedgerDirectory(checkpoint.parent).entries(0, 1))))
        except (ExplorerError, StopIteration):
            continue
        if isinstance(first, Genesis):
            yield checkpoint.parent.parent, first


def _measured(run: Path) -> str:
    """List the places that have numbers measured in the run."""
    names = (rundir.METRICS, rundir.RESULT, rundir.NOTEBOOK, rundir.CONTRIBUTIONS, rundir.ENTROPY)
    here = [name for name in names if (run / name).exists()]
    database = runs_of(run) / "explorer.duckdb"
    rows = [f"rows of {database.name}"] if database.exists() else []
    return _line(f"{', '.join([*here, *rows]) or 'none here'}; reports and exports made of them; choices based on them")


def _some(what: str, names: Iterable[str]) -> str:
    names = list(names)
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return f"{what}{', '.join(names[:SHOWN])}{more}"


def _line(text: str) -> str:
    """Return the text as one line of printable characters, which is what a certificate can hold."""
    shown = "".join(char if char.isprintable() else "?" for char in text)
    return shown if len(shown) <= MOST else f"{shown[:MOST]}..."
