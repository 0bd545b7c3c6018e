"""What a policy decides: for every question, against a second reading of the rules, phase by phase, and as a matrix."""

import fnmatch
import itertools
import math
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from explorer.errors import ProvenanceError
from explorer.provenance import routing_weights as matrices
from explorer.provenance.findings import of_matrix, of_policy
from explorer.provenance.policy import Rule
from explorer.provenance.regions import Layer, SealedRegion, depths_of, inside, read_layers
from explorer.provenance.routing_weights import Decision, Phase, Routing, matrix, phases, policy_for, weight
from explorer.provenance.routing_weights import bind as bind_policy
from explorer.provenance.signing import read_draft
from explorer.yaml_document import read_document
from tests.provenance.drafts_for_tests import (
    CLASSES,
    CONDITIONS,
    ENDS,
    EXAMPLES,
    LAYERS,
    all_layers,
    example_taxonomy,
    policy,
    routing,
    routings,
    rules,
    taxonomy,
)

SUBSETS = [frozenset(on) for count in range(3) for on in itertools.combinations(CONDITIONS, count)]
SAMPLES = sorted(
    {near for end in ENDS for near in (end, math.nextafter(end, 0), math.nextafter(end, 1))}
    | {i / 37 for i in range(38)}
)

questions = st.fixed_dictionaries(
    {
        "class_": st.sampled_from(CLASSES),
        "progress": st.floats(0, 1) | st.sampled_from(ENDS),
        "conditions": st.sampled_from(SUBSETS),
        "layer": st.sampled_from(LAYERS),
    }
)


def ask(found: Routing, class_: str, layer: str | Layer, progress: float = 0.0, on: tuple[str, ...] = ()) -> Decision:
    named = next(each for each in all_layers() if each.name == layer) if isinstance(layer, str) else layer
    return weight(found, class_=class_, progress=progress, conditions=on, layer=named)


def second_reading(found: Routing, *, class_: str, progress: float, conditions: frozenset[str], layer: Layer):
    """The index of the rule that decides, or None: the rules read once more, by other means."""

    def holds(interval: tuple[float, float] | None, value: float) -> bool:
        return interval is None or (interval[0] <= value and (value < interval[1] or interval[1] == 1.0))

    def branches(path: str) -> set[str]:
        parts = path.split("/")
        return {"*", *("/".join(parts[:end]) for end in range(1, len(parts) + 1))}

    deciding = [
        index
        for index, rule in enumerate(found.policy.rules)
        if branches(class_) & set(rule.classes)
        and (rule.layers is None or any(fnmatch.fnmatchcase(layer.name, pattern) for pattern in rule.layers))
        and holds(rule.depth, layer.depth)
        and holds(rule.progress, progress)
        and (rule.condition is None or rule.condition in conditions)
    ]
    return deciding[0] if deciding else None


# The function


@given(
    found=routings(),
    class_=st.text(max_size=12) | st.sampled_from((*CLASSES, "quarantine")),
    progress=st.floats(),
    conditions=st.frozensets(st.text(max_size=4) | st.sampled_from(CONDITIONS), max_size=3),
    layer=st.builds(
        Layer, st.text(max_size=12) | st.sampled_from(all_layers()).map(lambda each: each.name), st.floats()
    ),
)
def test_every_question_has_an_answer(found, class_, progress, conditions, layer) -> None:
    decision = weight(found, class_=class_, progress=progress, conditions=conditions, layer=layer)
    assert 0 <= decision.weight <= 1
    known = class_ in CLASSES and 0 <= progress <= 1 and conditions <= set(CONDITIONS) and 0 <= layer.depth <= 1
    assert known or decision.weight == 0 or decision.region is not None
    assert decision.weight == 0 or class_ in CLASSES


@given(found=routings(), question=questions)
def test_the_first_rule_that_matches_decides_and_nothing_else(found: Routing, question) -> None:
    decision = weight(found, **question)
    if decision.region is None:
        first = second_reading(found, **question)
        assert decision.rule == first
        assert decision.weight == (0 if first is None else found.policy.rules[first].weight)


@given(found=routings(), more=rules(), question=questions)
def test_a_rule_at_the_end_only_fills_what_was_open(found: Routing, more: Rule, question) -> None:
    before = weight(found, **question)
    after = weight(routing(*found.policy.rules, more, sealed=found.policy.sealed), **question)
    assert after == before or (before.rule is None and after.rule == len(found.policy.rules))


@given(found=routings(), question=questions)
def test_a_denial_at_the_top_denies_all_that_is_shared(found: Routing, question) -> None:
    denied = routing(Rule(classes=("*",), weight=0.0), *found.policy.rules, sealed=found.policy.sealed)
    decision = weight(denied, **question)
    assert decision.rule == 0 or decision.region is not None
    assert decision.weight == 0 or decision.region is not None


@given(found=routings(), question=questions, at=st.integers(0, 4))
def test_neighbours_may_change_places_unless_both_match(found: Routing, question, at: int) -> None:
    given_rules = found.policy.rules
    assume(at + 1 < len(given_rules))
    one, other = (routing(given_rules[place]) for place in (at, at + 1))
    assume(weight(one, **question).rule is None or weight(other, **question).rule is None)
    swapped = (*given_rules[:at], given_rules[at + 1], given_rules[at], *given_rules[at + 2 :])
    assert weight(routing(*swapped, sealed=found.policy.sealed), **question).weight == weight(found, **question).weight


def test_the_order_of_rules_matters_where_both_match() -> None:
    deny, admit = Rule(classes=("open/bsd",), weight=0.0), Rule(classes=("open",), weight=1.0)
    assert ask(routing(deny, admit), "open/bsd", "head").weight == 0
    assert ask(routing(admit, deny), "open/bsd", "head").weight == 1


def test_not_knowing_is_answered_by_zero_with_the_reason() -> None:
    found = routing(Rule(classes=("*",), weight=1.0))
    assert ask(found, "open", "head") == Decision(weight=1.0, rule=0, reason="rules[0]")
    for decision, reason in (
        (ask(routing(), "open", "head"), "no rule matches: default deny"),
        (ask(found, "opn", "head"), "unknown class 'opn': default deny"),
        (ask(found, "open/bsd/deeper", "head"), "unknown class 'open/bsd/deeper': default deny"),
        (ask(found, "quarantine", "head"), "the quarantine never trains: default deny"),
        (ask(found, "open", "head", math.nan), "unknown phase: progress nan is outside [0, 1]: default deny"),
        (ask(found, "open", "head", 1.01), "unknown phase: progress 1.01 is outside [0, 1]: default deny"),
        (ask(found, "open", "head", 0, ("setled",)), "unknown phase: no condition 'setled': default deny"),
        (ask(found, "open", "head@customer"), "unknown layer 'head@customer' at depth 1.0: default deny"),
        (ask(found, "open", Layer("head", 1.5)), "unknown layer 'head' at depth 1.5: default deny"),
    ):
        assert decision == Decision(weight=0.0, reason=reason)


def test_branches_are_cut_at_whole_segments() -> None:
    found = routing(Rule(classes=("open",), weight=1.0))
    assert [ask(found, path, "head").weight for path in ("open", "open/mit", "open-data")] == [1, 1, 0]


def test_intervals_hold_their_start_and_only_the_last_its_end() -> None:
    found = routing(Rule(classes=("*",), depth=(0.5, 1.0), progress=(0.25, 0.75), weight=1.0))
    middle, end = Layer("middle", 0.5), Layer("end", 1.0)
    before = Layer("before", math.nextafter(0.5, 0))
    assert [ask(found, "open", layer, 0.5).weight for layer in (before, middle, end)] == [0, 1, 1]
    steps = (math.nextafter(0.25, 0), 0.25, math.nextafter(0.75, 0), 0.75)
    assert [ask(found, "open", end, step).weight for step in steps] == [0, 1, 1, 0]


def test_a_rule_holds_where_all_that_it_says_is_so() -> None:
    rule = Rule(
        classes=("open",), layers=("body.*",), depth=(0.0, 0.3), progress=(0.5, 1.0), condition="late", weight=1.0
    )
    found = routing(rule)
    assert ask(found, "open", "body.0", 0.5, ("late",)).weight == 1
    assert ask(found, "personal", "body.0", 0.5, ("late",)).weight == 0
    assert ask(found, "open", "embed", 0.5, ("late",)).weight == 0
    assert ask(found, "open", "body.1.conv", 0.5, ("late",)).weight == 0
    assert ask(found, "open", "body.0", 0.4, ("late",)).weight == 0
    assert ask(found, "open", "body.0", 0.5).weight == 0


def test_fractions_are_attenuation_and_negative_zero_is_zero() -> None:
    half, zero = (ask(routing(Rule(classes=("*",), weight=w)), "open", "head") for w in (0.5, -0.0))
    assert not half.guaranteed
    assert zero.guaranteed and math.copysign(1, zero.weight) == 1


# Sealed regions

CUSTOMER = SealedRegion(name="customer", branch="personal/customer", layers=("body.*",), rank=4)
NEWS = SealedRegion(name="news", branch="open/mit", module="side.news")
ADMIT_ALL = Rule(classes=("*",), weight=1.0)


@given(found=routings(), question=questions, layer=st.sampled_from(all_layers()))
def test_nobody_has_weight_in_a_region_of_others(found: Routing, question, layer: Layer) -> None:
    decision = weight(found, **{**question, "layer": layer})
    regions = {region.name: region for region in found.policy.sealed}
    if layer.name in ("body.0@customer", "side.news.fc@customer") and "customer" in regions:
        inner = layer.name.startswith("side") and "news" in regions  # the adapter's owner never enters that module
        assert decision.weight == (question["class_"] == "personal/customer" and not inner)
    elif layer.name.startswith("side.news") and "news" in regions and "@" not in layer.name:
        assert decision.weight == (question["class_"] == "open/mit")
    elif "@" in layer.name:
        assert decision.weight == 0


def test_rules_neither_open_nor_close_a_sealed_region() -> None:
    for rule in (ADMIT_ALL, Rule(classes=("*",), weight=0.0)):
        found = routing(rule, sealed=(CUSTOMER, NEWS))
        assert ask(found, "personal/customer", "body.0@customer").weight == 1
        assert ask(found, "open", "body.0@customer").weight == 0
        assert ask(found, "open/mit", "side.news.fc").region == "news"
        assert ask(found, "open/bsd", "side.news").weight == 0
    assert ask(routing(ADMIT_ALL), "open/bsd", "side.news").weight == 1  # the control: without the region it may
    neighbour = Layer("side.newsletter", 0.5)
    assert ask(routing(ADMIT_ALL, sealed=(NEWS,)), "open/bsd", neighbour).region is None


# Phases


@given(found=routings())
@pytest.mark.slow
def test_the_phases_cover_the_training_once_and_nothing_changes_in_them(found: Routing) -> None:
    stretches = phases(found.policy)
    asked = {rule.condition for rule in found.policy.rules}
    for on, progress in itertools.product(SUBSETS, SAMPLES):
        fits = [each for each in stretches if each.conditions == on & asked and inside(progress, each.progress)]
        assert len(fits) == 1
        for class_, layer in itertools.product(("open/bsd", "personal/customer"), LAYERS[::2]):
            now = weight(found, class_=class_, progress=progress, conditions=on, layer=layer)
            start = fits[0].progress[0]
            assert now == weight(found, class_=class_, progress=start, conditions=fits[0].conditions, layer=layer)


def test_a_phase_begins_only_where_a_rule_begins_or_ends() -> None:
    late = Rule(classes=("*",), progress=(0.5, 1.0), condition="late", weight=1.0)
    found = routing(Rule(classes=("open",), progress=(0.25, 1.0), weight=1.0), late).policy
    assert phases(found) == (
        Phase(progress=(0.0, 0.25), conditions=frozenset()),
        Phase(progress=(0.25, 1.0), conditions=frozenset()),
        Phase(progress=(0.0, 0.25), conditions=frozenset({"late"})),
        Phase(progress=(0.25, 0.5), conditions=frozenset({"late"})),
        Phase(progress=(0.5, 1.0), conditions=frozenset({"late"})),
    )
    assert str(phases(found)[3]) == "progress [0.25, 0.5), late"
    assert phases(routing().policy) == (Phase(progress=(0.0, 1.0), conditions=frozenset()),)


# The matrix


@given(found=routings(), progress=st.sampled_from(SAMPLES), on=st.sampled_from(SUBSETS))
def test_the_matrix_says_what_the_policy_decides(found: Routing, progress: float, on: frozenset[str]) -> None:
    made = matrix(found, LAYERS)
    asked = {rule.condition for rule in found.policy.rules}
    table = next(
        each for each in made.tables if each.phase.conditions == on & asked and inside(progress, each.phase.progress)
    )
    assert made.classes == tuple(sorted(CLASSES))
    for class_, row in zip(made.classes, table.rows, strict=True):
        for layer, cell in zip(made.layers, row, strict=True):
            assert cell == weight(found, class_=class_, progress=progress, conditions=on, layer=layer)


def test_adapters_stand_after_the_model_and_not_in_modules_of_others() -> None:
    made = matrix(routing(sealed=(SealedRegion(name="all", branch="personal", layers=("*",), rank=1), NEWS)), LAYERS)
    names = [layer.name for layer in made.layers]
    assert names[: len(LAYERS)] == [layer.name for layer in LAYERS]
    assert names[len(LAYERS) :] == ["embed@all", "body.0@all", "body.1.conv@all", "head@all"]


def test_what_is_too_much_to_write_down_is_refused() -> None:
    many = depths_of([f"layer{index}" for index in range(matrices.MAX_CELLS // len(CLASSES) + 1)])
    with pytest.raises(ProvenanceError, match="500004 cells under 0 rules are too many for a matrix"):
        matrix(routing(), many)
    dear = Rule(classes=("*",), layers=("*a*",) * 100, weight=1.0)
    with pytest.raises(ProvenanceError, match="6000 cells under 100 rules are too many for a matrix"):
        matrix(routing(*[dear] * 100), depths_of([f"layer{index}" for index in range(1000)]))
    paths = [f"c{index}" for index in range(100)]
    regions = tuple(SealedRegion(name=path, branch=path, layers=("*a*",) * 100, rank=1) for path in paths)
    tree = taxonomy(*paths)
    with pytest.raises(ProvenanceError, match="1000000 cells under 0 rules"):
        matrix(bind_policy(policy(tree=tree, sealed=regions), tree, where="p"), depths_of(["x"] * 10_000))


def test_without_layers_there_is_nothing_to_write_down(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many phases and classes there are: they are not even counted up."""
    monkeypatch.setattr(matrices, "phases", lambda policy: pytest.fail("phases were made"))
    assert matrix(routing(ADMIT_ALL), ()).tables == ()


# Findings


def found_in(*given_rules: Rule, sealed: tuple[SealedRegion, ...] = ()) -> list[str]:
    made = matrix(routing(*given_rules, sealed=sealed), LAYERS)
    return [str(finding) for finding in (*of_policy(made.routing), *of_matrix(made))]


BOTH_CONDITIONS = tuple(Rule(classes=("*",), condition=name, weight=1.0) for name in CONDITIONS)


@pytest.mark.parametrize(
    ("given_rules", "sealed", "message"),
    [
        (
            [Rule(classes=("*",), weight=0.25)],
            (),
            "rules[0].weight: 0.25 is attenuation, not a guarantee; only 0 and 1",
        ),
        ([Rule(classes=("*",), weight=1.0)], (), "conditions[0]: no rule asks for 'settled'"),
        ([Rule(classes=("open",), weight=1.0)], (), "rules: no rule names class personal; it trains nothing"),
        ([Rule(classes=("*",), layers=("embd*",), weight=1.0)], (), "rules[0].layers[0]: 'embd*' fits none of the 6 l"),
        ([Rule(classes=("*",), layers=("embd*",), weight=1.0)], (), "rules[0]: matches no layer"),
        ([ADMIT_ALL, Rule(classes=("open",), weight=0.0)], (), "rules[1]: is never reached: rules[0] decide before it"),
        (
            [
                Rule(classes=("open",), depth=(0.0, 0.5), weight=1.0),
                Rule(classes=("open",), depth=(0.5, 1.0), weight=1.0),
                Rule(classes=("open/bsd",), layers=("body.*",), weight=0.0),
            ],
            (),
            "rules[2]: is never reached: rules[0] decide before it",
        ),
        (
            [ADMIT_ALL],
            (CUSTOMER,),
            "sealed[0]: personal/customer is sealed and also trains shared layers by rules[0]: no",
        ),
        (
            [],
            (SealedRegion(name="a", branch="open", layers=("x*",), rank=1),),
            "sealed[0].layers[0]: 'x*' fits none of",
        ),
        ([], (SealedRegion(name="a", branch="open", module="x"),), "sealed[0].module: 'x' holds none of the layers"),
    ],
)
def test_what_is_probably_not_meant_is_found(given_rules, sealed, message: str) -> None:
    assert any(finding.startswith(message) for finding in found_in(*given_rules, sealed=sealed))


def test_what_is_almost_a_guarantee_does_not_read_like_one() -> None:
    almost = Rule(classes=("*",), progress=(0.5, 0.50000001), weight=0.9999999)
    assert "rules[0].weight: 0.9999999 is attenuation, not a guarantee; only 0 and 1 are" in found_in(almost)
    assert "progress [0.5, 0.50000001)" in [str(phase) for phase in phases(routing(almost).policy)]


def test_a_policy_that_means_what_it_says_has_no_findings() -> None:
    deny = Rule(classes=("personal/customer", "open/mit"), weight=0.0)
    assert found_in(deny, *BOTH_CONDITIONS, ADMIT_ALL, sealed=(CUSTOMER, NEWS)) == []


@given(found=routings())
def test_a_rule_is_found_idle_exactly_when_it_decides_no_cell(found: Routing) -> None:
    made = matrix(found, LAYERS)
    idle = {each.key[1] for each in of_matrix(made) if each.key[0] == "rules" and len(each.key) == 2}
    deciding = {cell.rule for table in made.tables for row in table.rows for cell in row}
    assert idle == set(range(len(found.policy.rules))) - deciding


# The shipped examples


def shipped(name: str) -> Routing:
    tree = example_taxonomy()
    draft = read_document(EXAMPLES / f"{name}.policy.yaml")
    return bind_policy(read_draft(policy_for(tree), draft), tree, where=name)


MODEL = read_layers(Path(__file__).parent / "transformer.layers.txt")
LOWER = [layer for layer in MODEL if layer.depth < 0.5]
UPPER = [layer for layer in MODEL if layer.depth >= 0.5]


def test_half_depth_keeps_bsd_out_of_the_embeddings_and_the_lower_half_and_the_first_third() -> None:
    found = shipped("half-depth")
    assert len(LOWER) == len(UPPER) == 6
    for progress in SAMPLES:
        for layer in MODEL:
            may = weight(found, class_="open/permissive/bsd", progress=progress, layer=layer).weight
            assert may == (layer in UPPER and progress >= 0.3334)
            assert weight(found, class_="open/permissive/mit", progress=progress, layer=layer).weight == 1
            assert weight(found, class_="licensed/news", progress=progress, layer=layer).weight == 0
    tied = Layer("head.embedding", 1.0)  # an embedding at the output is one all the same
    assert weight(found, class_="open/permissive/bsd", progress=1.0, layer=tied).rule == 0


def test_sealed_lets_customers_and_news_train_their_regions_and_nothing_else() -> None:
    made = matrix(shipped("sealed"), MODEL)
    for table in made.tables:
        for class_, row in zip(made.classes, table.rows, strict=True):
            trained = {layer.name for layer, cell in zip(made.layers, row, strict=True) if cell.weight > 0}
            if class_ == "personal/customer":
                assert trained == {f"blocks.{index}.attention@customer" for index in range(4)}
            elif class_ == "licensed/news":
                assert trained == {"side.news.attention", "side.news.mlp"}
            else:
                assert not any("@" in name or name.startswith("side") for name in trained)
    assert [str(each) for each in (*of_policy(made.routing), *of_matrix(made))] == [
        "rules[1].weight: 0.25 is attenuation, not a guarantee; only 0 and 1 are"
    ]
