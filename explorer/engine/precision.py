"""Number formats of the forward and backward pass: fp32, or bf16 by autocast with fp32 parameters and reductions.

Micikevicius et al. 2018, arXiv:1710.03740; Kalamkar et al. 2019, arXiv:1905.12322. Evaluation is always in fp32.
"""

from contextlib import AbstractContextManager
from typing import Literal

import torch

Precision = Literal["fp32", "bf16"]


def autocast(device: torch.device, precision: Precision) -> AbstractContextManager[object]:
    """Return the context in which the forward pass runs."""
    return torch.autocast(device.type, dtype=torch.bfloat16, enabled=precision == "bf16")


def autocast_type(device: torch.device) -> torch.dtype | None:
    """Return autocast's present number format for this kind of device; None where autocast is off."""
    return torch.get_autocast_dtype(device.type) if torch.is_autocast_enabled(device.type) else None


def native_bf16(device: torch.device) -> bool:
    """Return whether the hardware multiplies in bf16. Where it does not, bf16 is correct but slower than fp32."""
    if device.type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    return torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()
