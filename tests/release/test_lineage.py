"""The family of a run: what is here and verified, what is only claimed, and names that go in circles."""

import hashlib
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from explorer import rundir
from explorer.entries.fields import LedgerState, write_float
from explorer.entries.kinds import Genesis, Observation, Parent
from explorer.project import Project
from explorer.provenance.envelope import parse_envelope
from explorer.provenance.model_attestation import MODEL
from explorer.provenance.trust import Trust
from explorer.release import lineage as searching
from explorer.release.lineage import Family, Relative, family
from explorer.runlog.attested import ATTESTATION, PARENTS
from explorer.runlog.model_file import ModelFile
from explorer.runlog.run_ledger import RunLedger
from tests.audit.governed_run import MIT, TRAINER, sign_again, write_governed_run
from tests.provenance.people import NOW, private
from tests.release.released import EVALUATOR, release, say, trust

NOWHERE = LedgerState(origin="example.com/never-seen", size=9, root="a" * 64)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory of runs: a base with an attested and observed model, and a run that began with that model."""
    runs = tmp_path_factory.mktemp("family") / "runs"
    base = write_governed_run(runs)
    model = release(base)
    say(model)
    child = runs / "tuned" / "child"
    shutil.copytree(base, child, ignore=shutil.ignore_patterns("model"))
    head = RunLedger(base).ledger.checkpoint()
    state = LedgerState(origin=head.origin, size=head.size, root=head.root.hex())
    digest = signed_digest(model)
    parent = Parent(
        kind="model",
        ledger=state,
        model=ModelFile(model / MODEL).sha256,
        attestation=digest,
        admitted={MIT: write_float(0.5)},
    )
    sign_again(child, lambda _, e: replace(e, run="child", parents=(parent,)) if isinstance(e, Genesis) else e)
    kept = child / rundir.GOVERNANCE / PARENTS / f"{digest}.json"
    kept.parent.mkdir()
    shutil.copyfile(model / ATTESTATION, kept)
    return runs


def signed_digest(model: Path) -> str:
    """The digest of what was signed."""
    return hashlib.sha256(parse_envelope((model / ATTESTATION).read_bytes(), where="").payload).hexdigest()


@pytest.fixture
def runs(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "runs"))


def base_of(runs: Path) -> Path:
    return next((runs / "digits").iterdir())


def of(run: Path, believed: Trust | None = None) -> Family:
    return family(RunLedger(run), trust=believed, now=NOW)


def shown(found: Family) -> list[tuple[str, str, int]]:
    return [(each.what, each.standing, each.generation) for each in found.relatives]


def reparent(run: Path, *parents: Parent) -> None:
    sign_again(run, lambda _, entry: replace(entry, parents=parents) if isinstance(entry, Genesis) else entry)


def named(state: LedgerState) -> Parent:
    return Parent(kind="deletion", ledger=state, model=None, attestation=None, admitted={})


def only(found: Family, what: str) -> Relative:
    (one,) = [each for each in found.relatives if each.what == what]
    return one


def test_what_came_of_a_run_stands_behind_it(runs: Path) -> None:
    found = of(base_of(runs), trust())
    assert shown(found) == [
        ("run", "verified", 0),
        ("model", "verified", 1),
        ("observation", "verified", 2),
        ("run", "verified", 2),
    ]
    assert only(found, "observation").name == f"{EVALUATOR} as evaluator"
    words = {(tie.words, tie.certain) for tie in found.ties}
    assert words == {("attested", True), ("observed", True), ("began with it; admits open/mit 0.5", True)}
    begun = next(tie for tie in found.ties if tie.words.startswith("began"))
    assert begun.source == only(found, "model").key


def test_what_a_run_began_with_stands_before_it(runs: Path) -> None:
    found = of(runs / "tuned" / "child", trust())
    assert shown(found) == [("run", "verified", 0), ("model", "verified", -1), ("run", "verified", -2)]
    shutil.rmtree(runs / "tuned" / "child" / rundir.GOVERNANCE / PARENTS)
    shutil.rmtree(runs / "digits")
    found = of(runs / "tuned" / "child", trust())
    assert shown(found) == [("run", "verified", 0), ("model", "claimed", -1), ("run", "claimed", -2)]
    assert not any(tie.certain for tie in found.ties if tie.words == "attested")


def test_nothing_is_verified_for_who_believes_nobody(runs: Path) -> None:
    assert {each.standing for each in of(base_of(runs)).relatives} == {"here"}


def test_a_forged_attestation_is_not_believed(runs: Path) -> None:
    path = base_of(runs) / "model" / ATTESTATION
    path.write_bytes(path.read_bytes().replace(b'"sig":"', b'"sig":"AAAA', 1))
    found = of(base_of(runs), trust())
    assert only(found, "model").standing == "refused"
    assert only(found, "observation").standing == "here"  # of a model that is not believed nothing is said
    assert not any(tie.certain for tie in found.ties if tie.words in ("attested", "observed"))


def test_a_ledger_that_was_changed_is_not_believed(runs: Path) -> None:
    for bundle in (base_of(runs) / rundir.LEDGER / "tile" / "entries").rglob("*.p/*"):
        bundle.write_bytes(bundle.read_bytes().replace(b'"seed":0', b'"seed":2', 1))
    standings = {each.key: each.standing for each in of(runs / "tuned" / "child", trust()).relatives}
    origin = RunLedger(base_of(runs)).ledger.checkpoint().origin
    assert standings[origin] == "refused"


def test_an_ancestor_that_is_not_here_is_claimed(runs: Path) -> None:
    reparent(base_of(runs), named(NOWHERE))
    found = of(base_of(runs), trust())
    missing = next(each for each in found.relatives if each.generation == -1)
    assert (missing.name, missing.standing) == (NOWHERE.origin, "claimed")
    assert [tie.certain for tie in found.ties if tie.source == missing.key] == [False]


def test_another_state_than_the_one_that_is_named_is_another_ledger(runs: Path) -> None:
    """The child's ledger names the base as it was; the base was signed anew, with other entries."""
    sign_again(base_of(runs), lambda _, entry: replace(entry, seed=7) if isinstance(entry, Genesis) else entry)
    found = of(runs / "tuned" / "child")
    assert [(each.standing, each.generation) for each in found.relatives] == [
        ("here", 0),
        ("here", -1),
        ("claimed", -2),
    ]


def test_names_that_go_in_a_circle_end(runs: Path) -> None:
    """Two runs that name each other: by states that neither has had, and by the empty state that every ledger has."""
    base, child = base_of(runs), runs / "tuned" / "child"
    origins = [RunLedger(run).ledger.checkpoint().origin for run in (base, child)]
    for size, root in ((9, "b" * 64), (0, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855")):
        for run, other in ((base, origins[1]), (child, origins[0])):
            reparent(run, named(LedgerState(origin=other, size=size, root=root)))
        found = of(base)
        assert not any(tie.certain for tie in found.ties if "deletion" in tie.words)
        assert any("name each other" in each for each in found.remarks)
    reparent(base, named(LedgerState(origin=origins[0], size=1, root="c" * 64)))
    assert shown(of(base))[1] == ("run", "claimed", -1)  # itself, it says


def test_there_is_room_for_so_many(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(searching, "MOST", 2)
    found = of(base_of(runs))
    assert len(found.relatives) == 2 and found.left_out == 2
    assert all({tie.source, tie.target} <= {each.key for each in found.relatives} for tie in found.ties)


def test_an_observation_that_is_on_record_and_not_here_is_claimed(runs: Path) -> None:
    head = RunLedger(base_of(runs)).ledger.checkpoint()
    state = LedgerState(origin=head.origin, size=head.size, root=head.root.hex())
    entry = Observation(ledger=state, model="d" * 64, role="deployer", admitted={}, statement="e" * 64, blobs={})
    with Project.open(runs, key=private(TRAINER), name=TRAINER) as project:
        project.append(entry)
        project.append(replace(entry, ledger=NOWHERE, statement="f" * 64))
    said = {each.digest: each.standing for each in of(base_of(runs), trust()).relatives if each.what == "observation"}
    assert said["e" * 64] == "claimed" and "f" * 64 not in said
