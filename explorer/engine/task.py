"""What training needs to know of a task beside the model: its loss and its metrics.

Shapes: B examples, K classes.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from explorer.data.batches import Batches

EVALUATION_BATCH = 512


@dataclass(frozen=True, kw_only=True, slots=True)
class Classification:
    """One label an example: cross-entropy; accuracy (fraction) and negative log-likelihood (nats)."""

    classes: int

    def loss(self, outputs_BK: Tensor, targets: Tensor) -> Tensor:
        """The loss of each example, B, for targets as indices (B) or distributions (B K)."""
        return F.cross_entropy(outputs_BK, targets, reduction="none")

    @torch.no_grad()
    def evaluate(self, model: nn.Module, batches: Batches) -> dict[str, float]:
        """The metrics on the test side: the model in evaluation mode, fp32, sums in float64."""
        model.eval()
        test = batches.dataset.test
        right = 0
        nll = 0.0
        for start in range(0, len(test), EVALUATION_BATCH):
            rows = slice(start, start + EVALUATION_BATCH)
            labels = test.labels[rows].to(batches.device)
            logits = model(batches.normalise(test.images[rows])).to(torch.float64)
            right += int((logits.argmax(1) == labels).sum())
            nll += float(F.cross_entropy(logits, labels, reduction="sum"))
        return {"accuracy": right / len(test), "nll": nll / len(test)}
