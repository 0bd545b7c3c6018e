"""Where a residual branch joins what goes around it; it can be left out for a pass.

Stochastic depth (Huang et al., "Deep Networks with Stochastic Depth", 2016, arXiv:1603.09382) acts here and nowhere
else, so it serves every model whose blocks add through gates.
"""

from collections.abc import Callable

from torch import Tensor, nn

Way = Callable[[], Tensor]


class Gate(nn.Module):
    """A sum of what goes around a branch and the branch; without parameters. As it is built: the plain sum.

    In training, `kept` says whether the branch takes part in this pass: None or True, it does; False, it is not even
    computed; numbers B, one an example, multiply it. In evaluation, `kept` does not count and the branch is multiplied
    by `survival`, the probability that it takes part in training. `width` is the number of channels of the sum.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.width = width
        self.survival = 1.0
        self.kept: bool | Tensor | None = None

    def forward(self, around: Tensor | Way, branch: Way) -> Tensor:
        """Return the sum. What goes around is a tensor, or a path of its own that runs after the branch."""
        if self.training and self.kept is False:
            return around if isinstance(around, Tensor) else around()
        inside = branch()
        if not self.training and self.survival != 1:
            inside = inside * self.survival
        elif self.training and isinstance(self.kept, Tensor):
            inside = inside * self.kept.to(inside).view(-1, *[1] * (inside.ndim - 1))
        return (around if isinstance(around, Tensor) else around()) + inside
