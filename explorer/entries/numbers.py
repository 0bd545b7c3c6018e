"""The numbers of one step, class by class and layer by layer, and the bytes that a ledger commits to.

Everything is a little-endian IEEE 754 float32. The layers stand in the order of the genesis, the classes in the order
of `genesis.classes`; only classes that trained in the step have numbers (but see exact mode).

    content of a class      for each layer: weight, norm, dot; and exact, in a run that has exact mode
    joint content           for each layer: |update|^2, then the Gram matrix above its diagonal, row by row:
                            <0,1> <0,2> ... <1,2> ... over the classes with numbers

    weight   factor on the class's gradient G, 0 without one      norm    |G|, after clipping, before the weight
    dot      <weight G, update>                                   exact   <the class's part of the update, update>

The diagonal of the Gram matrix is (weight norm)^2. Where the weight is 0 the class was denied: its norm, its dot and
its place in the Gram matrix are exactly 0. Its `exact` need not be: what it did while it was admitted still moves the
layer, through momentum and decay. So in exact mode a class has numbers in every step since its first, and weight 0
everywhere where it has no examples. In layers whose update is not split `exact` is NaN.

Two classes with numbers, one layer, the contents of both and the joint content:

    0000803f 00000040 000080bf    0000003f 0000803f 000000be         1  2  -1       0.5  1  -0.125
    0000003e 0000803e                                                0.125  0.25

A segment is a run of steps. Its content is the contents of its steps, one after the other; the leaves of the steps say
which of them have the class, and how many classes each has. The content of a class's sketches is 64 numbers for each
layer, the sum over the segment.

Infinity and NaN are numbers here: a gradient that overflowed is recorded as it was.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from explorer.errors import LedgerError

Floats = NDArray[np.float32]
SKETCH = 64  # numbers of a layer's sketch
_FLOAT = np.dtype("<f4")


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class StepNumbers:
    """What a step recorded. Shapes: k classes with numbers, L layers. Raises `LedgerError` for what does not fit."""

    classes: tuple[int, ...]  # indices into `genesis.classes`, ascending
    weights: Floats  # k L
    norms: Floats  # k L
    dots: Floats  # k L
    gram: Floats  # L k k: <w_c G_c, w_d G_d>
    updates: Floats  # L: |update|^2
    exact: Floats | None = None  # k L

    def __post_init__(self) -> None:
        k, layers = len(self.classes), len(self.updates)
        by_class = [self.weights, self.norms, self.dots] + ([] if self.exact is None else [self.exact])
        if self.updates.ndim != 1 or any(a.shape != (k, layers) for a in by_class) or self.gram.shape != (layers, k, k):
            raise LedgerError(f"numbers of a step: the shapes do not belong to {k} classes and {layers} layers")
        if any(array.dtype != np.float32 for array in (*by_class, self.gram, self.updates)):
            raise LedgerError("numbers of a step: expected float32")
        if list(self.classes) != sorted(set(self.classes)) or min(self.classes, default=0) < 0:
            raise LedgerError(f"numbers of a step: classes {self.classes!r:.80}; expected indices, ascending")
        if (self.weights < 0).any() or (self.norms < 0).any() or (self.updates < 0).any():
            raise LedgerError("numbers of a step: a weight, a norm or the square of an update below 0")
        if not np.array_equal(self.gram, self.gram.transpose(0, 2, 1), equal_nan=True):
            raise LedgerError("numbers of a step: the Gram matrix is not symmetric")
        if not np.array_equal(self.gram[:, range(k), range(k)], diagonal(self.weights, self.norms).T, equal_nan=True):
            raise LedgerError("numbers of a step: the diagonal of the Gram matrix is not (weight norm)^2")
        denied = self.weights == 0
        if self.norms[denied].any() or self.dots[denied].any() or self.gram[denied.T].any():
            raise LedgerError("numbers of a step: the weight is 0, and the class has numbers there that are not")


@np.errstate(over="ignore", invalid="ignore")
def diagonal(weights: Floats, norms: Floats) -> Floats:
    """The diagonal of the Gram matrix, (weight norm)^2, rounded once."""
    return np.square(weights.astype(np.float64) * norms.astype(np.float64)).astype(np.float32)


@np.errstate(invalid="ignore")
def share_terms(gram: Floats) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Numerators <w_c G_c, G>, k L, and denominators |G|^2, L, of the classes' shares in the summed gradient G.

    Each layer's numerators add up to its denominator. Over steps and layers add both and divide last.
    """
    numerators = gram.astype(np.float64).sum(2).T
    return numerators, numerators.sum(0)


def class_bytes(layers: int, *, exact: bool) -> int:
    """The size of one class's content of one step."""
    return layers * _columns(exact=exact) * _FLOAT.itemsize


def joint_bytes(layers: int, classes: int) -> int:
    """The size of the joint content of a step in which so many classes have numbers."""
    return layers * (1 + classes * (classes - 1) // 2) * _FLOAT.itemsize


def encode_class(numbers: StepNumbers, place: int) -> bytes:
    """The content of `numbers.classes[place]`."""
    arrays = [numbers.weights, numbers.norms, numbers.dots] + ([] if numbers.exact is None else [numbers.exact])
    return np.stack([array[place] for array in arrays], axis=1).astype(_FLOAT).tobytes()


def encode_joint(numbers: StepNumbers) -> bytes:
    """The content that no single class has."""
    rows, columns = np.triu_indices(len(numbers.classes), 1)
    return np.column_stack([numbers.updates, numbers.gram[:, rows, columns]]).astype(_FLOAT).tobytes()


def decode_class(content: bytes, *, layers: int, exact: bool) -> Floats:
    """A class's content of one step or of a segment, as steps L columns. Raises `LedgerError` for another size."""
    return _read(content, class_bytes(layers, exact=exact)).reshape(-1, layers, _columns(exact=exact))


def decode_step(contents: Mapping[int, bytes], joint: bytes, *, layers: int, exact: bool) -> StepNumbers:
    """The numbers of one step from the content of each class that has any, by index, and the joint content.

    Raises `LedgerError` for sizes that do not fit and for numbers that no step can have.
    """
    (numbers,) = decode_segment(contents, joint, steps=[tuple(sorted(contents))], layers=layers, exact=exact)
    return numbers


def decode_segment(
    contents: Mapping[int, bytes], joint: bytes, *, steps: Sequence[tuple[int, ...]], layers: int, exact: bool
) -> Iterator[StepNumbers]:
    """The numbers of each step of a segment; `steps` says which classes have numbers in it. Raises `LedgerError`."""
    rows = {index: iter(decode_class(content, layers=layers, exact=exact)) for index, content in contents.items()}
    joints = split_joint(joint, layers=layers, counts=[len(classes) for classes in steps])
    for classes, of_all in zip(steps, joints, strict=True):
        found = [next(rows.get(index, iter(())), None) for index in classes]
        if any(row is None for row in found):
            raise LedgerError(f"numbers of a segment: a class of {classes!r:.80} has fewer steps than the leaves say")
        by_class = np.array(found, dtype=np.float32).reshape(len(classes), layers, _columns(exact=exact))
        yield _step(classes, by_class, of_all, exact=exact)
    if any(next(left, None) is not None for left in rows.values()):
        raise LedgerError("numbers of a segment: a class has more steps than the leaves say")


def split_class(content: bytes, *, layers: int, exact: bool) -> list[bytes]:
    """A class's content of a segment, step by step, as it was committed to. Raises `LedgerError`."""
    size = class_bytes(layers, exact=exact)
    _read(content, size)
    return [content[start : start + size] for start in range(0, len(content), size)]


def split_joint(content: bytes, *, layers: int, counts: Sequence[int]) -> list[bytes]:
    """The joint content of a segment, step by step; `counts` says how many classes have numbers in each."""
    ends = np.cumsum([joint_bytes(layers, count) for count in counts], dtype=np.int64).tolist()
    if len(content) != (ends[-1] if ends else 0):
        raise LedgerError(f"joint numbers: found {len(content)} bytes, expected {ends[-1] if ends else 0}")
    return [content[start:end] for start, end in zip([0, *ends], ends, strict=False)]


def encode_sketches(sketches: Floats) -> bytes:
    """A class's sketches of a segment, L 64."""
    return sketches.astype(_FLOAT).tobytes()


def decode_sketches(content: bytes, *, layers: int) -> Floats:
    """A class's sketches of a segment, L 64. Raises `LedgerError` for another size."""
    size = layers * SKETCH * _FLOAT.itemsize
    if len(content) != size:
        raise LedgerError(f"sketches of a class: found {len(content)} bytes, expected {size}")
    return np.frombuffer(content, dtype=_FLOAT).astype(np.float32).reshape(layers, SKETCH)


def _step(classes: tuple[int, ...], by_class: Floats, joint: bytes, *, exact: bool) -> StepNumbers:
    """One step from its classes' numbers, k L columns, and its joint content."""
    k, layers = by_class.shape[:2]
    of_all = np.frombuffer(joint, dtype=_FLOAT).astype(np.float32).reshape(layers, -1)
    weights, norms, dots = (np.ascontiguousarray(by_class[:, :, column]) for column in range(3))
    rows, columns = np.triu_indices(k, 1)
    gram = np.zeros((layers, k, k), dtype=np.float32)
    gram[:, rows, columns] = gram[:, columns, rows] = of_all[:, 1:]
    gram[:, range(k), range(k)] = diagonal(weights, norms).T
    return StepNumbers(
        classes=classes,
        weights=weights,
        norms=norms,
        dots=dots,
        gram=gram,
        updates=of_all[:, 0].copy(),
        exact=np.ascontiguousarray(by_class[:, :, 3]) if exact else None,
    )


def _columns(*, exact: bool) -> int:
    return 4 if exact else 3


def _read(content: bytes, size: int) -> Floats:
    """The numbers of content that is so many bytes for each step."""
    if size == 0 or len(content) % size:
        raise LedgerError(f"numbers of a class: found {len(content)} bytes, expected a multiple of {size}")
    return np.frombuffer(content, dtype=_FLOAT).astype(np.float32)
