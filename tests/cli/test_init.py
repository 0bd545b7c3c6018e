"""`explorer init`: from own data to a specification that runs, and from there to a governed report, as a user types."""

import gzip
import json
import re
import shlex
import shutil
from pathlib import Path

import pytest
import yaml

from explorer.sweep.spec import load_spec
from tests.cli.command import Done, explorer, refused
from tests.data.photos import photo
from tests.data.shards.texts import corpus, pack
from tests.data.test_parquet import write

MOST_COMMANDS = 8  # from own folder to an audited run
IRIS = Path(__file__).parents[1] / "data" / "iris.csv"
KINDS = {"photos": "imagefolder", "words": "text", "table": "parquet", "iris.csv": "tabular"}


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with images in folders, texts in folders, Parquet files with a column of classes, and a table."""
    monkeypatch.setenv("EXPLORER_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("EXPLORER_DATA", raising=False)
    desk = tmp_path / "my desk"
    for place, name in enumerate(("cats", "My dogs")):
        (desk / "photos" / name).mkdir(parents=True)
        for number in range(16):
            (desk / "photos" / name / f"{number}.png").write_bytes(photo(100 * place + number))
    for name in ("letters", "news"):
        (desk / "words" / name).mkdir(parents=True)
        (desk / "words" / name / "one.txt").write_text(f"All the {name} that are fit to print, and some more. " * 60)
    for name in ("train", "test"):
        columns = {"label": [0, 1] * 8, "class": ["agency/a", "own"] * 8}
        write(desk / "table" / f"{name}.parquet", image=[photo(number) for number in range(16)], **columns)
    shutil.copy(IRIS, desk)
    return desk


def test_a_look_at_the_data_writes_a_valid_specification_and_touches_nothing_else(desk: Path) -> None:
    before = {path: path.read_bytes() for path in desk.rglob("*") if path.is_file()}
    for path, dataset in KINDS.items():
        done = explorer("init", path, "--json", cwd=desk)
        assert done.returncode == 0, done.stderr
        value, name = json.loads(done.stdout), Path(path).stem
        assert value["next"] == [f"explorer sweep run {name}.yaml --data ."]
        spec = load_spec(desk / f"{name}.yaml")
        assert spec.recipes[0].dataset.name == dataset and len(spec.recipes) == 2 and spec.tuning is None
    assert {path: path.read_bytes() for path in before} == before
    assert "*.pem" in (desk / ".gitignore").read_text() and (desk / "runs" / "README.md").exists()
    assert "exists already" in refused("init", "photos", cwd=desk)
    assert {path: path.read_bytes() for path in before} == before


def test_of_shards_of_documents_the_model_keeps_them_apart(tmp_path: Path) -> None:
    pytest.importorskip("tokenizers", reason="needs the extra `text`")
    index = pack(corpus(tmp_path), tmp_path / "shards")
    assert index.tokeniser is not None
    assert explorer("init", "shards", cwd=tmp_path).returncode == 0
    model = load_spec(tmp_path / "shards.yaml").recipes[0].model
    assert model.document_separator == index.tokeniser.separator


def test_without_data_it_is_the_embedded_one(tmp_path: Path) -> None:
    assert explorer("init", cwd=tmp_path).returncode == 0
    assert load_spec(tmp_path / "digits.yaml").recipes[0].dataset.name == "digits"


def test_it_says_what_it_found(desk: Path) -> None:
    (desk / "photos" / "cats" / "notes.txt").write_text("no image")
    said = explorer("init", "photos", cwd=desk).stdout
    assert "found 26 examples to train with and 6 for the test, 2 labels\n" in said
    assert "left out 1: not a PNG, JPEG or WebP image (explorer data photos.yaml --data .)" in said
    assert "3 labels in column 'target'" in explorer("init", "iris.csv", cwd=desk).stdout


def test_what_cannot_be_read_leaves_nothing(desk: Path) -> None:
    (desk / "bad").mkdir()
    (desk / "bad" / "x.parquet").write_bytes(b"PAR1 nothing")
    (desk / "empty").mkdir()
    (desk / "lone").mkdir()
    (desk / "lone" / "cat").mkdir()
    (desk / "lone" / "cat" / "1.png").write_bytes(b"no image")
    before = sorted(desk.rglob("*"))
    for name, words in (
        ("none", "no such file"),
        ("empty", "no data that can be read"),
        ("bad", "Parquet"),
        ("lone", ""),
    ):
        said = refused("init", name, "--governed", cwd=desk)
        assert words in said and len(said.splitlines()) == 1
    assert sorted(desk.rglob("*")) == before


def test_shards_without_classes_say_how_they_get_them(desk: Path) -> None:
    assert explorer("data", "shard", "photos", "plain", cwd=desk).returncode == 0
    said = refused("init", "plain", "--governed", cwd=desk)
    assert "does not know where its examples come from" in said and not (desk / "governed").exists()
    command = said.split("`")[1].replace("PLACE", "shards").replace("DIR", "photos")
    done = pasted(f"{command} --param test=0.2 --data .", desk)  # the folder is not divided
    assert done.returncode == 0 and "folders/cats" in done.stdout, done.stderr
    assert explorer("init", "shards", "--governed", cwd=desk).returncode == 0


def test_the_target_is_a_guess_that_can_be_changed(desk: Path) -> None:
    rows = "".join(f"{'yes' if n % 2 else 'no'},{20 + n % 9},C{n:03d}\n" for n in range(40))
    (desk / "last.csv").write_text("paid,age,customer\n" + rows)
    (desk / "good.csv").write_text("age,paid\n" + "".join(f"{20 + n % 9},{n % 2}\n" for n in range(40)))
    before = sorted(desk.rglob("*"))
    said = refused("init", "last.csv", cwd=desk)
    assert "label 'C000' of column 'customer' has one row" in said
    assert "choose the column to predict by --target, now 'customer', of: paid, age, customer" in said
    assert "unknown column 'paidd'; did you mean 'paid'?" in refused("init", "last.csv", "--target", "paidd", cwd=desk)
    assert "found no table, so no column 'x'" in refused("init", "photos", "--target", "x", cwd=desk)
    assert "--target: found 'x' without PATH" in refused("init", "--target", "x", cwd=desk)
    assert sorted(desk.rglob("*")) == before
    words = "target: paid is a guess, the last column (change target: in good.yaml, or give --target COLUMN)"
    assert words in explorer("init", "good.csv", cwd=desk).stdout
    asked = explorer("init", "last.csv", "--target", "paid", cwd=desk).stdout
    assert "2 labels in column 'paid'" in asked and "is a guess, the last" not in asked
    assert "target: paid}" in (desk / "last.yaml").read_text()
    assert "is a guess, the last" not in explorer("init", "iris.csv", cwd=desk).stdout  # a usual name


def test_documents_in_lines_of_json_become_shards_first(desk: Path) -> None:
    lines = "".join(json.dumps({"id": n, "text": f"Letter {n} about nothing. " * 5}) + "\n" for n in range(60))
    for name in ("docs.jsonl", "notes.txt", "mixed/docs.jsonl"):
        (desk / name).parent.mkdir(exist_ok=True)
        (desk / name).write_text(lines)
    (desk / "mixed" / "README.md").write_text("# Letters\n")
    (desk / "docs.jsonl.gz").write_bytes(gzip.compress(lines.encode()))
    (desk / "map.json").write_text('{"a": 1}\n' + " " * 2000)  # one object is a text like any other
    for name in ("docs.jsonl", "docs.jsonl.gz", "mixed"):
        assert f"`explorer data shard {name} shards --context 128`" in refused("init", name, cwd=desk)
    said = refused("init", "notes.txt", cwd=desk)
    assert "notes.txt: found documents" in said and "ends in .jsonl" in said and "shard notes.jsonl shards" in said
    assert not (desk / "runs").exists()
    assert explorer("init", "map.json", cwd=desk).returncode == 0
    assert explorer("data", "shard", "docs.jsonl", "shards", "--context", "128", cwd=desk).returncode == 0
    assert explorer("init", "shards", cwd=desk).returncode == 0 and (desk / "shards.yaml").exists()


def test_a_policy_is_signed_again_with_the_line_at_its_top(desk: Path) -> None:
    assert explorer("init", "photos", "--governed", cwd=desk).returncode == 0
    policy = desk / "governed" / "policy.yaml"
    before = (desk / "governed" / "policies" / "first.json").read_bytes()
    policy.write_text(policy.read_text().replace("version: 1\nissued", "version: 2\nissued"))
    lines = [line.removeprefix("#").strip() for line in policy.read_text().splitlines()]
    first = next(at for at, line in enumerate(lines) if line.startswith("explorer policy sign"))
    command = lines[first].removesuffix("\\") + lines[first + 1]
    done = pasted(command, desk)
    assert done.returncode == 0, done.stderr
    assert (desk / "governed" / "policies" / "first.json").read_bytes() != before


def test_a_taxonomy_that_nobody_checked_says_so_and_is_signed_again_with_its_line(desk: Path) -> None:
    """Personal data has to be stated; until somebody does, the screen, the draft and each definition say what it is."""
    said = explorer("init", "photos", "--governed", cwd=desk).stdout
    assert (
        "taxonomy governed/taxonomy.yaml: says of every class that it has no personal data; that is not checked,"
        in said
    )
    draft = desk / "governed" / "taxonomy.yaml"
    classes = yaml.safe_load(draft.read_text())["classes"]
    assert all(each["definition"].endswith("; not checked for personal data.") for each in classes)
    draft.write_text(draft.read_text().replace("version: 1", "version: 2"))
    (line,) = (line for line in draft.read_text().splitlines() if "explorer taxonomy sign" in line)
    assert pasted(line.removeprefix("#").strip(), desk).returncode == 0


def pasted(line: str, desk: Path) -> Done:
    program, *arguments = shlex.split(line)
    assert program == "explorer"
    return explorer(*arguments, cwd=desk)


@pytest.mark.slow
@pytest.mark.parametrize("path", KINDS)
def test_the_specification_runs_as_printed_and_ends_in_a_comparison(desk: Path, path: str) -> None:
    begun = explorer("init", path, cwd=desk)
    (command,) = [line.strip() for line in begun.stdout.splitlines() if line.startswith("  explorer ")]
    written = desk / f"{Path(path).stem}.yaml"
    if path != "iris.csv":  # which is quick, and runs as it was written
        less = re.sub(r"^seeds: \[0, 1.*", "seeds: [0]", written.read_text(), flags=re.M)
        less = less.replace("epochs: 20\n", "epochs: 5\n")
        assert "seeds: [0]\n" in less and "epochs: 5\n" in less
        written.write_text(less)
    done = pasted(command, desk)
    assert done.returncode == 0, done.stderr
    (following,) = [line for line in (done.stdout + done.stderr).splitlines() if line.startswith("next: ")]
    shown = pasted(following.removeprefix("next: "), desk)
    assert shown.returncode == 0 and "time to target" in shown.stdout
    spec = load_spec(written)
    runs = [json.loads(path.read_text()) for path in (desk / "runs" / spec.name).glob("*/result.json")]
    assert len(runs) == len(spec.recipes) * len(spec.budgets) * len(spec.seeds)


@pytest.mark.slow
@pytest.mark.parametrize("name", KINDS)
def test_from_own_folder_to_an_audited_run_by_the_printed_commands(desk: Path, name: str) -> None:
    lines = [f"explorer init {name} --governed"]
    while True:
        done = pasted(lines[-1], desk)
        assert done.returncode == 0, (lines, done.stderr)
        if "nothing is missing" in done.stdout:
            break
        printed = [line.removeprefix("next: ") for line in done.stderr.splitlines() if line.startswith("next: ")]
        listed = [line.strip() for line in done.stdout.splitlines() if line.startswith("  explorer ")]
        lines.append((printed + listed)[0])
        assert len(lines) <= MOST_COMMANDS + 1, lines
    (run,) = (desk / "runs" / "single").iterdir()
    assert len(lines) == MOST_COMMANDS + 1 and lines[-1].startswith("explorer next")  # which only looks
    assert "Signed by example.com/trainer" in (run / "report.html").read_text()
    # What was printed for one run cannot complete it after a step is undone.
    shutil.rmtree(run / "model")
    assert explorer("next", run, cwd=desk).returncode == 1
