"""Lanes: who passes which, and one sum for any number of ranks."""

import queue
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from explorer.engine.lanes import Lanes, Parcel, Results, Statistics, blocks, left_part, merges
from explorer.engine.ranks import Ranks
from explorer.engine.state import Share
from explorer.errors import TrainingError
from tests.data_for_tests import noise, noise_batches, typed

COUNTS = (1, 2, 3, 4, 6, 7, 8, 13)


class Threads:
    """Exchange between ranks that are threads of this process."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.sent = 0
        self._mail: dict[tuple[int, int], queue.Queue[Tensor]] = defaultdict(queue.Queue)

    def of(self, rank: int) -> "Seat":
        return Seat(self, rank)

    def send(self, source: int, target: int, content: Tensor) -> None:
        self.sent += 1
        self._mail[source, target].put(content.clone())

    def receive(self, source: int, target: int) -> Tensor:
        return self._mail[source, target].get(timeout=600)


class Seat:
    def __init__(self, threads: Threads, rank: int) -> None:
        self.rank, self.size, self._threads = rank, threads.size, threads

    def swap(self, mine: Tensor, *, source: int, targets: tuple[int, ...]) -> Tensor:
        for target in targets:
            self._threads.send(self.rank, target, mine)
        return self._threads.receive(source, self.rank)


def numbers(lane: int) -> Results:
    """Numbers whose sum depends on the order of the additions; one is absent in some lanes."""
    draws = torch.Generator().manual_seed(lane)
    scale = 10.0 ** (lane % 5)
    results = {"weight": torch.randn(5, 3, generator=draws) * scale, "steps": torch.tensor(lane)}
    return results | ({"bias": torch.randn(7, generator=draws, dtype=torch.float64)} if lane % 3 else {})


LIKE = {"weight": torch.empty(5, 3), "steps": torch.tensor(0), "bias": torch.empty(7, dtype=torch.float64)}


def totals(lanes: int, ranks: int, *, without: frozenset[int] = frozenset()) -> list[Results]:
    """The total on each rank."""
    return together(lanes, ranks, lambda lane: None if lane in without else numbers(lane), LIKE)


def together(lanes: int, ranks: int, results_of: Callable[[int], Results | None], like: Results) -> list[Results]:
    threads = Threads(ranks)
    with ThreadPoolExecutor(ranks) as pool:
        made = [pool.submit(Lanes(lanes, threads.of(rank)).total, results_of, like) for rank in range(ranks)]
        return [future.result() for future in made]


@pytest.mark.parametrize("lanes", COUNTS)
def test_ranks_share_the_lanes_out_in_whole_subtrees(lanes: int) -> None:
    for ranks in range(1, lanes + 1):
        parts = blocks(lanes, ranks)
        assert [lane for part in parts for lane in part] == list(range(lanes))
        subtrees = set[tuple[int, int]]()

        def collect(part: range) -> None:
            subtrees.add((part.start, part.stop))  # noqa: B023
            if len(part) > 1:
                middle = left_part(part)
                collect(range(part.start, middle))
                collect(range(middle, part.stop))

        collect(range(lanes))
        assert {(part.start, part.stop) for part in parts} <= subtrees


def test_three_ranks_take_two_two_and_four_of_eight_lanes() -> None:
    assert [len(part) for part in blocks(8, 3)] == [2, 2, 4]
    assert [len(part) for part in blocks(8, 5)] == [1, 1, 2, 2, 2]


@pytest.mark.parametrize("lanes", COUNTS)
def test_every_message_is_expected(lanes: int) -> None:
    for ranks in range(1, lanes + 1):
        ways = [merges(lanes, rank=rank, ranks=ranks) for rank in range(ranks)]
        sent = sorted((rank, target) for rank, way in enumerate(ways) for merge in way for target in merge.targets)
        assert sent == sorted((merge.source, rank) for rank, way in enumerate(ways) for merge in way)


@pytest.mark.parametrize("lanes", COUNTS)
@pytest.mark.parametrize("without", [(), (0,), (1, 2), (0, 1, 2, 3)], ids=str)
def test_the_sum_is_the_same_on_every_rank_of_any_number(lanes: int, without: tuple[int, ...]) -> None:
    gone = frozenset(without) & frozenset(range(lanes))
    (expected,) = totals(lanes, 1, without=gone)
    for ranks in range(2, lanes + 1):
        for total in totals(lanes, ranks, without=gone):
            assert total.keys() == expected.keys()
            assert all(torch.equal(total[name], expected[name]) for name in expected)


def test_a_sum_in_another_order_has_other_bits() -> None:
    """The control: additions in the order of the lanes are not those of the tree."""
    (tree,) = totals(8, 1)
    plain = numbers(0)["weight"]
    for lane in range(1, 8):
        plain = plain + numbers(lane)["weight"]
    assert not torch.equal(plain, tree["weight"]) and torch.allclose(plain, tree["weight"])


def test_values_that_are_not_numbers_arrive_on_every_rank() -> None:
    values = {0: torch.tensor([torch.nan, torch.inf, -0.0]), 1: torch.tensor([1.0, -torch.inf, -0.0])}
    for total in together(2, 2, lambda lane: {"a": values[lane]}, {"a": torch.empty(3)}):
        assert total["a"][:2].isnan().all() and torch.signbit(total["a"][2])


def test_nothing_is_read_from_the_device() -> None:
    """A tensor without values, in place of one on a GPU: reading it is an error."""
    like = {"a": torch.empty(3, device="meta"), "b": torch.empty(2, device="meta")}
    parcel = Parcel(like)
    row = parcel.pack({"a": like["a"]})
    taken = parcel.unpack(row, parcel.flags({"a": like["a"]}))
    assert taken.keys() == {"a"} and taken["a"].is_meta
    with pytest.raises((NotImplementedError, RuntimeError), match="meta"):
        row.tolist()


def test_slots_of_a_class_are_dealt_out_in_turn() -> None:
    """Whatever their numbers: even ones, as of every other class in a batch, are in all lanes."""
    slots = np.array([0, 2, 4, 6, 8])
    share = Share(name="a", code=0, slots=slots, parameters=frozenset({"w"}), buffers=frozenset(), dealt=slots)
    cells = Lanes(4, Ranks()).cells(share)
    assert {lane: cell.slots.tolist() for lane, cell in cells.items()} == {0: [0, 8], 1: [2], 2: [4], 3: [6]}
    left_out = Lanes(4, Ranks()).cells(replace(share, slots=np.array([4, 8])))  # the others stay in their lanes
    assert {lane: cell.slots.tolist() for lane, cell in left_out.items()} == {0: [8], 2: [4]}
    next_class = Lanes(4, Ranks()).cells(replace(share, code=1))
    assert {lane: cell.slots.tolist() for lane, cell in next_class.items()} == {0: [6], 1: [0, 8], 2: [2], 3: [4]}
    assert all(cell.lane == lane and cell.parameters == share.parameters for lane, cell in cells.items())
    assert Lanes(1, Ranks()).cells(share) == {0: share} and share.lane is None


@pytest.mark.parametrize("classes", [2, 4, 8])
def test_every_lane_has_its_part_of_every_class_of_a_batch(classes: int) -> None:
    """So that no rank waits for another. The control: by the number of the slot a class lies in one lane."""
    batches = noise_batches(noise(train=64), batch_size=32, typing=typed(train=64, classes=classes))
    lanes = Lanes(2, Ranks())
    for code, slots in batches.shares(0):
        share = Share(name="a", code=code, slots=slots, parameters=frozenset(), buffers=frozenset(), dealt=slots)
        assert [len(cell.slots) for cell in lanes.cells(share).values()] == [16 // classes] * 2
        assert len(set(slots % 2)) == 1


# --- running statistics ---


def everything(model: nn.Module) -> Share:
    names = frozenset(name for name, _ in model.named_buffers())
    return Share(name="", code=0, slots=np.arange(12), parameters=frozenset(), buffers=names)


def test_running_statistics_become_the_mean_of_what_the_lanes_left() -> None:
    norm = nn.BatchNorm1d(3)
    rows = torch.randn(12, 3)
    parts = {0: rows[:4], 1: rows[4:12]}
    merging = Statistics(norm).of(everything(norm))

    def results_of(lane: int) -> Results:
        merging.restart()
        norm(parts[lane])
        return merging.results(len(parts[lane]))

    merging.write(Lanes(2, Ranks()).total(results_of, merging.like), rows=12)
    means = (parts[0].mean(0) * 4 + parts[1].mean(0) * 8) / 12
    torch.testing.assert_close(norm.running_mean, 0.1 * means)
    variances = (parts[0].var(0) * 4 + parts[1].var(0) * 8) / 12
    torch.testing.assert_close(norm.running_var, 0.9 + 0.1 * variances)
    assert norm.num_batches_tracked is not None and norm.num_batches_tracked.item() == 1


def test_statistics_that_a_share_may_not_change_are_not_merged() -> None:
    norm = nn.BatchNorm1d(3)
    share = Share(name="", code=0, slots=np.arange(4), parameters=frozenset(), buffers=frozenset())
    assert Statistics(norm).of(share).like == {}


class Counting(nn.Module):
    seen: Tensor

    def __init__(self, *, replaced: bool) -> None:
        super().__init__()
        self.register_buffer("seen", torch.zeros(()))
        self.replaced = replaced

    def forward(self, rows: Tensor) -> Tensor:
        if self.replaced:
            self.seen = self.seen + len(rows)
        else:
            self.seen.add_(len(rows))
        return rows


@pytest.mark.parametrize("replaced", [False, True])
def test_another_buffer_that_passes_write_to_is_refused(replaced: bool) -> None:
    model = nn.Sequential(Counting(replaced=replaced))
    merging = Statistics(model).of(everything(model))
    merging.restart()
    assert merging.results(4) == {}  # nothing was written so far
    model(torch.zeros(4, 1))
    with pytest.raises(TrainingError, match=r"0\.seen \(Counting\) was written to in a forward pass.*lanes: 1"):
        merging.results(4)


def test_the_largest_subtree_is_halved_first() -> None:
    for lanes in COUNTS:
        for fewer, more in pairwise(range(1, lanes + 1)):
            assert max(map(len, blocks(lanes, more))) <= max(map(len, blocks(lanes, fewer)))
