"""Changes of a trust file: each gives a new one and leaves the rest as it was."""

import fcntl
import os
from dataclasses import replace
from pathlib import Path

import pytest

from explorer.errors import ProvenanceError
from explorer.note import Algorithm
from explorer.provenance.envelope import key_id
from explorer.provenance.trust import (
    Revocation,
    Role,
    Trust,
    cosigner,
    find,
    locked,
    new_trust,
    parse_trust,
    trust_content,
    with_key,
    with_quorum,
    with_revocation,
)
from tests.provenance.people import GOVERNANCE, ISSUED, RISK, TODAY, governance, public, risk, trust

LAB = trust(governance(), risk())
LOST = Revocation(at=TODAY, reason="lost")


def ids(*seeds: str) -> list[str]:
    return [key_id(public(seed).raw)[:16] for seed in seeds]


def grown() -> Trust:
    """A trust file as it comes about: one authority of each role."""
    made = new_trust("lab")
    for role in Role:
        made = with_key(made, f"example.com/{role}", public(role), role=role, branches=())
    return made


def test_a_new_trust_file_believes_nobody() -> None:
    assert new_trust("lab").authorities == ()
    assert new_trust("lab").quorum.documents == {} == new_trust("lab").quorum.checkpoints


@pytest.mark.parametrize(("given", "made"), [("my trust", "my-trust"), (".trust", "trust"), ("---", "trust")])
def test_a_trust_file_has_a_name_whatever_it_is_called_after(given: str, made: str) -> None:
    assert new_trust(given).name == made
    assert parse_trust(trust_content(new_trust(given), where="t"), where="t").name == made


def test_the_first_of_a_role_sets_its_quorum_to_one() -> None:
    made = grown()
    assert made.quorum.documents == dict.fromkeys(Role, 1)
    assert made.quorum.checkpoints == {Role.DATA_GOVERNANCE: 1, Role.MODEL_RISK: 1, Role.TRAINER: 1}


def test_the_next_of_a_role_leaves_it_alone() -> None:
    asking = with_quorum(grown(), Role.MODEL_RISK, documents=2, checkpoints=None)
    more = with_key(asking, "example.com/board", public("board"), role=Role.MODEL_RISK, branches=())
    assert more.quorum.documents[Role.MODEL_RISK] == 2
    assert more.quorum == asking.quorum


def test_a_quorum_changes_what_it_names() -> None:
    asked = with_quorum(LAB, Role.AUDITOR, documents=None, checkpoints=2)
    assert asked.quorum.documents == LAB.quorum.documents
    assert asked.quorum.checkpoints == {Role.AUDITOR: 2}


def test_a_further_key() -> None:
    for branches in ((), ("licensed/news", "open")):
        more = with_key(LAB, GOVERNANCE, public("new"), role=Role.DATA_GOVERNANCE, branches=branches)
        assert find(more, GOVERNANCE) == governance(public(GOVERNANCE), public("new"))
        assert find(more, RISK) == find(LAB, RISK)
        assert more.quorum == LAB.quorum


def test_a_further_key_changes_nothing_else() -> None:
    with pytest.raises(ProvenanceError, match="has the role data-governance already; a name has one role"):
        with_key(LAB, GOVERNANCE, public("new"), role=Role.MODEL_RISK, branches=())
    with pytest.raises(ProvenanceError, match="vouches for open, licensed/news; a further key does not change that"):
        with_key(LAB, GOVERNANCE, public("new"), role=Role.DATA_GOVERNANCE, branches=("open", "personal"))


@pytest.mark.parametrize(
    "named", [None, key_id(public(GOVERNANCE).raw), ids(GOVERNANCE)[0][:4].upper(), public(GOVERNANCE).public_key]
)
def test_a_key_is_revoked_by_id_beginning_public_key_or_as_the_only_one(named: str | None) -> None:
    revoked = with_revocation(LAB, GOVERNANCE, key=named, revocation=LOST)
    expected = governance(replace(public(GOVERNANCE), revoked=LOST))
    assert revoked == replace(LAB, authorities=(expected, risk()))


def test_of_two_keys_one_must_be_named() -> None:
    two = trust(governance(public("old"), public("new")))
    old, new = ids("old", "new")
    for named, message in (
        (None, f"which key of {GOVERNANCE}? it has: {old}, {new}"),
        ("0123456789", f"key '0123456789' names 0 keys of {GOVERNANCE}? it has: {old}, {new}"),
        (old[:3], f"key '{old[:3]}' names 0 keys of"),
        ("", "key '' names 0 keys of"),
    ):
        with pytest.raises(ProvenanceError) as caught:
            with_revocation(two, GOVERNANCE, key=named, revocation=LOST)
        assert str(caught.value).startswith(message)
    once = with_revocation(two, GOVERNANCE, key=old, revocation=LOST)
    assert [key.revoked for key in find(once, GOVERNANCE).keys] == [LOST, None]
    both = with_revocation(once, GOVERNANCE, key=None, revocation=LOST)
    assert [key.revoked for key in find(both, GOVERNANCE).keys] == [LOST, LOST]


def test_a_revocation_moves_back_in_time_and_not_forward() -> None:
    revoked = trust(governance(public(GOVERNANCE, revoked=TODAY)))
    (known,) = ids(GOVERNANCE)
    earlier = with_revocation(revoked, GOVERNANCE, key=known, revocation=Revocation(at=ISSUED, reason="in May"))
    assert find(earlier, GOVERNANCE).keys[0].valid_until < find(revoked, GOVERNANCE).keys[0].valid_until
    for at in (TODAY, "2026-07-01T00:00:00Z"):
        with pytest.raises(ProvenanceError, match=f"is revoked as of {TODAY} already"):
            with_revocation(revoked, GOVERNANCE, key=known, revocation=Revocation(at=at, reason="again"))


def test_an_unknown_authority_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(ProvenanceError, match=f"unknown authority .*; did you mean '{RISK}'"):
        find(LAB, "example.com/modelrisk")


def test_who_cosigns() -> None:
    found = cosigner(governance(), public(GOVERNANCE))
    assert found is not None
    assert (found.name, found.algorithm, found.public_key) == (
        GOVERNANCE,
        Algorithm.COSIGNATURE,
        public(GOVERNANCE).raw,
    )
    trainer = find(grown(), "example.com/trainer")
    assert cosigner(trainer, trainer.keys[0]) is None


def test_one_process_at_a_time(tmp_path: Path) -> None:
    held = os.open(tmp_path, os.O_RDONLY)
    fcntl.flock(held, fcntl.LOCK_EX)
    with pytest.raises(ProvenanceError, match="another process is changing it"), locked(tmp_path / "trust.json"):
        pytest.fail("the lock was held by somebody else")
    os.close(held)
    with locked(tmp_path / "trust.json"):
        assert list(tmp_path.iterdir()) == []


def test_no_directory_to_lock(tmp_path: Path) -> None:
    with pytest.raises(ProvenanceError, match="No such file or directory"), locked(tmp_path / "nowhere" / "trust.json"):
        pytest.fail("there is no directory")


def test_a_link_is_not_changed(tmp_path: Path) -> None:
    """The link would become a file of its own, and the file that others read would stay as it was."""
    (tmp_path / "link").symlink_to("trust.json")
    with pytest.raises(ProvenanceError, match="link: a link; name the file itself"), locked(tmp_path / "link"):
        raise AssertionError("this must not be reached")
