"""Records, an authority's examples and classes that are left out: never read, never checked, and nothing else moves."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from explorer.data.dataset import Dataset, Split
from explorer.engine.loop import Loop
from explorer.errors import ProvenanceError, RecipeError
from explorer.governance.contributions import Contributions
from explorer.governance.credentials import Credentials, check
from explorer.governance.entropy import Entropy
from explorer.governance.governed_freezing import GovernedFreezing
from explorer.governance.governed_selective_backprop import GovernedSelectiveBackprop
from explorer.governance.probes import choose_probes
from explorer.governance.routing import Routing
from explorer.governance.shared_state import Session
from explorer.provenance.commitments import Salts, destroy_salt, write_salts
from explorer.provenance.envelope import write_envelope
from explorer.provenance.policy import Rule
from explorer.provenance.tag_attestation import Absent
from explorer.provenance.tags_file import write_table
from explorer.provenance.trust import Role, write_trust
from tests.data_for_tests import noise
from tests.governance import desk, tagged
from tests.governance.desk import SPLIT
from tests.governance.governed import Kept, bits, differing, everything, steps
from tests.provenance import people
from tests.provenance.people import GOVERNANCE

NEWS = "example.com/news-desk"
RECORDS = (3, 4, 11)
EXAMPLES = 40
DATA = noise(train=EXAMPLES)
OPEN = tagged.routing(Rule(classes=("*",), weight=1.0))
WATCHERS = {
    "contributions": Contributions(),
    "entropy": Entropy(probes=4, profiles=3, permutations=2),
    "governed freezing": GovernedFreezing(start=0.3, settled=10.0, patience=1, profiles=5, probes=4),
    "governed selective backprop": GovernedSelectiveBackprop(start=0.3),
}


def mask(records: tuple[int, ...]) -> np.ndarray:
    return np.isin(np.arange(EXAMPLES), records)


def without_rows(dataset: Dataset, records: tuple[int, ...]) -> Dataset:
    """The dataset with these rows physically absent."""
    kept: Any = [Kept(whole, torch.from_numpy(mask(records))) for whole in (dataset.train.inputs, dataset.train.labels)]
    return replace(dataset, train=Split(inputs=kept[0], labels=kept[1]))


def loop_of(records: tuple[int, ...] = (), *methods: Any, dataset: Dataset = DATA) -> Loop:
    gone = mask(records) if records else None
    return tagged.tagged_loop(
        [Routing(policy="usual", without_records=records), *methods],
        dataset=dataset,
        session={"routing": OPEN, "gone": gone},
        total_steps=6,
        batch_size=8,
    )


@pytest.mark.parametrize("name", WATCHERS)
def test_a_run_without_records_never_reads_them(name: str) -> None:
    """What it comes to with their payload physically absent is what it comes to with other rows in their place."""
    ran = steps(loop_of(RECORDS, WATCHERS[name], dataset=without_rows(DATA, RECORDS)), 6)
    whole = steps(loop_of(RECORDS, WATCHERS[name]), 6)
    assert differing(everything(ran), everything(whole)) == set()


def test_the_payload_is_really_gone() -> None:
    """The control: a run that does not leave them out cannot be made without them."""
    with pytest.raises(KeyError):
        steps(loop_of(dataset=without_rows(DATA, RECORDS)), 5)


def test_their_slots_are_taken_out_of_the_shares_and_stay_in_the_batch() -> None:
    whole, other = loop_of(), loop_of(RECORDS)
    met = 0
    for step in range(5):
        for loop in (whole, other):
            loop.state.step = step
            loop.prepare_step()
        assert np.array_equal(whole.state.examples, other.state.examples)
        notes = other.state.resource(Session).notes
        assert notes.examples == {share.name: len(share.slots) for share in whole.state.shares}
        for one, less in zip(whole.state.shares, other.state.shares, strict=True):
            gone = np.isin(whole.state.examples[one.slots], RECORDS)
            met += gone.sum()
            assert np.array_equal(less.slots, one.slots[~gone]) and less.parameters == one.parameters
    assert met == len(RECORDS)  # five batches of eight are one epoch


def test_a_step_is_that_of_the_others_alone() -> None:
    """Draws and denominators as they were: the gradient is the whole one less the records' own."""
    whole, other = loop_of(), loop_of(RECORDS)
    alone = loop_of(tuple(sorted(set(range(EXAMPLES)) - set(RECORDS))))
    for loop in (whole, other, alone):
        step = next(at for at in range(5) if np.isin(whole.setting.batches.indices(at), RECORDS).any())
        loop.state.step = step
        loop.prepare_step()
        loop._passes()
    for name, parameter in whole.setting.model.named_parameters():
        parts = [loop.setting.model.get_parameter(name).grad for loop in (other, alone)]
        assert parameter.grad is not None and parts[0] is not None and parts[1] is not None
        torch.testing.assert_close(parts[0] + parts[1], parameter.grad, rtol=1e-4, atol=1e-6)
        assert bits(parts[0]) != bits(parameter.grad)


def test_a_share_of_which_nothing_is_left_trains_nothing() -> None:
    loop = loop_of(tuple(range(0, EXAMPLES, 2)))  # all of one class
    loop.prepare_step()
    assert [bool(share.parameters) for share in loop.state.shares] == [False, True]
    steps(loop, 1)


def test_who_is_left_out_is_no_probe_and_the_others_stay() -> None:
    whole, other = choose_probes(loop_of().state, count=4), choose_probes(loop_of(RECORDS).state, count=4)
    for path, chosen in whole.examples.items():
        here = [number for number in chosen.tolist() if number not in RECORDS]
        assert set(here) <= set(other.examples[path].tolist()) and not set(RECORDS) & set(other.examples[path].tolist())
        assert len(other.examples[path]) == 4
    assert choose_probes(loop_of((39,)).state, count=2).root == choose_probes(loop_of().state, count=2).root
    assert whole.root != other.root


def test_nothing_is_remembered_of_a_class_that_is_absent() -> None:
    """A deletion continues from a state of a run that had it."""
    method = GovernedFreezing(profiles=2)
    loop = tagged.tagged_loop([method], absent=frozenset({"open/mit"}))
    memory = loop.state.memory[method.name]
    memory["history"].fill_(1.0)
    memory["anchor"].fill_(1.0)
    loop.state.step = 1  # of which nothing is measured
    loop.prepare_step()
    assert memory["anchor"].isnan().all(1).tolist() == [path == "open/mit" for path in tagged.CLASSES]
    assert memory["history"].isnan().all(2).all(0).tolist() == [path == "open/mit" for path in tagged.CLASSES]


def test_a_session_that_was_not_checked_for_records_is_refused() -> None:
    with pytest.raises(RecipeError, match="this run was not checked for them"):
        tagged.tagged_loop([Routing(policy="usual", without_records=(1,))], session={"routing": OPEN})


# Credentials


@pytest.fixture
def documents(tmp_path: Path) -> Path:
    return desk.make(tmp_path / "governance")


def checked(documents: Path, absent: Absent, examples: Split = SPLIT) -> Credentials:
    return check(desk.read(documents), examples, absent=absent)


def test_content_and_salt_of_a_record_may_be_gone(documents: Path) -> None:
    """Classes and order of all stay as they were; without leaving it out, the same run is refused."""
    before = checked(documents, Absent())
    destroy_salt(documents / "salts", 4)
    blank = replace(SPLIT, inputs=SPLIT.inputs.index_fill(0, torch.tensor([4]), 0))
    found = checked(documents, Absent(records=(4,)), blank)
    assert found.codes.tolist() == before.codes.tolist() and found.identity == before.identity
    assert np.flatnonzero(found.gone).tolist() == [4] and not found.absent.intersection(found.classes)
    for absent in (Absent(), Absent(records=(3, 5))):
        with pytest.raises(ProvenanceError, match=r"slot 4 \(open\): its salt was destroyed"):
            checked(documents, absent, blank)


def test_a_class_whose_records_are_all_left_out_is_absent(documents: Path) -> None:
    found = checked(documents, Absent(records=tuple(range(2, 12, 3))))
    assert found.absent.intersection(found.classes) == {"licensed/news"}
    assert checked(documents, Absent(classes=("licensed/news",))).absent == found.absent


def test_the_examples_of_an_authority(documents: Path) -> None:
    second = people.authority(NEWS, Role.DATA_GOVERNANCE, branches=("licensed",))
    both = replace(desk.TRUST, authorities=(*desk.TRUST.authorities, second))
    owners = [NEWS if path == "licensed/news" else GOVERNANCE for path in desk.classes_of()]
    made = bytearray()
    records = [desk.Record(SPLIT.content(at), desk.classes_of()[at], "", owner) for at, owner in enumerate(owners)]
    write_table(documents / "tags.parquet", desk.tag_records(records, made))
    (documents / "salts").unlink()
    write_salts(documents / "salts", Salts(content=bytes(made)))
    keys = [people.private(GOVERNANCE), people.private(NEWS)]
    write_envelope(documents / "tags.json", desk.signed(documents / "tags.parquet", *keys, trust=both))
    write_trust(documents / "trust.json", both)
    found = checked(documents, Absent(authorities=(NEWS,)))
    assert np.flatnonzero(found.gone).tolist() == [2, 5, 8, 11]
    with pytest.raises(
        RecipeError, match=r"unknown authority 'example.com/news-dest'; did you mean 'example.com/news-desk'"
    ):
        checked(documents, Absent(authorities=("example.com/news-dest",)))


@pytest.mark.parametrize(
    ("absent", "message"),
    [
        (Absent(records=(12,)), "without_records: found 12; expected rows of the tag table, 0 to 11"),
        (Absent(classes=("open/mti",)), "without: unknown class 'open/mti'; did you mean 'open/mit'"),
        (Absent(authorities=(GOVERNANCE,)), "every training example is left out"),
    ],
)
def test_what_cannot_be_left_out(documents: Path, absent: Absent, message: str) -> None:
    with pytest.raises(RecipeError, match=message):
        checked(documents, absent)
