"""Keys of a trust file: which took over from which, which were taken back, and what a later file says otherwise."""

from dataclasses import replace

from explorer.provenance.trust import Role
from explorer.report.run.vouchers_section import key_lines, keys_since, quorum_words
from tests.provenance.people import RISK, governance, public, risk, trust

OLD = public("old", not_after="2026-04-01T00:00:00Z")
NEW = public("new", not_before="2026-03-01T00:00:00Z")


def test_a_rotation_is_a_younger_key_whatever_the_order_in_the_file() -> None:
    lines = key_lines(trust(risk(NEW, OLD), governance()))
    assert [(line.authority, line.not_before[:7], line.rotated) for line in lines] == [
        ("example.com/data-governance", "2026-01", False),
        (RISK, "2026-01", False),
        (RISK, "2026-03", True),
    ]
    assert {line.revoked for line in lines} == {None}


def test_keys_that_differ_in_the_readers_file_are_listed() -> None:
    before = trust(governance(), risk(OLD))
    stolen = replace(OLD, revoked=public("x", revoked="2026-03-05T00:00:00Z").revoked)
    after = trust(governance(), risk(stolen, NEW))
    assert keys_since(before, before) == ()
    revoked, new = keys_since(before, after)
    assert revoked.revoked == "2026-03-05T00:00:00Z: the laptop was stolen" and new.rotated
    assert len(keys_since(None, after)) == 3  # the run's own file is not here: all of it is news


def test_the_quorum_in_words() -> None:
    made = trust(governance(), risk(), documents={Role.MODEL_RISK: 2})
    assert quorum_words(made) == ("documents: 2 of model-risk", "checkpoints: no number is enough")
