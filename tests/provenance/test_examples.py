"""Rules about some examples of a class: what they say, what a policy makes of them, and what is refused."""

import itertools
from typing import Any

import numpy as np
import pytest

from explorer.cli.governed.policy import _names
from explorer.errors import ExplorerError
from explorer.provenance.findings import of_matrix
from explorer.provenance.policy import POLICY, Rule, rule_words
from explorer.provenance.regions import MAX_BANDS, Band, Examples, bands_of, depths_of
from explorer.provenance.routing_weights import Decision, Routing, admit, admits, matrix, weight
from explorer.provenance.signing import read_draft
from explorer.schema import to_json
from explorer.yaml_document import read_document
from tests.provenance.drafts_for_tests import policy, routing

BSD = "open/bsd"
LAYERS = depths_of(["embed", "block", "head"])
HARD = Rule(classes=(BSD,), layers=("embed",), examples=Examples(loss=(0.5, 1.0)), weight=1.0)
REST = Rule(classes=("open",), depth=(0.5, 1.0), weight=1.0)
FOUND = routing(HARD, REST)


def asked(found: Routing, layer: str, band: Band | None) -> Decision:
    place = next(each for each in LAYERS if each.name == layer)
    return weight(found, class_=BSD, progress=0.0, layer=place, band=band)


def test_the_first_rule_that_holds_for_the_example_decides() -> None:
    easy, hard = FOUND.policy.bands(BSD)
    assert (easy, hard) == (Band(loss=(0.0, 0.5)), Band(loss=(0.5, 1.0)))
    assert (asked(FOUND, "embed", hard).rule, asked(FOUND, "embed", easy).rule) == (0, None)
    assert asked(FOUND, "head", easy).rule == 1


def test_not_knowing_the_example_gives_the_least() -> None:
    assert asked(FOUND, "embed", None).weight == 0.0
    assert asked(FOUND, "head", None).weight == 1.0


def test_a_class_that_only_hard_examples_of_are_denied_is_admitted() -> None:
    hard = Rule(classes=(BSD,), examples=Examples(loss=(0.5, 1.0)), weight=0.0)
    assert admits(routing(hard, Rule(classes=("*",), weight=1)), BSD)
    assert not admits(routing(Rule(classes=(BSD,), weight=0.0), Rule(classes=("*",), weight=1)), BSD)


def test_the_matrix_has_a_row_for_each_band() -> None:
    found = matrix(FOUND, LAYERS)
    names = _names(found)
    assert [name for name in names if name.startswith(BSD)] == [f"{BSD}; loss [0, 0.5)", f"{BSD}; loss [0.5, 1]"]
    row = dict(zip(names, found.tables[0].rows, strict=True))
    assert [cell.weight for cell in row[f"{BSD}; loss [0.5, 1]"]] == [1.0, 1.0, 1.0]
    assert [cell.weight for cell in row[f"{BSD}; loss [0, 0.5)"]] == [0.0, 1.0, 1.0]
    assert not any("never reached" in str(each) for each in of_matrix(found))


def test_the_table_of_a_run_has_the_largest_weight_and_each_band() -> None:
    table = admit(FOUND, classes=(BSD, "open/mit"), layers=LAYERS, progress=0.0)
    assert table.weights.tolist() == [[1, 1, 1], [0, 1, 1]] and list(table.by_example) == [BSD]
    assert table.by_example[BSD].weights.tolist() == [[0, 1, 1], [1, 1, 1]]
    assert b"admission/v2" in table.content
    plain = admit(routing(REST), classes=(BSD, "open/mit"), layers=LAYERS, progress=0.0)
    assert b"admission/v1" in plain.content and b"bands" not in plain.content


def test_two_scores_make_boxes() -> None:
    rules = (HARD, Rule(classes=(BSD,), examples=Examples(entropy=(0.0, 0.25)), weight=0.0), REST)
    table = admit(routing(*rules), classes=(BSD,), layers=LAYERS, progress=0.0)
    assert len(table.by_example[BSD].bands) == 4
    assert table.by_example[BSD].weights.tolist() == [[0, 0, 0], [0, 1, 1], [1, 0, 0], [1, 1, 1]]


def test_policies_without_such_rules_keep_their_digests() -> None:
    """The key is left out where it says nothing: what was signed before it existed is what it was."""
    before = policy(REST)
    assert "examples" not in to_json(before)["rules"][0]
    assert to_json(policy(HARD))["rules"][0]["examples"] == {"loss": [0.5, 1.0], "entropy": None}


def test_a_rule_in_words() -> None:
    assert rule_words(HARD) == "open/bsd; layers embed; examples of loss [0.5, 1]: weight 1"


@pytest.mark.parametrize(
    ("examples", "message"),
    [
        ({}, r"rules\[0\].examples: names no score; expected one of loss, entropy"),
        ({"loss": [0.5, 0.5]}, r"rules\[0\].examples.loss: \[0.5, 0.5\] holds nothing"),
        ({"loss": [0.5, 1.5]}, r"rules\[0\].examples.loss\[1\]"),
        ({"los": [0.5, 1]}, "did you mean 'loss'"),
        ([0.5, 1], r"rules\[0\].examples"),
    ],
)
def test_what_is_no_band_is_refused(tmp_path: Any, examples: Any, message: str) -> None:
    import yaml

    value = to_json(policy(REST))
    value["rules"][0]["examples"] = examples
    path = tmp_path / "policy.yaml"
    path.write_text(yaml.safe_dump(value))
    with pytest.raises(ExplorerError, match=message):
        read_draft(POLICY, read_document(path))


def test_too_many_bands_are_refused() -> None:
    ends = np.linspace(0, 1, MAX_BANDS + 2)
    rules = tuple(
        Rule(classes=(BSD,), examples=Examples(loss=(low, high)), weight=1.0)
        for low, high in itertools.pairwise(ends.tolist())
    )
    assert len(bands_of(rule.examples for rule in rules)) == MAX_BANDS + 1
    with pytest.raises(ExplorerError, match=f"into {MAX_BANDS + 1} bands; at most {MAX_BANDS} are told apart"):
        POLICY.check(policy(*rules), "policy.yaml")
