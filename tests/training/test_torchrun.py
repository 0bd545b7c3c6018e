"""Governed runs of several ranks: one ledger whatever their number, lost ranks, and other ranks that finish a run."""

import contextlib
import logging
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from explorer import run_files, rundir
from explorer.engine.checkpoint import checkpoints
from explorer.entries.kinds import Decision, Genesis, Lanes, decode
from explorer.errors import DivergedError, RecipeError, RunError
from explorer.provenance.commitments import new_salts, write_salts
from explorer.provenance.envelope import write_envelope
from explorer.provenance.policy import POLICY, Rule
from explorer.provenance.regions import SealedRegion
from explorer.run_files import ResultRecord
from explorer.runlog.documents import keep
from explorer.runlog.run_ledger import RunLedger
from explorer.runlog.target import Target
from explorer.training import run as training
from explorer.training.deletion import delete
from explorer.training.replay import replay
from explorer.training.run import execute
from explorer.training.run_plan import plan_run
from tests.governance import desk
from tests.provenance.people import RISK
from tests.recipes_for_tests import tiny_recipe, tiny_run, write_run
from tests.training.changed_ranks import change_ranks
from tests.training.deletions import route
from tests.training.recorded_runs import copied, documents_for_digits, entries_of, recorded_run

LANES, EVERY = 4, 3
MIT = Target(classes=("open/mit",))
POLICY_OF = desk.policy(
    name="sealed",
    rules=(
        Rule(classes=("licensed",), progress=(0.0, 0.5), weight=0.0),
        Rule(classes=("open/mit",), depth=(0.0, 0.3), weight=0.0),
        Rule(classes=("*",), weight=1.0),
    ),
    sealed=(SealedRegion(name="own", branch="licensed", layers=("*",), rank=2),),
)
METHODS = (
    {"routing": {"policy": "sealed"}},
    {"contributions": {"exact": ["*"]}},
    {"entropy": {"probes": 4, "profiles": 2, "permutations": 9}},
    {"recorder": {"every": EVERY}},
    {"ema": {"half_life": 0.2}},
    {"gradient_clipping": {"threshold": 0.1}},
)


class Bench:
    """Documents, and the runs that they govern. All runs have the same secrets, so that their entries are equal."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.author = documents_for_digits(root)
        write_envelope(self.author / "policies" / "sealed.json", desk.document(POLICY_OF, POLICY, RISK))
        self._secrets = new_salts(len(desk.CLASSES) + 1)

    def planned(self, name: str, *, ranks: int = 1, epochs: float = 0.5) -> Path:
        documents = desk.read(self.author, "sealed")
        optimizer = {"sgd": {"lr": 0.05, "momentum": 0.9}}
        recipe = tiny_recipe(METHODS, optimizer=optimizer, lanes=LANES, ranks=ranks, epochs=epochs)
        chosen: dict[str, Any] = {"sweep": "test", "baseline": "tiny", "tuning": None, "ssr": 1.0, "seed": 0}
        record = plan_run(recipe, threads=1, data=None, documents=documents, **chosen)
        run = write_run(self.root / name, record)
        keep(documents, run)
        (run / rundir.SECRETS).parent.mkdir(mode=0o700, exist_ok=True)
        write_salts(run / rundir.SECRETS, self._secrets)
        return run


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    return Bench(tmp_path_factory.mktemp("ranks"))


@pytest.fixture(scope="module")
def single(bench: Bench) -> Path:
    run = bench.planned("single")
    execute(run)
    return run


def digest_in(run: Path) -> str:
    return run_files.read(ResultRecord, run / rundir.RESULT).state_digest


def ranks_decided(run: Path) -> list[tuple[int, dict[str, float]]]:
    decided = [decode(leaf) for leaf in entries_of(run) if b'"action":"ranks"' in leaf]
    return [
        (entry.step, {name: float.fromhex(value) for name, value in entry.parameters.items()})
        for entry in decided
        if isinstance(entry, Decision)
    ]


# --- one ledger ---


@pytest.mark.slow
def test_two_ranks_write_the_ledger_of_one(bench: Bench, single: Path) -> None:
    together = bench.planned("two", ranks=2)
    result = execute(together)
    assert result.state_digest == digest_in(single)
    one, two = entries_of(single), entries_of(together)
    assert one[1:] == two[1:] and len(one) > 12
    first = decode(two[0])
    assert isinstance(first, Genesis) and first.lanes == Lanes(count=LANES, ranks=(0, 2))
    assert replay(together).equal  # by one process
    assert replay(together).environment == ()


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [3, 4])
def test_more_ranks_write_it_too(bench: Bench, single: Path, ranks: int) -> None:
    together = bench.planned(f"{ranks} ranks", ranks=ranks)
    assert execute(together).state_digest == digest_in(single)
    assert entries_of(together)[1:] == entries_of(single)[1:]


@pytest.mark.slow
def test_the_ledger_of_a_run_of_one_lane_says_nothing_about_lanes(tmp_path: Path, single: Path) -> None:
    assert b"lanes" not in entries_of(recorded_run(tmp_path))[0]
    assert b"lanes" in entries_of(single)[0]


# --- another number of ranks ---


@contextlib.contextmanager
def stopped_after(step: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[int, int], None]]:
    """Stop the run of this process after so many steps, as a signal would."""
    done = [0]

    @contextlib.contextmanager
    def signals() -> Iterator[Callable[[], bool]]:
        yield lambda: done[0] >= step - 1  # asked before progress is shown

    with monkeypatch.context() as patched:
        patched.setattr(training, "stop_signals", signals)
        yield lambda steps, _: done.__setitem__(0, steps)


@pytest.mark.slow
def test_other_ranks_finish_a_run_to_the_same_bits(bench: Bench, single: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = bench.planned("begun by one")
    with stopped_after(2 * EVERY, monkeypatch) as progress, pytest.raises(KeyboardInterrupt):
        execute(run, on_progress=progress)
    assert checkpoints(run / rundir.CHECKPOINT)
    result = execute(run, ranks=2)
    assert result.resumed == 1 and result.contended  # its times are not those of the planned machine
    assert result.state_digest == digest_in(single)
    assert ranks_decided(run) == [(2 * EVERY, {"before": 1, "ranks": 2})]
    mine = [leaf for leaf in entries_of(run) if b'"action":"ranks"' not in leaf]
    assert mine == entries_of(single)
    assert replay(run).equal
    assert RunLedger(run).steps == RunLedger(single).steps


@pytest.mark.slow
def test_a_deletion_by_replay_is_made_by_any_number_of_ranks(bench: Bench, single: Path, tmp_path: Path) -> None:
    old = copied(single, tmp_path)
    way = route(old, MIT)
    assert way.level == "G3"
    one, two = (delete(old, MIT, route=way, to=tmp_path / str(ranks), ranks=ranks) for ranks in (1, 2))
    assert digest_in(one) == digest_in(two) != digest_in(old)
    assert [numbers for _, numbers in ranks_decided(two)] == [{"before": 1, "ranks": 2}]
    assert replay(two).equal


# --- ranks that end ---


def ranks_of_this() -> dict[int, psutil.Process]:
    """The ranks below this process, by number."""
    found = dict[int, psutil.Process]()
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            words = process.cmdline()
            if "explorer.training.rank_process" in words and "rank" in words:
                found[int(process.environ()["RANK"])] = process
    return found


@pytest.mark.slow
def test_a_lost_rank_stops_the_run_and_fewer_finish_it(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    often = 'import explorer.engine.fit as fit\nfit.FitOptions.__init__.__kwdefaults__["checkpoint_seconds"] = 0.5'
    change_ranks(tmp_path, monkeypatch, often)
    whole, lost = bench.planned("whole", epochs=10), bench.planned("lost", ranks=3, epochs=10)
    killed: list[float] = []

    def kill(done: int, total: int) -> None:
        if not killed and checkpoints(lost / rundir.CHECKPOINT):
            killed.append(time.monotonic())
            ranks_of_this()[1].send_signal(signal.SIGKILL)

    with pytest.raises(RunError, match=r"rank 1 of 3 was lost: its process was killed.*to the same bits"):
        execute(lost, on_progress=kill)
    assert time.monotonic() - killed[0] < 30
    assert ranks_of_this() == {}
    assert not (lost / rundir.RESULT).exists()
    result = execute(lost, ranks=2)
    assert result.resumed == 1
    execute(whole)
    assert result.state_digest == digest_in(whole)
    assert [numbers for _, numbers in ranks_decided(lost)] == [{"before": 3, "ranks": 2}]
    mine = [leaf for leaf in entries_of(lost) if b'"action":"ranks"' not in leaf]
    assert mine[1:] == entries_of(whole)[1:]


@pytest.mark.slow
def test_a_signal_stops_all_ranks_after_a_step(tmp_path: Path) -> None:
    run = write_run(tmp_path, tiny_run(tiny_recipe(lanes=2, ranks=2, epochs=200)))
    with pytest.raises(KeyboardInterrupt):
        execute(run, on_progress=lambda done, total: os.kill(os.getpid(), signal.SIGTERM))
    assert checkpoints(run / rundir.CHECKPOINT) and not (run / rundir.RESULT).exists()
    assert ranks_of_this() == {}


@pytest.mark.slow
def test_ranks_that_diverge_say_so_as_one_process_does(tmp_path: Path) -> None:
    recipe = tiny_recipe(lanes=2, ranks=2, optimizer={"sgd": {"lr": 100.0, "weight_decay": 1.0}}, epochs=20)
    run = write_run(tmp_path, tiny_run(recipe))
    with pytest.raises(DivergedError, match=r"training diverged: the loss is \w+ at step \d+"):
        execute(run)
    assert (run / rundir.FAILURE).exists()


@pytest.mark.slow
def test_a_rank_with_other_bits_stops_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The control of the comparison at the end: rank 1 begins with another state."""
    change_ranks(
        tmp_path,
        monkeypatch,
        "import explorer.engine.loop as loop\n"
        "aligned = loop.Loop.align\n"
        "def align(self):\n"
        "    aligned(self)\n"
        "    next(iter(self.setting.model.parameters())).data.add_(1e-3)\n"
        "loop.Loop.align = align",
        only=1,
    )
    run = write_run(tmp_path, tiny_run(tiny_recipe(lanes=2, ranks=2)))
    with pytest.raises(RunError, match="rank 1 ended with other bits than rank 0"):
        execute(run)


@pytest.mark.slow
def test_a_defect_in_a_rank_keeps_its_traceback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    change_ranks(
        tmp_path, monkeypatch, "import explorer.engine.loop as loop\nloop.Loop.step = lambda self: 1 / 0", only=1
    )
    run = write_run(tmp_path, tiny_run(tiny_recipe(lanes=2, ranks=2)))
    with caplog.at_level(logging.ERROR), pytest.raises(RunError, match="rank 1 of 2 failed: ZeroDivisionError"):
        execute(run)
    assert "Traceback" in caplog.text


@pytest.mark.parametrize("ranks", [0, 3, -1])
def test_a_number_of_ranks_that_no_lanes_are_for_is_refused(tmp_path: Path, ranks: int) -> None:
    run = write_run(tmp_path, tiny_run(tiny_recipe(lanes=2)))
    with pytest.raises(RunError, match=f"ranks: found {ranks}, expected 1 to 2, for the recipe has 'lanes: 2'"):
        execute(run, ranks=ranks)


def test_a_method_that_chooses_within_a_class_needs_one_lane() -> None:
    with pytest.raises(RecipeError, match="expected one, since choices are recorded"):
        tiny_run(tiny_recipe(["governed_selective_backprop"], lanes=2))
