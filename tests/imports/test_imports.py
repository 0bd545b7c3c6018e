"""Runs of other tools, as those tools write them: imported whole or not at all, marked, never mixed into a claim."""

import csv
import hashlib
import json
import operator
import random
import shutil
import sqlite3
import subprocess
import sys
import tarfile
from contextlib import closing, suppress
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import pytest

from explorer.analysis.comparison import matches
from explorer.analysis.ladders import ladders
from explorer.analysis.verdict import sweep_verdicts
from explorer.errors import ExplorerError, RunError
from explorer.imports.csv_rows import read_csv
from explorer.imports.imported_file import read_import
from explorer.imports.mapping import convert, given, guessed
from explorer.imports.mlflow_runs import read_mlflow
from explorer.imports.wandb_runs import read_wandb
from explorer.rundir import IMPORTED
from explorer.store import frames, queries
from explorer.store.ingest import ingest, rebuild
from explorer.store.published import database
from explorer.store.upkeep import bring_up
from tests.builders import run_record, write_run
from tests.cli.command import explorer, refused

RECORDED = Path(__file__).with_name("recorded.tar.xz")
MAKE = Path(__file__).with_name("make.py")
FULL_MAP = "recipe=optimizer,budget=epochs,seed=seed,seconds=train_seconds"


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What wandb and mlflow wrote: see `make.py`."""
    directory = tmp_path_factory.mktemp("recorded")
    with tarfile.open(RECORDED) as archive:
        archive.extractall(directory, filter="data")
    return directory


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    directory = tmp_path / "runs"
    directory.mkdir()
    return directory


def table(path: Path, rows: list[dict[str, object]]) -> Path:
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return path


def sound(*, recipes: tuple[str, ...] = ("sgd", "adam"), budgets: tuple[int, ...] = (5, 10), seeds: int = 3) -> list:
    return [
        {
            "optimizer": recipe,
            "epochs": budget,
            "seed": seed,
            "runtime": round((3.0 - at) * budget * (1 + 0.01 * seed), 4),
            "val_acc": 0.8 + 0.01 * budget + 0.001 * seed,
        }
        for at, recipe in enumerate(recipes)
        for budget in budgets
        for seed in range(seeds)
    ]


@pytest.mark.parametrize(
    ("tool", "source", "metric"),
    [
        ("wandb", "wandb", "val/acc"),
        ("mlflow", "mlflow.db", "val/acc"),
        ("mlflow", "mlruns", "val/acc"),
        ("mlflow", "csv", ""),
    ],
)
def test_runs_that_the_tools_wrote_are_imported_with_their_curves(
    recorded: Path, runs: Path, tool: str, source: str, metric: str
) -> None:
    path = recorded / ("search_runs.csv" if source == "csv" else source)
    done = explorer("import", tool, path, "--name", "theirs", "--yes", "--json", "--runs", runs)
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert (said["runs"], said["recipes"]) == (4, 2)
    assert len(said["left_out"]) == 1  # the run that failed
    frame = frames.results(database(runs), sweep="theirs")
    assert set(frame["time_source"]) == {"imported"}
    assert sorted(frame["train_seconds"]) == [3.0, 3.1, 4.0, 4.1]
    assert sorted(frame["quality"]) == pytest.approx([0.70, 0.71, 0.75, 0.76])
    assert set(frame["metric"]) == {"val_acc"} and set(frame["unit"]) == {"fraction"}
    curves = frames.metrics(database(runs), sweep="theirs")
    if metric:
        one = curves[(curves["run_id"] == frame["run_id"].iloc[0]) & (curves["metric"] == "train_loss")]
        assert list(one["step"]) == [0, 1, 2] and one["value"].iloc[0] in (2.0, 1.95)
    else:
        assert curves.empty  # a table of final numbers has none


@pytest.mark.slow
@pytest.mark.parametrize("tool", ["wandb", "mlflow"])
def test_what_the_tools_write_today_reads_the_same(tool: str, tmp_path: Path) -> None:
    if find_spec(tool) is None:
        pytest.skip(f"{tool} is not installed")
    subprocess.run([sys.executable, MAKE, tool, tmp_path], check=True, timeout=300)
    sources = {
        "wandb": lambda: [read_wandb(tmp_path / "wandb")],
        "mlflow": lambda: [read_mlflow(tmp_path / "mlflow.db"), read_mlflow(tmp_path / "mlruns")],
    }
    for source in sources[tool]():
        made = convert(source, guessed(source, {}))
        assert len(made.runs) == 4 and len(made.left_out) == 1
        assert sorted(run.seconds or 0 for run in made.runs) == [3.0, 3.1, 4.0, 4.1]


def test_a_table_of_wandbs_page_is_imported(tmp_path: Path, runs: Path) -> None:
    head = {"State": "finished", "Notes": "-", "User": "me", "Tags": "", "Created": "2026-11-02T10:00:00.000Z"}
    rows = [{"Name": f"run-{at}", **head, "Runtime": row["runtime"], **row} for at, row in enumerate(sound())]
    rows.append({**rows[0], "Name": "broken", "State": "crashed", "seed": 9})
    path = table(tmp_path / "export.csv", [{k: v for k, v in row.items() if k != "runtime"} for row in rows])
    done = explorer("import", "wandb", path, "--yes", "--runs", runs)
    assert done.returncode == 0, done.stderr
    assert "its state is 'crashed'" in done.stdout
    assert len(frames.results(database(runs), sweep="export")) == 12


def test_results_and_questions_say_that_runs_are_imported(tmp_path: Path, runs: Path) -> None:
    path = table(tmp_path / "theirs.csv", sound())
    assert explorer("import", "csv", path, "--yes", "--baseline", "sgd", "--runs", runs).returncode == 0
    for words in (("results", "theirs"), ("ask", "theirs")):
        done = explorer(*words, "--runs", runs)
        assert "imported from another tool and unverified" in done.stdout, done


def test_a_guess_is_shown_and_nothing_written_until_it_is_agreed_to(tmp_path: Path, runs: Path) -> None:
    path = table(tmp_path / "theirs.csv", [{**row, "comment": "x"} for row in sound()])
    done = explorer("import", "csv", path, "--runs", runs)
    assert done.returncode == 1
    assert "guessed" in done.stdout and "not used: comment" in done.stdout and "--yes" in done.stderr
    assert not any(runs.iterdir())
    done = explorer("import", "csv", path, "--dry-run", "--yes", "--runs", runs)
    assert done.returncode == 0 and not any(runs.iterdir())
    mapping = "recipe=optimizer,budget=epochs,seed=seed,seconds=runtime,quality=val_acc"
    done = explorer("import", "csv", path, "--map", mapping, "--baseline", "sgd", "--runs", runs)
    assert done.returncode == 0, done.stdout  # nothing is left to guess
    assert "there already" in refused("import", "csv", path, "--yes", "--runs", runs)


def test_imported_and_own_runs_are_never_compared(tmp_path: Path, runs: Path) -> None:
    path = table(tmp_path / "digits.csv", sound(recipes=("adam", "sgd")))
    options = ("--dataset", "digits", "--model", "resnet8", "--baseline", "adam")
    assert explorer("import", "csv", path, "--yes", *options, "--runs", runs).returncode == 0
    for recipe in ("baseline", "own"):
        for seed in range(2):
            write_run(runs, run_record(recipe=recipe, seed=seed), contended=False)
    ingest(runs)
    rows = frames.results(database(runs))
    # As one table of one setting, as nothing here would make it: the refusal must not depend on names.
    rows = rows.assign(sweep="one", hardware="one", device="cpu", metric="quality", unit="fraction", format="")
    rows["higher_is_better"] = True
    mixed = [match for match in matches(rows, x="train_seconds", baseline="baseline") if match.recipe.recipe != "own"]
    assert {match.recipe.imported for match in mixed} == {True}
    assert all(match.baseline is None and "imported and unverified" in str(match.reason) for match in mixed)
    assert not [verdict for verdict in sweep_verdicts(rows, baseline="baseline") if verdict.comparison.recipe == "sgd"
                and verdict.comparison.ratio is not None]  # fmt: skip
    # The control: the same numbers as measured ones are compared.
    own = rows.assign(time_source="measured")
    (match,) = [match for match in matches(own, x="train_seconds", baseline="baseline") if match.recipe.recipe == "sgd"]
    assert match.baseline is not None
    assert not any(ladder.imported for ladder in ladders(own, x="train_seconds"))


def test_an_import_takes_no_name_of_runs_of_ones_own(tmp_path: Path, runs: Path) -> None:
    write_run(runs, run_record())
    path = table(tmp_path / "digits.csv", sound())
    assert "never mixed" in refused("import", "csv", path, "--yes", "--runs", runs)
    for name in ("../digits", "_store", ".x", "a/b", ""):
        if name:
            assert "--name" in refused("import", "csv", path, "--yes", "--name", name, "--runs", runs)
    assert not list(runs.rglob(IMPORTED))


@pytest.mark.slow
def test_deleting_the_file_removes_the_runs(tmp_path: Path, runs: Path) -> None:
    write_run(runs, run_record())
    path = table(tmp_path / "theirs.csv", sound())
    assert explorer("import", "csv", path, "--yes", "--runs", runs).returncode == 0
    assert queries.sweeps(database(runs)) == ["digits", "theirs"]
    assert rebuild(runs).problems == () and ingest(runs).added == 0 and bring_up(runs) == ()
    moved = tmp_path / "moved"
    (runs / "theirs").rename(moved)
    (warning,) = bring_up(runs)  # as if the disk were not mounted
    assert "12 finished runs" in warning and queries.sweeps(database(runs)) == ["digits", "theirs"]
    moved.rename(runs / "theirs")
    assert bring_up(runs) == ()
    (runs / "theirs" / IMPORTED).unlink()
    assert bring_up(runs) == () and queries.sweeps(database(runs)) == ["digits"]


def test_a_damaged_import_is_reported_and_mended(tmp_path: Path, runs: Path) -> None:
    path = table(tmp_path / "theirs.csv", sound())
    assert explorer("import", "csv", path, "--yes", "--runs", runs).returncode == 0
    file = runs / "theirs" / IMPORTED
    whole = file.read_text()
    file.write_text(whole.replace('"quality":0.85', '"quality":"much"', 1))
    (warning,) = bring_up(runs)
    assert "line 2" in warning and "none of its runs is shown" in warning
    assert frames.results(database(runs)).empty
    file.write_text(whole)
    assert bring_up(runs) == () and len(frames.results(database(runs))) == 12


BAD = {
    "a text for a number": ({"val_acc": "high"}, "row 3, column 'val_acc': found 'high'; expected a number"),
    "a formula": ({"runtime": "=1+1"}, "row 3, column 'runtime': found '=1+1'; expected a number"),
    "no time at all": ({"runtime": "0"}, "row 3, column 'runtime': found 0; expected seconds above 0"),
    "half a seed": ({"seed": "1.5"}, "row 3, column 'seed': found 1.5; expected a whole number"),
    "no seed": ({"seed": ""}, "row 3: no seed"),
    "a run twice": ({"seed": "0"}, "row 3: the same recipe, budget and seed as"),
    "a name of control characters": ({"optimizer": "a\x1b[2Jb"}, "row 3, column 'optimizer': "),
    "an endless name": ({"optimizer": "a" * 500}, "row 3, column 'optimizer': "),
    "a negative budget": ({"epochs": "-1"}, "row 3, column 'epochs': found -1"),
}


@pytest.mark.parametrize("fault", BAD)
def test_a_fault_names_file_row_and_column(fault: str, tmp_path: Path, runs: Path) -> None:
    cells, words = BAD[fault]
    rows = sound()
    path = table(tmp_path / "theirs.csv", [rows[0], {**rows[1], **cells}, *rows[2:]])
    mapping = "recipe=optimizer,budget=epochs,seed=seed,seconds=runtime,quality=val_acc"
    said = refused("import", "csv", path, "--map", mapping, "--yes", "--runs", runs)
    assert words in said and str(path) in said
    assert not any(runs.iterdir())


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "no header"),
        (b"a,b\n1,2,3\n", "row 2: 3 cells; expected 2"),
        (b"a,a\n1,2\n", "the column 'a' is there twice"),
        (b"recipe,acc\n\xff\xfe,1\n", "not text in UTF-8"),
        (b'recipe,acc\n"never closed,1\n', "not CSV"),
        (b"recipe,acc\n", "no row below the header"),
        (b"recipe,comment\nx,y\n", "no column looks like the quality"),
        (b"recipe,q_metric\nx,1\n", "no column looks like the quality"),
        (b"recipe,acc\n" + b"x" * 200_000 + b",1\n", "not CSV: field larger"),
        (b"recipe,acc\nx,nan\ny,inf\nz,\n", "no row is a run"),
    ],
)
def test_a_file_that_is_no_table_of_runs_is_refused(content: bytes, words: str, tmp_path: Path, runs: Path) -> None:
    path = tmp_path / "theirs.csv"
    path.write_bytes(content)
    assert words in refused("import", "csv", path, "--yes", "--runs", runs)
    assert not any(runs.iterdir())


def test_rows_without_quality_are_left_out_and_listed(tmp_path: Path) -> None:
    rows = sound()
    rows[1]["val_acc"], rows[2]["val_acc"] = "nan", ""
    source = read_csv(table(tmp_path / "theirs.csv", rows))
    made = convert(source, guessed(source, {}))
    assert len(made.runs) == 10 and len(made.left_out) == 2
    assert "row 3: the quality is nan" in made.left_out[0] and "row 4: no quality" in made.left_out[1]


def test_columns_are_joined_and_multiplied(tmp_path: Path) -> None:
    rows = [{"opt": "sgd", "lr, x": lr, "hours": 0.5, "acc": 97.5} for lr in (0.1, 0.2)]
    source = read_csv(table(tmp_path / "theirs.csv", rows))
    made = convert(source, guessed(source, given(["recipe=opt+lr, x,seconds=hours*3600"], source.columns)))
    assert [(run.recipe, run.seconds, run.quality) for run in made.runs] == [
        ("opt=sgd lr_x=0.1", 1800.0, 0.975),
        ("opt=sgd lr_x=0.2", 1800.0, 0.975),
    ]
    with pytest.raises(RunError, match="did you mean 'recipe'"):
        given(["recipee=opt"], source.columns)
    with pytest.raises(RunError, match="did you mean 'hours'"):
        given(["seconds=hour"], source.columns)


def test_a_table_of_measurements_has_curves(tmp_path: Path) -> None:
    rows = [
        {"recipe": recipe, "seed": 0, "step": step, "loss": 2 / (step + 1), "acc": 0.1 * step if step > 2 else ""}
        for recipe in ("a", "b")
        for step in range(6)
    ]
    source = read_csv(table(tmp_path / "theirs.csv", rows), step="step")
    made = convert(source, guessed(source, given(["quality=acc"], source.columns)))
    assert [(run.recipe, run.quality) for run in made.runs] == [("a", 0.5), ("b", 0.5)]
    steps, values = made.runs[0].curves["acc"]
    assert list(steps) == [3, 4, 5] and list(values) == pytest.approx([0.3, 0.4, 0.5])
    mixed = table(tmp_path / "mixed.csv", [*rows, rows[0]])
    with pytest.raises(RunError, match="row 14: the rows of one run do not follow each other"):
        list(read_csv(mixed, step="step").rows())


def test_a_damaged_file_of_wandb_is_refused_and_nothing_else_happens(recorded: Path, tmp_path: Path) -> None:
    original = next((recorded / "wandb").rglob("*.wandb"))
    content, chance = original.read_bytes(), random.Random(0)
    path = tmp_path / "run-x.wandb"
    faults = 0
    for _ in range(150):
        at = chance.randrange(len(content))
        path.write_bytes(content[:at] + bytes([content[at] ^ (1 << chance.randrange(8))]) + content[at + 1 :])
        try:
            read_wandb(path)
        except RunError as error:
            faults += str(path) in str(error)
    assert faults > 130  # a checksum covers all but the headers of records
    for end in range(0, len(content), 97):
        path.write_bytes(content[:end])
        try:
            (row,) = read_wandb(path).rows()
            assert row.fault == "it did not end"
        except RunError:
            assert end < 7


def test_a_damaged_file_store_names_file_and_line(recorded: Path, tmp_path: Path) -> None:
    copy = tmp_path / "mlruns"
    shutil.copytree(recorded / "mlruns", copy)
    metric = next(copy.rglob("train_loss"))
    metric.write_text("1 2.0 0\nnot a measurement\n")
    with pytest.raises(RunError, match=r"train_loss, line 2: found 'not a measurement'"):
        read_mlflow(copy)
    metric.write_text("1 2.0 0\n")
    (metric.parent / "out").symlink_to("/etc")
    read_mlflow(copy)  # a link is not followed
    meta = metric.parent.parent / "meta.yaml"
    meta.write_text("run_id: !!python/object:os.system {}\n")
    with pytest.raises(ExplorerError, match=r"meta\.yaml"):
        read_mlflow(copy)


def test_both_stores_of_mlflow_say_the_same(recorded: Path) -> None:
    read = [read_mlflow(recorded / name) for name in ("mlflow.db", "mlruns")]
    one, other = ([replace(run, run_id="") for run in convert(source, guessed(source, {})).runs] for source in read)
    key = operator.attrgetter("key")
    assert sorted(one, key=key) == sorted(other, key=key) and all(run.curves for run in one)
    assert read[0].sha256 == hashlib.sha256((recorded / "mlflow.db").read_bytes()).hexdigest()


def test_one_of_several_experiments_is_chosen(recorded: Path, tmp_path: Path) -> None:
    store = tmp_path / "mlruns"
    shutil.copytree(recorded / "mlruns", store)
    (kept,) = (meta.parent for meta in store.glob("*/meta.yaml") if "name: demo" in meta.read_text())
    shutil.copytree(kept, store / "7")
    meta = store / "7" / "meta.yaml"
    meta.write_text(meta.read_text().replace("name: demo", "name: other"))
    path = tmp_path / "mlflow.db"
    shutil.copy(recorded / "mlflow.db", path)
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("INSERT INTO experiments SELECT 7, 'other', '', lifecycle_stage, 0, 0, workspace"
                         " FROM experiments WHERE name = 'demo'")  # fmt: skip
        database.execute("UPDATE runs SET experiment_id = 7 WHERE name = 'adam-1'")
    for source in (store, path):
        with pytest.raises(RunError, match=r"found 2 experiments; choose one with --experiment: demo, other"):
            read_mlflow(source)
        with pytest.raises(RunError, match="unknown experiment 'dem'; did you mean 'demo'"):
            read_mlflow(source, experiment="dem")
        chosen = {source: len(list(read_mlflow(source, experiment="other").rows())) for source in (store, path)}
    assert chosen == {store: 5, path: 1}


FORGED = {
    "a view in the place of a table": ("ALTER TABLE runs RENAME TO x; CREATE VIEW runs AS SELECT * FROM x", "no table"),
    "no table": ("DROP TABLE metrics", "no table 'metrics'"),
    "no column": ("ALTER TABLE metrics RENAME step TO moment", "no such column"),
    "a text for a number": ("UPDATE metrics SET value = 'high'", "found 'high'; expected a number"),
    "bytes for a text": ("UPDATE params SET value = x'00ff'", "expected a text"),
    "a step before the first": ("UPDATE metrics SET step = step - 1 WHERE key = 'train_loss'", "found the step -1"),
    "not UTF-8": ("UPDATE params SET value = CAST(x'ff' AS TEXT)", "cannot be read"),
    "an endless value": ("UPDATE params SET value = printf('%.*c', 2000000, 'x')", "too big"),
    "no run": ("DELETE FROM runs", "no run of MLflow in it"),
    "only deleted runs": ("UPDATE runs SET lifecycle_stage = 'deleted'", "no run of MLflow in it"),
}


@pytest.mark.parametrize("fault", FORGED)
def test_a_forged_database_is_refused_and_not_written_to(fault: str, recorded: Path, tmp_path: Path) -> None:
    forgery, words = FORGED[fault]
    path = tmp_path / "mlflow.db"
    shutil.copy(recorded / "mlflow.db", path)
    with closing(sqlite3.connect(path)) as database:
        database.executescript(f"PRAGMA foreign_keys = OFF; PRAGMA ignore_check_constraints = ON; {forgery}")
    before = path.read_bytes()
    with pytest.raises(RunError, match=words) as raised:
        read_mlflow(path)
    assert str(path) in str(raised.value)
    assert path.read_bytes() == before and [*tmp_path.iterdir()] == [path]


def test_a_damaged_or_open_database_is_refused(recorded: Path, tmp_path: Path) -> None:
    content, chance = (recorded / "mlflow.db").read_bytes(), random.Random(0)
    path = tmp_path / "mlflow.db"
    for _ in range(25):  # some damage is in pages that nothing reads, or changes a number to another
        damaged = bytearray(content)
        for _ in range(2000):
            damaged[chance.randrange(100, len(content))] = chance.randrange(256)
        path.write_bytes(damaged)
        with suppress(RunError):
            source = read_mlflow(path)
            convert(source, guessed(source, {}))
    path.write_bytes(content[: len(content) // 2])
    with pytest.raises(RunError, match="cannot be read"):
        read_mlflow(path)
    path.write_bytes(content)
    path.with_name("mlflow.db-wal").write_bytes(b"pages")
    with pytest.raises(RunError, match="stop MLflow, then import it"):
        read_mlflow(path)
    path.write_text("not a database")
    assert "not a database of SQLite" in refused("import", "mlflow", path, "--yes")


def test_a_directory_of_artifacts_names_the_database(recorded: Path, tmp_path: Path) -> None:
    shutil.copy(recorded / "mlflow.db", tmp_path)
    (tmp_path / "mlruns" / "1").mkdir(parents=True)
    for place in (tmp_path, tmp_path / "mlruns"):
        with pytest.raises(RunError, match=r"expected the database \S+/mlflow\.db, where MLflow 3 keeps them"):
            read_mlflow(place)


def test_an_import_reads_back_as_it_was_written(tmp_path: Path, runs: Path, recorded: Path) -> None:
    assert explorer("import", "wandb", recorded / "wandb", "--yes", "--runs", runs).returncode == 0
    about, imported = read_import(runs / "wandb" / IMPORTED)
    assert about.tool == "wandb" and len(about.sha256) == 64 and "name" in about.unused
    assert {run.recipe for run in imported} == {"sgd", "adam"} and all(run.curves for run in imported)
    assert str(recorded) not in (runs / "wandb" / IMPORTED).read_text()  # no path of this machine
