"""Deleting a target from a run: the run that never had it, made out of the one that did.

The new run is the counterfactual (recorded/counterfactual.py): the same plan, the target's places in the batches empty.
By replay it goes on from the newest state of the old run that the target had no influence on, and is trained to its
end as any run is, so it may be interrupted and goes on where it was. By structure nothing is trained
(without_region.py). Either way the new ledger begins with what was taken over and names the old one.

What is not the old run's data, documents, machine, versions or code would give another run: refused, and said.
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from explorer import records, rundir
from explorer.engine.checkpoint import load_checkpoint, save_checkpoint
from explorer.engine.fit import metrics_bytes
from explorer.engine.loop import Loop
from explorer.entries.fields import LedgerState
from explorer.entries.run import State, TrainingState
from explorer.errors import RunError
from explorer.governance.digests import training_state
from explorer.governance.documents import keep, read_copies
from explorer.recipes.own_replay import OwnLoop, train_without
from explorer.recipes.replay import elsewhere
from explorer.recipes.run import build_loop, execute
from explorer.recipes.start import keep_start, kept_in, start_in
from explorer.recipes.without_region import drop, is_whole
from explorer.records import LoopRecord, Plan, RunRecord, read_plan
from explorer.runlog.counterfactual import counterfactual
from explorer.runlog.forecast import Route, kept
from explorer.runlog.obstacles import NO_CODE, stopped_early
from explorer.runlog.origin import Origin, read_origin, write_origin
from explorer.runlog.papers import quarantine_content
from explorer.runlog.presence import read_record
from explorer.runlog.run_ledger import RunLedger
from explorer.runlog.target import Target

IMMATERIAL = ("platform",)  # an update of the operating system changes no bit


def delete(
    old: Path,
    target: Target,
    *,
    route: Route,
    to: Path,
    data: Path | None = None,
    private: Path | None = None,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
    loop: OwnLoop | None = None,
) -> Path:
    """Make the run without the target in a directory of its own below `to`, and return that; what was begun there is
    gone on with. `private` is where the salts and the trainer's key are now, if not where the run had them. `loop`
    trains a loop of one's own (own_replay.py).

    Raises `RunError` for a run that did not end, and where data, documents, machine, versions or code are others;
    `ProvenanceError` for documents that are not to be believed; KeyboardInterrupt as `execute` does.
    """
    ledger = RunLedger(old)
    record = read_record(ledger)
    if ledger.outline.end is None:
        raise RunError(f"run {record.run_id}: unfinished: its ledger has no end; let it end first")
    if stopped := stopped_early(ledger):
        raise RunError(f"run {record.run_id}: {stopped}")
    new = counterfactual(record, target)
    documents = replace(read_copies(old), quarantine=quarantine_content(ledger))
    if private is not None:
        documents = replace(documents, private=private.resolve())
    if Path(new.run_id).name != new.run_id:
        raise RunError(f"run {record.run_id!r:.200}: no name of a directory")
    directory = to / new.run_id
    checkpoint = ledger.ledger.checkpoint()
    origin = Origin(
        level=route.level,
        run=record.run_id,
        ledger=LedgerState(origin=checkpoint.origin, size=checkpoint.size, root=checkpoint.root.hex()),
        target=target,
        begins=route.start,
        state=None,
    )
    if route.level == "G2":
        with rundir.locked(directory, what=f"run {new.run_id}"):
            if not _begun(directory, origin) or not is_whole(directory, new):
                drop(ledger, directory, new, origin, documents, dropped=route.dropped)
        return directory
    if not isinstance(new, RunRecord) or not isinstance(record, RunRecord):
        assert isinstance(new, LoopRecord)
        if loop is None:
            raise RunError(f"run {record.run_id}: {NO_CODE}")
        with rundir.locked(directory, what=f"run {new.run_id}"):
            if not _begun(directory, origin) or not is_whole(directory, new):
                refuse_elsewhere(old, record)
                train_without(directory, new, loop, documents, origin)
        return directory
    if not _begun(directory, origin):
        refuse_elsewhere(old, record)
        built = build_loop(new, data=data, documents=documents)
        state = _state_at(ledger, built, run_id=record.run_id, step=route.start)
        with rundir.locked(directory, what=f"run {new.run_id}"):
            if not _begun(directory, origin):  # by somebody else, while the data was read
                start = start_in(new)
                if start is not None:
                    keep_start(kept_in(documents, start), start, directory)
                keep(documents, directory)
                _take_over(old, directory, old_id=record.run_id, new_id=new.run_id, step=route.start)
                write_origin(directory, replace(origin, state=state))
                records.write(directory / rundir.RUN, new)
    execute(directory, data=data, on_progress=on_progress)
    return directory


def refuse_elsewhere(old: Path, record: Plan) -> None:
    """Raise `RunError` with all that is otherwise here than where the run was trained and may decide its bits."""
    differing = [each for each in elsewhere(old, record) if each.what not in IMMATERIAL]
    if differing:
        listed = "; ".join(f"{each.what}: {each.recorded} then, {each.here} here" for each in differing)
        raise RunError(f"run {record.run_id} was trained elsewhere, and a replay here gives other bits: {listed}")


def _begun(directory: Path, origin: Origin) -> bool:
    """Whether this deletion was begun in the directory. Raises `RunError` where something else was."""
    if read_plan(directory) is None:
        return False
    found = read_origin(directory)
    if found is None:
        raise RunError(f"{directory}: holds a run of its own: give another directory with --out")
    if replace(found, state=None) != origin:
        raise RunError(
            f"{directory}: begun as another deletion, {found.level} from step {found.begins} of"
            f" {found.run}, whose ledger had {found.ledger.size} entries: move it away to delete anew"
        )
    return True


def _state_at(ledger: RunLedger, loop: Loop, *, run_id: str, step: int) -> TrainingState | None:
    """The state that was kept after so many steps; None for the initial one. Raises `RunError` for a checkpoint that is
    not what the ledger has on record: nobody else vouches for it."""
    if not step:
        return None
    found = load_checkpoint(_kept_at(ledger.run, step), run_id=run_id)
    loop.restore(found.tensors, step=found.step)
    state, recorded = training_state(loop.state, step=step), ledger.genesis.start if step == ledger.begins else None
    for placed in ledger.read([index for at, index in ledger.outline.states if at == step], State):
        recorded = placed.entry.state
    if state != recorded:
        raise RunError(f"{_kept_at(ledger.run, step)}: not the state that the ledger has on record after {step} steps")
    return state


def _take_over(old: Path, directory: Path, *, old_id: str, new_id: str, step: int) -> None:
    """What was kept of the old run up to this step, as the new run's own, whose times begin anew."""
    (directory / rundir.PRIVATE).mkdir(mode=0o700, exist_ok=True)
    for number in (each for each in kept(old) if each <= step):
        found = load_checkpoint(_kept_at(old, number), run_id=old_id)
        head = metrics_bytes(found)
        mine = replace(found, plain={"offset": head})
        save_checkpoint(directory / rundir.KEPT, mine, run_id=new_id, keep=None)
        if number == step:
            rundir.write_bytes(directory / rundir.METRICS, (old / rundir.METRICS).read_bytes()[:head])
            save_checkpoint(directory / rundir.CHECKPOINT, mine, run_id=new_id)


def _kept_at(run: Path, step: int) -> Path:
    return run / rundir.KEPT / f"step-{step:08d}.json"
