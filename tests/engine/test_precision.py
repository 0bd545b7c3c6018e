"""Number formats: what they round, where they hold, and what a device gains by them."""

import pytest
import torch
from torch import nn

from explorer.engine.loop import Loop
from explorer.engine.precision import Precision, allow_tf32, choose_precision, drawback, is_native
from explorer.engine.precision import tf32_allowed as flags
from tests.data_for_tests import CPU
from tests.loop_for_tests import noise_loop, small_net

GPU = torch.device("cuda", 0)


class Watching(nn.Identity):
    """Notes whether tf32 is allowed, forward and backward."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[str, tuple[bool, bool]]] = []

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        self.seen.append(("forward", flags()))
        if input.requires_grad:
            input.register_hook(lambda _: self.seen.append(("backward", flags())))
        return input


def watched(precision: Precision) -> tuple[Loop, Watching]:
    net, watching = small_net(), Watching()
    net[4] = watching
    loop = noise_loop(model=net, precision=precision)
    watching.seen.clear()  # the layers were discovered in a pass
    return loop, watching


def test_tf32_holds_in_the_passes_of_its_run_and_nowhere_else() -> None:
    """Neither evaluation nor the next run of the process has it; the control is fp32, whose passes have none."""
    allow_tf32(False, False)
    loop, watching = watched("tf32")
    loop.step()
    assert watching.seen == [("forward", (True, True)), ("backward", (True, True))]
    assert flags() == (False, False)
    watching.seen.clear()
    loop.evaluate()
    plain, other = watched("fp32")
    plain.step()
    assert {seen for _, seen in watching.seen + other.seen} == {(False, False)}


def test_tf32_ends_with_a_pass_that_fails() -> None:
    allow_tf32(False, False)
    loop, watching = watched("tf32")
    watching.register_forward_hook(lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        loop.step()
    assert flags() == (False, False)


def test_what_gains_nothing_on_a_device_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """The control: where the hardware has the format, nothing is said."""
    for native in (False, True):
        monkeypatch.setattr("torch.cpu._is_avx512_bf16_supported", lambda native=native: native)
        monkeypatch.setattr("torch.cpu._is_amx_tile_supported", lambda native=native: native)
        monkeypatch.setattr("torch.cpu._is_amx_fp16_supported", lambda native=native: native)
        for precision in ("bf16", "fp16"):
            words = drawback(CPU, precision, hardware="a CPU")
            assert words == (
                None
                if native
                else f"{precision} is emulated on a CPU: results are right, steps are slower than in fp32"
            )
        chosen = choose_precision(CPU, hardware="a CPU")
        assert chosen.precision == ("bf16" if native else "fp32")
    assert drawback(CPU, "fp32", hardware="a CPU") is None
    assert drawback(CPU, "tf32", hardware="a CPU") == (
        "tf32 changes nothing on a CPU, which computes in fp32: GPUs have it from Ampere on"
    )


@pytest.mark.parametrize(("capability", "has"), [((7, 5), False), ((8, 0), True), ((9, 0), True)])
def test_gpus_have_tf32_from_ampere_on(capability: tuple[int, int], has: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.get_device_capability", lambda _: capability)
    monkeypatch.setattr("torch.cuda.is_bf16_supported", lambda including_emulation: capability >= (8, 0))
    assert is_native(GPU, "tf32") is is_native(GPU, "bf16") is has
    assert is_native(GPU, "fp16") and is_native(GPU, "fp32")
    assert choose_precision(GPU, hardware="a GPU").precision == ("bf16" if has else "fp32")
