"""The documents of a demonstration: believed like all others, kept when they are there, whole or not at all."""

import shutil
import stat
import time
from pathlib import Path

import pytest

from explorer.data.digits import Digits
from explorer.data.sources import load
from explorer.governance.credentials import check
from explorer.provenance.policy import Quarantine, read_policy
from explorer.provenance.routing_weights import bind
from explorer.provenance.taxonomy import read_taxonomy
from explorer.runlog.documents import read_documents
from explorer.training import demonstration
from explorer.training.demonstration import demonstrate, example
from explorer.yaml_document import read_document
from tests.training.governed_for_tests import DIGITS, TAXONOMY, documents, policy

EXAMPLES = Path(__file__).parents[2] / "notebooks" / "policies"


def files(directory: Path) -> dict[str, bytes]:
    return {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def test_what_it_makes_is_believed(tmp_path: Path) -> None:
    made = documents(tmp_path)
    found = check(read_documents(made, policy="lower", now=int(time.time())), load(DIGITS, None).train)
    assert found.classes == ("simulated/class-00", "simulated/class-01", "simulated/class-02")
    assert [one.name for one in found.tags.authorities] == [demonstration.GOVERNANCE]
    assert found.tags.table.description.title == "digits"
    assert "for demonstration" in (made / "README").read_text()


def test_secrets_are_for_their_owner_alone(tmp_path: Path) -> None:
    made = documents(tmp_path)
    for name in ("salts", *demonstration.KEYS.values()):
        assert stat.S_IMODE((made / name).stat().st_mode) == 0o600


def test_what_is_there_is_kept(tmp_path: Path) -> None:
    made = documents(tmp_path)
    before = files(made)
    assert documents(tmp_path) == made and files(made) == before
    assert [path.name for path in tmp_path.iterdir()] == [made.name]


def test_other_data_and_other_documents_have_keys_of_their_own(tmp_path: Path) -> None:
    made = documents(tmp_path)
    now = int(time.time())
    lower = policy("lower", Quarantine.REFUSE)
    fewer = demonstrate(tmp_path, DIGITS, data=None, taxonomy=TAXONOMY, policies=[lower], now=now)
    larger = Digits(simulated_classes=3, size=16)
    other = demonstrate(tmp_path, larger, data=None, taxonomy=TAXONOMY, policies=[lower], now=now)
    assert len({made, fewer, other}) == 3
    assert len({(each / "trainer.pem").read_bytes() for each in (made, fewer, other)}) == 3


def test_it_is_whole_or_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(demonstration, "attest", fail)
        with pytest.raises(KeyboardInterrupt):
            documents(tmp_path)
    assert list(tmp_path.iterdir()) == []
    assert documents(tmp_path).exists()


def test_a_directory_that_was_deleted_is_made_again(tmp_path: Path) -> None:
    made = documents(tmp_path)
    before = files(made)
    shutil.rmtree(made)
    assert documents(tmp_path) == made
    assert files(made).keys() == before.keys() and files(made)["trainer.pem"] != before["trainer.pem"]


def test_the_shipped_examples_fit_each_other() -> None:
    found = example(EXAMPLES)
    assert bind(found.policy, found.taxonomy, where="half-depth").policy.name == "half-depth"


def test_digits_can_be_governed_by_the_shipped_simulation(tmp_path: Path) -> None:
    taxonomy = read_taxonomy(read_document(EXAMPLES / "simulated.taxonomy.yaml"))
    simulated = read_policy(read_document(EXAMPLES / "simulated.policy.yaml"))
    now, four = int(time.time()), Digits(simulated_classes=4)
    made = demonstrate(tmp_path, four, data=None, taxonomy=taxonomy, policies=[simulated], now=now)
    found = check(read_documents(made, policy="simulated", now=now), load(four, None).train)
    assert found.classes == tuple(f"simulated/class-0{number}" for number in range(4))
