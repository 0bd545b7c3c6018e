"""Forgetting: numbers of a model after a deletion, compared with those of models trained without the target.

None of this is proof. A model may hide what it learned from every one of these measurements, and a model that knows
nothing at all passes those of forgetting; so those of retaining are reported with them.

Membership is tested example by example, as in U-LiRA (Hayes et al., "Inexact Unlearning Needs More Careful Evaluations
to Avoid a False Sense of Privacy", 2024, arXiv:2403.01218) and in the attack that it extends (Carlini et al.,
"Membership Inference Attacks From First Principles", 2022, arXiv:2112.03570). The confidence of models in
an example, measured as the logit of exp(-loss), is close to Gaussian over models that never saw it. For Gaussians of
one width, the likelihood ratio of "saw it" to "did not" grows with the distance from their mean, whatever seeing an
example adds; so that distance is the score. A width for each example would take dozens of references; one width for all
needs few and changes no order. The area under the curve is how often an example's score by the model exceeds its score
by a reference that was left out of the mean: 0.5 by chance.

Its interval is over examples, and holds for these models only. The effect of a training run's seed shows in the
references, each judged by the others: they lie about 0.5 by symmetry, and their spread is the noise. With three
references the mean behind a score is that of one or two models, which is weak; the spread shows that too.

Shapes: N examples of the target, R references, B resamples.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from scipy.special import ndtr, ndtri
from scipy.stats import rankdata

from explorer.analysis.inference import generator, t_quantile
from explorer.errors import AnalysisError

RESAMPLES = 1000
LEAST = 3  # references: one is scored, another is left out, and a mean of the rest is needed
SURE = 1e-12  # nats: a smaller loss counts as this, because the logit of certainty is infinite


class Measured(Protocol):
    """Measurements of a model."""

    @property
    def seed(self) -> int: ...
    @property
    def target_N(self) -> np.ndarray: ...  # loss of examples of the target, nats
    @property
    def others_M(self) -> np.ndarray: ...  # loss of other training examples, nats
    @property
    def quality(self) -> float: ...  # the metric on the test side
    @property
    def relearned(self) -> int | None: ...  # steps to the original's loss on the target; None: more than the limit


@dataclass(frozen=True, kw_only=True, slots=True)
class Seeds:
    """A number over models that differ in their seed."""

    mean: float
    low: float  # of the mean
    high: float
    least: float  # prediction interval of one more such model
    most: float
    n: int

    def expects(self, value: float) -> bool:
        """Return whether the value lies in the prediction interval of one more such model."""
        return self.least <= value <= self.most


@dataclass(frozen=True, kw_only=True, slots=True)
class Membership:
    """How well the scores of the target's examples distinguish the model from references that were left out."""

    auc: float
    low: float  # over examples
    high: float
    references: int  # left out in turn


@dataclass(frozen=True, kw_only=True, slots=True)
class Findings:
    """Numbers of one model, and whether its losses and quality equal those of the reference with its seed."""

    target: float
    others: float
    quality: float
    relearned: int | None
    membership: Membership
    same: bool | None  # None: no reference has its seed


@dataclass(frozen=True, kw_only=True, slots=True)
class Reference:
    """Numbers of the references, each judged by the others."""

    target: Seeds
    others: Seeds
    quality: Seeds
    auc: Seeds  # about 0.5, by symmetry
    relearned: Seeds | None  # None: one of them did not get there


def judge(model: Measured, references: Sequence[Measured]) -> Findings:
    """Compare a model with the references of other seeds.

    The reference of its own seed drew the same initial weights and batches, so it is not independent; it serves only
    for the test of equality.

    Raises `AnalysisError` for fewer than two of these, and for losses that are not of the same examples or not finite.
    """
    others = [reference for reference in references if reference.seed != model.seed]
    twin = next((reference for reference in references if reference.seed == model.seed), None)
    return Findings(
        target=float(model.target_N.mean()),
        others=float(model.others_M.mean()),
        quality=model.quality,
        relearned=model.relearned,
        membership=membership(model.target_N, [reference.target_N for reference in others]),
        same=None if twin is None else same(model, twin),
    )


def reference(references: Sequence[Measured], *, confidence: float = 0.95) -> Reference:
    """Compare each reference with the others. Raises `AnalysisError` for fewer than three, or two of one seed."""
    seeds = [model.seed for model in references]
    if len(seeds) < LEAST or len(set(seeds)) < len(seeds):
        raise AnalysisError(f"references: found seeds {seeds}; expected at least {LEAST} different ones")
    areas = [
        float(auc(*_scores(model.target_N, [other.target_N for other in references if other is not model])).mean())
        for model in references
    ]
    steps = [float(model.relearned) for model in references if model.relearned is not None]
    return Reference(
        target=over_seeds([float(model.target_N.mean()) for model in references], confidence=confidence),
        others=over_seeds([float(model.others_M.mean()) for model in references], confidence=confidence),
        quality=over_seeds([model.quality for model in references], confidence=confidence),
        auc=over_areas(areas, examples=len(references[0].target_N), confidence=confidence),
        relearned=over_seeds(steps, confidence=confidence) if len(steps) == len(references) else None,
    )


def same(one: Measured, other: Measured) -> bool:
    """Return whether two models have equal measurements: not close, equal."""
    return (
        np.array_equal(one.target_N, other.target_N)
        and np.array_equal(one.others_M, other.others_M)
        and (one.quality, one.relearned) == (other.quality, other.relearned)
    )


def over_seeds(values: Sequence[float], *, confidence: float = 0.95) -> Seeds:
    """Return mean, its interval and the prediction interval, by Student's t. Raises `AnalysisError` for one value."""
    n = len(values)
    if n < 2:
        raise AnalysisError(f"found {n} seeds; expected at least 2 for an interval")
    mean, deviation = float(np.mean(values)), float(np.std(values, ddof=1))
    t = float(t_quantile(confidence, n - 1))
    half, reach = t * deviation / math.sqrt(n), t * deviation * math.sqrt(1 + 1 / n)
    return Seeds(mean=mean, low=mean - half, high=mean + half, least=mean - reach, most=mean + reach, n=n)


def over_areas(areas: Sequence[float], *, examples: int, confidence: float = 0.95) -> Seeds:
    """Return the same for areas under curves.

    Areas end at 0 and 1, where Student's t does not apply; so they are mapped to the distance of two Gaussians with
    that area, which has no ends, and back. An area of exactly 0 or 1 is moved inside by half a pair of examples.
    """
    farthest = 1 / (2 * examples**2)
    distances = over_seeds(
        [float(ndtri(min(max(area, farthest), 1 - farthest))) for area in areas], confidence=confidence
    )
    ends = {name: float(ndtr(getattr(distances, name))) for name in ("mean", "low", "high", "least", "most")}
    return Seeds(**ends, n=distances.n)


def membership(
    model_N: np.ndarray, references_RN: Sequence[np.ndarray], *, confidence: float = 0.95, resamples: int = RESAMPLES
) -> Membership:
    """Return the membership test of one model, from losses of the same examples. Raises as `judge` does."""
    scores_RN, held_RN = _scores(model_N, references_RN)
    count, examples = scores_RN.shape
    draws_BN = generator("membership", examples, count).integers(0, examples, size=(resamples, examples))
    areas_RB = [auc(mine_N[draws_BN], its_N[draws_BN]) for mine_N, its_N in zip(scores_RN, held_RN, strict=True)]
    # A percentile interval is enough here: a target has hundreds of examples, not a handful like seeds.
    low, high = np.quantile(np.mean(areas_RB, axis=0), [(1 - confidence) / 2, (1 + confidence) / 2])
    return Membership(auc=float(auc(scores_RN, held_RN).mean()), low=float(low), high=float(high), references=count)


def _scores(model_N: np.ndarray, references_RN: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Return, for each reference left out in turn, the scores of the model and of that reference, R N each."""
    if len(references_RN) < 2:
        raise AnalysisError(f"found {len(references_RN)} references of other seeds; expected at least 2")
    sure_N, sure_RN = confident(model_N), np.stack([confident(losses_N) for losses_N in references_RN])
    if sure_N.shape != sure_RN.shape[1:] or not len(sure_N):
        raise AnalysisError(f"found losses of {len(sure_N)} and {sure_RN.shape[1:]} examples; expected the same, not 0")
    mean_RN = (sure_RN.sum(axis=0) - sure_RN) / (len(sure_RN) - 1)  # of the others
    return sure_N - mean_RN, sure_RN - mean_RN


def confident(losses_N: np.ndarray) -> np.ndarray:
    """Return the logit of exp(-loss), close to Gaussian over models. Raises `AnalysisError` for an impossible loss.

    >>> confident(np.log([4.0, 8.0])).round(3)
    array([-1.099, -1.946])
    """
    if not (np.isfinite(losses_N).all() and (losses_N >= 0).all()):
        raise AnalysisError("found a loss that is not finite or below 0; expected nats")
    # log(p / (1 - p)) for p = exp(-loss), with expm1 because p is close to 1 for most examples.
    large_N = np.maximum(losses_N, SURE)
    return -(large_N + np.log(-np.expm1(-large_N)))


def auc(positive_P: np.ndarray, negative_Q: np.ndarray) -> np.ndarray:
    """Return the probability that a positive exceeds a negative, ties counted half; along the last axis.

    >>> float(auc(np.array([1.0, 3.0]), np.array([0.0, 1.0])))
    0.875
    """
    # The Mann-Whitney statistic: sorting ranks is O(n log n), where comparing all pairs is O(n^2).
    count, others = positive_P.shape[-1], negative_Q.shape[-1]
    ranks_P = rankdata(np.concatenate([positive_P, negative_Q], axis=-1), axis=-1)[..., :count]
    return (ranks_P.sum(axis=-1) - count * (count + 1) / 2) / (count * others)
