"""The order of the data, the way of an image into a batch, and partners, against loops in numpy."""

from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from explorer.data.batches import IGNORED, Batch, Order, check_labels, dense, draw_partners
from explorer.data.dataset import Blocks
from explorer.data.streams import stream
from explorer.errors import DataError
from tests.data_for_tests import noise, noise_batches

# --- order -----------------------------------------------------------------------------------------------------------

COUNTS = {0: 3, 4: 17, 9: 40, 12: 1}


def codes(counts: dict[int, int] = COUNTS) -> np.ndarray:
    """Classes in a fixed mixture."""
    listed = np.repeat(np.fromiter(counts, np.int64), list(counts.values()))
    return np.random.default_rng(0).permutation(listed)


def test_every_epoch_has_every_example_once_in_a_place_of_its_class() -> None:
    given = codes()
    order = Order(given, seed=3)
    epochs = [order.examples(start, start + 61) for start in (0, 61, 122)]
    for epoch in epochs:
        assert sorted(epoch) == list(range(61))
        assert (given[epoch] == order.codes(0, 61)).all()
    assert len({tuple(epoch) for epoch in epochs}) == 3


def test_blocks_are_visited_a_few_at_a_time() -> None:
    """Examples of a class in a window of blocks are shuffled with each other, and every epoch has every example."""
    given = np.repeat([1, 2, 1, 2, 1], [70, 20, 90, 60, 60])  # blocks have one class each
    ends = np.cumsum([30, 40, 20, 50, 40, 30, 30, 60])
    blocks = Blocks(ends=ends, window=2)
    order = Order(given, seed=1, blocks=blocks)
    block_of = np.searchsorted(ends, np.arange(300), side="right")
    for epoch in (order.examples(0, 300), order.examples(300, 600)):
        assert sorted(epoch) == list(range(300))
        for code in (1, 2):
            visited = block_of[epoch[given[epoch] == code]]
            runs = [visited[0], *visited[1:][visited[1:] != visited[:-1]]]
            spans = {block: np.flatnonzero(visited == block)[[0, -1]] for block in set(visited.tolist())}
            for place in range(len(visited)):
                assert sum(first <= place <= last for first, last in spans.values()) <= 2
            assert len(runs) > len(set(runs))  # within a window they are mixed
    # Nothing but the seed and the place decides, so any rank and any restart reads the same.
    assert (Order(given, seed=1, blocks=blocks).examples(137, 411) == order.examples(0, 411)[137:]).all()
    assert (Order(given, seed=1, blocks=Blocks(ends=ends, window=3)).examples(0, 300) != order.examples(0, 300)).any()


def test_a_shuffle_without_blocks_visits_all_of_them() -> None:
    """The control of the window."""
    given, ends = np.zeros(300, np.int64), np.arange(30, 301, 30)
    block_of = np.searchsorted(ends, np.arange(300), side="right")
    assert len(set(block_of[Order(given, seed=1).examples(0, 60)])) > 4
    assert len(set(block_of[Order(given, seed=1, blocks=Blocks(ends, 2)).examples(0, 60)])) == 2


@pytest.mark.parametrize("batch_size", [1, 5, 16])
def test_every_batch_has_each_class_in_its_share(batch_size: int) -> None:
    """To within two: a window over places that are evenly spaced by n / N, across the seam of an epoch too."""
    order = Order(codes(), seed=0)
    for step in range(40):
        found = order.codes(step * batch_size, (step + 1) * batch_size)
        for code, count in COUNTS.items():
            assert abs((found == code).sum() - batch_size * count / 61) <= 2, (step, code)


def test_an_ordinary_shuffle_is_not_even() -> None:
    """The control of the shares."""
    shuffled = np.random.default_rng(1).permutation(codes())
    windows = [shuffled[start : start + 16] for start in range(0, 45)]
    assert max(abs((window == 4).sum() - 16 * 17 / 61) for window in windows) > 2


def test_another_class_moves_neither_places_nor_examples() -> None:
    """Exchanging the numbers of two examples of one class changes that class's order and no other's."""
    given = codes()
    order, seeds = Order(given, seed=5), Order(given, seed=6)
    assert (order.codes(0, 200) == seeds.codes(0, 200)).all(), "which class stands where does not depend on the seed"
    renamed = given.copy()
    renamed[given == 4] = 5  # another name that keeps its place in the order of the codes
    other = Order(renamed, seed=5)
    mine, theirs = order.examples(0, 200), other.examples(0, 200)
    same = order.codes(0, 200) != 4
    assert (mine[same] == theirs[same]).all()
    assert (mine[~same] != theirs[~same]).any()


def test_one_class_alone_is_a_shuffle() -> None:
    order = Order(np.zeros(10, np.int64), seed=0)
    assert sorted(order.examples(0, 10)) == list(range(10))
    assert (order.codes(0, 25) == 0).all()


# --- batches ---------------------------------------------------------------------------------------------------------

SLOTS = np.arange(8)


@pytest.mark.parametrize("batch_size", [1, 6, 7, 20, 33, 50])
def test_every_epoch_is_a_permutation(batch_size: int) -> None:
    """Twenty examples, also in batches that straddle epochs or are larger than one."""
    batches = noise_batches(batch_size=batch_size)
    epochs = 5
    steps = -(-20 * epochs // batch_size)
    order = np.concatenate([batches.indices(step) for step in range(steps)])[: 20 * epochs].reshape(epochs, 20)
    assert (np.sort(order) == np.arange(20)).all()
    assert len({tuple(epoch) for epoch in order}) == epochs, "every epoch is shuffled anew"


def test_the_order_is_a_pure_function_of_the_step() -> None:
    forwards, backwards = noise_batches(), noise_batches()
    expected = [forwards.indices(step) for step in range(12)]
    for step in reversed(range(12)):
        assert (backwards.indices(step) == expected[step]).all()


def test_the_order_depends_on_the_seed() -> None:
    assert (noise_batches(seed=0).indices(0) != noise_batches(seed=1).indices(0)).any()


def test_reading_gives_the_examples_of_those_numbers() -> None:
    batches = noise_batches()
    images, labels = batches.read(batches.indices(4))
    for row, index in enumerate(batches.indices(4)):
        assert torch.equal(images[row], batches.dataset.train.inputs[index])
        assert labels[row] == batches.dataset.train.labels[index]


def test_without_augmentation_images_stay_as_they_are() -> None:
    batches = noise_batches()
    images, _ = batches.read(batches.indices(0))
    assert torch.equal(batches.augment(images, 0, SLOTS), images)


def test_crops_and_mirrors_against_loops() -> None:
    """Every image is a window of itself, padded by reflection, mirrored or not, as its slot has drawn."""
    pad = 2
    batches = noise_batches(replace(noise(), crop=pad, flip=True), batch_size=16)
    images, _ = batches.read(batches.indices(3))
    found = batches.augment(images, 3, np.arange(16)).numpy()
    draws = stream(0, "augment", 3)
    corners = draws.integers(0, 2 * pad + 1, (2, 16))
    mirrored = draws.random(16) < 0.5
    assert mirrored.any() and not mirrored.all()
    _, height, width = images.shape[1:]
    for row in range(16):
        padded = np.pad(images[row].numpy(), ((0, 0), (pad, pad), (pad, pad)), mode="reflect")
        top, left = corners[:, row]
        window = padded[:, top : top + height, left : left + width]
        assert (found[row] == (window[:, :, ::-1] if mirrored[row] else window)).all()


def test_augmentation_is_keyed_by_step() -> None:
    batches = noise_batches(replace(noise(), crop=2, flip=True))
    images, _ = batches.read(batches.indices(0))
    assert torch.equal(batches.augment(images, 1, SLOTS), batches.augment(images, 1, SLOTS))
    assert not torch.equal(batches.augment(images, 1, SLOTS), batches.augment(images, 2, SLOTS))


def test_normalised_images_in_float64() -> None:
    dataset = replace(noise(), mean=(0.4, 0.6), std=(0.2, 0.3))
    images = dataset.train.inputs[:]
    found = noise_batches(dataset).prepare(images).numpy()
    mean = np.array([0.4, 0.6]).reshape(1, 2, 1, 1)
    std = np.array([0.2, 0.3]).reshape(1, 2, 1, 1)
    np.testing.assert_allclose(found, (images.numpy() / 255.0 - mean) / std, rtol=0, atol=1e-6)
    assert found.dtype == np.float32


def test_a_batch_knows_its_slots_and_rows() -> None:
    batches = noise_batches()
    batch: Batch = batches.transfer(*batches.read(batches.indices(0)), slots=SLOTS, code=3)
    assert len(batch) == 8
    assert batch.slots.tolist() == list(range(8))
    assert batch.codes.tolist() == [3] * 8
    assert batch.targets is batch.labels
    rows = batch.rows(torch.tensor([5, 2]))
    assert rows.slots.tolist() == [5, 2]
    assert torch.equal(rows.inputs, batch.inputs[[5, 2]])
    assert torch.equal(rows.labels, batch.labels[[5, 2]])


def test_dense_targets() -> None:
    found = dense(torch.tensor([2, 0]), classes=3)
    assert found.tolist() == [[0, 0, 1], [1, 0, 0]]
    assert found.dtype == torch.float32
    assert dense(found, classes=3) is found


def test_ignored_labels_become_rows_of_zeros_that_have_no_loss() -> None:
    """For one label an example, for padding of text and for the void class of pixels."""
    outputs = torch.from_numpy(np.random.default_rng(0).normal(size=(4, 6, 3)).astype(np.float32))
    for labels in (torch.tensor([0, -100, 2, 1]), torch.tensor([[0, -100, 2, 1, -100, -100]] * 4)):
        rows = dense(labels, classes=3)
        assert torch.equal(rows.sum(-1), (labels != IGNORED).float())
        flat = outputs[:, 0] if labels.ndim == 1 else outputs.flatten(0, 1)
        found = F.cross_entropy(flat, rows.flatten(0, -2), reduction="none")
        expected = F.cross_entropy(flat, labels.flatten(), reduction="none")
        torch.testing.assert_close(found, expected)
        assert not found[labels.flatten() == IGNORED].any()


@pytest.mark.parametrize(
    ("labels", "words"),
    [
        ([0, 1, 3], "mixup: example 12 has label 3: expected 0 to 2, for the model has 3 outputs, or -100"),
        ([0, -1, 1], "mixup: example 11 has label -1"),
        ([[0, 0], [1, 1], [2, 999]], "mixup: example 12 has label 999"),
    ],
)
def test_labels_that_are_no_class_are_named_with_their_example(labels: list, words: str) -> None:
    numbers = np.arange(10, 13)
    with pytest.raises(DataError, match=words):
        check_labels(torch.tensor(labels), numbers, classes=3, method="mixup")
    check_labels(torch.tensor(labels).clamp(0, 2), numbers, classes=3, method="mixup")
    check_labels(torch.tensor([0, -100, 2]), numbers, classes=3, method="mixup")
    check_labels(torch.rand(3, 3), numbers, classes=3, method="mixup")  # distributions are as they are


# --- partners: one circle in each provenance class -------------------------------------------------------------------


def partners_of(slots: list[int], codes: list[int], *, batch_size: int = 16, step: int = 0) -> dict[int, int]:
    """For each slot, the slot of its partner."""
    found = draw_partners(
        stream(0, "mixup", step), slots=torch.tensor(slots), codes=torch.tensor(codes), batch_size=batch_size
    )
    return {slots[row]: slots[partner] for row, partner in enumerate(found.tolist())}


@pytest.mark.parametrize("size", [1, 2, 7, 16])
def test_partners_are_one_circle(size: int) -> None:
    pairs = partners_of(list(range(size)), [0] * size)
    seen, slot = [], 0
    while slot not in seen:
        seen.append(slot)
        slot = pairs[slot]
    assert sorted(seen) == list(range(size))


def test_nobody_is_left_alone_with_themselves() -> None:
    """A random permutation would pair an example with itself once a step; the circle never does."""
    for step in range(50):
        pairs = partners_of(list(range(8)), [0] * 8, step=step)
        assert all(slot != partner for slot, partner in pairs.items())


def test_circles_differ_from_step_to_step() -> None:
    circles = {tuple(partners_of(list(range(8)), [0] * 8, step=step).items()) for step in range(20)}
    assert len(circles) == 20


def test_partners_stay_within_their_class() -> None:
    codes = [2, 0, 1, 0, 0, 2, 1, 2, 0, 5, 1, 0, 2, 2, 0, 1]
    for step in range(20):
        for slot, partner in partners_of(list(range(16)), codes, step=step).items():
            assert codes[slot] == codes[partner]
    assert partners_of(list(range(16)), codes)[9] == 9, "a class of one mixes with itself"


def test_partners_are_drawn_without_waiting_for_the_device() -> None:
    """On the meta device, whose tensors have no content, whatever the host reads of one is an error."""
    slots = torch.arange(16, device="meta")
    found = draw_partners(stream(0, "mixup", 0), slots=slots, codes=torch.zeros_like(slots), batch_size=16)
    assert found.shape == (16,)
    with pytest.raises((RuntimeError, NotImplementedError)):
        torch.unique(slots)


@pytest.mark.parametrize("gone", [0, 1, 2, 5])
def test_leaving_a_class_out_changes_no_other_pair(gone: int) -> None:
    codes = [2, 0, 1, 0, 0, 2, 1, 2, 0, 5, 1, 0, 2, 2, 0, 1]
    everybody = partners_of(list(range(16)), codes)
    slots = [slot for slot in range(16) if codes[slot] != gone]
    without = partners_of(slots, [codes[slot] for slot in slots])
    assert without == {slot: everybody[slot] for slot in slots}


def test_renumbering_the_rows_instead_of_keeping_slots_would_change_pairs() -> None:
    """The control of the test above: with slots 0..n-1 of those present, the draws shift."""
    codes = [2, 0, 1, 0, 0, 2, 1, 2, 0, 5, 1, 0, 2, 2, 0, 1]
    everybody = partners_of(list(range(16)), codes)
    slots = [slot for slot in range(16) if codes[slot] != 0]
    shifted = partners_of(list(range(len(slots))), [codes[slot] for slot in slots])
    assert {slots[a]: slots[b] for a, b in shifted.items()} != {slot: everybody[slot] for slot in slots}
