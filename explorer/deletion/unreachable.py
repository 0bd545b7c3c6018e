"""What deleting a target from a run does not reach, named for this run, in the words that certificates have for it.

What is listed may have been formed by the target, or holds it; whether it did, often nobody can tell any more. What is
not listed was not left out to be brief: it is reached, or it does not exist for this run.
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
from explorer.run_files import RunRecord, read_plan
from explorer.runlog.influence import Presence, Reach
from explorer.runlog.target import Target, left_out

SHOWN = 3  # names in a line
MOST = 480  # characters of a line


def beyond(presence: Presence, reached: Reach) -> tuple[NotReached, ...]:
    """List what a deletion of this target cannot reach. Raises `LedgerError` for a project's ledger that is
    damaged."""
    run = presence.run.run
    found = [
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
        NotReached(what="backups", detail="of the run's directory, of salts and secrets; disks that keep old blocks"),
    ]
    return tuple(found)


def _number(presence: Presence, reached: Reach) -> str:
    steps = sum(count > 0 for count in reached.slots)
    return (
        f"that the target trained in {steps} of {presence.run.steps} steps, in {sum(reached.slots)} slots, stays known:"
        " the slots stay, empty"
    )


def _fitted(presence: Presence) -> Iterator[NotReached]:
    """Constants and tokenisers that were fitted on examples."""
    fitted = presence.run.genesis.fitted
    recipe = presence.recipe if isinstance(presence.recipe, RunRecord) else None
    if fitted is not None:
        for what, words in fitted.items():
            yield NotReached(what=what, detail=_line(f"{words}; the target's are among them"))
        return
    whose = f"the dataset {recipe.dataset}" if recipe else "the data of this loop"
    yield NotReached(what="normalisation", detail=_line(f"whatever {whose} was normalised by is not known here"))
    yield NotReached(what="tokeniser", detail=_line(f"whether {whose} went through a tokeniser is not known here"))


def _chosen(presence: Presence) -> str:
    """Return what was chosen by runs that had the target."""
    recipe = presence.recipe
    if not isinstance(recipe, RunRecord):
        return "how the loop's own settings were chosen is on no record"
    runs = rundir.run_directories(presence.run.run.parent)
    tuned = f"the sweep's baseline was tuned ({recipe.tuning})" if recipe.tuning else "nothing says that it was tuned"
    return _line(
        f"{tuned}; runs in {presence.run.run.parent.name}: {len(runs)}, and whoever chose among them, or by their"
        " evaluations, saw what the target did"
    )


def _shaped(presence: Presence, reached: Reach) -> Iterator[NotReached]:
    """Regions that the policy made for the target, and that a replay leaves in the model, untrained."""
    policy, layers = presence.policy, presence.run.genesis.layers
    if policy is None or not reached.regions or reached.structural:
        return
    names = {region.name for layer in layers if (region := region_of(policy.sealed, layer))} & {*reached.regions}
    said = ", ".join(sorted(names))
    yield NotReached(what="architecture", detail=_line(f"the sealed regions {said} stay in the model, without it"))


def _descendants(presence: Presence, target: Target) -> Iterator[NotReached]:
    """Models that continue this one, as far as it is known here; those that never had the target are none."""
    run = presence.run
    origin, runs = run.ledger.checkpoint().origin, runs_of(run.run)
    told = [each for each in _observations(runs) if each.ledger.origin == origin and each.role == "fine-tuner"]
    made = [
        path.name
        for path, genesis in _geneses(runs)
        if any(each.ledger.origin == origin for each in genesis.parents) and not _leaves_out(path, genesis, target)
    ]
    if told or made:
        parts = [_some("runs here: ", made)] if made else []
        parts += [f"{len(told)} fine-tunings that the project's ledger tells of"] if told else []
        yield NotReached(what="descendants", detail=_line("; ".join(parts)))


def _observations(runs: Path) -> Iterator[Observation]:
    return (each.entry for each in read_project(runs) if isinstance(each.entry, Observation))


def _leaves_out(run: Path, genesis: Genesis, target: Target) -> bool:
    """Return whether a deletion made the run and its plan, which the genesis names, is without the target."""
    if all(parent.kind != "deletion" for parent in genesis.parents):
        return False
    try:
        record = read_plan(run)
        if record is None:
            return False
        out = left_out(record)
    except ExplorerError:
        return False  # what cannot be told is said to be not reached
    pairs = (target.classes, out.classes), (target.authorities, out.authorities), (target.records, out.records)
    return digest(record.identity) == genesis.recipe and all({*mine} <= {*theirs} for mine, theirs in pairs)


def _geneses(runs: Path) -> Iterator[tuple[Path, Genesis]]:
    """Yield every run next to this one, and the first entry of its ledger. One that cannot be read names no parents."""
    for checkpoint in sorted(runs.glob(f"[!_.]*/*/{rundir.LEDGER}/{CHECKPOINT}")):
        try:
            first = decode(next(iter(LedgerDirectory(checkpoint.parent).entries(0, 1))))
        except (ExplorerError, StopIteration):
            continue
        if isinstance(first, Genesis):
            yield checkpoint.parent.parent, first


def _measured(run: Path) -> str:
    """Return where numbers of the run are, besides the run itself."""
    names = (rundir.METRICS, rundir.RESULT, rundir.NOTEBOOK, rundir.CONTRIBUTIONS, rundir.ENTROPY)
    here = [name for name in names if (run / name).exists()]
    database = runs_of(run) / "explorer.duckdb"
    rows = [f"rows of {database.name}"] if database.exists() else []
    return _line(
        f"{', '.join([*here, *rows]) or 'none here'}; reports and exports made of them; the choice they led to"
    )


def _some(what: str, names: Iterable[str]) -> str:
    names = list(names)
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return f"{what}{', '.join(names[:SHOWN])}{more}"


def _line(text: str) -> str:
    """One line of printable characters, as a certificate can hold it."""
    shown = "".join(char if char.isprintable() else "?" for char in text)
    return shown if len(shown) <= MOST else f"{shown[:MOST]}..."
