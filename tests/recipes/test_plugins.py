"""Code of other packages: read from a specification, named in the identity, digested, and refused where it changed."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from explorer import plugins, run_files, rundir
from explorer.errors import ExplorerError, RecipeError
from explorer.methods.mixup import MixUp
from explorer.recipes.choice import choose, offered_classes, origin_of, written
from explorer.recipes.recipe import Recipe, build_recipe
from explorer.recipes.settings import METHODS
from explorer.store.ingest import ingest
from explorer.training.run import build_loop, execute
from explorer.training.run_plan import plan_run
from tests.plugin_for_tests import MARK, clean_imports, forget, install, write_package

TASK = {"dataset": "digits", "model": {"resnet8": {"width": 0.5}}}
TRAIN = {"epochs": 0.05, "batch_size": 32, "optimizer": {"sgd": {"lr": 0.1}}}
PATH = "damping.methods:Damped"


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The package `damping` in the current directory."""
    monkeypatch.chdir(tmp_path)
    with clean_imports("damping"):
        yield write_package(tmp_path, "damping")


def read(value: Any) -> Any:
    return choose(METHODS, value, kind="method", where="r", code=None)


def recipe(method: Any) -> Recipe:
    return build_recipe("damped", task=TASK, train=TRAIN, methods=[method], where="r")


def planned(method: Any = PATH) -> run_files.RunRecord:
    return plan_run(recipe(method), sweep="s", baseline="damped", tuning=None, ssr=1.0, seed=0, threads=1, data=None)


@pytest.mark.usefixtures("package")
def test_every_way_of_writing_gives_one_value_that_reads_back() -> None:
    ways = [
        {PATH: {"factor": 0.25}},
        {"import": PATH, "factor": 0.25},
        {"damped": {"import": PATH, "factor": 0.25}},
    ]
    values = [read(way) for way in ways]
    canonical = {"damped": {"import": PATH, "factor": 0.25}}
    assert [written(value) for value in values] == [canonical] * 3
    assert written(read(PATH)) == {"damped": {"import": PATH, "factor": 0.5}}
    assert read(canonical) == values[0]


def test_ours_are_written_as_before() -> None:
    assert written(MixUp()) == {"mixup": {"alpha": 0.2}}
    assert recipe("mixup").code == {}
    assert "code" not in planned("mixup").identity


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("damping.methods:Dumped", "damping.methods has no 'Dumped'"),
        ("damping.nothing:Damped", "damping.nothing cannot be imported: ModuleNotFoundError"),
        ("nowhere.methods:Damped", "no module 'nowhere': it is neither installed nor in the current directory"),
        ("damping.methods:Changing", "expected a frozen dataclass that inherits from explorer.engine.method.Method"),
        ("damping.methods:Unsaid", "kind, summary, source, "),
        ("damping.methods:MixUp", "both Explorer and damping.methods:MixUp have one"),
        ("damping.methods:Elsewhere", "expected at most 40 of the characters"),
        ("damping.methods", "unknown method"),
        ("damping.methods:", "expected module:Name"),
        ("os:system", "found a module of Python itself"),
        ("explorer.methods.mixup:MixUp", "found code of Explorer itself"),
        ("__main__:Damped", "found code of a notebook or script"),
        ({"import": 3}, "found int 3, expected module:Name"),
        ({"import": PATH, "factr": 0.5}, "unknown parameter 'factr'; did you mean 'factor'?"),
        ({"import": PATH, "factor": 2}, "less than or equal to 1 (factor on every gradient)"),
        ({"mixup": {"import": PATH}}, "found the name 'damped', expected 'mixup'"),
    ],
)
@pytest.mark.usefixtures("package")
def test_what_is_refused(value: Any, words: str) -> None:
    with pytest.raises(RecipeError) as caught:
        read(value)
    assert str(caught.value).startswith("r") and words in str(caught.value)


def test_code_that_fails_on_import_is_one_error(package: Path) -> None:
    (package / "methods.py").write_text("raise SystemExit('no')")
    with pytest.raises(RecipeError, match="cannot be imported: SystemExit: no"):
        read(PATH)


def test_an_installed_package_offers_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Names next to ours; one that is ours, one offered twice and one that is broken are errors that name both."""
    site = tmp_path / "site"
    write_package(site, "damping")
    install(site, "damping", f"[explorer.methods]\ndamped = {PATH}\nmixup = damping.methods:MixUp\nlost = nowhere:X\n")
    monkeypatch.syspath_prepend(site)
    with clean_imports("damping"):
        assert written(read("damped")) == {"damped": {"import": PATH, "factor": 0.5}}
        assert written(read({"damped": {"factor": 1}}))["damped"]["factor"] == 1
        with pytest.raises(RecipeError, match=r"both Explorer and damping 1.2.3 \(damping.methods:MixUp\) have one"):
            read("mixup")
        with pytest.raises(RecipeError, match="did you mean 'damped'"):
            read("dampd")
        classes, broken = offered_classes(METHODS, kind="method")
        assert {name: origin_of(kind, kind="method") for name, kind in classes.items()} == {"damped": "damping 1.2.3"}
        assert len(broken) == 2 and all("damping 1.2.3" in words for words in broken)
        install(site, "other", "[explorer.methods]\ndamped = damping.methods:Unsaid\n")
        plugins._offers.cache_clear()
        with pytest.raises(RecipeError, match=r"offered by damping 1.2.3 .* and other 1.2.3"):
            read("damped")
    plugins._offers.cache_clear()


def test_the_source_is_in_the_identity(package: Path) -> None:
    before = planned()
    assert before.identity["code"] == {"damping": plugins.source_of("damping").digest}
    assert before.methods == ("damped",)
    forget("damping")
    (package / "unused.py").write_text("# every Python file of the package counts\n")
    after = planned()
    assert before.run_id != after.run_id
    assert before.recipe_digest != after.recipe_digest
    assert before.effective_digest != after.effective_digest
    assert not list(run_files.contradictions(after))


def test_code_that_changed_since_the_plan_does_not_train(package: Path) -> None:
    record = planned()
    build_loop(record, data=None)  # the control: the same code trains
    forget("damping")
    (package / MARK).unlink()
    path = package / "methods.py"
    path.write_text(path.read_text().replace("= 0.5", "= 0.6"))
    with pytest.raises(ExplorerError, match="damping: its code has changed: planned with source"):
        build_loop(record, data=None)
    assert not (package / MARK).exists(), "other code than that of the record was executed"


def test_code_that_changed_since_it_was_imported_is_not_planned(package: Path) -> None:
    """The digest would be that of the file, the code that trains that of an hour ago."""
    planned()
    path = package / "methods.py"
    path.write_text(path.read_text().replace("= 0.5", "= 0.7"))
    with pytest.raises(RecipeError, match="its code has changed since this process imported it"):
        planned()


@pytest.mark.slow
def test_what_reads_a_run_imports_nothing(package: Path, tmp_path: Path) -> None:
    record = planned()
    directory = tmp_path / "runs" / "s" / record.run_id
    directory.mkdir(parents=True)
    run_files.write(directory / rundir.RUN, record)
    execute(directory)
    assert rundir.read_json(directory / rundir.ENVIRONMENT)["plugins"]["damping"] == {
        "source": record.identity["code"]["damping"],
        "package": "in the project",
    }
    forget("damping")
    (package / MARK).unlink()
    ingest(tmp_path / "runs")
    value = record.identity["recipe"]
    with pytest.raises(RecipeError, match="code of another package, which reading a record does not import"):
        Recipe.from_mapping("damped", value, where="r")
    assert not (package / MARK).exists()
    Recipe.from_mapping("damped", value, where="r", code=record.identity["code"])
    assert (package / MARK).exists(), "the control: training does import it"


def test_a_directory_and_an_installed_package_that_differ_are_one_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_package(tmp_path / "site", "damping")
    mine = write_package(tmp_path / "project", "damping")
    monkeypatch.syspath_prepend(tmp_path / "site")
    monkeypatch.chdir(tmp_path / "project")
    with clean_imports("damping"):
        plugins.source_of("damping")  # the control: equal files are one package
        (mine / "methods.py").write_text("")
        with pytest.raises(RecipeError, match="two different packages 'damping'"):
            plugins.source_of("damping")


def test_a_single_module_is_digested(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(write_package(tmp_path, "damping"))
    with clean_imports("methods"):
        assert read("methods:Damped").name == "damped"
        assert plugins.source_of("methods").files == (("methods.py", tmp_path / "damping" / "methods.py"),)


@pytest.mark.usefixtures("package")
def test_a_task_of_ones_own_trains_and_declares_its_metrics() -> None:
    task, train = {"dataset": "damping.lamps:Lamps", "model": "damping.lamps:Flat"}, {**TRAIN, "epochs": 1}
    lamps = build_recipe("lamps", task=task, train=train, methods=[], where="r")
    record = plan_run(lamps, sweep="s", baseline="lamps", tuning=None, ssr=1.0, seed=0, threads=1, data=None)
    assert record.quality == "mean_error" and [metric.name for metric in record.declared] == [
        "mean_error",
        "train_loss",
    ]
    loss = record.metric("train_loss")
    assert loss is not None and loss.unit == "1", "the unit of another package's loss is unknown"
    loop = build_loop(record, data=None)
    loop.step()
    assert set(loop.setting.task.evaluate(loop.state.model, loop.setting.batches)) == {"mean_error"}
    undeclared = build_recipe(
        "u", task={**task, "dataset": "damping.lamps:Undeclared"}, train=train, methods=[], where="r"
    )
    with pytest.raises(RecipeError, match="unknown metric 'mean_eror'; did you mean 'mean_error'"):
        plan_run(undeclared, sweep="s", baseline="u", tuning=None, ssr=1.0, seed=0, threads=1, data=None)
