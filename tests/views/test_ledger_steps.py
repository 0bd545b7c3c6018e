"""What the entries of a run say of its steps."""

from pathlib import Path

import numpy as np
import pytest

from explorer import rundir
from explorer.errors import LedgerError
from explorer.ledger.storage import blob_path
from explorer.runlog.run_ledger import RunLedger
from explorer.views.ledger.open_run import read_all_steps
from tests.governed_sample import CLASSES, STEPS, Sample


def test_every_step_is_there_once(governed: Path) -> None:
    found, sample = read_all_steps(RunLedger(governed)), Sample()
    assert len(found) == STEPS
    assert found.examples.tolist() == [list(sample.examples(step)) for step in range(STEPS)]
    assert [step for step, _ in found.phases] == [0, 16]
    assert not found.numbers[:, CLASSES.index("withheld")].any()


def test_weights_are_the_greatest_of_the_stretch(governed: Path) -> None:
    found, sample = read_all_steps(RunLedger(governed)), Sample()
    assert np.array_equal(found.weights(range(0, 16)), sample.admission(0).weights)
    assert np.array_equal(found.weights(range(15, 17)), sample.admission(16).weights)
    assert not np.array_equal(sample.admission(0).weights, sample.admission(16).weights)


def test_when_a_class_is_first_admitted(governed: Path) -> None:
    found = read_all_steps(RunLedger(governed))
    everywhere = np.ones(len(Sample().layers), bool)
    admitted = [found.first_admitted(index, everywhere) for index in range(len(CLASSES))]
    assert admitted == [0, 16, 0, 0, None]
    shared = np.array(["@" not in layer.name for layer in Sample().layers])
    assert found.first_admitted(CLASSES.index("personal/customer"), shared) is None


def test_an_admission_table_that_is_gone_or_not_one_is_said(governed_copy: Path) -> None:
    run = RunLedger(governed_copy)
    (first,) = run.read_steps(range(1))
    path = governed_copy / rundir.LEDGER / blob_path(first.entry.blobs["weights"].sha256)
    path.unlink()
    with pytest.raises(LedgerError, match="entry 2: the table of weights in force is missing"):
        read_all_steps(run)
