"""A Trainer of the `transformers` library: governed steps, and its run as it is reported to a sweep."""

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import explorer
from explorer import run_files, rundir, track
from explorer.adapters.huggingface import REFUSED, ExplorerCallback, GovernedSteps, Losses, Together
from explorer.adapters.rows import rows_of
from explorer.audit.contents import examine_contents
from explorer.entries.kinds import Decision
from explorer.errors import RecipeError
from explorer.governance.governed_selective_backprop import GovernedSelectiveBackprop
from explorer.ledger.storage import LedgerDirectory
from explorer.methods.gradient_clipping import GradientClipping
from explorer.methods.label_smoothing import smooth_labels
from explorer.methods.muon import MuonOptimizer, hidden_matrices, matrix_groups
from explorer.provenance.policy import RoutingPolicy
from explorer.runlog.model_file import MODEL, ModelFile
from explorer.runlog.run_ledger import RunLedger
from tests.adapters import whole_way as way
from tests.training import own_deletions as own
from tests.training.test_own_deletion import certified, deleted, lost

transformers: Any = pytest.importorskip("transformers", reason="needs transformers: pip install -e '.[hub]'")
pytest.importorskip("accelerate", reason="needs accelerate: pip install -e '.[hub]'")
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::DeprecationWarning")]

DRAWS = np.random.default_rng(0)
TEXTS = [{"input_ids": DRAWS.integers(0, 64, length).tolist(), "labels": length % 3} for length in range(4, 16)]
BLOCKS = [{"input_ids": (block := DRAWS.integers(0, 64, 8).tolist()), "labels": block} for _ in range(12)]
Rows = list[dict[str, Any]]


def gpt2() -> nn.Module:
    torch.manual_seed(0)
    config = transformers.GPT2Config(
        n_layer=2, n_head=2, n_embd=16, vocab_size=64, n_positions=8, bos_token_id=0, eos_token_id=0
    )
    return transformers.GPT2LMHeadModel(config)


def bert() -> nn.Module:
    torch.manual_seed(0)
    config = transformers.BertConfig(
        hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32, vocab_size=64, num_labels=3
    )
    return transformers.BertForSequenceClassification(config)


def padded(rows: Rows) -> dict[str, torch.Tensor]:
    """A collator that pads with zeros, as `DataCollatorWithPadding` does with a tokeniser."""
    inputs = [torch.tensor(row["input_ids"]) for row in rows]
    stacked = nn.utils.rnn.pad_sequence(inputs, batch_first=True)
    mask = nn.utils.rnn.pad_sequence([torch.ones_like(ids) for ids in inputs], batch_first=True)
    return {"input_ids": stacked, "attention_mask": mask, "labels": torch.tensor([row["labels"] for row in rows])}


class GovernedTrainer(GovernedSteps, transformers.Trainer):
    """As a user writes it."""


def arguments(directory: Path, **changes: Any) -> Any:
    usual = {
        "output_dir": str(directory / "out"),
        "num_train_epochs": 2,
        "per_device_train_batch_size": 4,
        "learning_rate": 1e-2,
        "weight_decay": 0.1,
        "warmup_steps": 2,
        "use_cpu": True,
        "report_to": [],
        "save_strategy": "no",
        "logging_steps": 2,
        "disable_tqdm": True,
    }
    return transformers.TrainingArguments(**usual | changes)


@pytest.fixture(autouse=True)
def today(monkeypatch: pytest.MonkeyPatch) -> None:
    own.at_desk(monkeypatch)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path


def governed(
    directory: Path,
    build: Callable[[], nn.Module],
    rows: Rows,
    *policies: RoutingPolicy,
    classes: list[str] | None = None,
    papers: Path | None = None,
    **named: Any,
) -> Callable[..., Any]:
    """A training function of `govern`, as its owner writes it, under new documents or these. It returns the Trainer."""
    examples = rows_of(rows)
    documents = papers or own.papers(directory / "governed", examples, *policies, classes=classes)
    policy = policies[0].name if policies else "usual"

    def train(govern: Any = explorer.govern) -> Any:
        trainer = GovernedTrainer(
            model=build(),
            train_dataset=examples,
            eval_dataset=rows[:4],
            govern=partial(govern, documents=documents, policy=policy, ledger=directory / "runs/own/mine", every=2),
            **{"args": arguments(directory, eval_strategy="epoch")} | named,
        )
        trainer.train()
        return trainer

    return train


@pytest.mark.parametrize(("build", "rows", "collator"), [(gpt2, BLOCKS, None), (bert, TEXTS, padded)])
def test_one_class_is_the_trainer_itself(directory: Path, build: Any, rows: Rows, collator: Any) -> None:
    """Loss, clipping, schedule, weight decay and order of the batches: the weights are equal bit for bit."""

    def still(model: nn.Module) -> nn.Module:  # dropout draws by class in a governed step
        for module in model.modules():
            if isinstance(module, nn.Dropout):
                module.p = 0.0
        return model

    train = governed(directory, lambda: still(build()), rows, classes=["open"] * 12, data_collator=collator)
    ours = train()
    theirs = transformers.Trainer(
        model=still(build()), args=arguments(directory), train_dataset=rows, data_collator=collator
    )
    theirs.train()
    left, right = ours.model.state_dict(), theirs.model.state_dict()
    assert all(torch.equal(left[name], right[name]) for name in right)
    assert not torch.equal(next(iter(left.values())), next(iter(build().state_dict().values())))
    losses = [[row["loss"] for row in trainer.state.log_history if "loss" in row] for trainer in (ours, theirs)]
    assert losses[0] == pytest.approx(losses[1])


def test_a_run_is_recorded_and_replayed(directory: Path) -> None:
    train = governed(directory, gpt2, BLOCKS)
    trainer = train()
    found = examine_contents(LedgerDirectory(directory / "runs/own/mine/ledger"))
    assert found.fault is None and found.order is not None and found.order.finished
    assert explorer.replay(directory / "runs/own/mine", train).equal
    (metrics,) = [row for row in trainer.state.log_history if row["step"] == 6 and "eval_loss" in row]
    assert trainer.governed.metrics == {"loss": pytest.approx(metrics["eval_loss"])}
    back = explorer.load_model(directory / "runs/own/mine/model", into=gpt2())
    assert all(
        torch.equal(one, other) for one, other in zip(back.parameters(), trainer.model.parameters(), strict=True)
    )


def test_a_loop_that_reads_other_rows_is_found_by_its_replay(directory: Path) -> None:
    """The negative control: the same training with another order of batches is another run."""
    train = governed(directory, gpt2, BLOCKS)
    train()
    other = governed(directory / "other", gpt2, BLOCKS, args=arguments(directory, seed=1, eval_strategy="epoch"))
    assert not explorer.replay(directory / "runs/own/mine", other).equal


def test_a_sealed_region_is_deleted(directory: Path) -> None:
    """By structure: what the class trained is dropped, certified, and the rest is the same bit for bit."""
    layers = ("bert.encoder.layer.1.attention.*", "classifier")
    train = governed(directory, bert, TEXTS, own.sealed(*layers), data_collator=padded)
    train()
    old = directory / "runs/own/mine"
    trained = ModelFile(old / rundir.MODEL / MODEL).leaves()
    new = deleted(old)
    assert certified(old, new).deleted
    assert lost(old, new) and all(".@news." in name for name in lost(old, new))
    assert len(lost(old, new)) < len(trained)


def test_profiles_and_a_gate_by_entropy(directory: Path) -> None:
    """On record, and the same when the run is replayed; the class trains from the decision on."""
    policy, methods = way.gated("transformer.h.*")
    train = governed(directory, gpt2, BLOCKS, policy, methods=methods)
    train()
    way.profiled_and_opened(directory / "runs/own/mine")
    assert explorer.replay(directory / "runs/own/mine", train).equal


def test_examples_are_chosen_by_their_own_loss(directory: Path) -> None:
    """A Trainer has the mean of a batch; what ranks or chooses rows gets the loss of each, and the choice replays."""
    policy = way.ranked("transformer.h.0.*")
    train = governed(directory, gpt2, BLOCKS, policy, methods=[GovernedSelectiveBackprop(start=0.0)])
    trainer = train()
    ledger = RunLedger(directory / "runs/own/mine")
    chosen = {placed.entry.rule for placed in ledger.read(ledger.outline.decisions, Decision)}
    assert "by-example" in chosen and len(chosen) == 2
    assert explorer.replay(directory / "runs/own/mine", train).equal
    losses, inputs = Losses(trainer), rows_of(BLOCKS).inputs
    with torch.no_grad():
        model = trainer.model.eval()
        each, mean = losses.each(model, inputs, inputs), losses(model, inputs, inputs)
    assert len(set(each.tolist())) == len(BLOCKS) and len(set(mean.tolist())) == 1
    assert float(each.mean()) == pytest.approx(float(mean[0]), rel=1e-5)


@pytest.mark.parametrize(
    ("level", "policy"), [("G2", own.sealed("bert.encoder.layer.1.attention.*", "classifier")), ("G3", way.OPEN)]
)
def test_from_the_trainer_to_the_gate(
    level: str, policy: RoutingPolicy, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Forecast, deletion, certificate, attestation, gate and what is next; G3 by the function that trains."""
    train = governed(directory, bert, TEXTS, policy, data_collator=padded)
    train()
    way.to_the_gate(directory, level, train, monkeypatch)


def test_a_trainer_that_broke_off_is_continued(directory: Path) -> None:
    """With the same call: what is on record is made again and compared, and the ledger gets its end."""

    class Crash(transformers.TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            if state.global_step == 5:
                raise KeyboardInterrupt

    train = governed(directory, gpt2, BLOCKS)
    with pytest.raises(KeyboardInterrupt):
        governed(directory, gpt2, BLOCKS, callbacks=[Crash()], papers=directory / "governed")()
    assert RunLedger(directory / "runs/own/mine").outline.end is None
    train()
    assert RunLedger(directory / "runs/own/mine").outline.end is not None
    assert explorer.replay(directory / "runs/own/mine", train).equal


class Normalised(torch.optim.SGD):
    """One length for all gradients."""

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        parameters = [p for group in self.param_groups for p in group["params"] if p.grad is not None]
        length = torch.stack([p.grad.norm() for p in parameters if p.grad is not None]).norm()
        for parameter in parameters:
            parameter.sub_(self.param_groups[0]["lr"] * parameter.grad / length)


def test_an_optimiser_that_couples_tensors_is_refused(directory: Path) -> None:
    model = gpt2()
    train = governed(directory, lambda: model, BLOCKS, optimizers=(Normalised(model.parameters(), lr=0.1), None))
    with pytest.raises(RecipeError, match="Normalised moves a parameter by the gradients of others"):
        train()
    assert not (directory / "runs/own/mine/ledger").exists()


def test_every_argument_that_cannot_be_honoured_is_refused(directory: Path) -> None:
    """Each by its name, before anything is trained; the usual arguments are accepted."""
    usual = vars(arguments(directory)) | {"n_gpu": 0, "world_size": 1}
    values: dict[str, Any] = {
        "gradient_accumulation_steps": 2, "n_gpu": 2, "deepspeed": {"a": 1}, "fsdp": ["full_shard"],
        "train_sampling_strategy": "group_by_length",
    }  # fmt: skip
    for name, (refused, why) in REFUSED.items():
        assert not refused(SimpleNamespace(**usual)) and why
        assert refused(SimpleNamespace(**usual | {name: values.get(name, True)})), name
    train = governed(directory, gpt2, BLOCKS, args=arguments(directory, gradient_accumulation_steps=2))
    with pytest.raises(
        RecipeError, match="gradient_accumulation_steps: found 2 in a governed Trainer: a governed step"
    ):
        train()
    assert not (directory / "runs").exists()


def test_other_datasets_and_checkpoints_are_refused(directory: Path) -> None:
    with pytest.raises(RecipeError, match="train_dataset: found list, expected the examples that were tagged"):
        GovernedTrainer(model=gpt2(), args=arguments(directory), train_dataset=BLOCKS, govern=explorer.govern)
    trainer = GovernedTrainer(
        model=gpt2(), args=arguments(directory), train_dataset=rows_of(BLOCKS), govern=explorer.govern
    )
    with pytest.raises(RecipeError, match="resume_from_checkpoint: found 'out/checkpoint-3': a governed run begins"):
        trainer.train(resume_from_checkpoint="out/checkpoint-3")


def test_a_clipping_of_ones_own_takes_the_place_of_the_trainers(directory: Path) -> None:
    train = governed(directory, gpt2, BLOCKS, methods=[GradientClipping(clipping="adaptive")])
    identity = json.dumps(json.loads((train() and directory / "runs/own/mine/loop.json").read_text())["identity"])
    assert identity.count("gradient_clipping") == 1 and "adaptive" in identity


# --- a run that is reported ---


def reported(directory: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (directory / track.FILE).read_text().splitlines()]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "run").mkdir()
    monkeypatch.setenv(track.PLACE, str(tmp_path / "run"))
    monkeypatch.setattr(track, "_descriptor", None)
    return tmp_path / "run"


def right(predictions: Any) -> dict[str, float]:
    return {"accuracy": float((predictions.predictions.argmax(1) == predictions.label_ids).mean())}


def classifier(directory: Path, **changes: Any) -> Any:
    return transformers.Trainer(
        model=bert(),
        args=arguments(directory, **changes),
        train_dataset=TEXTS,
        eval_dataset=TEXTS[:5],
        data_collator=padded,
        compute_metrics=right,
        callbacks=[ExplorerCallback()],
    )


def test_a_run_is_reported_and_resumed(place: Path) -> None:
    """Losses, evaluations, checkpoints and one end; what resumes from the kept checkpoint ends with the same bits."""
    trainer = classifier(place, eval_strategy="epoch", save_strategy="steps", save_steps=4)
    trainer.train()
    records = reported(place)
    kinds = [record[track.KIND] for record in records]
    assert kinds.count("done") == 1 and kinds[-1] == "done" and kinds.count("checkpoint") == 2
    assert [record["step"] for record in records if "train_loss" in record] == [2, 4, 6]
    assert [record["step"] for record in records if record[track.KIND] == "log" and "accuracy" in record] == [3, 6]
    done = records[-1]
    assert done["steps"] == 6 and done["examples"] == 24 and 0 <= done["accuracy"] <= 1
    timed = [record["seconds"] for record in records if "seconds" in record]
    assert timed == sorted(timed) and timed[0] > 0
    trainer.evaluate()
    assert [record[track.KIND] for record in reported(place)].count("done") == 1
    # --- the same program again, as after a kill in step 5 ---
    again = classifier(place / "again", eval_strategy="epoch", save_strategy="no")
    again.train(resume_from_checkpoint=str(place / "out/checkpoint-4"))
    before, after = trainer.model.state_dict(), again.model.state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert reported(place)[-1]["steps"] == 6


def test_evaluations_and_checkpoints_are_no_training_time(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a clock that goes on by 1 in a step and by 1000 in all else."""
    callback, state = ExplorerCallback(), SimpleNamespace(is_world_process_zero=True, global_step=0, epoch=1.0)
    now, control = [0.0], SimpleNamespace(should_log=False, should_evaluate=False, should_save=False)
    monkeypatch.setattr("explorer.adapters.huggingface.time.perf_counter", lambda: now[0])
    monkeypatch.setattr(track, "checkpoint", lambda path: None)
    args = SimpleNamespace(output_dir="out")
    callback.on_train_begin(args, state, control)
    for step in range(1, 4):
        now[0] += 1
        state.global_step = step
        callback.on_step_end(args, state, control)
        now[0] += 1000
        callback.on_evaluate(args, state, control, metrics={"eval_loss": 1.0, "eval_runtime": 1000.0})
        now[0] += 1000
        callback.on_save(args, state, control)
    callback.on_train_end(args, state, control)
    done = reported(place)[-1]
    assert done[track.KIND] == "done" and done["seconds"] == 3.0 and done["loss"] == 1.0 and "runtime" not in done


def test_a_run_that_is_evaluated_after_its_end(place: Path) -> None:
    trainer = classifier(place)
    trainer.train()
    assert "done" not in [record[track.KIND] for record in reported(place)]
    trainer.evaluate()
    assert [record[track.KIND] for record in reported(place)].count("done") == 1
    assert set(reported(place)[-1]) >= {"accuracy", "loss", "steps", "examples", "seconds"}


def test_a_trainer_that_no_sweep_started_makes_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a notebook: `explorer.begin`, and the callback reports the rest."""
    monkeypatch.delenv(track.PLACE, raising=False)
    run = explorer.begin(explorer.Place(runs=tmp_path / "runs", recipe="small"), metrics=["accuracy"])
    classifier(tmp_path, eval_strategy="epoch").train()
    result = run_files.read(run_files.ResultRecord, run / rundir.RESULT)
    assert result.steps == 6 and 0 <= result.metrics["accuracy"] <= 1


# --- methods where a Trainer has a place for them ---


def test_smoothed_targets_as_a_loss(directory: Path) -> None:
    """`compute_loss_func` with a functional form, governed; it is what `label_smoothing_factor` computes."""

    def loss(outputs: Any, labels: torch.Tensor, num_items_in_batch: Any = None) -> torch.Tensor:
        targets = smooth_labels(F.one_hot(labels, 3).float(), smoothing=0.1)
        return F.cross_entropy(outputs.logits, targets)

    weights = []
    ways: dict[str, dict[str, Any]] = {"one": {"compute_loss_func": loss}, "two": {}}
    for name, how in ways.items():
        args = arguments(directory / name, label_smoothing_factor=0.0 if how else 0.1)
        train = governed(directory / name, bert, TEXTS, data_collator=padded, args=args, **how)
        weights.append(train().model.state_dict())
    assert all(torch.allclose(weights[0][name], weights[1][name], atol=1e-4) for name in weights[0])
    assert not torch.equal(weights[0]["classifier.weight"], bert().state_dict()["classifier.weight"])


def joined(model: nn.Module) -> Together:
    """Muon for the matrices of a GPT-2, and AdamW for the rest."""
    hidden = hidden_matrices(model, head={"transformer.wte.weight"})
    rest = [parameter for name, parameter in model.named_parameters() if name not in hidden]
    return Together(MuonOptimizer(matrix_groups(model, hidden)), torch.optim.AdamW(rest, lr=1e-3))


def test_optimisers_together_are_what_they_are_apart() -> None:
    """With rates that a schedule changes, and with state that was saved and loaded."""
    one, other = gpt2(), gpt2()
    together = joined(one)
    apart = joined(other).parts
    schedules = [torch.optim.lr_scheduler.LinearLR(optimizer, total_iters=6) for optimizer in (together, *apart)]
    for step in range(6):
        if step == 3:
            saved, together = together.state_dict(), joined(one)
            together.load_state_dict(saved)
            schedules[0].optimizer = together
        for model, optimizers in ((one, (together,)), (other, apart)):
            draws = torch.Generator().manual_seed(step)
            for parameter in model.parameters():
                parameter.grad = torch.randn(parameter.shape, generator=draws)
            for optimizer in optimizers:
                optimizer.step()
        for schedule in schedules:
            schedule.step()
    assert all(torch.equal(left, right) for left, right in zip(one.parameters(), other.parameters(), strict=True))
    assert sorted(group["lr"] for group in together.param_groups)[-1] == pytest.approx(0.02)


def test_muon_trains_in_a_governed_trainer(directory: Path) -> None:
    """As any optimiser that a Trainer takes, and the run is replayed."""
    model: list[nn.Module] = []

    def fresh() -> nn.Module:
        model[:] = [gpt2()]
        return model[0]

    examples = rows_of(BLOCKS)
    documents = own.papers(directory / "governed", examples)

    def train(govern: Any = explorer.govern) -> None:
        GovernedTrainer(
            model=fresh(),
            args=arguments(directory),
            train_dataset=examples,
            optimizers=(joined(model[0]), None),
            govern=partial(govern, documents=documents, policy="usual", ledger=directory / "runs/own/mine"),
        ).train()

    train()
    assert explorer.replay(directory / "runs/own/mine", train).equal
    before, after = gpt2().state_dict(), model[0].state_dict()
    assert not torch.equal(before["transformer.h.0.attn.c_attn.weight"], after["transformer.h.0.attn.c_attn.weight"])
