"""`explorer.govern` from signed documents to a ledger that verifies."""

import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import explorer
from explorer.audit.conform import Conformance, conform
from explorer.audit.contents import examine_contents
from explorer.entries.kinds import Genesis, decode
from explorer.errors import ProvenanceError, RecipeError, TrainingError
from explorer.ledger.storage import LedgerDirectory, read_blob
from explorer.provenance.commitments import destroy_salt
from explorer.provenance.envelope import write_envelope
from explorer.provenance.policy import POLICY, Rule
from explorer.runlog.run_ledger import RunLedger
from tests.data_for_tests import noise
from tests.governance import desk, writers
from tests.provenance.people import RISK

STEPS = 6


def net() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 12))


def losses(model: nn.Module, inputs: Tensor, labels: Tensor) -> Tensor:
    return F.cross_entropy(model(inputs.float() / 255), labels, reduction="none")


@pytest.fixture
def papers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("explorer.training.govern.time.time", lambda: desk.NOW)
    return desk.make(tmp_path / "papers")


def governed(papers: Path, run: Path, model: nn.Module | None = None, **changes: object) -> explorer.Governed:
    model = model or net()
    chosen = {"policy": "usual", "steps": STEPS, "every": 4, **changes}
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    return explorer.govern(model, optimizer, examples=desk.SPLIT, documents=papers, ledger=run, **chosen)  # pyright: ignore


def test_a_loop_of_ones_own_leaves_a_ledger(papers: Path, tmp_path: Path) -> None:
    run = tmp_path / "mine"
    with governed(papers, run) as loop:
        for step in range(STEPS):
            loop.step(np.arange(step, step + 6), losses)
        loop.metrics["nll"] = 1.5
    found = examine_contents(LedgerDirectory(run / "ledger"))
    assert found.fault is None and found.blobs.missing == 0
    assert found.order is not None and found.order.steps == STEPS and found.order.finished
    assert LedgerDirectory(run / "ledger").checkpoint().origin == "example.com/trainer/mine"
    assert sorted(path.name for path in (run / "contributions").iterdir()) == [
        "segment-00000000.parquet",
        "segment-00000004.parquet",
    ]


def test_a_loop_that_breaks_off_has_no_end(papers: Path, tmp_path: Path) -> None:
    with pytest.raises(TrainingError), governed(papers, tmp_path / "mine") as loop:
        loop.step(np.arange(6), losses)
        loop.step(np.array([99]), losses)
    order = examine_contents(LedgerDirectory(tmp_path / "mine" / "ledger")).order
    assert order is not None and not order.finished


def test_one_that_stops_early_says_so(papers: Path, tmp_path: Path) -> None:
    with governed(papers, tmp_path / "mine") as loop:
        loop.step(np.arange(6), losses)
    order = examine_contents(LedgerDirectory(tmp_path / "mine" / "ledger")).order
    assert order is not None and order.finished and order.steps == 1
    leaf = list(LedgerDirectory(tmp_path / "mine" / "ledger").entries())[-1]
    assert b'"outcome":"stopped"' in leaf


def test_what_is_not_admitted_learns_nothing(papers: Path, tmp_path: Path) -> None:
    """`licensed/news` is denied everywhere: its rows could be anything."""
    found = []
    for blank in (False, True):
        model = net()

        def with_rows(model: nn.Module, inputs: Tensor, labels: Tensor, blank: bool = blank) -> Tensor:
            assert not blank or not (labels % 3 == 2).any(), "denied rows are not even handed over"
            return losses(model, inputs, labels)

        with governed(papers, tmp_path / f"mine-{blank}", model) as loop:
            for _ in range(3):
                loop.step(np.arange(12), with_rows)
        found.append(model.state_dict())
    assert all(torch.equal(found[0][name], found[1][name]) for name in found[0])


def test_what_is_refused(papers: Path, tmp_path: Path) -> None:
    with pytest.raises(ProvenanceError, match="unknown policy 'usal'; did you mean 'usual'"):
        governed(papers, tmp_path / "mine", policy="usal")
    with pytest.raises(RecipeError, match="expected a directory named in letters"):
        governed(papers, tmp_path / "my run")
    with governed(papers, tmp_path / "mine") as loop:
        loop.step(np.arange(6), losses)
    with pytest.raises(RecipeError, match="there is one already"):
        governed(papers, tmp_path / "mine")
    desk.tag(papers, ["open"] * 12)
    with pytest.raises(ProvenanceError, match="not the file that was signed"):
        governed(papers, tmp_path / "other")


def test_the_ledger_says_which_examples_are_in_quarantine(papers: Path, tmp_path: Path) -> None:
    destroy_salt(papers / "salts", 3)
    with pytest.raises(ProvenanceError, match=r"slot 3 .*its salt was destroyed"):
        governed(papers, tmp_path / "refused")
    with governed(papers, tmp_path / "mine", policy="lenient") as loop:
        loop.step(np.arange(6), losses)
    ledger = LedgerDirectory(tmp_path / "mine" / "ledger")
    genesis = decode(next(ledger.entries(0, 1)))
    assert isinstance(genesis, Genesis)
    content = read_blob(tmp_path / "mine" / "ledger", genesis.blobs["quarantine"].sha256)
    assert json.loads(content) == {"erased": [3]}
    assert examine_contents(ledger).blobs.missing == 0


@pytest.mark.parametrize("at", [0, 2], ids=["before the first step", "between steps"])
@pytest.mark.parametrize("frozen", [False, True], ids=["frozen later", "opened later"])
def test_requires_grad_that_is_switched_later_stops_the_run(
    at: int, frozen: bool, papers: Path, tmp_path: Path
) -> None:
    """It would have no effect: a share's own set of parameters decides what has a gradient."""
    model = net()
    model.get_parameter("1.weight").requires_grad_(not frozen)
    with (
        pytest.raises(
            TrainingError, match=rf"1\.weight: found requires_grad={frozen} before step {at + 1}; what trains"
        ),
        governed(papers, tmp_path / "mine", model) as loop,
    ):
        for step in range(STEPS):
            if step == at:
                model.get_parameter("1.weight").requires_grad_(frozen)
            loop.step(np.arange(6), losses)


def test_a_parameter_that_is_added_or_exchanged_later_stops_the_run(papers: Path, tmp_path: Path) -> None:
    """It would be in no optimiser and in no guard."""
    for name, change in {
        "new": lambda model: model.register_parameter("new", nn.Parameter(torch.zeros(1))),
        "3.weight": lambda model: model.load_state_dict(net().state_dict(), assign=True),
    }.items():
        model = net()
        with (
            pytest.raises(
                TrainingError, match=r"(1\.weight|new): found a parameter in step 2 that the model did not have"
            ),
            governed(papers, tmp_path / name, model) as loop,
        ):
            loop.step(np.arange(6), losses)
            change(model)
            loop.step(np.arange(6), losses)


def test_a_model_without_shapes_is_refused(papers: Path, tmp_path: Path) -> None:
    model = nn.Sequential(nn.Flatten(), nn.LazyLinear(6))
    with pytest.raises(RecipeError, match=r"model: 1\.weight has no shape yet: call the model once"):
        governed(papers, tmp_path / "mine", model)


def test_what_the_optimiser_lacks_needs_no_switch(papers: Path, tmp_path: Path) -> None:
    model = net()
    optimizer = torch.optim.SGD([model.get_parameter("3.weight")], lr=0.1)
    run = tmp_path / "mine"
    with explorer.govern(
        model, optimizer, examples=desk.SPLIT, documents=papers, policy="usual", ledger=run, steps=2
    ) as loop:
        for _ in range(2):
            loop.step(np.arange(6), losses)


# Models that write to themselves, and what the ledger and conform make of them

IMAGES = noise(train=12).train
UPPER = (Rule(classes=("licensed",), layers=("head",), weight=1.0), Rule(classes=("open",), weight=1.0))


def of_images(model: nn.Module, inputs: Tensor, labels: Tensor) -> Tensor:
    return F.cross_entropy(model(inputs / 255), labels, reduction="none")


@pytest.fixture
def image_papers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """`licensed/news` may train only the head."""
    monkeypatch.setattr("explorer.training.govern.time.time", lambda: desk.NOW)
    made = desk.make(tmp_path / "papers", split=IMAGES)
    policy = desk.document(desk.policy(name="upper", rules=UPPER), POLICY, RISK)
    write_envelope(made / "policies" / "upper.json", policy)
    return made


def trained(papers: Path, run: Path, model: nn.Module, *, after: Callable[[int], object] = lambda step: None) -> None:
    """Four steps with only `licensed/news`, in two segments."""
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1, momentum=0.9)
    with explorer.govern(
        model.train(), optimizer, examples=IMAGES, documents=papers, policy="upper", ledger=run, steps=4, every=2
    ) as loop:
        for step in range(4):
            loop.step([index for index, path in enumerate(desk.classes_of()) if path == "licensed/news"], of_images)
            after(step)


def judged(run: Path) -> Conformance:
    return conform(RunLedger(run), trust=desk.TRUST, now=desk.NOW)


@pytest.mark.parametrize("name", [*writers.PUT_BACK, *writers.UNTOUCHED])
def test_a_model_that_writes_to_itself_is_put_back_and_conforms(name: str, image_papers: Path, tmp_path: Path) -> None:
    trained(image_papers, tmp_path / "mine", (writers.PUT_BACK | writers.UNTOUCHED)[name]())
    found = judged(tmp_path / "mine")
    assert found.conforms, [each for condition in found.conditions for each in condition.contradictions]
    assert found.conditions[0].checked["states compared"] == 2


@pytest.mark.parametrize("name", writers.STOPPED)
def test_one_that_writes_to_its_parameters_leaves_nothing_on_record(
    name: str, image_papers: Path, tmp_path: Path
) -> None:
    with pytest.raises(TrainingError, match=r"^first\."):
        trained(image_papers, tmp_path / "mine", writers.STOPPED[name]())
    assert LedgerDirectory(tmp_path / "mine" / "ledger").checkpoint().size == 0, "nothing of the segment is written"


def test_what_moves_between_the_steps_without_an_update_stops_the_run(image_papers: Path, tmp_path: Path) -> None:
    model = writers.net(writers.First)

    def meddle(step: int) -> None:
        if step == 2:
            model.get_parameter("first.weight").data.add_(1)

    message = r"first\.weight is another than before, and none of the steps 2 to 3 updated first"
    with pytest.raises(TrainingError, match=message):
        trained(image_papers, tmp_path / "mine", model, after=meddle)
    found = judged(tmp_path / "mine")
    assert not found.conforms and found.badge.outcome == "unfinished" and found.badge.steps == 2


def test_weights_that_are_exchanged_for_a_while_between_steps_are_no_movement(
    image_papers: Path, tmp_path: Path
) -> None:
    """As an evaluation with averaged weights does it: what counts is what they are, not that they were written to."""
    model = writers.net(writers.First)

    def evaluate(_: int) -> None:
        kept = {name: tensor.clone() for name, tensor in model.state_dict().items()}
        model.load_state_dict({name: torch.zeros_like(tensor) for name, tensor in kept.items()})
        model.load_state_dict(kept)

    trained(image_papers, tmp_path / "mine", model, after=evaluate)
    assert judged(tmp_path / "mine").conforms


def test_an_error_that_is_caught_ends_no_ledger(image_papers: Path, tmp_path: Path) -> None:
    """A block that continues after a violation still gets no end."""
    model = writers.STOPPED["max_norm"]()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with (
        pytest.raises(TrainingError, match="its ledger has no end"),
        explorer.govern(
            model, optimizer, examples=IMAGES, documents=image_papers, policy="upper", ledger=tmp_path / "mine", steps=2
        ) as loop,
        suppress(TrainingError),
    ):
        loop.step([2, 5], of_images)
    assert LedgerDirectory(tmp_path / "mine" / "ledger").checkpoint().size == 0
