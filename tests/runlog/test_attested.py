"""A named state of a ledger: the ledger as it was, or one that continues it."""

from dataclasses import replace

import pytest

from explorer.entries.fields import LedgerState
from explorer.ledger.log import Log
from explorer.ledger.storage import LedgerDirectory
from explorer.note import Algorithm, Signer
from explorer.runlog.attested import continues_ledger
from tests.provenance.people import private

ENTRIES = [b'{"entry":%d}' % number for number in range(600)]  # more than two bundles


@pytest.fixture(scope="module")
def grown(tmp_path_factory: pytest.TempPathFactory) -> tuple[LedgerDirectory, dict[int, LedgerState]]:
    """A ledger that grew, and its states on the way, as its checkpoints named them."""
    path = tmp_path_factory.mktemp("grown") / "ledger"
    signer = Signer(name="example.com/run", algorithm=Algorithm.ED25519, private_key=private("trainer"))
    states = {}
    with Log.create(path, origin=signer.name, signer=signer) as log:
        for size in (0, 1, 255, 257, 600):
            log.append(ENTRIES[log.size : size])
            log.commit()
            states[size] = LedgerState(origin=signer.name, size=size, root=log.checkpoint.root.hex())
    return LedgerDirectory(path), states


def test_a_ledger_continues_every_state_that_it_had(grown: tuple[LedgerDirectory, dict[int, LedgerState]]) -> None:
    ledger, states = grown
    assert {size: continues_ledger(ledger, state) for size, state in states.items()} == {
        0: False,  # which every ledger has had
        1: True,
        255: True,
        257: True,
        600: True,
    }


def test_a_ledger_continues_no_other_state(grown: tuple[LedgerDirectory, dict[int, LedgerState]]) -> None:
    ledger, states = grown
    for changed in (
        replace(states[255], root=states[257].root),
        replace(states[255], size=256),
        replace(states[600], size=601),
        replace(states[255], origin="example.com/another"),
    ):
        assert not continues_ledger(ledger, changed)
