"""The source of the installed distributions: classes as declared, from the file to the batch; the same every time."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from explorer.data import sources
from explorer.data.batches import Batches, Typing
from explorer.data.dataset import Dataset, Provenance
from explorer.data.distributions import installed
from explorer.data.source import Source
from explorer.errors import DataError
from tests.data.site import LICENCES, code, fill, install

SMALL = Source(context=16, bytes_per_class=2000, least_bytes=1000)


def look_in(monkeypatch: pytest.MonkeyPatch, root: Path) -> Path:
    monkeypatch.setattr("explorer.data.source.search_path", lambda: [root])
    return root


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return look_in(monkeypatch, fill(tmp_path / "site"))


def provenance_of(dataset: Dataset) -> Provenance:
    assert dataset.provenance is not None
    return dataset.provenance


def foreign(inputs: Tensor, classes: Sequence[str], names: Sequence[str], root: Path) -> list[int]:
    """The examples with a byte that is not of their distribution, or with a class that it does not declare."""
    licences = {f"{each.name} {each.version}": each.licence for each in installed([root])}
    found = []
    for index, (row, class_, name) in enumerate(zip(inputs, classes, names, strict=True)):
        who, _, path = name.partition(": ")
        first, *others = row.numpy().tobytes().split(b"\0")
        shipped = [file.read_bytes() for file in (root / path).parent.glob("*.py")]
        right = first in (root / path).read_bytes() and all(any(piece in each for each in shipped) for piece in others)
        if not right or class_ not in (licences[who], "open/pooled"):
            found.append(index)
    return found


def test_every_example_has_the_class_and_the_bytes_of_its_distribution(site: Path) -> None:
    dataset = SMALL.load(None)
    made = provenance_of(dataset)
    assert made.classes == ("open/permissive/bsd", "open/permissive/mit", "open/pooled")
    assert len(dataset.train) == len(made.codes) == len(made.sources) > 100
    classes = [made.classes[code] for code in made.codes]
    assert foreign(dataset.train.inputs, classes, made.sources, site) == []
    assert foreign(dataset.train.labels, classes, made.sources, site) == []
    moved = (*made.sources[1:], made.sources[0])  # the control: names that are one example off
    assert foreign(dataset.train.inputs, classes, moved, site)
    assert len(foreign(dataset.train.inputs, classes[::-1], made.sources, site)) > 20


def test_the_class_survives_shuffling_and_batching(site: Path) -> None:
    dataset = SMALL.load(None)
    made = provenance_of(dataset)
    names = {code + 1: path for code, path in enumerate(made.classes)}
    typing = Typing(codes=made.codes + 1, names=names)
    batches = Batches(dataset, batch_size=12, seed=0, device=torch.device("cpu"), typing=typing)
    for step in range(3):
        for code_, slots in batches.shares(step):
            inputs, _ = batches.read(batches.indices(step)[slots])
            origins = [made.sources[index] for index in batches.indices(step)[slots]]
            assert foreign(inputs, [names[code_]] * len(slots), origins, site) == []


def test_labels_are_the_bytes_that_follow(site: Path) -> None:
    dataset = SMALL.load(None)
    assert dataset.example_shape == (16,) and dataset.classes == 256
    for split in (dataset.train, dataset.test):
        assert split.inputs.dtype == split.labels.dtype == torch.uint8
        assert torch.equal(split.inputs[:, 1:], split.labels[:, :-1])


def test_other_distributions_are_held_out_in_every_class_and_never_the_largest(site: Path) -> None:
    install(site, "kea", {"kea.py": code("kea", 5000)})
    for family in SMALL.families():
        train, test = ({member.distribution.name for member in side} for side in (family.train, family.test))
        assert train and test and not train & test
        assert "kea" not in test
    dataset = SMALL.load(None)
    held = {member.distribution.name for family in SMALL.families() for member in family.test}
    assert held & {name.split()[0] for name in provenance_of(dataset).sources} == set()
    shipped = b"\0".join(path.read_bytes() for name in held for path in sorted((site / name).glob("*.py")))
    pieces = [piece for row in dataset.test.inputs for piece in row.numpy().tobytes().split(b"\0")]
    assert all(piece in shipped for piece in pieces)
    seen = {row.numpy().tobytes() for row in dataset.train.inputs}
    assert seen.isdisjoint(row.numpy().tobytes() for row in dataset.test.inputs)


def test_the_same_distributions_give_the_same_dataset_wherever_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = []
    for place, names in (("one", list(LICENCES)), ("two", list(LICENCES)[::-1])):
        look_in(monkeypatch, fill(tmp_path / place, names))
        made.append((SMALL.digest(None), SMALL.load(None)))
    (digest, first), (same, second) = made
    assert digest == same
    assert torch.equal(first.train.inputs, second.train.inputs) and torch.equal(first.test.inputs, second.test.inputs)
    assert provenance_of(first).sources == provenance_of(second).sources
    assert (provenance_of(first).codes == provenance_of(second).codes).all()


def test_another_version_is_another_dataset_and_a_changed_file_is_none(site: Path) -> None:
    before, kept = SMALL.digest(None), sources.load(SMALL, None)
    assert sources.load(SMALL, None) is kept
    install(site, "lynx", {"lynx.py": code("lynx", 300)})
    assert SMALL.digest(None) != before and sources.load(SMALL, None) is not kept
    train = [member.distribution.name for family in SMALL.families() for member in family.train]
    for path in (site / train[0]).glob("*.py"):
        path.write_bytes(path.read_bytes()[::-1])
    with pytest.raises(DataError, match=f"changed since {train[0]} 1.0 was installed; reinstall {train[0]}"):
        SMALL.load(None)


def test_fewer_than_two_classes_is_an_error_that_says_what_was_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    look_in(monkeypatch, fill(tmp_path / "site", ("ant", "bee", "dog", "jay")))
    with pytest.raises(
        DataError, match=r"found classes .* 1000 bytes: open/permissive/mit; expected two or more: .*bsd"
    ):
        SMALL.load(None)
    look_in(monkeypatch, tmp_path / "nowhere")
    with pytest.raises(DataError, match=r"found classes with two distributions and 1000 bytes: none; expected"):
        SMALL.digest(None)


def test_no_class_gives_more_than_is_asked_of_it(site: Path) -> None:
    """Every class has 4.5 kB or more; 2 kB are asked of its training side and a twentieth of that of the other."""
    dataset = SMALL.load(None)
    for count in np.bincount(provenance_of(dataset).codes):
        assert 1900 < count * 16 < 2000
    assert 0 < len(dataset.test) * 16 <= 3 * 100


def test_files_that_are_not_text_are_passed_over(site: Path) -> None:
    for name in ("ant", "bee", "cow"):
        install(site, f"{name}-binary", {f"{name}_binary.py": b"\xff" + code(name, 5000)})
    made = provenance_of(SMALL.load(None))
    names = {name.split()[0] for name in made.sources}
    assert names & {"ant", "bee", "cow"} and not any(name.endswith("binary") for name in names)


def test_examples_longer_than_what_a_class_gives_are_refused(site: Path) -> None:
    with pytest.raises(DataError, match="2000 bytes a class do not give every class an example of 2001 bytes"):
        replace(SMALL, context=2000).load(None)


def test_this_environment() -> None:
    """What is really installed here: several licences, and every class with text of its own."""
    real = Source(context=64, bytes_per_class=20_000)
    dataset = real.load(None)
    made = provenance_of(dataset)
    assert {"open/permissive/bsd", "open/permissive/mit", "open/permissive/apache"} <= set(made.classes)
    assert np.bincount(made.codes, minlength=len(made.classes)).min() > 100
    assert not made.simulated
    python = sum(b"import" in row.numpy().tobytes() for row in dataset.train.inputs)
    assert python > len(dataset.train) / 50
    assert not any(name.startswith("explorer ") for name in made.sources)
