"""Number formats of the forward and backward pass. Parameters, sums and evaluation are always in fp32.

fp32    nothing is rounded
tf32    products of matrices and convolutions round their inputs to 10 bits, on GPUs from Ampere on; the rest is fp32
bf16    by autocast: 8 bits, and the range of fp32
fp16    by autocast: 11 bits, and numbers up to 65,504 only, so that losses are scaled (engine/loss_scale.py)

Micikevicius et al. 2018, arXiv:1710.03740; Kalamkar et al. 2019, arXiv:1905.12322; NVIDIA A100 whitepaper, 2020.
"""

from contextlib import AbstractContextManager, nullcontext
from typing import Literal, NamedTuple

import torch

Precision = Literal["fp32", "tf32", "bf16", "fp16"]
Kernels = Literal["strict", "fast"]  # deterministic ones only, or any
HALF = {"bf16": torch.bfloat16, "fp16": torch.float16}  # the formats of autocast
TF32_SINCE = (8, 0)  # compute capability of Ampere


class _Rounded:
    """A context, to be entered any number of times, in which fp32 products may round their inputs to tf32."""

    def __init__(self) -> None:
        self._before: list[tuple[bool, bool]] = []

    def __enter__(self) -> None:
        self._before.append(tf32_allowed())
        allow_tf32(True, True)

    def __exit__(self, *_: object) -> None:
        allow_tf32(*self._before.pop())


def tf32_allowed() -> tuple[bool, bool]:
    """Return whether products of matrices and convolutions in fp32 may round their inputs."""
    return bool(torch.backends.cuda.matmul.allow_tf32), torch.backends.cudnn.allow_tf32


def allow_tf32(products: bool, convolutions: bool) -> None:
    """Say whether they may, in this process."""
    torch.backends.cuda.matmul.allow_tf32 = products
    torch.backends.cudnn.allow_tf32 = convolutions


def autocast(device: torch.device, precision: Precision) -> AbstractContextManager[object]:
    """Return the context in which the forward pass runs."""
    if precision == "tf32":
        return _Rounded()
    return torch.autocast(device.type, dtype=HALF.get(precision, torch.bfloat16), enabled=precision in HALF)


def backward_modes(precision: Precision) -> AbstractContextManager[object]:
    """Return the context in which the backward pass runs: autocast remembers the formats of the forward pass."""
    return _Rounded() if precision == "tf32" else nullcontext()


def autocast_type(device: torch.device) -> torch.dtype | None:
    """Return autocast's present number format for this kind of device; None where autocast is off."""
    return torch.get_autocast_dtype(device.type) if torch.is_autocast_enabled(device.type) else None


# --- by device ---


def is_native(device: torch.device, precision: Precision) -> bool:
    """Return whether the hardware computes in this format. Where it does not, results are right, and slow."""
    if precision == "fp32":
        return True
    if device.type == "cuda":
        if precision == "tf32":
            return torch.cuda.get_device_capability(device) >= TF32_SINCE
        return precision == "fp16" or torch.cuda.is_bf16_supported(including_emulation=False)
    if precision == "bf16":
        return torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()
    return precision == "fp16" and torch.cpu._is_amx_fp16_supported()


def drawback(device: torch.device, precision: Precision, *, hardware: str) -> str | None:
    """Return a sentence where the format gains nothing on this hardware; None where it may."""
    if is_native(device, precision):
        return None
    if precision == "tf32":
        return f"tf32 changes nothing on {hardware}, which computes in fp32: GPUs have it from Ampere on"
    return f"{precision} is emulated on {hardware}: results are right, steps are slower than in fp32"


class Chosen(NamedTuple):
    """A precision that the device decided, and the reason in a sentence."""

    precision: Precision
    why: str


def choose_precision(device: torch.device, *, hardware: str) -> Chosen:
    """Return the fastest format that needs no loss scale. GPUs with tf32 have bf16, which is faster still."""
    if is_native(device, "bf16"):
        return Chosen("bf16", f"precision: auto is bf16 on {hardware}, which multiplies in it")
    return Chosen("fp32", f"precision: auto is fp32 on {hardware}, where bf16 would be emulated and slower")
