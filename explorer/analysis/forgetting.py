"""Whether a model behaves as if it had never seen a target: numbers beside those of models trained without it.

None of this is proof. A model may hide what it learned from every one of these measurements, and a model that knows
nothing at all passes those of forgetting, which is why those of retaining stand beside them.

Membership is tested example by example, as in U-LiRA (Hayes et al., "Inexact Unlearning Needs More Careful Evaluations
to Avoid a False Sense of Privacy", 2024, arXiv:2403.01218) and in the attack that it takes up (Carlini et al.,
"Membership Inference Attacks From First Principles", 2022, arXiv:2112.03570). How sure models are of an example is
near Gaussian over models that never saw it, when it is measured as the logit of exp(-loss). With Gaussians of one
width, the likelihood ratio of "saw it" to "did not" grows with the distance from their mean, whatever it is that
seeing an example adds; so that distance is the score. A width for each example would take dozens of references: one
for all is what few of them bear, and it changes no order. The area under the curve says how often an example's score
by the model is above its score by a reference that was held out of the mean: 0.5 is what chance gives.

Its interval is over examples and is right for these models only. How far the seed of a training run moves it, the
references say themselves, each held against the others: they lie about 0.5 by symmetry, and their spread is the noise.
With three references the mean that a score is taken from is that of one or two models: weak, and told by that spread.

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
LEAST = 3  # references: where one of them is scored, another is held out, and of the rest there is a mean
SURE = 1e-12  # nats: a smaller loss is as good as none


class Measured(Protocol):
    """What a model did."""

    @property
    def seed(self) -> int: ...
    @property
    def target_N(self) -> np.ndarray: ...  # loss of examples of the target, nats
    @property
    def others_M(self) -> np.ndarray: ...  # loss of other training examples, nats
    @property
    def quality(self) -> float: ...  # the metric on the test side
    @property
    def relearned(self) -> int | None: ...  # steps to the original's loss on the target; None: more than were tried


@dataclass(frozen=True, kw_only=True, slots=True)
class Seeds:
    """A number over models that differ in their seed."""

    mean: float
    low: float  # of the mean
    high: float
    least: float  # where one more such model lies with the same confidence
    most: float
    n: int

    def expects(self, value: float) -> bool:
        """Whether one more such model may well have this number."""
        return self.least <= value <= self.most


@dataclass(frozen=True, kw_only=True, slots=True)
class Membership:
    """How well the scores of the target's examples tell the model from references that were held out."""

    auc: float
    low: float  # over examples
    high: float
    references: int  # held out, in turn


@dataclass(frozen=True, kw_only=True, slots=True)
class Findings:
    """The numbers of one model; whether its losses and its quality are exactly those of the reference of its seed."""

    target: float
    others: float
    quality: float
    relearned: int | None
    membership: Membership
    same: bool | None  # None: no reference has its seed


@dataclass(frozen=True, kw_only=True, slots=True)
class Reference:
    """The same over the references; each was judged by the others."""

    target: Seeds
    others: Seeds
    quality: Seeds
    auc: Seeds  # about 0.5, by symmetry
    relearned: Seeds | None  # None: one of them did not get there


def judge(model: Measured, references: Sequence[Measured]) -> Findings:
    """One model beside the references of other seeds: what came of the same draws is no independent witness.

    Raises `AnalysisError` for fewer than two of these, and for losses that are not of the same examples or not finite.
    """
    others = [each for each in references if each.seed != model.seed]
    twin = next((each for each in references if each.seed == model.seed), None)
    return Findings(
        target=float(model.target_N.mean()),
        others=float(model.others_M.mean()),
        quality=model.quality,
        relearned=model.relearned,
        membership=membership(model.target_N, [each.target_N for each in others]),
        same=None if twin is None else same(model, twin),
    )


def reference(references: Sequence[Measured], *, confidence: float = 0.95) -> Reference:
    """The references, each beside the others. Raises `AnalysisError` for fewer than three, or two of one seed."""
    seeds = [each.seed for each in references]
    if len(seeds) < LEAST or len(set(seeds)) < len(seeds):
        raise AnalysisError(f"references: found seeds {seeds}; expected at least {LEAST} different ones")
    areas = [
        float(auc(*_scores(each.target_N, [other.target_N for other in references if other is not each])).mean())
        for each in references
    ]
    steps = [float(each.relearned) for each in references if each.relearned is not None]
    return Reference(
        target=over_seeds([float(each.target_N.mean()) for each in references], confidence=confidence),
        others=over_seeds([float(each.others_M.mean()) for each in references], confidence=confidence),
        quality=over_seeds([each.quality for each in references], confidence=confidence),
        auc=over_areas(areas, examples=len(references[0].target_N), confidence=confidence),
        relearned=over_seeds(steps, confidence=confidence) if len(steps) == len(references) else None,
    )


def same(one: Measured, other: Measured) -> bool:
    """Whether two models did exactly the same: not close, equal."""
    return (
        np.array_equal(one.target_N, other.target_N)
        and np.array_equal(one.others_M, other.others_M)
        and (one.quality, one.relearned) == (other.quality, other.relearned)
    )


def over_seeds(values: Sequence[float], *, confidence: float = 0.95) -> Seeds:
    """Mean, its interval and the range of one more, by Student's t. Raises `AnalysisError` for a single value."""
    n = len(values)
    if n < 2:
        raise AnalysisError(f"found {n} seeds; expected at least 2 for an interval")
    mean, deviation = float(np.mean(values)), float(np.std(values, ddof=1))
    t = float(t_quantile(confidence, n - 1))
    half, reach = t * deviation / math.sqrt(n), t * deviation * math.sqrt(1 + 1 / n)
    return Seeds(mean=mean, low=mean - half, high=mean + half, least=mean - reach, most=mean + reach, n=n)


def over_areas(areas: Sequence[float], *, examples: int, confidence: float = 0.95) -> Seeds:
    """The same of areas under curves. They end at 0 and 1, so this is done where nothing ends: with the distance of two
    Gaussians that have this area between them, no farther than so many examples can tell."""
    farthest = 1 / (2 * examples**2)
    found = over_seeds([float(ndtri(min(max(each, farthest), 1 - farthest))) for each in areas], confidence=confidence)
    ends = {name: float(ndtr(getattr(found, name))) for name in ("mean", "low", "high", "least", "most")}
    return Seeds(**ends, n=found.n)


def membership(
    model_N: np.ndarray, references_RN: Sequence[np.ndarray], *, confidence: float = 0.95, resamples: int = RESAMPLES
) -> Membership:
    """The test of one model, from losses of the same examples. Raises `AnalysisError` as `judge` does."""
    scores_RN, held_RN = _scores(model_N, references_RN)
    count, examples = scores_RN.shape
    draws_BN = generator("membership", examples, count).integers(0, examples, size=(resamples, examples))
    areas_RB = [auc(mine_N[draws_BN], its_N[draws_BN]) for mine_N, its_N in zip(scores_RN, held_RN, strict=True)]
    low, high = np.quantile(np.mean(areas_RB, axis=0), [(1 - confidence) / 2, (1 + confidence) / 2])
    return Membership(auc=float(auc(scores_RN, held_RN).mean()), low=float(low), high=float(high), references=count)


def _scores(model_N: np.ndarray, references_RN: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Where each reference in turn is held out: the scores of the model and those of that reference, R N each."""
    if len(references_RN) < 2:
        raise AnalysisError(f"found {len(references_RN)} references of other seeds; expected at least 2")
    sure_N, sure_RN = confident(model_N), np.stack([confident(each) for each in references_RN])
    if sure_N.shape != sure_RN.shape[1:] or not len(sure_N):
        raise AnalysisError(f"found losses of {len(sure_N)} and {sure_RN.shape[1:]} examples; expected the same, not 0")
    mean_RN = (sure_RN.sum(axis=0) - sure_RN) / (len(sure_RN) - 1)  # of the others
    return sure_N - mean_RN, sure_RN - mean_RN


def confident(losses_N: np.ndarray) -> np.ndarray:
    """The logit of exp(-loss): near Gaussian over models. Raises `AnalysisError` for a loss that is none.

    >>> confident(np.log([2.0, 4.0])).round(3)
    array([ 0.   , -1.099])
    """
    if not (np.isfinite(losses_N).all() and (losses_N >= 0).all()):
        raise AnalysisError("found a loss that is not finite or below 0; expected nats")
    large_N = np.maximum(losses_N, SURE)
    return -(large_N + np.log(-np.expm1(-large_N)))


def auc(positive_P: np.ndarray, negative_Q: np.ndarray) -> np.ndarray:
    """The probability that a positive one is above a negative one, half of the ties included; along the last axis.

    >>> float(auc(np.array([1.0, 3.0]), np.array([0.0, 1.0])))
    0.875
    """
    count, others = positive_P.shape[-1], negative_Q.shape[-1]
    ranks_P = rankdata(np.concatenate([positive_P, negative_Q], axis=-1), axis=-1)[..., :count]
    return (ranks_P.sum(axis=-1) - count * (count + 1) / 2) / (count * others)
