"""A provenance class from the file that it was declared for to the update that it made: nothing on the way loses it."""

import re
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from explorer.audit.trace import trace, with_examples
from explorer.cli.notebooks import notebook_directory
from explorer.data.source import Source
from explorer.engine.loop import Loop
from explorer.provenance.routing_weights import policy_for
from explorer.provenance.signing import read_draft
from explorer.provenance.taxonomy import TAXONOMY
from explorer.recipes.recipe import build_recipe
from explorer.run_files import RunRecord
from explorer.runlog.documents import Documents, keep, read_documents
from explorer.runlog.run_ledger import RunLedger
from explorer.training.demonstration import demonstrate
from explorer.training.run import build_loop, execute
from explorer.training.run_plan import plan_run
from explorer.yaml_document import document_of, read_document
from tests.data.site import fill
from tests.recipes_for_tests import write_run

NOW = 1_780_000_000  # in May 2026
SOURCE = {"source": {"context": 16, "bytes_per_class": 2000, "least_bytes": 1000}}
FAMILIES = {  # of the distributions that are installed for the test
    "ant": "open/permissive/mit", "bee": "open/permissive/mit", "cow": "open/permissive/mit",
    "dog": "open/permissive/bsd", "eel": "open/permissive/bsd", "fox": "open/permissive/bsd",
    "gnu": "open/pooled", "hen": "open/pooled", "imp": "open/pooled",
}  # fmt: skip


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    root = fill(tmp_path / "site")
    monkeypatch.setattr("explorer.data.source.search_path", lambda: [root])
    return root


def planned(root: Path, *observers: str) -> tuple[RunRecord, Documents]:
    """A run on those files in which BSD-licensed code trains only the upper half."""
    policies = notebook_directory() / "policies"
    taxonomy = read_draft(TAXONOMY, read_document(policies / "licences.taxonomy.yaml"))
    half = read_document(policies / "half-depth.policy.yaml").value
    rules = [{"classes": ["open/permissive/bsd"], "depth": [0, 0.5], "weight": 0}, {"classes": ["open"], "weight": 1}]
    policy = read_draft(policy_for(taxonomy), document_of({**half, "rules": rules}))
    source = Source(context=16, bytes_per_class=2000, least_bytes=1000)
    directory = demonstrate(root, source, data=None, taxonomy=taxonomy, policies=[policy], now=NOW)
    documents = read_documents(directory, policy="half-depth", now=NOW)
    recipe = build_recipe(
        "files",
        task={"dataset": SOURCE, "model": {"gpt": {"depth": 1, "width": 16, "heads": 2}}},
        train={"epochs": 0.2, "batch_size": 12, "optimizer": {"adamw": {"lr": 0.01}}},
        methods=[{"routing": {"policy": "half-depth"}}, *observers],
        where="test",
    )
    record = plan_run(
        recipe, sweep="test", baseline="files", tuning=None, ssr=1.0, seed=0, threads=1, data=None, documents=documents
    )
    return record, documents


def files_of(site: Path, family: str) -> bytes:
    """All code of the distributions of a family, files apart."""
    names = [name for name, its in FAMILIES.items() if its == family]
    return b"\xff".join(path.read_bytes() + b"\0" for name in names for path in sorted((site / name).glob("*.py")))


def seen_by(loop: Loop, steps: int) -> dict[str, list[bytes]]:
    """The sequences that the model was given while each class was the one that trained."""
    found: dict[str, list[bytes]] = {}

    def watch(_: object, inputs: tuple[Tensor, ...]) -> None:
        assert loop.state.share is not None
        rows = [bytes(row.to(torch.uint8).tolist()) for row in inputs[0]]
        found.setdefault(loop.state.share.name, []).extend(rows)

    handle = loop.setting.model.register_forward_pre_hook(watch)
    for _ in range(steps):
        loop.step()
    handle.remove()
    return found


def test_the_model_meets_a_class_s_files_and_no_others_in_its_share(site: Path, tmp_path: Path) -> None:
    record, documents = planned(tmp_path)
    seen = seen_by(build_loop(record, data=None, documents=documents), 4)
    assert set(seen) == set(FAMILIES.values())
    for family, sequences in seen.items():
        for sequence in sequences:
            # A sequence may run from one file into the next: every piece is from a file of the class.
            for piece in sequence.split(b"\0"):
                for other in set(FAMILIES.values()):
                    assert not piece or len(piece) < 6 or (piece in files_of(site, other)) == (other == family)


def test_the_ledger_names_the_files_whose_class_moved_a_layer(site: Path, tmp_path: Path) -> None:
    """Only from the signed table and the ledger; and denied examples took no part."""
    record, documents = planned(tmp_path, "contributions", "recorder")
    run = write_run(tmp_path / "runs", record)
    keep(documents, run)
    execute(run)
    ledger = RunLedger(run)
    found = with_examples(ledger, trace(ledger, layer="embed.tokens", check=True))
    assert found.participants is not None and not found.check.differences
    for each in found.participants:
        named = {re.match(r"(\w+) 1\.0: ", source).group(1) for source in each.sources}  # pyright: ignore
        assert all(FAMILIES[name] == each.class_ for name in named)
        assert bool(named) == (each.class_ != "open/permissive/bsd"), "denied below the middle"
    upper = with_examples(ledger, trace(ledger, layer="blocks.0.mlp.down", check=True))
    assert upper.participants is not None
    assert all(each.examples for each in upper.participants), "above it everybody took part"
    assert np.isclose(sum(row.share or 0 for row in upper.rows), 1)
