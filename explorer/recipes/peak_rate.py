"""The most floating-point operations that a device makes in a second, by which the utilisation of a run is judged.

For known GPUs it is that of the data sheet, of dense products in the precision of the run. A CPU's clock depends on the
instructions and on how many cores are busy, so its data sheet says little: there the best of a few matrix products
counts, with the threads of the run. Any other device has no figure, and its runs no utilisation.
"""

import time

import torch

from explorer.engine.precision import HALF
from explorer.run_files import Hardware

PRODUCT = 512  # rows and columns: three matrices fit into the cache of a core
PRODUCTS = 10

# Dense figures in 10^12 a second, from NVIDIA's data sheets of the H200, H100, A100, L40S, L4 and T4 Tensor Core GPUs.
# Those of Hopper and Ada print twice as much for tensor cores, with sparsity.
_HOPPER = {"fp32": 67.0, "tf32": 494.7, "bf16": 989.4, "fp16": 989.4}
_AMPERE = {"fp32": 19.5, "tf32": 156.0, "bf16": 312.0, "fp16": 312.0}
DATA_SHEETS: dict[str, dict[str, float]] = {
    "NVIDIA H200": _HOPPER,
    "NVIDIA H100 80GB HBM3": _HOPPER,
    "NVIDIA H100 PCIe": {"fp32": 51.0, "tf32": 378.0, "bf16": 756.0, "fp16": 756.0},
    "NVIDIA A100-SXM4-40GB": _AMPERE,
    "NVIDIA A100-SXM4-80GB": _AMPERE,
    "NVIDIA A100-PCIE-40GB": _AMPERE,
    "NVIDIA A100 80GB PCIe": _AMPERE,
    "NVIDIA L40S": {"fp32": 91.6, "tf32": 183.0, "bf16": 362.0, "fp16": 362.0},
    "NVIDIA L4": {"fp32": 30.3, "tf32": 60.0, "bf16": 121.0, "fp16": 121.0},
    "Tesla T4": {"fp32": 8.1, "fp16": 65.0},
}


def peak_rate(hardware: Hardware, precision: str) -> tuple[float | None, str]:
    """Return the operations a second of all devices of a run on this machine, and how they are known; None and an empty
    text for a device without a figure."""
    if hardware.device == "cpu":
        source = f"the best of {PRODUCTS} {precision} matrix products on this machine"
        return _measured(precision) * hardware.world_size, source
    figure = DATA_SHEETS.get(hardware.name, {}).get(precision)
    if figure is None:
        return None, ""
    return figure * 1e12 * hardware.world_size, f"data sheet of {hardware.name}, {precision}, dense"


def _measured(precision: str) -> float:
    factor = torch.full((PRODUCT, PRODUCT), 0.5, dtype=HALF.get(precision, torch.float32))
    seconds: list[float] = []
    for _ in range(PRODUCTS):
        start = time.perf_counter()
        torch.matmul(factor, factor)
        seconds.append(time.perf_counter() - start)
    return 2 * PRODUCT**3 / min(seconds)
