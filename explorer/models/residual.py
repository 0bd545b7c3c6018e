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
        inside = branch()
        if not self.training and self.survival != 1:
            inside = inside * self.survival
        elif self.training and isinstance(self.kept, Tensor):
            inside = inside * self.kept.to(inside).view(-1, *[1] * (inside.ndim - 1))
        return (around if isinstance(around, Tensor) else around()) + inside
