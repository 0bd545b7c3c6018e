"""The badge of a project's ledger: its signers, and whether the caller believes them."""

from dataclasses import replace
from pathlib import Path

from explorer.audit.badges import ProjectBadge, project_badge
from explorer.entries.fields import LedgerState
from explorer.entries.kinds import Access
from explorer.project import AUDIT, Project
from explorer.provenance.trust import Trust
from tests.audit.governed_run import TRAINER, trust
from tests.provenance.people import NOW, private, public

STATE = LedgerState(origin="example.com/run", size=3, root="a" * 64)


def badge(runs: Path, believed: Trust | None) -> ProjectBadge:
    with Project.open(runs, key=private(TRAINER), name=TRAINER) as project:
        project.append(Access(ledger=STATE, grant="b" * 64, query="c" * 64, blobs={}))
    found = project_badge(runs, trust=believed, now=NOW)
    assert found is not None
    return found


def test_only_its_signers_are_believed(tmp_path: Path) -> None:
    assert project_badge(tmp_path, trust=trust(), now=NOW) is None
    found = badge(tmp_path, trust())
    assert found.verified and found.size == 1 and found.signed_by == (f"{TRAINER}/{AUDIT}",)
    assert not badge(tmp_path, None).verified
    authorities = [
        replace(each, keys=(public("stranger"),)) if each.name == TRAINER else each for each in trust().authorities
    ]
    other = badge(tmp_path, replace(trust(), authorities=tuple(authorities)))
    assert not other.verified and other.findings


def test_an_entry_that_was_changed_is_found(tmp_path: Path) -> None:
    assert badge(tmp_path, trust()).verified
    (bundle,) = [path for path in (tmp_path / AUDIT / "tile" / "entries").rglob("*") if path.is_file()]
    bundle.write_bytes(bundle.read_bytes().replace(b"example.com/run", b"example.com/ruN"))
    found = project_badge(tmp_path, trust=trust(), now=NOW)
    assert found is not None and not found.verified and found.findings
