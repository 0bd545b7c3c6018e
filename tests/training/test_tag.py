"""Tensors of one's own: tagged in a line, signed by a command, governed, and found to conform."""

import time
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import explorer
from explorer.data.dataset import Split
from explorer.errors import DataError, ExplorerError, ProvenanceError, TrainingError
from explorer.provenance.policy import read_policy
from explorer.provenance.taxonomy import read_taxonomy
from explorer.training.demonstration import COSIGNERS, GOVERNANCE, KEYS, authorities
from explorer.yaml_document import read_document
from tests.cli.command import explorer as command

POLICIES = Path(__file__).parents[2] / "notebooks" / "policies"
BSD, MIT = "open/permissive/bsd", "open/permissive/mit"
COUNT = 24


def tensors() -> tuple[Tensor, Tensor]:
    draws = torch.Generator().manual_seed(0)
    return torch.randn(COUNT, 5, generator=draws), torch.randint(0, 3, (COUNT,), generator=draws)


CLASSES = [BSD if index % 2 else MIT for index in range(COUNT)]


def losses(model: nn.Module, inputs: Tensor, labels: Tensor) -> Tensor:
    return F.cross_entropy(model(inputs), labels, reduction="none")


@pytest.fixture
def papers(tmp_path: Path) -> Path:
    """Documents without tags."""
    taxonomy = read_taxonomy(read_document(POLICIES / "licences.taxonomy.yaml"))
    policy = read_policy(read_document(POLICIES / "half-depth.policy.yaml"))
    return authorities(tmp_path / "papers", taxonomy=taxonomy, policies=[policy], now=int(time.time()))


def net() -> nn.Module:
    """A model with the layers that the policy speaks of."""
    torch.manual_seed(0)
    parts = {"embed": nn.Linear(5, 6), "tanh": nn.Tanh(), "body": nn.Linear(6, 6), "head": nn.Linear(6, 3)}
    return nn.Sequential(OrderedDict(parts))


def run(*arguments: object) -> str:
    done = command(*map(str, arguments))
    assert done.returncode == 0, done.stderr
    return done.stdout


def signed(papers: Path) -> Path:
    trust, taxonomy = papers / "trust.json", papers / "taxonomy.json"
    run(
        "tags", "sign", papers / "tags.parquet", "--description", POLICIES / "source.description.yaml", "--taxonomy",
        taxonomy, "--key", papers / KEYS[GOVERNANCE], "--trust", trust, "--out", papers / "tags.json",
    )  # fmt: skip
    return papers


def governed(papers: Path, ledger: Path, examples: Split, **changes: Any) -> explorer.Governed:
    model = net()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    chosen: dict[str, Any] = {"policy": "half-depth", "steps": 6, "every": 3, **changes}
    return explorer.govern(model, optimizer, examples=examples, documents=papers, ledger=ledger, **chosen)


def test_tag_sign_govern_conform(papers: Path, tmp_path: Path) -> None:
    """The three lines of the README, on floats with labels of int64."""
    inputs, labels = tensors()
    examples = explorer.Split(inputs=inputs, labels=labels)
    explorer.tag(examples, CLASSES, authority=GOVERNANCE, documents=papers)
    signed(papers)
    loader = DataLoader(range(COUNT), batch_size=8)  # pyright: ignore[reportArgumentType]
    with governed(papers, tmp_path / "mine", examples) as loop:
        for _ in range(2):
            for rows in loader:
                loop.step(rows, losses)
    for name in COSIGNERS:
        key = papers / KEYS[name]
        run("ledger", "cosign", tmp_path / "mine" / "ledger", "--key", key, "--trust", papers / "trust.json")
    assert "conforms" in run("conform", tmp_path / "mine", "--trust", papers / "trust.json")


def test_what_is_tagged_is_what_a_step_is_handed(papers: Path, tmp_path: Path) -> None:
    """The rows of one class at a time, in whatever form their numbers come; the split itself stays out of reach."""
    examples = Split(inputs=tensors()[0], labels=tensors()[1])
    explorer.tag(examples, CLASSES, authority=GOVERNANCE, documents=papers, source=[f"row {at}" for at in range(COUNT)])
    signed(papers)
    handed: list[tuple[Tensor, Tensor]] = []

    def watched(model: nn.Module, inputs: Tensor, labels: Tensor) -> Tensor:
        handed.append((inputs.clone(), labels.clone()))
        found = losses(model, inputs.clone(), labels)
        inputs.zero_()  # a copy: to be varied at will
        return found

    (batch,) = next(iter(DataLoader(TensorDataset(torch.arange(4, 10)), batch_size=6)))
    forms = ([4, 5, 6, 7, 8, 9], np.arange(4, 10), np.arange(4, 10, dtype=np.uint8), torch.arange(4, 10), batch)
    with governed(papers, tmp_path / "mine", examples) as loop:
        loop.step(forms[0], losses)
        for form in forms:
            handed.clear()
            loop.step(form, watched)
            odd, even = [5, 7, 9], [4, 6, 8]  # in the order of the classes' codes; BSD waits for the second third
            for (inputs, labels), rows in zip(handed[-1:], [even], strict=True):
                assert torch.equal(inputs, tensors()[0][rows]) and torch.equal(labels, tensors()[1][rows])
            assert len(handed) == 1 or torch.equal(handed[0][0], tensors()[0][odd])
    assert torch.equal(examples.inputs, tensors()[0])


def test_examples_that_change_after_the_check_are_refused(papers: Path, tmp_path: Path) -> None:
    examples = Split(inputs=tensors()[0], labels=tensors()[1])
    explorer.tag(examples, CLASSES, authority=GOVERNANCE, documents=papers)
    signed(papers)
    loop = governed(papers, tmp_path / "mine", examples)
    loop.step(range(8), losses)
    examples.inputs[3] += 1
    with pytest.raises(TrainingError, match="written to after their tags were checked"):
        loop.step(range(8), losses)
    with pytest.raises(ProvenanceError, match="its content is not the one that was tagged"):
        governed(papers, tmp_path / "other", examples)


def test_a_table_that_nobody_signed_is_not_believed(papers: Path, tmp_path: Path) -> None:
    examples = Split(inputs=tensors()[0], labels=tensors()[1])
    explorer.tag(examples, CLASSES, authority=GOVERNANCE, documents=papers)
    with pytest.raises(ProvenanceError, match=r"tags\.json"):
        governed(papers, tmp_path / "mine", examples)


INPUTS, LABELS = tensors()
WRONG: dict[str, tuple[Split, Any, str]] = {
    "too few classes": (Split(inputs=INPUTS, labels=LABELS), CLASSES[:3], "classes: found 3, expected one for each of"),
    "one text": (Split(inputs=INPUTS, labels=LABELS), BSD, "classes: found 'open/permissive/bsd', expected one for"),
    "no path": (Split(inputs=INPUTS, labels=LABELS), ["Open Data"] * COUNT, "example 0: found 'Open Data', expected a"),
    "no text": (Split(inputs=INPUTS, labels=LABELS), [3] * COUNT, "classes: example 0: found 3, expected text"),
    "no labels": (Split(inputs=INPUTS, labels=LABELS[:3]), CLASSES, "found 24 inputs and 3 labels"),
    "bfloat16": (Split(inputs=INPUTS.bfloat16(), labels=LABELS), CLASSES, "inputs: found torch.bfloat16 of shape"),
    "elsewhere": (Split(inputs=INPUTS, labels=LABELS.to("meta")), CLASSES, "labels: found .* on meta, expected"),
    "arrays": (Split(inputs=INPUTS.numpy(), labels=LABELS), CLASSES, "inputs: found ndarray, expected"),  # pyright: ignore
}


@pytest.mark.parametrize("name", WRONG)
def test_what_cannot_be_tagged_is_refused(name: str, tmp_path: Path) -> None:
    """In one sentence, and nothing is written."""
    examples, classes, message = WRONG[name]
    with pytest.raises(ExplorerError, match=message) as found:
        explorer.tag(examples, classes, authority=GOVERNANCE, documents=tmp_path / "papers")
    assert isinstance(found.value, DataError | ProvenanceError)
    assert not (tmp_path / "papers").exists()


def test_a_table_that_is_there_stays(tmp_path: Path) -> None:
    """Its commitments have to stay together with its salts."""
    examples = Split(inputs=INPUTS, labels=LABELS)
    table = explorer.tag(examples, CLASSES, authority=GOVERNANCE, documents=tmp_path)
    before = table.read_bytes()
    with pytest.raises(ProvenanceError, match="there is a file already"):
        explorer.tag(examples, CLASSES, authority=GOVERNANCE, documents=tmp_path)
    assert table.read_bytes() == before
    assert (tmp_path / "salts").stat().st_mode & 0o77 == 0


def test_the_readme_does_it(papers: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The lines that it shows, as they are, but for the signature that it leaves to a command."""
    readme = (Path(__file__).parents[2] / "README.md").read_text()
    block = readme.partition("### Govern a run\n")[2].partition("```python\n")[2].partition("```")[0]
    papers.rename(tmp_path / "governed")
    monkeypatch.chdir(tmp_path)
    x, y = tensors()
    model = net()
    names = {"explorer": explorer, "F": F, "x": x, "y": y, "classes": CLASSES, "model": model}
    names |= {"optimizer": torch.optim.AdamW(model.parameters()), "loader": [range(8), range(8, 16)]}
    before, sign, after = block.partition("# sign")
    assert sign
    exec(compile(before, "README.md", "exec"), names)
    signed(tmp_path / "governed")
    exec(compile(f"#{after}", "README.md", "exec"), names)
    assert (tmp_path / "runs" / "own" / "mine" / "ledger" / "checkpoint").exists()
