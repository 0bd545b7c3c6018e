"""`explorer delete evidence`: a table that says what it is, and nothing called deleted that is not."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from explorer.runlog.forecast import forecast
from explorer.runlog.run_ledger import RunLedger
from explorer.runlog.target import read_origin, resolve, write_origin
from explorer.training.deletion import delete
from tests.cli.command import explorer, refused
from tests.training.evidence_runs import TARGET, Desk


class Scene:
    """A run with a region for the class, three that never had it, and what a deletion left."""

    def __init__(self, root: Path) -> None:
        desk = Desk(root)
        self.run = desk.run("sealed")
        self.retrained = [desk.run("sealed", seed=seed, without=[TARGET]) for seed in (0, 1, 2)]
        target = resolve(RunLedger(self.run), class_=TARGET)
        self.left = delete(self.run, target, route=forecast(RunLedger(self.run), target).route, to=root / "left")

    def comes_from(self, run: str) -> None:
        origin = read_origin(self.left)
        assert origin is not None
        write_origin(self.left, replace(origin, run=run))

    def references(self, *paths: Path) -> list[str | Path]:
        return [word for path in paths or (*self.retrained, self.left) for word in ("--references", path)]


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Scene:
    return Scene(tmp_path_factory.mktemp("evidence"))


@pytest.mark.slow
def test_the_table(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    done = explorer("delete", "evidence", scene.run, TARGET, *scene.references())
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert lines[0] == f"{scene.run.name}: {TARGET}, compared with 3 runs without it"
    rows = {line.split("  ")[0]: line for line in lines[2:11]}
    assert rows["the run"].endswith("no")
    exact = [rows[name] for name in rows if name[:2] in ("G0", "G1", "G2")]
    assert len(exact) == 3 and len({line[30:].strip() for line in exact}) == 1 and exact[0].endswith("yes")
    assert "Evidence, not proof" in done.stdout and "3 references are few" in done.stdout
    assert "deleted" not in done.stdout


@pytest.mark.slow
def test_as_json(scene: Scene) -> None:
    found = json.loads(
        explorer("delete", "evidence", scene.run, "simulated/class-00", *scene.references(), "--json").stdout
    )
    whole, g0, g1, g2 = found["models"]
    assert found["classes"] == [TARGET] and found["references"]["target"]["n"] == 3 and "not proof" in found["says"]
    assert {key: value for key, value in g0.items() if key != "model"} == {
        key: value for key, value in g2.items() if key != "model"
    }
    assert (whole["same"], g0["same"], g1["same"], g2["same"]) == (False, True, True, True)
    assert whole["target"] < g2["target"] and whole["relearned"] == 0


def test_what_is_refused(scene: Scene) -> None:
    verb = ("delete", "evidence", scene.run)
    two = scene.references(*scene.retrained[:2])
    assert "found seeds [0, 1]; expected at least 3" in refused(*verb, TARGET, *two)
    assert "unknown class 'simulated/class-0'" in refused(*verb, "simulated/class-0", *two)
    assert "its recipe is not that run's with the target left out" in refused(*verb, "simulated/class-01", *two)
    scene.comes_from("another")
    assert f"a deletion of {TARGET} from another" in refused(*verb, TARGET, *scene.references())
