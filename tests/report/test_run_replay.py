"""Where a replay of a run can begin, from what lies in its directory."""

from dataclasses import replace
from pathlib import Path

from explorer import run_files, rundir
from explorer.canonical import digest
from explorer.entries.kinds import Genesis
from explorer.report.run.replay_section import replay_of
from explorer.runlog.run_ledger import RunLedger
from tests.audit.governed_run import sign_again
from tests.governed_sample import EVERY, write_governed_run


def test_a_replay_begins_from_kept_states_or_the_recipe(tmp_path: Path) -> None:
    """Without the recipe that the first entry names there is no beginning."""
    run = write_governed_run(tmp_path, steps=30)
    sign_again(run, lambda _, entry: replace(entry, recipe="0" * 64) if isinstance(entry, Genesis) else entry)
    found = replay_of(RunLedger(run))
    assert (found.begins, found.stop, found.starts) == (0, 30, ())
    assert found.covered == 30 and found.states == len({*range(EVERY, 30, EVERY), 30})

    recipe = digest(run_files.read(run_files.RunRecord, run / rundir.RUN).identity)
    sign_again(run, lambda _, entry: replace(entry, recipe=recipe) if isinstance(entry, Genesis) else entry)
    for name in ("step-00000012.json", "step-00000012.safetensors", "step-00000024.json", "step-99.json"):
        (run / rundir.KEPT).mkdir(parents=True, exist_ok=True)
        (run / rundir.KEPT / name).touch()
    assert replay_of(RunLedger(run)).starts == (0, 12)  # of 24 there is half, and 99 lies beyond the run
