"""Old paths of public modules: the same module under two names, and a warning that names the new one."""

import sys
from collections.abc import Iterator
from importlib import import_module

import pytest

from explorer import ledger, moved, note


@pytest.fixture
def two_moved(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A module and a folder that are elsewhere, as if they had moved."""
    monkeypatch.setattr(moved, "MOVED", {"old_note": "note", "attic": "ledger", "attic.note": "note"})
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        if name.startswith(("explorer.old_note", "explorer.attic")):
            del sys.modules[name]


def test_an_old_path_gives_the_module_at_the_new_one(two_moved: None) -> None:
    spec = note.__spec__
    with pytest.warns(DeprecationWarning, match=r"^explorer\.old_note moved to explorer\.note$") as told:
        there = import_module("explorer.old_note")
    assert there is note and note.__spec__ is spec and note.__name__ == "explorer.note"
    assert len(told) == 1


def test_what_lies_in_a_moved_folder_moved_with_it(two_moved: None) -> None:
    from explorer.ledger import signed_checkpoint

    with pytest.warns(DeprecationWarning):
        assert import_module("explorer.attic.signed_checkpoint") is signed_checkpoint
        assert import_module("explorer.attic") is ledger
        assert import_module("explorer.attic.note") is note  # a line of its own


def test_other_names_are_as_unknown_as_ever(two_moved: None) -> None:
    with pytest.raises(ModuleNotFoundError, match=r"explorer\.nothing"):
        import_module("explorer.nothing")
    assert moved.new_path("json") is None


def test_every_line_leads_to_a_module_and_hides_none() -> None:
    for old, new in moved.MOVED.items():
        assert import_module(f"explorer.{new}").__name__ == f"explorer.{new}"
        assert not old.startswith("explorer.")
