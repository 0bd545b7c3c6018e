"""Observations: who may make them, of which model, and that none is believed anywhere else or said by anybody else."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from explorer import rundir
from explorer.errors import ProvenanceError
from explorer.provenance.envelope import parse_envelope, sign_envelope
from explorer.provenance.model_attestation import Observer, open_observation
from explorer.provenance.statement import PAYLOAD_TYPE
from explorer.release.observations import Weighed
from explorer.release.shipped import open_shipped
from tests import tensors_for_tests
from tests.audit.governed_run import LAYERS, MIT, STEPS, TRAINER, write_governed_run
from tests.provenance.people import GOVERNANCE, NOW, RISK, private
from tests.release.released import EVALUATOR, gate, judged, release, say, trust

ALL = [{"name": name, "weight": 1} for name in (EVALUATOR, TRAINER, RISK)]


@pytest.fixture(scope="module")
def shipped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return release(write_governed_run(tmp_path_factory.mktemp("runs")))


@pytest.fixture
def model(shipped: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(shipped.parent, tmp_path / shipped.parent.name)) / rundir.MODEL


def weighed(model: Path, observers: list[dict[str, Any]] = ALL, **changes: Any) -> Weighed:
    """What becomes of the only observation beside a model, which never changes whether the model passes."""
    found = judged(model, gate(observers=observers), **changes)
    assert found.passes
    (only,) = found.observations
    return only


@pytest.mark.parametrize(
    ("role", "seed"), [(Observer.EVALUATOR, EVALUATOR), (Observer.FINE_TUNER, TRAINER), (Observer.DEPLOYER, RISK)]
)
def test_each_says_it_in_their_role(model: Path, role: Observer, seed: str) -> None:
    path = say(model, role=role, seed=seed, note="runs well", admitted={MIT: 0.5})
    found = weighed(model)
    assert (found.verdict, found.by, path.name) == ("admitted", seed, found.file)
    assert found.value is not None and found.value.admitted == {MIT: 0.5} and found.value.note == "runs well"


@pytest.mark.parametrize("role", [*Observer])
@pytest.mark.parametrize("seed", [EVALUATOR, TRAINER, RISK, GOVERNANCE, "a stranger"])
def test_and_nobody_in_anothers(model: Path, role: Observer, seed: str) -> None:
    mine = {Observer.EVALUATOR: EVALUATOR, Observer.FINE_TUNER: TRAINER, Observer.DEPLOYER: RISK}
    if mine[role] == seed:
        return
    with pytest.raises(ProvenanceError, match=r"wrong role: |is not in the trust file"):
        say(model, role=role, seed=seed)
    assert not (model / "observations").exists()


@pytest.mark.parametrize("seed", [TRAINER, RISK])
def test_a_role_that_was_written_over(model: Path, seed: str) -> None:
    """Signed by somebody whom the trust file knows, in a role that is not theirs."""
    path = say(model)
    envelope = sign_envelope(parse_envelope(path.read_bytes(), where="o").payload, PAYLOAD_TYPE, [private(seed)])
    path.write_bytes(envelope.content)
    found = weighed(model)
    assert found.verdict == "rejected" and "wrong role" in found.why and found.value is None


@pytest.mark.parametrize(
    ("weight", "verdict"), [(1, "admitted"), (0.25, "weighted"), (0, "rejected"), (None, "rejected")]
)
def test_the_gate_says_whose_observations_count(model: Path, weight: float | None, verdict: str) -> None:
    say(model)
    found = weighed(model, [] if weight is None else [{"name": EVALUATOR, "weight": weight}])
    assert (found.verdict, found.weight) == (verdict, weight or 0)
    assert EVALUATOR in found.why


def test_an_observation_of_another_model(model: Path, tmp_path: Path) -> None:
    path = say(model)
    other = write_governed_run(tmp_path / "other", steps=STEPS + 3)
    place = release(other)
    shutil.copytree(path.parent, place / "observations")
    found = judged(place, gate(observers=ALL)).observations
    assert [(each.verdict, each.why.split(",")[0]) for each in found] == [("rejected", "of another model")]


def test_an_observation_of_the_model_under_another_attestation(model: Path) -> None:
    """With another card the same tensors are another model; the observer had verified the attestation that it names."""
    say(model)
    release(model.parent, now=NOW + 1)
    (found,) = judged(model, gate(observers=ALL), now=NOW + 1).observations
    assert (found.verdict, found.why[:42]) == ("rejected", "made for another attestation of the model,")


def test_the_same_observation_twice(model: Path) -> None:
    path = say(model)
    shutil.copy(path, path.with_name(f"{'0' * 64}.json"))
    found = judged(model, gate(observers=ALL)).observations
    assert sorted(each.verdict for each in found) == ["admitted", "rejected"]
    assert "named 0000" in next(each.why for each in found if each.verdict == "rejected")


def test_it_expires(model: Path) -> None:
    """Before the attestation does, which was made for longer."""
    say(model)
    found = judged(model, gate(observers=ALL), now=NOW + 366 * 86_400)
    assert found.shipped is not None
    assert [each.why.split(",")[0] for each in found.observations] == ["expired 2027-06-01T00:00:00Z"]


@pytest.mark.parametrize("name", ["note.txt", ".hidden", "a" * 64, "B" * 64 + ".json"])
def test_what_is_no_observation(model: Path, name: str) -> None:
    (model / "observations").mkdir()
    (model / "observations" / name).write_text("{}")
    found = weighed(model)
    assert found.verdict == "rejected" and "expected a file named DIGEST.json" in found.why


def test_a_link_and_a_directory(model: Path, tmp_path: Path) -> None:
    path = say(model)
    path.rename(tmp_path / "elsewhere.json")
    path.symlink_to(tmp_path / "elsewhere.json")
    assert weighed(model).verdict == "rejected"
    path.unlink()
    path.mkdir()
    assert weighed(model).verdict == "rejected"


def test_a_changed_number(model: Path) -> None:
    path = say(model)
    value = json.loads(path.read_text())
    envelope = parse_envelope(path.read_bytes(), where="o")
    assert b"0.93" in envelope.payload
    changed = sign_envelope(envelope.payload.replace(b"0.93", b"0.99"), PAYLOAD_TYPE, [private("thief")])
    path.write_text(json.dumps({**json.loads(changed.content), "signatures": value["signatures"]}))
    assert "forged or changed" in weighed(model).why


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"admitted": {"open/mitt": 1}}, "unknown class 'open/mitt'; did you mean 'open/mit'"),
        ({"admitted": {MIT: 1.5}}, "admitted"),
        ({"metrics": {"Accuracy": 1.0}}, "metrics.Accuracy"),
        ({"metrics": {}}, "empty observation"),
        ({"note": "two\nlines"}, "note"),
    ],
)
def test_what_cannot_be_said(model: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ProvenanceError, match=message):
        say(model, **changes)
    assert not (model / "observations").exists()


def test_nothing_is_said_of_a_model_that_is_not_believed(model: Path) -> None:
    tensors_for_tests.write_model(model.parent, LAYERS, STEPS + 1)
    with pytest.raises(ProvenanceError, match="not the file that attestation"):
        say(model)


def test_what_is_signed(model: Path) -> None:
    opened = open_observation(say(model).read_bytes(), trust=trust(), now=NOW, where="o")
    attested = open_shipped(model, trust=trust(), now=NOW).attested
    assert (opened.model, opened.value.attestation) == (attested.model, attested.digest)
    assert (opened.value.run, opened.value.ledger) == (attested.value.run, attested.value.ledger)
    assert [one.name for one in opened.authorities] == [EVALUATOR]
