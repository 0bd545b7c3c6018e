"""`explorer data sign` and `explorer data verify`: whole shards, damaged ones, and attestations that do not hold."""

import time
from pathlib import Path

import pytest

from explorer.cli.governed import signed_shards
from explorer.data.shards.shard_index import TOKENISER
from explorer.training.governed_project import begin_governed
from tests.cli.command import explorer, refused
from tests.data.shards.test_governed_shards import TASK, TRAIN
from tests.data.shards.texts import corpus, pack
from tests.data.shards.written import DIGITS, write


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(signed_shards, "AGAIN", ())
    write(DIGITS, tmp_path / "data" / "digits")
    (tmp_path / "project").mkdir()
    begin_governed(tmp_path / "project", TASK, TRAIN, data=tmp_path / "data", now=int(time.time()))
    return tmp_path / "data" / "digits"


def signing(place: Path, role: str = "data-governance") -> list[str | Path]:
    documents = place.parents[1] / "project" / "governed"
    return ["data", "sign", place, "--key", documents / f"{role}.pem", "--trust", documents / "trust.json"]


def trust(place: Path) -> list[str | Path]:
    return ["--trust", place.parents[1] / "project" / "governed" / "trust.json"]


def test_whole_shards_that_data_governance_vouches_for(place: Path) -> None:
    assert "expected the attestation that `explorer data sign` writes" in refused(
        "data", "verify", place, *trust(place)
    )
    assert explorer(*signing(place)).returncode == 0
    done = explorer("data", "verify", place, *trust(place))
    assert done.returncode == 0 and "all as the index says" in done.stdout
    assert "signed by example.com/data-governance" in done.stdout and "simulated/class-01" in done.stdout


def test_every_damaged_shard_is_named(place: Path) -> None:
    gone, damaged = place / "train" / "000002.parquet", place / "test" / "000001.parquet"
    gone.unlink()
    content = damaged.read_bytes()
    damaged.write_bytes(content[:-9] + b"x" + content[-8:])
    done = explorer("data", "verify", place)
    assert done.returncode == 1 and "2 missing or damaged" in done.stdout
    assert "train/000002.parquet: no such object" in done.stdout and "test/000001.parquet: damaged" in done.stdout
    assert "not checked: who vouches for the index" in done.stdout


def test_a_tokeniser_that_is_not_the_one_of_the_shards_is_named(tmp_path: Path) -> None:
    pytest.importorskip("tokenizers", reason="needs the extra `text`")
    place = tmp_path / "place"
    pack(corpus(tmp_path), place)
    whole = explorer("data", "verify", place)
    assert whole.returncode == 0 and "shards and their tokeniser, all as the index says" in whole.stdout
    tokeniser = place / TOKENISER
    tokeniser.write_bytes(tokeniser.read_bytes() + b" ")
    other = explorer("data", "verify", place)
    assert other.returncode == 1 and "expected the tokeniser that made these tokens" in other.stdout
    tokeniser.unlink()
    gone = explorer("data", "verify", place)
    assert gone.returncode == 1 and "tokeniser.json: no such object" in gone.stdout


def test_an_attestation_of_another_index_or_by_another_role_does_not_count(place: Path) -> None:
    assert "wrong role" in refused(*signing(place, "model-risk"))
    assert explorer(*signing(place)).returncode == 0
    other = place.parent / "other"
    write(DIGITS, other, shard_bytes=2_048)
    (other / "index.attestation.json").write_bytes((place / "index.attestation.json").read_bytes())
    assert "about the index" in refused("data", "verify", other, *trust(place))
    signed = place / "index.attestation.json"
    signed.write_bytes(signed.read_bytes().replace(b'"sig":"', b'"sig":"AA', 1))
    assert refused("data", "verify", place, *trust(place))
