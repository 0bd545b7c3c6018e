"""`benchmarks/attacks.py`: its tables are sound, its page is theirs, and an attack of each section does its work."""

import importlib
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
BENCHMARKS = ROOT / "benchmarks"
SECTIONS = ("ledger", "documents", "leaks", "packs")
ONE_OF_EACH = {
    "ledger": "a denied class trained",
    "documents": "policy: signed by data governance",
    "leaks": "a trace of the loss in a gradient",
    "packs": "bytes behind the end",
}


@pytest.fixture(scope="module")
def script() -> Iterator[Any]:
    """The script and its tables, which are no package's."""
    sys.path.insert(0, str(BENCHMARKS))
    try:
        world = importlib.import_module("attack_world")
        for section in SECTIONS:
            importlib.import_module(f"attack_{section}")
        yield SimpleNamespace(main=importlib.import_module("attacks"), world=world, attacks=world.ATTACKS)
    finally:
        sys.path.remove(str(BENCHMARKS))


def of(script: Any, section: str) -> list[Any]:
    return [each for each in script.attacks if each.section == section]


def test_every_attack_has_a_name_of_its_own_and_says_what_it_breaks(script: Any) -> None:
    names = [(each.section, each.name) for each in script.attacks]
    assert len(set(names)) == len(names)
    assert all(each.breaks and each.gains and each.who for each in script.attacks)
    assert {each.accepted for each in script.attacks} - {None} <= script.world.SENTENCES.keys()


def test_there_are_as_many_as_were_asked_for(script: Any) -> None:
    ledger = of(script, "ledger")
    assert len({each.breaks for each in ledger}) >= 25
    assert sum(not each.known for each in ledger) >= len(ledger) / 2, "half of them were written after the fixes"
    assert len(of(script, "documents")) >= 60 and len(of(script, "leaks")) >= 40 and len(of(script, "packs")) >= 20


def test_sentences_are_those_of_security(script: Any) -> None:
    """Word for word, but for line breaks; one that is not there is found."""
    text = " ".join((ROOT / "SECURITY.md").read_text().split())
    assert [name for name, sentence in script.world.SENTENCES.items() if sentence not in text] == []
    accepted = next(each for each in script.attacks if each.accepted == "host")
    row = script.world.Row(attack=accepted, answers={"conform": ""})
    assert script.main.missing_sentences([row], text) == []
    assert script.main.missing_sentences([row], text.replace("host ran", "host may have run"))


def test_what_nobody_refuses_is_open(script: Any) -> None:
    """The control of the whole table: an accepted attack without its sentence is never called refused."""
    plain = next(each for each in script.attacks if each.section == "ledger" and each.accepted is None)
    row = script.world.Row
    assert row(attack=plain, answers={"conform": "", "ledger verify": "", "replay": "differs"}).verdict == "OPEN"
    assert row(attack=plain, answers={"conform": "", "verify.py": "refused"}).verdict == "OPEN", "not the verb"
    assert row(attack=plain, answers={"conform": "does not"}).verdict == "refused"
    packed = next(each for each in script.attacks if each.section == "packs" and each.accepted)
    assert row(attack=packed, answers={"verify.py": "", "open": "1 change"}).verdict == "OPEN"


def test_the_page_has_a_row_for_every_attack_and_no_open_one(script: Any) -> None:
    page = (BENCHMARKS / "attacks.md").read_text()
    for each in script.attacks:
        name = each.name if each.known else f"{each.name} (new)"
        assert f"| {name.replace('|', '/')} | " in page, name
    assert len(re.findall(r"^\| .* \| (?:\*\*refused\*\*|accepted: )", page, re.MULTILINE)) == len(script.attacks)
    assert "**OPEN**" not in page
    counted = re.search(r"^\| all \| (\d+) \| \d+ \| (\d+) \| (\d+) \| 0 \|", page, re.MULTILINE)
    assert counted and int(counted[1]) == len(script.attacks) == int(counted[2]) + int(counted[3])


@pytest.mark.slow
@pytest.mark.parametrize("section", SECTIONS)
def test_one_attack_of_each_section(script: Any, section: str, world: Any) -> None:
    rows = [*script.main.rows_of(world, section, only=ONE_OF_EACH[section])]
    assert [row.verdict for row in rows] == ["refused"] * len(rows) and rows


@pytest.fixture(scope="module")
def world(script: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    return script.world.World(tmp_path_factory.mktemp("attacked"))


@pytest.mark.slow
def test_the_run_that_is_attacked_passes_every_verb(script: Any, world: Any) -> None:
    """Else everything would be refused. Taken apart and signed again unchanged, too."""
    run = world.copy("main")
    forged = script.world.Forged(world, run)
    forged.numbers(lambda step, numbers: numbers)
    forged.sign()
    answers = script.world.ask(world, run, script.world.VERBS)
    assert answers == dict.fromkeys(script.world.VERBS, "")
    assert forged.ledger.steps == script.world.STEPS
