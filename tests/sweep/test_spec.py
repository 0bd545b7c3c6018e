import math
from pathlib import Path

import pytest

from explorer.errors import SpecError
from explorer.recipes.settings import METHODS as KNOWN
from explorer.sweep.spec import load_spec, read_spec
from explorer.sweep.until_key import Until
from explorer.training.run_plan import MAX_SEED
from explorer.yaml_document import parse_document

GOOD = """\
name: digits
task: {dataset: digits, model: resnet8}
train: {epochs: 20, batch_size: 64, optimizer: {sgd: {lr: 0.2, weight_decay: 5e-4}}}
baseline: baseline
recipes:
  baseline: []
  fast: [channels_last, {progressive_resizing: {initial_scale: 0.5}}, {label_smoothing: {smoothing: 0.1}}]
  slow: {train: {epochs: 30}, methods: [sam]}
compose: {each_of: [blurpool, ema], pairs_of: [mixup, sam], leave_one_out: fast}
budgets: [0.25, 0.125]
seeds: [1, 0]
"""


def read(text):
    return read_spec(parse_document(text, where="d.yaml"))


def test_a_good_specification():
    spec = read(GOOD)
    assert [recipe.name for recipe in spec.recipes] == [
        "baseline",
        "fast",
        "slow",
        "blurpool",
        "ema",
        "mixup-sam",
        "fast-without-progressive_resizing",
        "fast-without-label_smoothing",
        "fast-without-channels_last",
    ]
    assert spec.budgets == (0.125, 0.25)
    assert spec.seeds == (1, 0)
    assert spec.threads == 1
    assert spec.tuning is None
    assert {recipe.name: recipe.numbers.epochs for recipe in spec.recipes}["slow"] == 30


def test_a_dict_says_the_same_as_the_file():
    from_file = read(GOOD)
    assert load_spec(dict(from_file.content)) == read_spec(parse_document(GOOD, where="spec"))


METHODS = f"known: {', '.join(sorted(KNOWN))}"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("dataset: digits", "dataset: digit", "d.yaml:2: task.dataset: unknown dataset 'digit'; did you mean"),
        ("model: resnet8", "model: resnt8", "d.yaml:2: task.model: unknown model 'resnt8'; did you mean 'resnet8'?"),
        ("task: {", "task: {nam: x, ", "d.yaml:2: task: unknown key 'nam'; known: dataset, model"),
        ("epochs: 20", "epoch: 20", "d.yaml:3: train: unknown"),
        ("lr: 0.2", "l: 1", "d.yaml:3: train.optimizer.sgd: unknown parameter 'l'; did you mean 'lr'?"),
        ("lr: 0.2", "lr: x", "d.yaml:3: train.optimizer.sgd.lr: found str 'x': input should be a valid number"),
        ("fast: [channels_last", "fast: [chanels_last", "d.yaml:7: recipes.fast[0]: unknown method 'chanels_last'; "),
        ("smoothing: 0.1", "smothing: 0.1", "d.yaml:7: recipes.fast[2].label_smoothing: unknown parameter 'smothing'"),
        ("smoothing: 0.1", "smoothing: 7", "d.yaml:7: recipes.fast[2].label_smoothing.smoothing: found int 7"),
        ("smoothing: 0.1", "smoothing: yes", "d.yaml:7: recipes.fast[2].label_smoothing.smoothing: found str 'yes'"),
        ("fast: [", "fast: [mixup, mixup, ", "d.yaml:7: recipes.fast: method 'mixup' is given twice"),
        ("epochs: 30", "epoch: 30", "d.yaml:8: recipes.slow: train: unknown"),
        ("[sam]}", "[sm]}", f"d.yaml:8: recipes.slow.methods[0]: unknown method 'sm'; did you mean 'sam'? {METHODS}"),
        ("baseline: []", "baseline:", "d.yaml:6: recipes.baseline: found nothing, expected a list of methods"),
        (
            "baseline: []",
            "baseline: []\n  plain: []",
            "d.yaml:7: recipes.plain: the same recipe as 'baseline'; every recipe must be different",
        ),
        ("  fast: [", "  Fast: [", "d.yaml:7: recipes.Fast: 'Fast' cannot be a name"),
        ("name: digits", "name: ../x", "d.yaml:1: name: '../x' cannot be a name: expected at most 64"),
        ("name: digits", "name: " + "x" * 65, "d.yaml:1: name: 'xxx"),
        ("seeds: ", "sed: ", "d.yaml:11: sed: unknown key 'sed'; did you mean 'seeds'?"),
        ("name: digits\n", "", "d.yaml:1: key 'name' is missing; expected name, task, train"),
        ("baseline: baseline", "baseline: base", "d.yaml:4: baseline: unknown recipe 'base'; did you mean 'baseline'?"),
        ("baseline: baseline", "baseline: blurpool", "d.yaml:4: baseline: unknown recipe 'blurpool'"),
        ("[0.25, ", "[0.25, 0.25, ", "d.yaml:10: budgets[1]: 0.25 is given twice"),
        ("[0.25, ", "[0, ", "d.yaml:10: budgets[0]: found 0, expected a number above 0 and at most 1000"),
        ("[0.25, ", "[.nan, ", "d.yaml:10: budgets[0]: found '.nan', expected a number above 0"),
        ("[0.25, ", "[1e999, ", "d.yaml:10: budgets[0]: 1e999 is too large for a number"),
        ("[0.25, ", "[true, ", "d.yaml:10: budgets[0]: found True, expected a number above 0"),
        ("[0.25, 0.125]", "0.25", "d.yaml:10: budgets: found 0.25, expected a list of numbers"),
        ("[1, 0]", "[]", "d.yaml:11: seeds: empty: a sweep needs at least one"),
        ("[1, 0]", "[1, 1]", "d.yaml:11: seeds[1]: 1 is given twice"),
        ("[1, 0]", "[-1]", "d.yaml:11: seeds[0]: found -1, expected a whole number from 0 to 2147483647"),
        ("[1, 0]", "[0.5]", "d.yaml:11: seeds[0]: found 0.5, expected a whole number from 0"),
        ("[1, 0]", "[1]\nthreads: 0", "d.yaml:12: threads: found 0, expected a whole number from 1 to 1024"),
        ("[1, 0]", "[1]\ntuning: 'No.'", "d.yaml:12: tuning: found 'No.', expected how the baseline was tuned; if"),
        ("[1, 0]", "[1]\ntuning: untuned", "d.yaml:12: tuning: found 'untuned', expected how the baseline was tuned"),
        ("[1, 0]", "[1]\ntuning: ''", "d.yaml:12: tuning: found '', expected how the baseline was tuned"),
        ("[1, 0]", "[1]\ntuning: [a]", "d.yaml:12: tuning: found ['a'], expected a text of at most 500 characters"),
        ("[1, 0]", "[1]\ntuning: yes", "d.yaml:12: tuning: found 'yes', expected how the baseline was tuned"),
        ("[1, 0]", "[1]\ntuning: Tuned.", "d.yaml:12: tuning: found 'Tuned.', expected how the baseline was tuned"),
        ("[1, 0]", "[1]\ntuning: TBD", "d.yaml:12: tuning: found 'TBD', expected how the baseline was tuned"),
        ("each_of: [blurpool", "each_of: [blurpol", "d.yaml:9: compose.each_of[0]: unknown method 'blurpol'; did you"),
        ("pairs_of: [mixup, sam]", "pairs_of: [mixup]", "d.yaml:9: compose.pairs_of: found ['mixup'], expected a list"),
        ("leave_one_out: fast", "leave_one_out: fst", "d.yaml:9: compose.leave_one_out: unknown recipe 'fst'; did you"),
        ("leave_one_out: fast", "leave_one_out: slow", "d.yaml:9: compose.leave_one_out: recipe 'slow' has fewer"),
        ("each_of", "each", "d.yaml:9: compose.each: unknown key 'each'; did you mean 'each_of'?"),
        (
            "[blurpool, ema]",
            "[{mixup: {alpha: 0.1}}, {mixup: {alpha: 0.3}}]",
            "d.yaml:9: compose.each_of: two different recipes would be called 'mixup'; write one of them",
        ),
    ],
)  # fmt: skip
def test_a_bad_specification_is_refused(old, new, message):
    assert old in GOOD
    with pytest.raises(SpecError) as caught:
        read(GOOD.replace(old, new, 1))
    assert str(caught.value).startswith(message)


def test_an_empty_sweep_is_refused():
    start, end = GOOD.index("recipes:"), GOOD.index("compose:")
    with pytest.raises(SpecError, match=r"d\.yaml:5: recipes: empty: a sweep needs at least one recipe"):
        read(GOOD[:start] + "recipes: {}\n" + GOOD[end:])
    for text in ("", "[]", "x"):
        with pytest.raises(SpecError, match="expected a mapping with name, task"):
            read(text)


def test_too_many_runs_are_refused():
    with pytest.raises(SpecError, match="60000 runs are too many for one sweep; at most 20000 are allowed"):
        read(GOOD.replace("[1, 0]", str(list(range(10_000)))))


def test_a_composed_recipe_that_is_written_already_keeps_its_name():
    spec = read(GOOD.replace("  fast:", "  soft: [blurpool]\n  fast:"))
    names = [recipe.name for recipe in spec.recipes]
    assert "soft" in names
    assert "blurpool" not in names


def test_order_of_methods_makes_no_difference():
    with pytest.raises(SpecError, match=r"recipes\.other: the same recipe as 'pair'"):
        read(GOOD.replace("  fast:", "  pair: [mixup, ema]\n  other: [ema, mixup]\n  fast:"))


@pytest.mark.parametrize("name, recipes", [("digits", 5), ("cifar10", 5), ("source", 2), ("openwebtext", 4)])
def test_the_shipped_specifications_are_valid(name, recipes):
    path = Path(__file__).parent.parent.parent / "notebooks" / "sweeps" / f"{name}.yaml"
    spec = load_spec(path)
    assert spec.name == name
    assert len(spec.recipes) >= recipes


UNTIL = GOOD.replace("seeds: [1, 0]", "seeds: [1, 0, 5]\nuntil: {interval: 10%, of: [fast, ema], at_most: 12}")


def test_until_asks_for_the_width_of_an_interval():
    spec = read(UNTIL)
    assert spec.until is not None
    assert spec.until == Until(interval=0.1, of=("fast", "ema"), at_most=12)
    assert spec.until.half_width == pytest.approx(math.log(1.1))
    assert read(UNTIL.replace("10%", "0.1")).until == spec.until
    assert read(GOOD).until is None


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("interval: 10%", "interval: 10", r"until.interval: found 10, expected a width from 0.5% to 100%"),
        ("interval: 10%", "interval: 0.1%", r"until.interval: found '0.1%', expected a width"),
        ("interval: 10%", "interval: true", r"until.interval: found True, expected a width"),
        ("interval: 10%", "intervall: 10%", r"until.intervall: unknown key 'intervall'; did you mean 'interval'"),
        ("interval: 10%, ", "", r"until: key 'interval' is missing; expected interval, of, at_most"),
        ("of: [fast, ema]", "of: fast", r"until.of: found 'fast', expected a list of recipes"),
        ("of: [fast, ema]", "of: []", r"until.of: found \[\], expected a list of recipes"),
        ("of: [fast, ema]", "of: [fst]", r"until.of\[0\]: unknown recipe 'fst'; did you mean 'fast'"),
        ("of: [fast, ema]", "of: [fast, fast]", r"until.of\[1\]: 'fast' is given twice"),
        ("of: [fast, ema]", "of: [baseline]", r"until.of\[0\]: 'baseline' is the baseline, which has a speedup over"),
        ("at_most: 12", "at_most: 3", r"until.at_most: found 3, expected a whole number of seeds above the 3 that"),
        ("at_most: 12", "at_most: 1001", r"until.at_most: found 1001, expected .* at most 1000"),
        ("at_most: 12", "at_most: 12.0", r"until.at_most: found 12.0, expected"),
        ("[1, 0, 5]", "[1, 0]", r"until: found 2 of the seeds that decide on their number, expected at least 3"),
        ("{interval: 10%, of: [fast, ema], at_most: 12}", "10%", r"until: found '10%', expected a mapping with interv"),
    ],
)
def test_until_that_cannot_be_is_refused(old, new, message):
    assert UNTIL.count(old) == 1
    with pytest.raises(SpecError, match=message):
        read(UNTIL.replace(old, new))


def test_added_seeds_have_to_exist():
    late = UNTIL.replace("[1, 0, 5]", f"[1, 0, {MAX_SEED - 4}]")
    with pytest.raises(SpecError, match=r"until.at_most: found 12, .* at most 7"):
        read(late)
    assert read(late.replace("at_most: 12", "at_most: 7")).until == Until(interval=0.1, of=("fast", "ema"), at_most=7)


def test_added_runs_count_as_runs():
    many = UNTIL.replace("budgets: [0.25, 0.125]", f"budgets: {[round(0.01 * n, 2) for n in range(1, 41)]}")
    read(many.replace("at_most: 12", "at_most: 100"))
    with pytest.raises(SpecError, match="runs are too many for one sweep"):
        read(many.replace("at_most: 12", "at_most: 1000"))


def test_a_twin_is_asked_for_no_interval():
    twins = (
        UNTIL.replace("of: [fast, ema]", "of: [choosy-random]").replace(
            "slow: {train", "choosy: [{selective_backprop: {}}]\n  slow: {train"
        )
        + "controls: all\n"
    )
    names = read(twins.replace("choosy-random", "choosy"))
    with pytest.raises(SpecError, match=rf"until.of\[0\]: unknown recipe '{next(iter(names.twins))}'"):
        read(twins.replace("choosy-random", next(iter(names.twins))))
