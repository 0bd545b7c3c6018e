"""The batches of a training run: a pure function of the step.

**Order.** The examples form one endless sequence, in which an epoch has every example once. Each provenance class is
shuffled by itself, and the classes are interleaved evenly: the k-th of n examples of a class is at (k + 1/2) / n of the
epoch, so every batch has each class in proportion, to within one or two examples, whatever the shuffles are. The places
of a class follow from the counts only: leaving a class's content out moves nothing. Without provenance there is one
class, and this is an ordinary shuffle.

Examples that do not fit into memory lie in blocks. The blocks of a class are shuffled, and then the examples within
every `window` of them, so that few blocks are needed at a time. The order is still a pure function of seed and place.

**Batches.** The sequence is cut into batches of exactly B (pace.py): nothing is left over at the end of an epoch, and
the only cursor is the step, so resuming needs no other state. A place in a batch is a slot. The slots of one provenance
class go to the device together and separately from all others, so that no arithmetic sees two classes at once.

Shapes: B examples, K classes.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, ClassVar, Self

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from explorer.data.dataset import Blocks, Dataset
from explorer.data.pace import Pace
from explorer.data.streams import stream
from explorer.errors import DataError

# --- the order of the examples ---------------------------------------------------------------------------------------


class Order:
    """The endless sequence of training examples."""

    def __init__(self, codes: np.ndarray, *, seed: int, blocks: Blocks | None = None) -> None:
        """`codes`: N, the class of each example."""
        self._seed = seed
        self._blocks = blocks
        self._members = {int(code): np.flatnonzero(codes == code) for code in np.unique(codes)}
        self._places, self._pattern = _interleaved({code: len(members) for code, members in self._members.items()})
        self._epoch = lru_cache(maxsize=2)(self._shuffled)

    def __len__(self) -> int:
        """Return the length of an epoch."""
        return len(self._pattern)

    def examples(self, start: int, stop: int) -> np.ndarray:
        """Return the numbers of the examples at positions [start, stop) of the sequence, int64."""
        epochs, offsets = np.divmod(np.arange(start, stop), len(self))
        numbers = np.empty(stop - start, np.int64)
        for epoch in np.unique(epochs):
            here = epochs == epoch
            numbers[here] = self._epoch(int(epoch))[offsets[here]]
        return numbers

    def codes(self, start: int, stop: int) -> np.ndarray:
        """Return the classes at those positions, int64."""
        return self._pattern[np.arange(start, stop) % len(self)]

    def _shuffled(self, epoch: int) -> np.ndarray:
        """Return the examples of one epoch."""
        numbers = np.empty(len(self), np.int64)
        for code, members in self._members.items():
            draws = stream(self._seed, "order", epoch, code)
            numbers[self._places[code]] = shuffled(members, self._blocks, draws)
        return numbers


def shuffled(members: np.ndarray, blocks: Blocks | None, draws: np.random.Generator) -> np.ndarray:
    """Return ascending numbers of examples in random order, window by window where they lie in blocks."""
    if blocks is None:
        return members[draws.permutation(len(members))]
    pieces = np.split(members, np.searchsorted(members, blocks.ends[:-1]))
    pieces = [piece for piece in pieces if len(piece)]
    order = draws.permutation(len(pieces))
    windows = [
        np.concatenate([pieces[place] for place in order[start : start + blocks.window]])
        for start in range(0, len(order), blocks.window)
    ]
    return np.concatenate([window[draws.permutation(len(window))] for window in windows])


def _interleaved(counts: dict[int, int]) -> tuple[dict[int, np.ndarray], np.ndarray]:
    """Return the places of each class in an epoch, and the class at each place."""
    # Equal fractions, as of classes with equally many examples, are ordered by code, so the pattern is unique.
    codes = np.repeat(np.fromiter(counts, np.int64), list(counts.values()))
    fractions = np.concatenate([(np.arange(count) + 0.5) / count for count in counts.values()])
    pattern = codes[np.lexsort((codes, fractions))]
    return {code: np.flatnonzero(pattern == code) for code in counts}, pattern


# --- batches ---------------------------------------------------------------------------------------------------------

IGNORED = -100  # a label without a loss: the `ignore_index` of torch's cross-entropy
UNTYPED = 0  # the code of every example of data without provenance


@dataclass(frozen=True, kw_only=True, slots=True)
class Batch:
    """Examples of a step. Methods replace `inputs` and `targets`; `labels` stay as they were read."""

    inputs: Tensor  # B x the shape of an example, as the model takes it
    targets: Tensor  # for the loss: indices (int64), or float32: numbers, or distributions that a method has made
    labels: Tensor  # for metrics: int64, or float32 where numbers or several labels are predicted
    slots: Tensor  # B, int64: the place of each example in the nominal batch; keyed draws are indexed by it
    codes: Tensor  # B, int64: provenance class of each example; 0 where the data is untyped
    weight: float = 1.0  # of each row in the loss: a method that drops rows raises it, for the mean over the rest
    pieces: int = 1  # rows that an example has, at most: a method that cuts long rows into several raises it

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def pixelwise(self) -> bool:
        """Return whether there is a label for each pixel."""
        return self.labels.ndim == self.inputs.ndim - 1 > 1 and self.inputs.is_floating_point()

    def rows(self, index: slice | Tensor) -> Self:
        """Return the batch with these rows only."""
        return replace(
            self,
            inputs=self.inputs[index],
            targets=self.targets[index],
            labels=self.labels[index],
            slots=self.slots[index],
            codes=self.codes[index],
        )


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Typing:
    """The provenance class of every training example."""

    codes: np.ndarray  # N, int64: numbers of a taxonomy's classes
    names: Mapping[int, str] = field(default_factory=dict)  # the path of each
    gone: np.ndarray | None = None  # N, bool: examples that are left out, which are not read


def dense(targets: Tensor, *, classes: int) -> Tensor:
    """Return targets as distributions over the classes, with one more dimension; dense targets stay as they are.

    A label that the loss ignores (`IGNORED`) becomes a row of zeros, whose soft cross-entropy is zero. Mixed with
    another target it adds nothing: a row's sum is short of 1 by the share that the loss ignores.
    """
    if targets.is_floating_point():
        return targets
    known = targets != IGNORED
    return F.one_hot(targets.where(known, 0).long(), classes).to(torch.float32).mul_(known[..., None])


def check_labels(labels: Tensor, numbers: np.ndarray, *, classes: int, method: str) -> None:
    """Check that labels (B ...) of the examples with these numbers are classes or `IGNORED`, before the named method
    turns them into distributions. Labels that are distributions already are not checked.

    Raises `DataError` that names the method, the first wrong example and its label.
    """
    if labels.is_floating_point():
        return
    wrong = ((labels < 0) | (labels >= classes)) & (labels != IGNORED)
    if bool(wrong.any()):
        place = int(wrong.flatten(1).any(1).nonzero()[0] if wrong.ndim > 1 else wrong.nonzero()[0])
        label = int(labels[place][wrong[place]].flatten()[0])
        raise DataError(
            f"{method}: example {int(numbers[place])} has label {label}: expected 0 to {classes - 1}, for the model has"
            f" {classes} outputs, or {IGNORED} for one that the loss ignores"
        )


class Batches:
    """The batches of one run, by step."""

    rows_apart: ClassVar[bool] = True  # an example is read and augmented alike, whatever others are read with it

    def __init__(
        self,
        dataset: Dataset,
        *,
        batch_size: int,
        seed: int,
        device: torch.device,
        typing: Typing | None = None,
        pace: Pace | None = None,
    ) -> None:
        """`pace`: the batch sizes by step; None: always `batch_size`."""
        self.dataset = dataset
        self.batch_size = batch_size
        self.pace = pace or Pace(((0, batch_size),))
        self.seed = seed
        self.device = device
        self.typing = typing or Typing(codes=np.full(len(dataset.train), UNTYPED, np.int64), names={UNTYPED: ""})
        self.prepare = dataset.preparation(device)
        self._order = Order(self.typing.codes, seed=seed, blocks=dataset.blocks)
        self._classes = len(np.unique(self.typing.codes))
        self._looked: int | None = None  # the position from which the dataset was told last what comes

    def indices(self, step: int) -> np.ndarray:
        """Return the numbers of the training examples in the slots of the step: B, int64."""
        return self._order.examples(self.pace.position(step), self.pace.position(step + 1))

    def shares(self, step: int) -> list[tuple[int, np.ndarray]]:
        """Return the classes of the step in the order of their codes, each with its slots (int64, ascending)."""
        codes = self._order.codes(self.pace.position(step), self.pace.position(step + 1))
        return [(int(code), np.flatnonzero(codes == code)) for code in np.unique(codes)]

    def read(self, examples: np.ndarray) -> tuple[Tensor, Tensor]:
        """Return the raw training examples with these numbers: inputs, as the dataset augments them, and labels."""
        index = torch.from_numpy(examples)
        return self.dataset.raw(index), self.dataset.train.labels[index]

    def plain(self, examples: np.ndarray) -> tuple[Tensor, Tensor]:
        """Return the training examples with these numbers as they are evaluated, without augmentation: inputs and
        labels."""
        index = torch.from_numpy(examples)
        return self.dataset.train.inputs[index], self.dataset.train.labels[index]

    def expect(self, step: int, *, without: Collection[int] = ()) -> None:
        """Let the dataset begin to fetch what the steps after this one read, without the classes of these codes."""
        if (blocks := self.dataset.blocks) is None:
            return
        position, looked = self.pace.position(step + 1), self._looked
        # Half a window of every class ahead: then its next one is there before this one ends. Looked at now and then.
        rows = blocks.window * len(self._order) / len(blocks.ends)
        ahead = max(1, int(rows / 2)) * self._classes
        if looked is None or not 0 <= position - looked < max(1, ahead // 8):
            self._looked = position
            examples = self._order.examples(position, position + ahead)
            read = ~np.isin(self.typing.codes[examples], list(without))
            examples = examples[read]
            self.dataset.expect(examples[self.present(np.arange(len(examples)), examples)])

    def present(self, slots: np.ndarray, examples: np.ndarray) -> np.ndarray:
        """Return the slots whose examples are not left out; `examples` are those of all slots."""
        return slots if self.typing.gone is None else slots[~self.typing.gone[examples[slots]]]

    def augment(self, inputs: Any, step: int, slots: np.ndarray) -> Tensor:
        """Augment these inputs at random, keyed by step and slot; shape and type stay."""
        draws = stream(self.seed, "augment", step)
        return self.dataset.augment(inputs, draws=draws, slots=slots, batch_size=self.pace.size(step))

    def transfer(self, inputs: Tensor, labels: Tensor, *, slots: np.ndarray, code: int) -> Batch:
        """Return the batch on the training device, with prepared inputs. Its tensors are never modified."""
        kind = torch.float32 if labels.is_floating_point() else torch.int64
        labels = labels.to(self.device, non_blocking=True).to(kind)
        return Batch(
            inputs=self.prepare(inputs),
            targets=labels,
            labels=labels,
            slots=torch.from_numpy(slots).to(self.device, non_blocking=True),
            codes=torch.full((len(slots),), code, dtype=torch.int64, device=self.device),
        )


# --- partners for mixing, within a class -----------------------------------------------------------------------------


def draw_partners(draws: np.random.Generator, *, slots: Tensor, codes: Tensor, batch_size: int) -> Tensor:
    """Return a random partner for every row, of the same provenance class: B row numbers, a permutation.

    Every slot of the nominal batch draws a number, whether or not its example is present. Within a class, the rows form
    a circle in the order of these numbers, so leaving another class out changes no pair.
    """
    # Two stable sorts: by number, then by class, which keeps the numbers' order within each class. All on the device of
    # the rows, without asking it how many classes there are, for which it would have to be waited for.
    numbers = torch.from_numpy(draws.random(batch_size)).to(slots.device, non_blocking=True)[slots]
    order = torch.argsort(numbers, stable=True)
    order = order[torch.argsort(codes[order], stable=True)]
    circles = codes[order]
    place = torch.arange(len(order), device=slots.device)
    first = torch.searchsorted(circles, circles)
    last = torch.searchsorted(circles, circles, right=True) - 1
    partners = torch.empty_like(order)
    partners[order] = order[torch.where(place == first, last, place - 1)]
    return partners
