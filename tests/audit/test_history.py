"""The history of a run as plain values: badge, vouchers, shares, profiles, decisions, directions, cells."""

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from explorer import rundir
from explorer.audit import history
from explorer.audit.shares import shares
from explorer.entries.kinds import Profile
from explorer.entries.numbers import share_terms
from explorer.errors import LedgerError, ProvenanceError, StoreError
from explorer.ledger.proof import check_proof
from explorer.ledger.storage import blob_path
from explorer.runlog.anchor import anchor_of_trust
from explorer.runlog.run_ledger import RunLedger
from explorer.runlog.segments import read_numbers
from tests.audit.governed_run import CLASSES, LAYERS, MIT, NEWS, OPEN, STEPS, sign_again, trust, write_governed_run
from tests.provenance import people
from tests.provenance.people import GOVERNANCE, NOW, RISK


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunLedger:
    return RunLedger(write_governed_run(tmp_path_factory.mktemp("runs"), exact=True))


def oracle(run: RunLedger, steps: range) -> np.ndarray:
    """C L: the shares out of the ledger's blobs, step by step."""
    num, den = np.zeros((len(CLASSES), len(LAYERS))), np.zeros(len(LAYERS))
    for segment in run.segments(steps):
        for placed, numbers in read_numbers(run, segment).by_step():
            if placed.entry.step in steps:
                mine, whole = share_terms(numbers.gram)
                num[list(numbers.classes)] += mine
                den += whole
    return num / den


@pytest.mark.parametrize("steps", [range(STEPS), range(3, 9), range(11, 12)])
def test_shares_are_those_of_the_ledger_and_add_up_to_one(run: RunLedger, steps: range) -> None:
    found = shares(run, steps)
    np.testing.assert_allclose(found.share[0], oracle(run, steps), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(found.share.sum(1), 1, rtol=1e-6)
    assert found.exact is not None
    np.testing.assert_allclose(found.exact.sum(1), 1, rtol=1e-5)  # nothing but descent moves these layers


def test_shares_over_time(run: RunLedger) -> None:
    found = shares(run, bins=3)
    assert found.edges == (0, 4, 8, 12)
    for part, (first, stop) in enumerate(zip(found.edges, found.edges[1:], strict=False)):
        np.testing.assert_allclose(found.share[part], shares(run, range(first, stop)).share[0], rtol=1e-9)
    assert found.admitted[:, CLASSES.index(NEWS)].tolist() == [
        [False] * 4,
        [False, False, True, True],
        [False, False, True, True],
    ]
    assert shares(run, range(0, 2), bins=40).edges == (0, 1, 2)
    assert np.isnan(shares(run, range(0, 1)).share[0, CLASSES.index(NEWS)]).sum() == 0


def test_a_badge_needs_a_signer_whom_the_caller_believes(run: RunLedger) -> None:
    good = history.badge(run, trust=trust(), now=NOW)
    assert (good.verified, good.outcome, good.steps, good.size) == (True, "finished", STEPS, 21)
    nobody = history.badge(run, trust=None, now=NOW)
    assert (nobody.verified, nobody.anchored, len(nobody.findings)) == (False, False, 1)


def test_a_forged_entry_loses_the_badge(tmp_path: Path) -> None:
    run = write_governed_run(tmp_path)
    sign_again(run, lambda index, entry: None if index == 20 else entry, seed="somebody else")
    found = history.badge(RunLedger(run), trust=trust(), now=NOW)
    assert not found.verified and found.outcome == "unfinished"


def test_who_vouches(run: RunLedger) -> None:
    found = history.vouchers(run)
    assert [one.name for one in found.basis.by] == [one.name for one in found.tags.authorities] == [GOVERNANCE]
    assert found.rules and [one.name for one in found.rules.by] == [RISK]
    assert not found.basis.anchored and history.vouchers(run, trust=trust()).basis.anchored
    with pytest.raises(ProvenanceError, match="signed by no key of the trust file"):
        history.vouchers(run, trust=people.trust(people.authority("example.com/x", people.risk().role)))


@pytest.mark.parametrize(
    ("name", "other", "message"),
    [
        ("policy.json", "taxonomy.json", "expected 'application/vnd.explorer.policy.v1"),
        ("trust.json", None, "trust.json"),
        ("tags.json", "policy.json", "tags.json: holds"),
    ],
)
def test_documents_of_another_run_are_no_vouchers(tmp_path: Path, name: str, other: str | None, message: str) -> None:
    run = write_governed_run(tmp_path)
    directory = run / rundir.GOVERNANCE
    if other is None:
        (directory / name).unlink()
    else:
        shutil.copy(directory / other, directory / name)
    with pytest.raises(ProvenanceError, match=message):
        history.vouchers(RunLedger(run))


def test_documents_that_the_genesis_does_not_name(tmp_path: Path) -> None:
    run = write_governed_run(tmp_path)
    for field in ("policy", "taxonomy", "trust"):
        sign_again(run, lambda i, entry, field=field: entry if i else replace(entry, **{field: "f" * 64}))
        with pytest.raises(LedgerError, match=r"the genesis names f{64}"):
            history.vouchers(RunLedger(run))
        run = write_governed_run(tmp_path / field)
    sign_again(run, lambda index, entry: entry if index else replace(entry, tags={}))  # pyright: ignore
    with pytest.raises(LedgerError, match="not one of the 0 tag tables"):
        history.vouchers(RunLedger(run))


def test_profiles_and_decisions(run: RunLedger) -> None:
    found = history.depth_profiles(run)
    assert len(found) == 2 * len(LAYERS) * (len(CLASSES) + 1)
    assert [each.layer for each in found[:5]] == ["embed"] * 4 + ["body.0"]
    (every,) = [each for each in found if (each.step, each.layer, each.class_) == (9, "head", "*")]
    assert (every.chi, every.chi_null, every.examples) == (0.5, pytest.approx(0.1), 12)
    taken = history.decisions(run)
    assert [(each.step, each.action, each.rule, each.superseded) for each in taken] == [
        (3, "freeze", "entropy-settled", False),
        (9, "freeze", "entropy-settled", False),
    ]
    assert taken[0].parameters == {"tolerance": 0.01} and taken[0].evidence == (NEWS,)


def test_a_profile_comes_from_the_ledger_and_from_no_other_file(run: RunLedger, tmp_path: Path) -> None:
    """The files for other tools may be changed or gone; a blob that was changed is refused."""
    other = write_governed_run(tmp_path)
    shutil.rmtree(other / "entropy")
    assert history.depth_profiles(RunLedger(other)) == history.depth_profiles(run)
    ledger = RunLedger(other)
    (first, *_) = ledger.read(ledger.outline.profiles, Profile)
    content = ledger.ledger.path / blob_path(first.entry.blobs["joint"].sha256)
    content.write_bytes(content.read_bytes()[::-1])
    with pytest.raises(LedgerError, match="the blob is damaged"):
        history.depth_profiles(ledger)


def test_a_profile_that_was_erased_is_left_out(tmp_path: Path) -> None:
    ledger = RunLedger(write_governed_run(tmp_path))
    (first, *_) = ledger.read(ledger.outline.profiles, Profile)
    (ledger.ledger.path / blob_path(first.entry.blobs[f"numbers/{NEWS}"].sha256)).unlink()
    left = [each.class_ for each in history.depth_profiles(ledger) if each.step == first.entry.step]
    assert left == [OPEN, MIT, "*"] * len(LAYERS)


def test_directions_add_up_over_segments(run: RunLedger) -> None:
    whole = history.directions(run)
    parts = [history.directions(run, range(first, stop)) for first, stop in ((0, 5), (5, 10), (10, 12))]
    assert (whole.first, whole.stop, parts[1].first, parts[1].stop) == (0, 12, 5, 10)
    np.testing.assert_allclose(sum(part.sketches for part in parts), whole.sketches, rtol=1e-6)
    assert not whole.sketches[CLASSES.index(NEWS), 0].any() and whole.missing == ()


def test_a_cell_leads_to_entries_that_can_be_proved(run: RunLedger) -> None:
    found = history.cell(run, layer="head", class_=MIT, steps=range(2, 7))
    steps = [placed.entry.step for placed in run.read_steps(range(2, 7)) if placed.index in found.entries]
    assert steps == [2, 3, 4, 5, 6] and len(found.states) == 2
    anchor = anchor_of_trust(trust(), origin=run.ledger.checkpoint().origin)
    made = list(history.proofs(run, found))
    assert [proof.index for proof in made] == [*found.entries, *found.states]
    assert all(check_proof(proof, anchor=anchor, now=NOW) for proof in made)


def test_a_spool_of_another_run(tmp_path: Path) -> None:
    run = write_governed_run(tmp_path)
    path = run / rundir.CONTRIBUTIONS / "segment-00000000.parquet"
    found = pq.read_table(path)
    names = pa.array(["other"] * len(found))
    pq.write_table(found.set_column(1, "layer", names), path)
    with pytest.raises(StoreError, match="its spool names a layer that the ledger does not: 'other'"):
        shares(RunLedger(run))
    pq.write_table(found.drop_columns(["norm"]), path)
    with pytest.raises(StoreError, match="expected step, layer, class"):
        shares(RunLedger(run))
    path.write_bytes(b"PAR1 no")
    with pytest.raises(StoreError, match="contributions: cannot be read"):
        shares(RunLedger(run))
