"""Gates: the addition of residual branches, which can be omitted in a pass.

Stochastic depth (Huang et al., "Deep Networks with Stochastic Depth", 2016, arXiv:1603.09382) acts only here, so it
works in every model whose blocks add through gates.
"""

from collections.abc import Callable

from torch import Tensor, nn

Way = Callable[[], Tensor]


class Gate(nn.Module):
    """Sum of a shortcut and a residual branch, without parameters. Initially the plain sum.

    In training, `kept` decides about the branch in this pass: None or True, it takes part; False, it is not computed;
    numbers B, one for each example, multiply it. In evaluation `kept` has no effect, and the branch is multiplied by
    `survival`, the probability that it takes part in training. `width` is the number of channels of the sum.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.width = width
        self.survival = 1.0
        self.kept: bool | Tensor | None = None

    def forward(self, around: Tensor | Way, branch: Way) -> Tensor:
        """Return the sum. The shortcut is a tensor, or a function that is called after the branch."""
        # Branch first: its layers then come first in the order of use, which is that of depth in the model.
        if self.training and self.kept is False:
            return around if isinstance(around, Tensor) else around()
        inside = weighed(branch(), self.kept, self.survival, training=self.training)
        return (around if isinstance(around, Tensor) else around()) + inside


def weighed(inside: Tensor, kept: bool | Tensor | None, survival: float, *, training: bool) -> Tensor:
    """Return a branch's output times `kept` in training, if that holds numbers, and times `survival` in evaluation."""
    if not training and survival != 1:
        return inside * survival
    if training and isinstance(kept, Tensor):
        return inside * kept.to(inside).view(-1, *[1] * (inside.ndim - 1))
    return inside
