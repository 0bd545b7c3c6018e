"""The README, held against the code."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

import explorer
from explorer.data.digits import Digits
from explorer.recipes import catalogue
from explorer.sweep.spec import read_spec
from explorer.yaml_document import parse_document

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
FURTHER = {  # headings of walks that go on from a governed run, and what each of them comes to
    "Delete, and prove it": "tensors bit for bit the same",
    "Let one auditor read, and no one else": "sealed blobs of open/permissive/bsd, opened",
    "Ship a model with its record": "passes the gate 'release'",
    "State what was used": "counted again from the ledgers: the same",
}
PASSPHRASE = "only for this example; leave it out to be asked"


def test_the_table_of_methods_is_the_generated_one() -> None:
    start, end = (
        "<!-- methods: written by `explorer methods --markdown` and checked by a test -->\n",
        "<!-- end of methods",
    )
    table = README.partition(start)[2].partition(end)[0]
    assert table == catalogue.markdown()


def test_the_specification_shown_is_valid() -> None:
    text = re.search(r"```yaml\n(.*?)```", README, re.S)
    assert text is not None
    spec = read_spec(parse_document(text[1], where="README.md"))
    assert spec.name == "mine"
    assert len(spec.recipes) > 3


def test_every_picture_and_page_it_names_is_there() -> None:
    for target in re.findall(r"\]\((?!https?:)([^)#]+)\)", README):
        assert (ROOT / target).exists(), target


def section(heading: str) -> str:
    return README.partition(f"## {heading}\n")[2].partition("\n## ")[0]


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", text, re.S)


def test_the_python_shown_imports() -> None:
    *_, block = blocks(section("What you can do with it"), "python")
    exec(compile(block, "README.md", "exec"), {})


def test_the_model_of_ones_own_trains() -> None:
    block, *_ = blocks(section("What you can do with it"), "python")
    data = Digits().load(None)
    images, held_out = (side.inputs.float() / 255 for side in (data.train, data.test))
    names = {"images": images, "labels": data.train.labels, "held_out": held_out, "truth": data.test.labels}
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
    source = block.replace("explorer.train(", "found = explorer.train(")
    made = {**names, "model": model, "F": torch.nn.functional, "explorer": explorer}
    exec(compile(source, "README.md", "exec"), made)
    assert made["found"].metrics["accuracy"] > 0.8


def walked(directory: Path, script: str) -> subprocess.CompletedProcess[str]:
    """A script of commands, as a reader would type them in this directory."""
    path = f"{Path(sys.executable).parent}:/usr/bin:/bin"
    return subprocess.run(
        ["sh", "-euc", script],
        cwd=directory,
        env={"PATH": path, "PYTHONPATH": str(ROOT), "HOME": str(directory), "COLUMNS": "120", "LC_ALL": "C.UTF-8"},
        capture_output=True,
        text=True,
        timeout=300,
    )


@pytest.fixture(scope="module")
def proven(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, subprocess.CompletedProcess[str]]:
    """The walk from keys to a proof, and where it ended."""
    directory = tmp_path_factory.mktemp("walk")
    text = section("Say who may vouch for what, and prove it")
    claims, ledger = blocks(text, "sh")
    (python,) = blocks(text, "python")
    shutil.copytree(ROOT / "notebooks" / "policies", directory / "notebooks" / "policies")
    (directory / "ledger.py").write_text(python)
    return directory, walked(directory, f"{claims}\npython ledger.py\n{ledger}")


@pytest.mark.slow
def test_the_walk_from_keys_to_a_proof_works_as_it_stands(
    proven: tuple[Path, subprocess.CompletedProcess[str]],
) -> None:
    (matrix,) = blocks(section("Say who may vouch for what, and prove it"), "text")
    _, done = proven
    assert done.returncode == 0, done.stdout + done.stderr
    assert [line for line in matrix.splitlines() if line not in done.stdout] == []
    assert "cosigned by  example.com/model-risk" in done.stdout and "hello" in done.stdout


@pytest.mark.slow
def test_the_walk_of_a_governed_run_goes_on_from_there(proven: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    directory, done = proven
    assert done.returncode == 0, done.stderr
    text = section("Train under what was signed")
    (recipe,), (commands,) = blocks(text, "yaml"), blocks(text, "sh")
    (directory / "licences.yaml").write_text(recipe)
    done = walked(directory, f"policies=notebooks/policies\nexport EXPLORER_PASSPHRASE='{PASSPHRASE}'\n{commands}")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "ledger: verified" in done.stdout and "bits_per_byte" in done.stdout
    for heading, last in FURTHER.items():
        text = section(heading)
        (commands,) = blocks(text, "sh")
        for content in blocks(text, "yaml"):
            (directory / "gate.yaml").write_text(content)
        begin = f"export EXPLORER_PASSPHRASE='{PASSPHRASE}'\nrun=$(ls -d runs/single/*)\n"
        done = walked(directory, begin + commands)
        assert done.returncode == 0, done.stdout + done.stderr
        assert last in done.stdout
