"""What is kept of the distributions, and which classes they make."""

import hashlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from explorer.data.distributions import Distribution, PythonFile, installed
from explorer.data.families import Member, families, shared
from tests.data.site import code, fill, install


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
