"""The dataset of a run as Croissant: `mlcroissant` finds no fault in it, reads its records, and asks for no network."""

import json
import shutil
import socket
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from explorer import rundir
from explorer.errors import StoreError
from explorer.report.run_report import page_of, write_run_report
from tests.governed_sample import SIMULATED, Sample, write_governed_run
from tests.provenance.tables import DESCRIPTION


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_governed_run(tmp_path_factory.mktemp("croissant") / "runs")


@pytest.fixture(scope="module")
def document(run: Path) -> dict[str, Any]:
    path = page_of(run, format="croissant")
    assert path == run / "croissant.json"
    write_run_report(run, path, trust=run / rundir.GOVERNANCE / "trust.json", format="croissant")
    return json.loads(path.read_text())


def refuse(*_: object, **__: object) -> None:
    raise AssertionError("it asks for the network")


@pytest.mark.filterwarnings("ignore")  # of rdflib, and of how mlcroissant uses pandas
def test_it_is_croissant_and_its_records_are_those_of_the_tags(
    run: Path, document: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One test, for loading the library takes longer than all that it does."""
    mlcroissant = pytest.importorskip("mlcroissant", exc_type=ImportError)
    for name in ("connect", "connect_ex"):
        monkeypatch.setattr(socket.socket, name, refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    found = mlcroissant.Dataset(jsonld=run / "croissant.json")
    assert not found.metadata.ctx.issues.errors
    table = pq.read_table(run / rundir.GOVERNANCE / "tags.parquet")
    rows = list(found.records("tags"))
    assert [row["tags/commitment"] for row in rows] == table["commitment"].to_pylist()
    classes = {row["classes/path"]: row["classes/examples"] for row in found.records("classes")}
    tagged = Counter(path for path in table["class"].to_pylist() if path != "quarantine")
    assert {path: count for path, count in classes.items() if count} == tagged

    for break_it, words in (
        (lambda made: made["recordSet"][0]["field"][1]["source"]["fileObject"].update({"@id": "file-9"}), "file-9"),
        (lambda made: made["recordSet"][1]["field"][1].update(source={"extract": {"column": "x"}}), "Source should"),
        (lambda made: made["distribution"][0].pop("contentUrl"), "contentUrl"),
        (lambda made: made["recordSet"][1]["field"][0].pop("dataType"), "dataType"),
    ):
        broken = json.loads(json.dumps(document))
        break_it(broken)
        with pytest.raises(mlcroissant.ValidationError, match=words):
            mlcroissant.Dataset(jsonld=broken)


def test_the_description_is_that_of_the_attestation_only(document: dict[str, Any]) -> None:
    assert (document["name"], document["license"]) == (DESCRIPTION.title, DESCRIPTION.licence)
    assert (
        document["creator"]["name"] == DESCRIPTION.issuer and document["rai:dataUseCases"] == DESCRIPTION.intended_use
    )
    assert "rai:dataPreprocessingProtocol" not in document and "rai:personalSensitiveInformation" not in document
    assert "rai:dataLimitations" not in document and "inLanguage" not in document
    assert {each["contentUrl"] for each in document["distribution"]} == {
        "governance/tags.parquet",
        "governance/tags.json",
    }
    assert isinstance(document["@context"], dict), "a context that is somewhere else would have to be fetched"


def test_simulated_provenance_is_a_limitation(tmp_path: Path) -> None:
    run = write_governed_run(tmp_path / "runs", sample=Sample(classes=SIMULATED))
    write_run_report(run, run / "c.json", format="croissant")
    assert json.loads((run / "c.json").read_text())["rai:dataLimitations"].startswith("Simulated provenance")


def test_without_trusted_tags_there_is_no_dataset_to_describe(run: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(run, tmp_path / "runs" / "single" / run.name))
    (copy / rundir.GOVERNANCE / "tags.json").unlink()
    with pytest.raises(StoreError, match=r"no dataset to describe: cannot read .*tags\.json"):
        write_run_report(copy, tmp_path / "c.json", format="croissant")
    assert not (tmp_path / "c.json").exists()
