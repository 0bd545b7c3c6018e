"""Floating-point operations of runs, against counts by hand, and the utilisation that follows."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from explorer import run_files
from explorer.engine import stepping
from explorer.engine.loop import Loop
from explorer.engine.stepping import Place, count_flops
from explorer.errors import DivergedError, RunError
from explorer.governance.entropy import Entropy
from explorer.recipes.peak_rate import DATA_SHEETS, peak_rate
from explorer.run_files import Flops, Hardware, ResultRecord, RunRecord
from explorer.runlog.documents import read_copies
from explorer.training import run as module
from explorer.training import watch
from explorer.training.run import build_loop, execute
from tests.methods.samples import SAMPLES, active, sample_loop
from tests.recipes_for_tests import machine_with, tiny_recipe, tiny_run, write_run
from tests.training.recorded_runs import documents_for_digits, planned_run


def by_hand(model: nn.Module, inputs: Tensor) -> int:
    """A multiplication and an addition for each product, once forward and twice backward; no gradient of the inputs."""
    forward: list[int] = []

    def count(module: nn.Module, _: object, outputs: Tensor) -> None:
        weight = module.weight
        assert isinstance(weight, Tensor)
        forward.append(2 * outputs.numel() * weight[0].numel())

    handles = [
        module.register_forward_hook(count) for module in model.modules() if isinstance(module, nn.Conv2d | nn.Linear)
    ]
    with torch.no_grad():
        model(inputs)
    for handle in handles:
        handle.remove()
    return 3 * sum(forward) - forward[0]


def test_operations_are_those_of_a_count_by_hand(tmp_path: Path) -> None:
    run = tiny_run(tiny_recipe())
    result = execute(write_run(tmp_path, run))
    loop = build_loop(run, data=None)
    expected = by_hand(loop.setting.model, loop.setting.batches.prepare(loop.setting.batches.dataset.train.inputs[:64]))
    assert result.flops is not None and result.flops.phases == {"all steps": expected}
    assert result.flops.total == 7 * expected


def test_each_phase_is_counted_and_the_run_is_their_sum(tmp_path: Path) -> None:
    run = tiny_run(tiny_recipe(["progressive_resizing"], epochs=2))
    result = execute(write_run(tmp_path, run))
    assert result.flops is not None and len(run.phases) > 1
    assert result.flops.phases.keys() == run.phases.keys()
    assert result.flops.total == sum(steps * result.flops.phases[name] for name, steps in run.phases.items())
    assert len(set(result.flops.phases.values())) == len(run.phases), "images of other sizes take other numbers"


def test_counted_steps_that_diverge_are_begun_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """As of a recipe whose learning rate is only right after a warm-up: the first counted step spoils the weights."""
    run = tiny_run(tiny_recipe(["progressive_resizing"], epochs=2))
    spoilt: list[str] = []

    def count(loop: Loop, place: Place) -> int:
        try:
            counted = count_flops(loop, place)
        except DivergedError as error:
            spoilt.append(str(error))
            raise
        for parameter in loop.setting.model.parameters():
            parameter.data.fill_(torch.inf)
        return counted

    plain = module._counted(run, data=None, documents=None)
    monkeypatch.setattr(module, "count_flops", count)
    assert module._counted(run, data=None, documents=None).phases == plain.phases
    assert len(spoilt) == len(run.phases) - 1 > 0 and "loss is nan" in spoilt[0]


def test_counting_changes_no_bit_of_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = tiny_run(tiny_recipe(["mixup", "stochastic_depth"]))
    counted = execute(write_run(tmp_path / "counted", run))
    monkeypatch.setattr("explorer.training.run.count_flops", lambda loop, place: 0)
    plain = execute(write_run(tmp_path / "plain", run))
    assert plain.flops is not None and plain.flops.total == 0
    assert counted.state_digest == plain.state_digest
    assert counted.files["metrics.jsonl"] == plain.files["metrics.jsonl"]


@pytest.mark.slow
def test_every_method_can_be_counted() -> None:
    for name in SAMPLES:
        loop = sample_loop([active(name)], like=(name,))
        total = loop.setting.total_steps
        assert count_flops(loop, Place(step=total // 2, total_steps=total)) > 0, name


@pytest.mark.slow
def test_a_governed_run_is_counted_without_what_only_observes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[int] = []
    monkeypatch.setattr(Entropy, "after_update", lambda _, state: looked.append(state.step))
    directory = planned_run(tmp_path, documents_for_digits(tmp_path))
    record, documents = run_files.read(RunRecord, directory / "run.json"), read_copies(directory)
    counted = module._counted(record, data=None, documents=documents)
    assert counted.phases.keys() == record.phases.keys() == {"no profile", "entropy profile"}
    assert min(counted.phases.values()) > 0 and not looked and not (directory / "ledger").exists()
    # The negative control: the run itself makes profiles.
    loop = build_loop(record, data=None, documents=documents)
    assert any(isinstance(method, Entropy) for method in loop.methods)


@pytest.mark.slow
def test_any_number_of_ranks_counts_the_same(tmp_path: Path) -> None:
    run = tiny_run(tiny_recipe(lanes=2))
    one, two = (execute(write_run(tmp_path / str(ranks), run), ranks=ranks).flops for ranks in (1, 2))
    assert one is not None and two is not None and one.phases == two.phases and one.total == two.total > 0


def test_a_compiled_step_counts_as_the_plain_one() -> None:
    place = Place(step=2, total_steps=7)
    plain, compiled = (
        count_flops(build_loop(tiny_run(tiny_recipe(methods)), data=None), place)
        for methods in ([], [{"compile": {"backend": "aot_eager"}}])
    )
    assert plain == compiled > 0


def test_attention_counts_on_a_cpu_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """B 2, 3 heads, 5 queries of 4 numbers for 7 keys: two products forward, and five backward."""
    query = torch.rand(2, 3, 5, 4, requires_grad=True)
    key, value = torch.rand(2, 2, 3, 7, 4, requires_grad=True).unbind()

    def count() -> int:
        with stepping.FlopCounterMode(display=False, custom_mapping=stepping._ON_CPU) as counter:
            nn.functional.scaled_dot_product_attention(query, key, value).sum().backward()
        return counter.get_total_flops()

    assert count() == (2 + 5) * 2 * (2 * 3 * 5 * 4 * 7)
    monkeypatch.setattr(stepping, "_ON_CPU", {})
    assert count() == 0, "the negative control: torch's own counter does not know the kernel"


def test_utilisation_is_of_the_peak_and_of_timed_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "read_machine", machine_with(others=0.0))
    run = tiny_run(tiny_recipe())
    result = execute(write_run(tmp_path / "quiet", run))
    flops = result.flops
    assert flops is not None and flops.peak is not None and "matrix products on this machine" in flops.peak_source
    expected = flops.phases["all steps"] * result.timed_steps / result.timings.training() / flops.peak
    assert result.utilisation == pytest.approx(expected) and 0 < expected < 1
    # A run that shared the machine, one without a peak, and one of an older version have none.
    for other in (
        replace(result, contended=True),
        replace(result, flops=replace(flops, peak=None)),
        replace(result, flops=None),
    ):
        assert isinstance(other, ResultRecord) and other.utilisation is None
    assert execute(write_run(tmp_path / "shared", run), contended=True).utilisation is None


def test_the_peak_of_a_gpu_is_that_of_its_data_sheet_or_unknown() -> None:
    card = Hardware(device="cuda", name="NVIDIA H200", threads=8)
    assert peak_rate(card, "bf16") == (989.4e12, "data sheet of NVIDIA H200, bf16, dense")
    assert peak_rate(replace(card, world_size=2), "fp32")[0] == 2 * 67e12
    assert peak_rate(replace(card, name="NVIDIA H200 NVL"), "bf16") == (None, ""), "no name that is only similar"
    assert peak_rate(replace(card, name="Tesla T4"), "bf16") == (None, ""), "it has no units for it"
    for sheet in DATA_SHEETS.values():
        assert sheet["fp32"] <= sheet.get("tf32", sheet["fp32"]) <= sheet["fp16"] == sheet.get("bf16", sheet["fp16"])


def test_the_peak_of_a_cpu_is_measured_in_the_precision_of_the_run() -> None:
    cpu = Hardware(device="cpu", name="any", threads=1)
    rate, source = peak_rate(cpu, "fp32")
    assert rate is not None and 1e8 < rate < 1e15 and source == "the best of 10 fp32 matrix products on this machine"
    assert peak_rate(cpu, "bf16")[1] == "the best of 10 bf16 matrix products on this machine"


def test_a_peak_of_nothing_is_refused() -> None:
    content = run_files.to_json(Flops(phases={"all": 1.0}, total=7.0, peak=1e9))
    assert run_files.from_json(Flops, content, where="test").total == 7.0
    for name, value in (("peak", 0.0), ("total", -1.0), ("total", float("inf")), ("peak", float("nan"))):
        with pytest.raises(RunError, match=name):
            run_files.from_json(Flops, content | {name: value}, where="test")
