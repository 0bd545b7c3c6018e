"""Low-precision layer normalisation: rounded in, rounded out, and exact between."""

import numpy as np
import pytest
import torch
from torch import nn

from explorer.errors import RecipeError
from explorer.methods.low_precision_layernorm import LowPrecisionLayerNorm, apply_low_precision_layernorm
from tests.loop_for_tests import noise_loop, small_net
from tests.planned_for_tests import planned


def rounded(values: torch.Tensor) -> np.ndarray:
    return values.detach().to(torch.bfloat16).double().numpy()


def layer() -> nn.LayerNorm:
    norm = nn.LayerNorm([5, 6])
    draws = torch.Generator().manual_seed(0)
    nn.init.normal_(norm.weight, generator=draws)
    nn.init.normal_(norm.bias, generator=draws)
    return norm


def rows() -> torch.Tensor:
    return torch.randn(3, 5, 6, generator=torch.Generator().manual_seed(1)) + 1


def test_against_float64_on_rounded_numbers() -> None:
    norm, x = layer(), rows()
    apply_low_precision_layernorm(norm)
    with torch.autocast("cpu", torch.bfloat16):
        found = norm(x)
        assert torch.is_autocast_enabled("cpu")
    numbers = rounded(x).reshape(3, 30)
    centred = numbers - numbers.mean(1, keepdims=True)
    normal = (centred / np.sqrt((centred**2).mean(1, keepdims=True) + norm.eps)).reshape(3, 5, 6)
    expected = normal * rounded(norm.weight) + rounded(norm.bias)
    assert found.dtype == torch.bfloat16
    np.testing.assert_allclose(found.detach().double(), expected, rtol=2**-8, atol=1e-3)


def test_torch_alone_gives_fp32_for_fp32() -> None:
    """The control: without the surgery, what comes in fp32 goes out in fp32."""
    with torch.autocast("cpu", torch.bfloat16):
        assert layer()(rows()).dtype == torch.float32


def test_without_autocast_nothing_changes() -> None:
    plain, norm = layer(), layer()
    assert apply_low_precision_layernorm(norm) == [""]
    assert torch.equal(norm(rows()), plain(rows()))
    bare = nn.LayerNorm([5, 6], elementwise_affine=False)
    apply_low_precision_layernorm(bare)
    with torch.autocast("cpu", torch.bfloat16):
        assert bare(rows()).dtype == torch.bfloat16


def test_a_run_in_fp32_is_the_plain_one_and_one_in_bf16_is_not() -> None:
    losses = {}
    for precision in ("fp32", "bf16"):
        for methods in ((), (LowPrecisionLayerNorm(),)):
            model = nn.Sequential(nn.LayerNorm([2, 6, 4]), nn.Flatten(), nn.Linear(48, 3))  # it meets images in fp32
            loop = noise_loop(methods, model=model, precision=precision)
            losses[precision, bool(methods)] = [float(loop.step()) for _ in range(3)]
    assert losses["fp32", True] == losses["fp32", False]
    assert losses["bf16", True] != losses["bf16", False]


def test_what_it_cannot_serve() -> None:
    with pytest.raises(
        RecipeError, match="low_precision_layernorm: found nothing to change in Sequential: expected layer"
    ):
        apply_low_precision_layernorm(small_net("group"))
    with pytest.raises(RecipeError, match=r"^found precision fp32, where it changes nothing"):
        LowPrecisionLayerNorm().check(planned(precision="fp32"))
    LowPrecisionLayerNorm().check(planned(precision="bf16"))
