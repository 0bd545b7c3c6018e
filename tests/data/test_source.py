"""The source of the installed distributions: what is kept, which classes they make, from the file to the batch."""

import hashlib
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from explorer.data import sources
from explorer.data.batches import Batches, Typing
from explorer.data.dataset import Dataset, Provenance
from explorer.data.distributions import Distribution, PythonFile, installed
from explorer.data.source import Member, Source, families, search_path, shared
from explorer.errors import DataError
from tests.data.site import LICENCES, code, fill, install

# --- classes ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def site(tmp_path: Path) -> Path:
    return fill(tmp_path / "site")


def kept(root: Path) -> tuple[Member, ...]:
    """The distributions that give something."""
    found = families(installed([root]), least_bytes=1000)
    return tuple(member for family in found for member in (*family.train, *family.test))


def owners(root: Path, content: bytes) -> set[str]:
    """Where the dataset has this file from."""
    paths = [file.path for member in kept(root) for file in member.files]
    return {path for path in paths if (root / path).read_bytes() == content}


def test_equal_files_of_one_class_are_kept_once_and_of_two_classes_not_at_all(site: Path) -> None:
    once, never, unclaimed = (code(name, 400) for name in ("once", "never", "unclaimed"))
    install(site, "mite", {"mite/a.py": once, "mite/again.py": once, "mite/b.py": never, "mite/c.py": unclaimed})
    install(site, "moth", {"moth/0.py": once, "moth/b.py": code("moth", 10)})
    install(site, "yak", {"yak/b.py": never}, licence="BSD-3-Clause")
    install(site, "zebra", {"zebra/c.py": unclaimed}, licence=None)  # declares nothing, so claims nothing
    assert owners(site, once) == {"mite/a.py"}
    assert owners(site, never) == set()
    assert owners(site, unclaimed) == {"mite/c.py"}


def test_files_stand_in_an_order_that_their_names_do_not_decide(site: Path) -> None:
    digests = [[file.digest for file in member.files] for member in kept(site)]
    assert digests == [sorted(each) for each in digests]
    paths = [[file.path for file in member.files] for member in kept(site)]
    assert paths != [sorted(each) for each in paths]


@pytest.mark.parametrize("largest", range(6))
def test_an_eighth_is_held_out_by_a_hash_of_the_names_and_never_the_largest(largest: int) -> None:
    sizes = [900 if index == largest else 100 for index in range(6)]
    members = [member(f"m{index}", size, licence="open/a") for index, size in enumerate(sizes)]
    other = [member(f"b{index}", 100, licence="open/b") for index in range(17)]
    one, two = families(tuple(each.distribution for each in (*members, *other)), least_bytes=100)
    assert [each.distribution.name for each in one.test] == ["m4" if largest == 3 else "m3"]
    assert len(two.test) == 2 and len(one.train) == 5 and len(two.train) == 15


def test_small_classes_are_pooled_and_a_small_pool_is_left_out(site: Path) -> None:
    by_class = {
        family.path: {member.distribution.name for member in (*family.train, *family.test)}
        for family in families(installed([site]), least_bytes=1000)
    }
    assert by_class == {
        "open/permissive/bsd": {"dog", "eel", "fox"},
        "open/permissive/mit": {"ant", "bee", "cow"},
        "open/pooled": {"gnu", "hen", "imp"},  # and jay, whose licence nobody knows, in none
    }
    few = tuple(each for each in installed([site]) if each.name not in ("hen", "imp"))
    assert [family.path for family in families(few, least_bytes=1000)] == ["open/permissive/bsd", "open/permissive/mit"]
    install(site, "kea", {"kea.py": code("kea", 5000)})
    larger = families(installed([site]), least_bytes=5000)
    assert [family.path for family in larger] == ["open/permissive/mit", "open/pooled"]
    assert {"dog", "gnu"} <= {member.distribution.name for member in (*larger[1].train, *larger[1].test)}


def member(name: str, size: int, *, licence: str = "open") -> Member:
    files = (PythonFile(path=f"{name}.py", digest=hashlib.sha256(name.encode()).hexdigest(), size=size - 1),)
    distribution = Distribution(name=name, version="1", root=Path("/nowhere"), licence=licence, files=files)
    return Member(distribution=distribution, files=files)


@given(st.lists(st.integers(2, 1000), min_size=1, max_size=20), st.integers(0, 5000))
def test_a_class_is_shared_evenly_by_its_distributions(sizes: list[int], total: int) -> None:
    members = [member(f"m{index}", size) for index, size in enumerate(sizes)]
    found = shared(members, total)
    assert [each for each, _ in found] == members
    limits = [limit for _, limit in found]
    assert sum(limits) == min(total, sum(sizes))
    assert all(limit == size or limit >= max(limits) - 1 for limit, size in zip(limits, sizes, strict=True))


def test_where_a_share_is_too_small_for_an_example_fewer_distributions_have_one() -> None:
    members = [member(f"m{index}", size) for index, size in enumerate((20, 500, 500, 500, 500))]
    assert [limit for _, limit in shared(members, 200)] == [20, 45, 45, 45, 45], "the control: none has 65 bytes"
    chosen = shared(members, 200, least=65)
    assert [(one.distribution.key, limit) for one, limit in chosen] == [
        (members[1].distribution.key, 66),
        (members[2].distribution.key, 67),
        (members[3].distribution.key, 67),
    ]
    assert shared(members, 2000, least=65) == shared(members, 2000)


# --- the search path -------------------------------------------------------------------------------------------------


def test_what_a_package_brings_along_is_no_part_of_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = fill(tmp_path / "lib" / "site-packages")
    brought = site / "mite" / "_vendor"
    install(brought, "newt", {"newt.py": code("newt", 400)})
    monkeypatch.setattr(sys, "path", [str(tmp_path / "lib"), str(site)])
    before = search_path(), Source(least_bytes=1000).digest(None)
    monkeypatch.setattr(sys, "path", [*sys.path, str(brought)])  # as `import setuptools` does
    assert (search_path(), Source(least_bytes=1000).digest(None)) == before
    assert installed(map(Path, sys.path)) != installed(search_path()), "the directory has distributions of its own"


# --- the dataset -----------------------------------------------------------------------------------------------------

SMALL = Source(context=16, bytes_per_class=2000, least_bytes=1000)


def look_in(monkeypatch: pytest.MonkeyPatch, root: Path) -> Path:
    monkeypatch.setattr("explorer.data.source.search_path", lambda: [root])
    return root


@pytest.fixture
def looked_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
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


def test_every_example_has_the_class_and_the_bytes_of_its_distribution(looked_in: Path) -> None:
    dataset = SMALL.load(None)
    made = provenance_of(dataset)
    assert made.classes == ("open/permissive/bsd", "open/permissive/mit", "open/pooled")
    assert len(dataset.train) == len(made.codes) == len(made.sources) > 100
    classes = [made.classes[code] for code in made.codes]
    assert foreign(dataset.train.inputs, classes, made.sources, looked_in) == []
    assert foreign(dataset.train.labels, classes, made.sources, looked_in) == []
    moved = (*made.sources[1:], made.sources[0])  # the control: names that are one example off
    assert foreign(dataset.train.inputs, classes, moved, looked_in)
    assert len(foreign(dataset.train.inputs, classes[::-1], made.sources, looked_in)) > 20


def test_the_class_survives_shuffling_and_batching(looked_in: Path) -> None:
    dataset = SMALL.load(None)
    made = provenance_of(dataset)
    names = {code + 1: path for code, path in enumerate(made.classes)}
    typing = Typing(codes=made.codes + 1, names=names)
    batches = Batches(dataset, batch_size=12, seed=0, device=torch.device("cpu"), typing=typing)
    for step in range(3):
        for code_, slots in batches.shares(step):
            inputs, _ = batches.read(batches.indices(step)[slots])
            origins = [made.sources[int(index)] for index in batches.indices(step)[slots]]
            assert foreign(inputs, [names[code_]] * len(slots), origins, looked_in) == []


def test_labels_are_the_bytes_that_follow(looked_in: Path) -> None:
    dataset = SMALL.load(None)
    assert dataset.example_shape == (16,) and dataset.classes == 256
    for split in (dataset.train, dataset.test):
        assert split.inputs.dtype == split.labels.dtype == torch.uint8
        assert torch.equal(split.inputs[:, 1:], split.labels[:, :-1])


def test_other_distributions_are_held_out_in_every_class_and_never_the_largest(looked_in: Path) -> None:
    install(looked_in, "kea", {"kea.py": code("kea", 5000)})
    for family in SMALL.families():
        train, test = ({member.distribution.name for member in side} for side in (family.train, family.test))
        assert train and test and not train & test
        assert "kea" not in test
    dataset = SMALL.load(None)
    held = {member.distribution.name for family in SMALL.families() for member in family.test}
    assert held & {name.split()[0] for name in provenance_of(dataset).sources} == set()
    shipped = b"\0".join(path.read_bytes() for name in held for path in sorted((looked_in / name).glob("*.py")))
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


def test_another_version_is_another_dataset_and_a_changed_file_is_none(looked_in: Path) -> None:
    before, kept = SMALL.digest(None), sources.load(SMALL, None)
    assert sources.load(SMALL, None) is kept
    install(looked_in, "lynx", {"lynx.py": code("lynx", 300)})
    assert SMALL.digest(None) != before and sources.load(SMALL, None) is not kept
    train = [member.distribution.name for family in SMALL.families() for member in family.train]
    for path in (looked_in / train[0]).glob("*.py"):
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


def test_no_class_gives_more_than_is_asked_of_it(looked_in: Path) -> None:
    """Every class has 4.5 kB or more; 2 kB are asked of its training side and a twentieth of that of the other."""
    dataset = SMALL.load(None)
    for count in np.bincount(provenance_of(dataset).codes):
        assert 1900 < count * 16 < 2000
    assert 0 < len(dataset.test) * 16 <= 3 * 100


def test_files_that_are_not_text_are_passed_over(looked_in: Path) -> None:
    for name in ("ant", "bee", "cow"):
        install(looked_in, f"{name}-binary", {f"{name}_binary.py": b"\xff" + code(name, 5000)})
    made = provenance_of(SMALL.load(None))
    names = {name.split()[0] for name in made.sources}
    assert names & {"ant", "bee", "cow"} and not any(name.endswith("binary") for name in names)


def test_examples_longer_than_what_a_class_gives_are_refused(looked_in: Path) -> None:
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
