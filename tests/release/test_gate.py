"""Gate files: read strictly, and closed to whatever is not said in one of the ways that there are."""

from pathlib import Path
from typing import Any

import pytest

from explorer.errors import SpecError
from explorer.release.gate import KINDS, gate_of, kind_of, read_gate
from explorer.yaml_document import parse_document

EXAMPLE = Path(__file__).parents[2] / "notebooks" / "policies" / "release.gate.yaml"
HEAD = "format: explorer/gate/v1\nname: test\nledger: full\n"
EVALUATED = "{evaluated: {metric: accuracy, at_least: 0.9}}"


def read(rules: str, *, head: str = HEAD, more: str = "") -> Any:
    return gate_of(parse_document(f"{head}{more}rules:\n  - {rules}\n", where="g.yaml"))


def test_the_example_has_every_kind_of_rule() -> None:
    gate = read_gate(EXAMPLE)
    assert {kind_of(rule) for rule in gate.rules} == {*KINDS}
    assert gate.ledger == "full" and gate.observers


@pytest.mark.parametrize(
    ("rules", "message"),
    [
        ("{denny: {branch: open}}", r"g.yaml:5: rules\[0\].denny: unknown key; did you mean 'deny'"),
        ("{}", r"g.yaml:5: rules\[0\]: expected one of deny, .*; found none"),
        ("{absent: {branch: a}, deny: {branch: b}}", r"expected one of .*; found deny, absent"),
        ("{deny: {}}", r"deny.branch: is missing"),
        ("{deny: {branch: Open}}", r"deny.branch: .*pattern"),
        ("{deny: {branch: '*'}}", r"deny.branch: .*pattern"),
        ("{deny: {branch: open, depth: [1, 0.5]}}", r"deny.depth: .* holds nothing"),
        ("{deny: {branch: open, depth: [0.5, 2]}}", r"deny.depth"),
        ("{deny: {branch: open, layers: []}}", r"deny.layers"),
        ("{deny: {branch: open, weight: 0}}", r"deny.weight: unknown key"),
        ("{deletable: {branch: open, at_least: G1}}", r"deletable.at_least: .*'G2' or 'G3'"),
        ("{deletable: {branch: open, at_least: G4}}", r"deletable.at_least: .*'G2' or 'G3'"),
        ("{deletable: {branch: open}}", r"deletable.at_least: is missing"),
        ("{deletable: {branch: open, at_least: G3}}", r"found G3, which is as exact as G2 .* deletable.at_most: 1% of"),
        ("{deleted: {branch: open, at_least: G3}}", r"deleted.at_least: found G3, which is as exact as G2"),
        ("{deletable: {branch: open, at_least: G2, at_most: 1%}}", r"at_most: found '1%'; expected 0% to 100% of tr"),
        ("{deletable: {branch: open, at_least: G2, at_most: 101% of training}}", r"expected 0% to 100% of training"),
        ("{deletable: {branch: open, at_least: G2, at_most: 1.5 steps}}", r"expected a whole number of steps"),
        ("{deletable: {branch: open, at_least: G2, at_most: 2 h}}", r"expected a share of training such as 1% of tra"),
        ("{deleted: {at_least: G2}}", r"deleted: expected a branch or an authority, one of the two"),
        ("{deleted: {branch: a, authority: b, at_least: G2}}", r"one of the two"),
        ("{evaluated: {metric: accuracy}}", r"expected at_least or at_most, one of the two"),
        ("{evaluated: {metric: accuracy, at_least: 0, at_most: 1}}", r"one of the two"),
        ("{evaluated: {metric: accuracy, at_least: .nan}}", r"evaluated.at_least"),
        ("{evaluated: {by: example.com/nobody, metric: a, at_least: 1}}", r"by: 'example.com/nobody' is none of the"),
        ("{conforms: false}", r"conforms: .*True"),
        ("{conforms_but_for: {}}", r"conforms_but_for: expected branches under erased or sealed, found none"),
        ("{conforms_but_for: {erased: []}}", r"expected branches under erased or sealed, found none"),
        ("{conforms_but_for: {erazed: [open]}}", r"conforms_but_for.erazed: unknown key; did you mean 'erased'"),
        ("{conforms_but_for: {erased: [Open]}}", r"conforms_but_for.erased\[0\]: .*pattern"),
        ("{conforms_but_for: {sealed: open}}", r"conforms_but_for.sealed"),
        ("{conforms_but_for: true}", r"conforms_but_for"),
        ("deny", r"rules\[0\]"),
    ],
)
def test_a_rule_that_is_none(rules: str, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        read(rules)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ("leger: full\n", r"g.yaml:4: leger: unknown key; did you mean 'ledger'"),
        ("policy: Half Depth\n", r"policy"),
        ("observers: [{name: example.com/e}]\n", r"observers\[0\].weight: is missing"),
        ("observers: [{name: example.com/e, weight: 2}]\n", r"observers\[0\].weight"),
        ("observers: [{name: e, weight: 1}, {name: e, weight: 0}]\n", r"observers\[1\].name: 'e' is listed twice"),
        ("name: again\n", r"given twice"),
        ("extra: &anchor 1\n", r"anchors and aliases"),
    ],
)
def test_a_gate_that_is_none(more: str, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        read("{absent: {branch: open}}", more=more)


def test_a_gate_without_rules_is_no_gate() -> None:
    for text in ("rules: []\n", ""):
        with pytest.raises(SpecError, match="rules"):
            gate_of(parse_document(HEAD + text, where="g.yaml"))


def test_another_format(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="format"):
        read("{absent: {branch: open}}", head=HEAD.replace("v1", "v2"))
    with pytest.raises(SpecError, match="cannot read"):
        read_gate(tmp_path / "none.yaml")


def test_conformance_takes_the_whole_ledger() -> None:
    with pytest.raises(SpecError, match=r"rules\[0\].conforms: .* expected ledger: full"):
        read("{conforms: true}", head=HEAD.replace("full", "checkpoint"))
    with pytest.raises(SpecError, match=r"rules\[0\].conforms_but_for: .* expected ledger: full"):
        read("{conforms_but_for: {erased: [open]}}", head=HEAD.replace("full", "checkpoint"))


def test_an_observer_without_weight_is_not_asked() -> None:
    asked = "{evaluated: {by: example.com/e, metric: accuracy, at_least: 0.9}}"
    assert read(asked, more="observers: [{name: example.com/e, weight: 0.5}]\n").rules[0].evaluated.by
    with pytest.raises(SpecError, match="none of the observers with a weight above 0: there is none"):
        read(asked, more="observers: [{name: example.com/e, weight: 0}]\n")
