"""Which stretches of a run's numbers a grant's keys are for."""

import shutil
from dataclasses import replace
from pathlib import Path

from explorer import rundir
from explorer.disclosure.coverage import stretches
from explorer.entries.kinds import decode, encode
from explorer.entries.run import Decision, State
from explorer.ledger.log import Log
from explorer.ledger.read import LedgerDirectory
from explorer.recorded.run_ledger import RunLedger
from tests.audit.governed_run import NEWS, signer
from tests.disclosure.granted import confidential_run


def test_steps_that_were_executed_again_have_keys_too(tmp_path: Path) -> None:
    """Steps 5 to 9 twice, the first time with a state after step 7: a reader can look at what was superseded."""
    run = confidential_run(tmp_path)
    usual = stretches(RunLedger(run), ["step"])
    directory = run / rundir.LEDGER
    leaves = list(LedgerDirectory(directory).entries())
    entries = [decode(leaf) for leaf in leaves]
    after = {e.step: (at, e) for at, e in enumerate(entries) if isinstance(e, State)}
    (begins, _), (ends, closing) = after[5], after[10]
    middle = next(at for at in range(begins + 1, ends) if getattr(entries[at], "step", None) == 7)
    back = Decision(
        step=5, action="re-execution", rule="other-bits", parameters={}, condition=None,
        subjects=(), layers=(), evidence={}, blobs={},
    )  # fmt: skip
    first = [*leaves[begins + 1 : middle], encode(replace(closing, step=7)), *leaves[middle : ends + 1]]
    for name in ("checkpoint", "tile"):
        (shutil.rmtree if (directory / name).is_dir() else Path.unlink)(directory / name)
    with Log.create(directory, origin=signer(run).name, signer=signer(run)) as log:
        log.append([*leaves[: begins + 1], *first, encode(back), *leaves[begins + 1 :]])
    found = stretches(RunLedger(run), ["step"])
    assert 7 not in usual[NEWS, "step"] and found[NEWS, "step"] == usual[NEWS, "step"] | {7}
