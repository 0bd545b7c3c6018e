"""Planned stages against closed forms, and a run that takes them."""

from pathlib import Path

import pytest

from explorer.data.batches import Batches
from explorer.data.pace import Pace
from explorer.engine.method import Moment
from explorer.entries.heads import check_sequence, read_head
from explorer.entries.kinds import Step, decode
from explorer.errors import RecipeError
from explorer.governance.contributions import Contributions
from explorer.governance.recorder import Recorder
from explorer.methods.batch_size_warmup import BatchSizeWarmup, planned_stages, rate_ratio
from explorer.training.run import build_loop
from explorer.training.run_plan import plan_run
from tests.data_for_tests import CPU, noise
from tests.governance.recorded import leaves_of, train
from tests.governance.tagged import tagged_loop
from tests.recipes_for_tests import tiny_recipe


def test_stages_have_equal_shares_of_the_examples() -> None:
    """Batches of 16, 32 and 48 for 960 examples each are 60, 30 and 20 steps; 64 for the 6,720 that remain are 105."""
    pace = planned_stages(batch_size=64, examples=9600, initial=0.25, stages=3, duration=0.3)
    assert pace.stages == ((0, 16), (60, 32), (90, 48), (110, 64))
    assert pace.steps(9600) == 60 + 30 + 20 + 105
    assert pace.position(215) == 9600


@pytest.mark.parametrize("examples", [1, 7, 64, 100, 12_345])
@pytest.mark.parametrize("batch_size", [1, 3, 64])
@pytest.mark.parametrize(("initial", "stages", "duration"), [(0.25, 3, 0.3), (0.01, 1000, 1.0), (1.0, 2, 0.5)])
def test_any_budget_is_kept_to_half_a_step(
    examples: int, batch_size: int, initial: float, stages: int, duration: float
) -> None:
    pace = planned_stages(batch_size=batch_size, examples=examples, initial=initial, stages=stages, duration=duration)
    sizes = [size for _, size in pace.stages]
    assert sizes == sorted(set(sizes)) and sizes[0] >= 1 and sizes[-1] == batch_size
    steps = pace.steps(examples)
    assert abs(pace.position(steps) - examples) <= batch_size / 2
    planned = [max(1, int(batch_size * (initial + (1 - initial) * k / stages) + 0.5)) for k in range(stages)]
    for step, size in pace.stages[1:]:
        stage = planned.index(size) if size in planned else stages
        assert abs(pace.position(step) - examples * duration * stage / stages) <= size / 2, "rounding does not add up"


def test_half_a_batch_at_half_the_rate_or_the_root_of_it_or_the_same() -> None:
    assert [rate_ratio(16, full=64, scaling=s) for s in ("linear", "sqrt", "hold")] == [0.25, 0.5, 1.0]


def test_the_learning_rate_follows_the_batch() -> None:
    pace = Pace(((0, 16), (10, 64)))
    method = BatchSizeWarmup()
    factors = [method.learning_rate(0.8, moment(step, pace)) for step in (0, 9, 10)]
    assert factors == [0.4, 0.4, 0.8]
    assert [method.phase(moment(step, pace)) for step in (0, 9, 10)] == ["batch 16", "batch 16", "batch 64"]


def test_without_stages_there_is_nothing_to_do() -> None:
    pace = BatchSizeWarmup(initial=1.0).pace(batch_size=64, examples=1000)
    assert pace == Pace(((0, 64),))
    assert BatchSizeWarmup().phase(moment(3, pace)) == "" == BatchSizeWarmup().phase(moment(3, None))
    assert (
        BatchSizeWarmup().learning_rate(0.7, moment(3, pace))
        == 0.7
        == BatchSizeWarmup().learning_rate(0.7, moment(3, None))
    )


def moment(step: int, pace: Pace | None) -> Moment:
    return Moment(step=step, total_steps=20, example_shape=(1, 8, 8), pace=pace)


@pytest.mark.parametrize("ssr", [0.5, 1.0])
@pytest.mark.slow
def test_a_run_takes_its_stages_at_every_budget(ssr: float) -> None:
    """Half of the examples in batches of 16 and 40, the others in batches of 64, at rates that fit."""
    recipe = tiny_recipe([{"batch_size_warmup": {"initial": 0.25, "stages": 2, "duration": 0.5}}], schedule="linear")
    record = plan_run(recipe, sweep="t", baseline="b", tuning=None, ssr=ssr, seed=0, threads=1, data=None)
    loop = build_loop(record, data=None)
    nominal = int(ssr * 0.5 * len(loop.setting.batches.dataset.train) / 64 + 0.5)
    sizes, rates = [], []
    while loop.state.step < record.steps:
        rates.append(loop.learning_rate())
        loop.step()
        assert loop.state.share is not None
        sizes.append(len(loop.state.share.slots))
    assert sizes == sorted(sizes) and set(sizes) == {16, 40, 64}
    assert abs(sum(sizes) - 64 * nominal) <= 32
    for step, (rate, size) in enumerate(zip(rates, sizes, strict=True)):
        consumed = sum(sizes[:step]) / sum(sizes)
        assert rate == pytest.approx(0.1 * (1 - consumed) * (size / 64) ** 0.5, rel=1e-9)
    assert record.phases.keys() == {"batch 16", "batch 40", "batch 64"}
    assert sum(record.phases.values()) == record.steps


def test_the_same_examples_in_the_same_order() -> None:
    paces = [BatchSizeWarmup(initial=initial, duration=0.5).pace(batch_size=8, examples=80) for initial in (1.0, 0.25)]
    found = []
    for pace in paces:
        batches = Batches(noise(), batch_size=8, seed=0, device=CPU, pace=pace)
        found.append([int(number) for step in range(pace.steps(80)) for number in batches.indices(step)])
    plain, ours = found
    assert len(plain) == 80 and abs(len(ours) - 80) <= 4
    assert ours == plain[: len(ours)]


@pytest.mark.parametrize("parameters", [{"initial": 0}, {"initial": 1.5}, {"stages": 0}, {"duration": 2}])
def test_senseless_parameters_are_refused(parameters: dict) -> None:
    with pytest.raises(RecipeError, match="batch_size_warmup"):
        tiny_recipe([{"batch_size_warmup": parameters}])


@pytest.mark.slow
def test_a_recorded_run_says_how_many_examples_each_step_had(tmp_path: Path) -> None:
    """Batches of 4 and 6 for half of 96 examples, then of 8: what is in the ledger is what the plan says."""
    method = BatchSizeWarmup(initial=0.5, stages=2, duration=0.5)
    pace = method.pace(batch_size=8, examples=96)
    usual = tagged_loop([]).setting.batches
    batches = Batches(usual.dataset, batch_size=8, seed=0, device=CPU, typing=usual.typing, pace=pace)
    observers = (Contributions(), Recorder(every=5))
    train(tmp_path, tagged_loop([method, *observers], total_steps=pace.steps(96), full_steps=12, batches=batches))
    steps = [entry for leaf in leaves_of(tmp_path) if isinstance(entry := decode(leaf), Step)]
    assert [sum(each.examples) for each in steps] == [4] * 6 + [6] * 4 + [8] * 6
    assert check_sequence(map(read_head, leaves_of(tmp_path))).finished
