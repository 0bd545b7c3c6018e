"""verify.py and Explorer's decoder read the same entries, whatever stands in them.

`benchmarks/verifiers.py` asks both about a hundred thousand ledgers.
"""

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from explorer.audit.conform import conform
from explorer.disclosure import verifier
from explorer.entries.kinds import Entry, Genesis, Step
from explorer.errors import ExplorerError
from explorer.runlog.run_ledger import RunLedger
from tests.audit import governed_run
from tests.disclosure.two_readers import DIFFERENCES, OF_AN_ENTRY, Answers, ask, entries, variations, written
from tests.provenance.people import NOW

COUNT = 400
WITHOUT_FORM = (  # what verify.py once called entries "in an order that can be"
    *(("step", "examples", [value, 0]) for value in (None, "", [[]], {"a": 1}, -1)),
    *(("genesis", name, value) for name in ("code", "data", "initial", "recipe") for value in ("", "\u202e")),
    *(("genesis", name, value) for name, value in (("strategy", ""), ("seed", -1), ("layers", ["", "x"]))),
    *(("genesis", "layers", ["x" * 3_000, "y"]), ("genesis", "version", -1), ("state", "version", 0)),
    *(("note-of-tomorrow", "kind", "Z z"), ("note-of-tomorrow", "kind", "z" * 10_000)),
    *(
        ("note-of-tomorrow", "anything", {"\u00e9": 1}),
        ("step", "phase", "train\n"),
        ("end", "metrics", {"a": "0x1p+1"}),
    ),
    *(("state", "blobs", {"x": {"sha256": "b" * 64, "size": -1}}), ("state", "blobs", {"X": {}})),
)


def with_field(kind: str, name: str, value: Any) -> list[bytes]:
    """The small ledger with this value in the first entry of the kind."""
    whole = entries()
    next(entry for entry in whole if entry["kind"] == kind)[name] = value
    return [written(entry) for entry in whole]


def deep(levels: int) -> list[bytes]:
    value: Any = 1
    for _ in range(levels - 2):
        value = [value]
    return with_field("note-of-tomorrow", "anything", value)


def test_both_read_what_is_sound() -> None:
    assert ask([written(entry) for entry in entries()]) == Answers(explorer="", verify_py="")
    assert ask(deep(8)) == Answers(explorer="", verify_py="")


@pytest.mark.parametrize(("kind", "name", "value"), WITHOUT_FORM)
def test_both_refuse_what_has_no_form(kind: str, name: str, value: Any) -> None:
    answers = ask(with_field(kind, name, value))
    assert answers.explorer and answers.verify_py


def test_both_refuse_what_is_nested_deeper_than_an_entry() -> None:
    for levels in (9, 39, 41, 2_000):
        answers = ask(deep(levels)) if levels < 50 else ask([b'{"a":' * levels + b"1" + b"}" * levels])
        assert answers.explorer and answers.verify_py, levels


@pytest.mark.slow
def test_the_same_answer_to_hundreds_of_variations() -> None:
    counted: Counter[tuple[str, bool]] = Counter()
    for family, leaves in variations(COUNT, seed=4):
        answers = ask(leaves)
        assert answers.reason is not None, (family, answers, leaves)
        counted[family, bool(answers.explorer)] += 1
    for family in (*OF_AN_ENTRY, "entries"):
        assert counted[family, True], f"{family}: nothing was refused"
    assert sum(number for (_, refused), number in counted.items() if not refused) > COUNT / 20


def test_a_reader_that_is_lenient_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The negative control: forms as they were, without what is in a list or a text."""
    loose = verifier.KINDS["step"].replace("[whole]", "list").replace("slots:digest", "slots:text")
    monkeypatch.setitem(verifier.KINDS, "step", loose)
    assert any(ask(leaves).reason is None for _, leaves in variations(COUNT, seed=4))


@pytest.mark.parametrize("name", ["classes", "layers", "examples", "updated"])
def test_what_verify_alone_refuses_does_not_conform(tmp_path: Path, name: str) -> None:
    """The reasons in `DIFFERENCES` are true: Explorer holds entries against each other in `conform`."""

    def change(index: int, entry: Entry) -> Entry:
        if isinstance(entry, Genesis) and name in ("classes", "layers"):
            listed = getattr(entry, name)
            return replace(entry, **{name: (*listed[:-1], listed[0])})
        if isinstance(entry, Step) and name == "examples":
            return replace(entry, examples=(*entry.examples, 1), numbers=(*entry.numbers, None))
        if isinstance(entry, Step) and name == "updated":
            return replace(entry, updated=f"{entry.updated}0")
        return entry

    run = governed_run.write_governed_run(tmp_path / "runs")
    governed_run.sign_again(run, change)
    try:
        judged = conform(RunLedger(run), trust=governed_run.trust(), now=NOW)
    except ExplorerError:
        return
    assert any(condition.contradictions for condition in judged.conditions)


def test_every_reason_is_needed() -> None:
    whole = entries()
    genesis, step = whole[0], whole[1]
    twice = [written({**genesis, "classes": ["open", "open"]}), *map(written, whole[1:])]
    short = [written(genesis), written({**step, "updated": "1"})]
    assert {ask(twice).reason, ask(short).reason} == {*DIFFERENCES.values()}
    large = json.loads(written(whole[10])) | {"more": "x" * 70_000}
    assert ask([*map(written, whole[:10]), written(large)]).reason == ""
