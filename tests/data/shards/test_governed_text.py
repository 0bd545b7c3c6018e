"""Governed runs over text in shards: a class is followed from documents to blocks, to their tags, and to updates."""

import json
import time
from pathlib import Path
from typing import Any

import pytest

from explorer.data.shards.text_shards import TextShards
from explorer.training.governed_project import begin_governed
from tests.cli.command import explorer
from tests.data.shards.test_governed_shards import cosign, run
from tests.data.shards.texts import WORDS, corpus, pack

pytest.importorskip("tokenizers", reason="needs the extra `text`")

MODEL = {"gpt-tiny": {"document_mask": True, "separator": 0}}
TASK = {"dataset": {"text_shards": {"path": "tokens", "window": 2, "context": 32}}, "model": MODEL}
TRAIN = {"epochs": 0.5, "batch_size": 16, "optimizer": {"adamw": {"lr": 1e-3}}}
LATE = "code"  # the first class trains in the second half only


@pytest.fixture
def project(tmp_path: Path) -> Path:
    pack(corpus(tmp_path), tmp_path / "data" / "tokens")
    (tmp_path / "project").mkdir()
    begin_governed(tmp_path / "project", TASK, TRAIN, data=tmp_path / "data", now=int(time.time()))
    return tmp_path / "project"


def answer(*words: str | Path) -> Any:
    done = explorer(*words, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.slow
def test_a_class_is_followed_from_its_documents_to_updates(project: Path) -> None:
    data, trust = project.parent / "data", project / "governed" / "trust.json"
    table, salts = ("-o", project / "again.parquet"), ("--salts", project / "again.salts")
    tags = answer("tags", "dataset", project / "governed.yaml", *table, *salts, "--authority", "a/b", "--data", data)
    provenance = TextShards(path="tokens").load(data).provenance
    assert provenance is not None
    assert tags["records"] == len(provenance.codes) and provenance.classes == tuple(sorted(WORDS))
    made = run(project)
    cosign(made, project)
    found = answer("trace", made, "--layer", "embed.tokens", "--trust", trust)
    assert {row["class"] for row in found["rows"]} == {*WORDS} and found["check"]["agrees"]
    assert found["first_admitted"][LATE] > found["first_admitted"]["news"] == 0
    for part in found["participants"]:
        for number in part["examples"]:
            assert provenance.classes[provenance.codes[number]] == part["class"]
    assert answer("conform", made, "--trust", trust)
    assert "bit for bit as recorded" in explorer("replay", made, "--data", data).stdout
    lines = answer("usage", made.parents[1], "--by", "class", "--trust", trust)["lines"]
    assert {line["party"] for line in lines} == {*WORDS}
    assert all(line["tokens"] == 32 * line["examples"] > 0 for line in lines)
    # What a deletion cannot reach.
    plan = json.loads(explorer("delete", "plan", made, LATE, "--json").stdout)
    (tokeniser,) = (each["detail"] for each in plan["beyond"] if each["what"] == "tokeniser")
    assert tokeniser.startswith("byte-level BPE of 340 tokens, SHA-256 ") and "the target's are among them" in tokeniser
