"""Which stretches of a run's numbers a grant's keys are for."""

from dataclasses import replace
from pathlib import Path

from explorer.disclosure.grants_in_force import stretches
from explorer.entries.kinds import State, Step, decode, encode
from explorer.runlog.run_ledger import RunLedger
from tests.audit.governed_run import NEWS, executed_again, rewrite
from tests.disclosure.granted import confidential_run


def test_steps_that_were_executed_again_have_keys_too(tmp_path: Path) -> None:
    """Steps 5 to 9 twice, the first time with a state after step 7: a reader can look at what was superseded."""
    run = confidential_run(tmp_path)
    usual = stretches(RunLedger(run), ["step"])

    def with_a_state_more(leaves: list[bytes]) -> list[bytes]:
        made = executed_again(leaves, lambda entry: entry)
        entries = [decode(leaf) for leaf in made]
        seventh = next(at for at, entry in enumerate(entries) if isinstance(entry, Step) and entry.step == 7)
        closing = next(entry for entry in entries[seventh:] if isinstance(entry, State))
        return [*made[:seventh], encode(replace(closing, step=7)), *made[seventh:]]

    rewrite(run, with_a_state_more)
    found = stretches(RunLedger(run), ["step"])
    assert 7 not in usual[NEWS, "step"] and found[NEWS, "step"] == usual[NEWS, "step"] | {7}
