"""The numbers of one step, class by class and layer by layer, and the bytes that a ledger commits to.

Everything is a little-endian IEEE 754 float32. Layers are in the order of the genesis, classes in the order of
`genesis.classes`; only classes that trained in the step have numbers (but see exact mode).

    content of a class      for each layer: weight, norm
    joint content           for each layer: |update|^2, then the Gram matrix above its diagonal, row by row:
                            <0,1> <0,2> ... <1,2> ..., then the dot of each and, in a run that has exact mode, the
                            exact of each, over the classes with numbers

    weight   factor on the class's gradient G, 0 without one      norm    |G|, after clipping, before the weight
    dot      <weight G, update>                                   exact   <the class's part of the update, update>

The inner product of a class with the update is in the joint content, because all classes made the update: from the norm
and the dot of one class its inner product with the others would follow.

The diagonal of the Gram matrix is (weight norm)^2. Where the weight is 0 the class was denied: its norm, its dot and
its place in the Gram matrix are exactly 0. Its `exact` need not be: its earlier gradients still move the layer, through
momentum and decay. So in exact mode a class has numbers in every step since its first, and weight 0 wherever it has no
examples. In layers whose update is not split `exact` is NaN.

Two classes with numbers, one layer, the contents of both and the joint content:

    0000803f 00000040    0000003f 0000803f         1  2       0.5  1
    0000003e 0000803e 000080bf 000000be            0.125  0.25  -1  -0.125

A segment is a sequence of steps. Its content is the contents of its steps, one after the other; the entries of the
steps tell which classes each has. The content of a class's sketches is 64 numbers for each layer, summed over the
segment.

Infinity and NaN are valid numbers: a gradient that overflowed is recorded as it was.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from explorer.errors import LedgerError

Floats = NDArray[np.float32]
SKETCH = 64  # numbers of a layer's sketch
SKETCH_ERROR = 0.13  # of a cosine between two sketches: about 1 / sqrt(64)
_FLOAT = np.dtype("<f4")
_COLUMNS = 2  # of a class's content: weight, norm


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class StepNumbers:
    """Numbers of a step. Shapes: k classes with numbers, L layers. Raises `LedgerError` for impossible numbers."""

    classes: tuple[int, ...]  # indices into `genesis.classes`, ascending
    weights: Floats  # k L
    norms: Floats  # k L
    dots: Floats  # k L
    gram: Floats  # L k k: <w_c G_c, w_d G_d>
    updates: Floats  # L: |update|^2
    exact: Floats | None = None  # k L

    def __post_init__(self) -> None:
        # Form first: the checks below index by it.
        k, layers = len(self.classes), len(self.updates)
        by_class = [self.weights, self.norms, self.dots] + ([] if self.exact is None else [self.exact])
        if self.updates.ndim != 1 or any(a.shape != (k, layers) for a in by_class) or self.gram.shape != (layers, k, k):
            raise LedgerError(f"numbers of a step: the shapes do not belong to {k} classes and {layers} layers")
        if any(array.dtype != np.float32 for array in (*by_class, self.gram, self.updates)):
            raise LedgerError("numbers of a step: expected float32")
        if list(self.classes) != sorted(set(self.classes)) or min(self.classes, default=0) < 0:
            raise LedgerError(f"numbers of a step: classes {self.classes!r:.80}; expected indices, ascending")
        # Then relations that hold exactly for any gradients; NaN equals NaN, because overflows are recorded.
        if (self.weights < 0).any() or (self.norms < 0).any() or (self.updates < 0).any():
            raise LedgerError("numbers of a step: a weight, a norm or the square of an update below 0")
        if not np.array_equal(self.gram, self.gram.transpose(0, 2, 1), equal_nan=True):
            raise LedgerError("numbers of a step: the Gram matrix is not symmetric")
        if not np.array_equal(self.gram[:, range(k), range(k)], diagonal(self.weights, self.norms).T, equal_nan=True):
            raise LedgerError("numbers of a step: the diagonal of the Gram matrix is not (weight norm)^2")
        denied = self.weights == 0
        if self.norms[denied].any() or self.dots[denied].any() or self.gram[denied.T].any():
            raise LedgerError("numbers of a step: the weight is 0, and the class has numbers there that are not")


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class JointNumbers:
    """Numbers of a step over several classes. Shapes: k classes with numbers, L layers."""

    updates: Floats  # L: |update|^2
    products: Floats  # L k(k-1)/2: the Gram matrix above its diagonal
    dots: Floats  # L k
    exact: Floats | None  # L k


@np.errstate(over="ignore", invalid="ignore")
def diagonal(weights: Floats, norms: Floats) -> Floats:
    """Return the diagonal of the Gram matrix, (weight norm)^2, rounded once: writer and reader agree to the bit."""
    return np.square(weights.astype(np.float64) * norms.astype(np.float64)).astype(np.float32)


@np.errstate(invalid="ignore")
def share_terms(gram: Floats) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return numerators <w_c G_c, G>, k L, and denominators |G|^2, L, of the classes' shares in the summed gradient G.

    Each layer's numerators add up to its denominator. Over steps and layers, sum both and divide last.
    """
    numerators = gram.astype(np.float64).sum(2).T
    return numerators, numerators.sum(0)


def class_bytes(layers: int) -> int:
    """Return the size of one class's content of one step."""
    return layers * _COLUMNS * _FLOAT.itemsize


def joint_bytes(layers: int, classes: int, *, exact: bool) -> int:
    """Return the size of the joint content of a step in which `classes` classes have numbers."""
    products = classes * (classes - 1) // 2
    return layers * (1 + products + classes + classes * exact) * _FLOAT.itemsize


def encode_class(numbers: StepNumbers, place: int) -> bytes:
    """Return the content of `numbers.classes[place]`."""
    return np.stack([numbers.weights[place], numbers.norms[place]], axis=1).astype(_FLOAT).tobytes()


def encode_joint(numbers: StepNumbers) -> bytes:
    """Return the joint content."""
    rows, columns = np.triu_indices(len(numbers.classes), 1)
    by_class = [numbers.dots.T] + ([] if numbers.exact is None else [numbers.exact.T])
    return np.column_stack([numbers.updates, numbers.gram[:, rows, columns], *by_class]).astype(_FLOAT).tobytes()


def decode_class(content: bytes, *, layers: int) -> Floats:
    """Return a class's content of one step or of a segment, as steps L 2: weight, norm.

    Raises `LedgerError` for another size.
    """
    return _read(content, class_bytes(layers)).reshape(-1, layers, _COLUMNS)


def decode_step(contents: Mapping[int, bytes], joint: bytes, *, layers: int) -> StepNumbers:
    """Return the numbers of one step from the content of each class that has any, by index, and the joint content.

    Raises `LedgerError` for sizes that do not fit and for numbers that no step can have.
    """
    (numbers,) = decode_segment(contents, joint, steps=[tuple(sorted(contents))], layers=layers)
    return numbers


def decode_segment(
    contents: Mapping[int, bytes], joint: bytes, *, steps: Sequence[tuple[int, ...]], layers: int
) -> Iterator[StepNumbers]:
    """Yield the numbers of each step of a segment; `steps` lists the classes with numbers in each.

    Raises `LedgerError` for contents that do not fit the steps, and for impossible numbers.
    """
    # The content of a class has only the steps in which it has numbers, so each class is read at its own pace.
    rows = {index: iter(decode_class(content, layers=layers)) for index, content in contents.items()}
    joints = split_joint(joint, layers=layers, counts=[len(classes) for classes in steps])
    for classes, of_all in zip(steps, joints, strict=True):
        of_classes = [next(rows.get(index, iter(())), None) for index in classes]
        if any(row is None for row in of_classes):
            raise LedgerError(f"numbers of a segment: a class of {classes!r:.80} has fewer steps than the entries list")
        by_class = np.array(of_classes, dtype=np.float32).reshape(len(classes), layers, _COLUMNS)
        yield _step(classes, by_class, decode_joint(of_all, layers=layers, classes=len(classes)))
    if any(next(left, None) is not None for left in rows.values()):
        raise LedgerError("numbers of a segment: a class has more steps than the entries list")


def split_class(content: bytes, *, layers: int) -> list[bytes]:
    """Split a class's content of a segment into those of its steps, which were committed to one by one.

    Raises `LedgerError` for another size.
    """
    size = class_bytes(layers)
    _read(content, size)
    return [content[start : start + size] for start in range(0, len(content), size)]


def split_joint(content: bytes, *, layers: int, counts: Sequence[int]) -> list[bytes]:
    """Split the joint content of a segment into those of its steps; `counts` are the numbers of classes in each.

    Raises `LedgerError` for a size that fits neither with exact mode nor without.
    """
    # No field states the mode: the two sizes differ wherever a class has numbers.
    expected = []
    for exact in (False, True):
        ends = np.cumsum([0, *(joint_bytes(layers, count, exact=exact) for count in counts)], dtype=np.int64).tolist()
        if len(content) == ends[-1]:
            return [content[start:end] for start, end in pairwise(ends)]
        expected.append(ends[-1])
    raise LedgerError(
        f"joint numbers: found {len(content)} bytes, expected {expected[0]}, or {expected[1]} in exact mode"
    )


def decode_joint(content: bytes, *, layers: int, classes: int) -> JointNumbers:
    """Read the joint content of a step in which `classes` classes have numbers.

    Raises `LedgerError` for another size.
    """
    exact = classes > 0 and len(content) == joint_bytes(layers, classes, exact=True)
    if not exact and len(content) != (size := joint_bytes(layers, classes, exact=False)):
        raise LedgerError(f"joint numbers of a step: found {len(content)} bytes, expected {size}")
    numbers = np.frombuffer(content, dtype=_FLOAT).astype(np.float32).reshape(layers, -1)
    before = 1 + classes * (classes - 1) // 2
    return JointNumbers(
        updates=numbers[:, 0].copy(),
        products=numbers[:, 1:before],
        dots=numbers[:, before : before + classes],
        exact=numbers[:, before + classes :] if exact else None,
    )


def sketch_bytes(layers: int) -> int:
    """Return the size of one class's sketches of a segment."""
    return layers * SKETCH * _FLOAT.itemsize


def encode_sketches(sketches: Floats) -> bytes:
    """Return a class's sketches of a segment, L 64."""
    return sketches.astype(_FLOAT).tobytes()


def decode_sketches(content: bytes, *, layers: int) -> Floats:
    """Return a class's sketches of a segment, L 64. Raises `LedgerError` for another size."""
    size = sketch_bytes(layers)
    if len(content) != size:
        raise LedgerError(f"sketches of a class: found {len(content)} bytes, expected {size}")
    return np.frombuffer(content, dtype=_FLOAT).astype(np.float32).reshape(layers, SKETCH)


def _step(classes: tuple[int, ...], by_class: Floats, joint: JointNumbers) -> StepNumbers:
    """Return one step from its classes' numbers, k L 2, and its joint content."""
    k, layers = by_class.shape[:2]
    weights, norms = (np.ascontiguousarray(by_class[:, :, column]) for column in range(_COLUMNS))
    rows, columns = np.triu_indices(k, 1)
    gram = np.zeros((layers, k, k), dtype=np.float32)
    gram[:, rows, columns] = gram[:, columns, rows] = joint.products
    gram[:, range(k), range(k)] = diagonal(weights, norms).T
    return StepNumbers(
        classes=classes,
        weights=weights,
        norms=norms,
        dots=np.ascontiguousarray(joint.dots.T),
        gram=gram,
        updates=joint.updates,
        exact=None if joint.exact is None else np.ascontiguousarray(joint.exact.T),
    )


def _read(content: bytes, size: int) -> Floats:
    """Return the numbers of content that has `size` bytes for each step."""
    if size == 0 or len(content) % size:
        raise LedgerError(f"numbers of a class: found {len(content)} bytes, expected a multiple of {size}")
    return np.frombuffer(content, dtype=_FLOAT).astype(np.float32)
