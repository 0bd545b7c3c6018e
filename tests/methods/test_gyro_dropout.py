"""Gyro dropout: its masks, who has which when, and where it stands."""

import numpy as np
import pytest
import torch
from torch import nn

from explorer.data.streams import stream
from explorer.engine.loop import Loop
from explorer.engine.method import Method
from explorer.engine.state import State
from explorer.errors import RecipeError
from explorer.methods.gyro_dropout import (
    GyroDropout,
    MaskDropout,
    apply_gyro_dropout,
    drop,
    masked,
    masks_of_slots,
    period_of,
)
from explorer.methods.sam import SAM
from tests.data_for_tests import typed
from tests.loop_for_tests import noise_loop, small_net


def test_dropping_in_float64() -> None:
    draws = np.random.default_rng(0)
    x, kept = draws.normal(size=(5, 7)), draws.random((5, 7)) < 0.5
    found = drop(torch.from_numpy(x), kept_BC=torch.from_numpy(kept), rate=0.3)
    np.testing.assert_allclose(found, x * kept / 0.7, rtol=1e-12)


@pytest.mark.parametrize("steps, masks, together, length", [(1000, 256, 16, 48), (100, 256, 16, 16), (256, 256, 4, 4)])
def test_a_choice_holds_for_its_period(steps: int, masks: int, together: int, length: int) -> None:
    """floor(T / masks) x together steps, and `together` steps where there are fewer steps than masks."""
    periods = [period_of(step, total_steps=steps, masks=masks, together=together) for step in range(steps)]
    assert periods == [step // length for step in range(steps)]


@pytest.mark.parametrize("together, batch_size", [(4, 16), (3, 16), (8, 5), (1, 4)])
def test_each_mask_has_about_as_many_slots(together: int, batch_size: int) -> None:
    found = masks_of_slots(np.random.default_rng(0), masks=9, together=together, batch_size=batch_size)
    counts = np.unique(found, return_counts=True)[1]
    assert len(found) == batch_size and len(counts) == min(together, batch_size)
    assert counts.max() - counts.min() <= 1


def gyro_loop(*methods: Method, **options: object) -> Loop:
    return noise_loop(list(methods), **options)  # pyright: ignore[reportArgumentType]


def dropped(loop: Loop) -> list[torch.Tensor]:
    """Which features each training pass from now on drops, of features that are not zero."""
    seen: list[torch.Tensor] = []

    def look(module: nn.Module, inputs: tuple[torch.Tensor], output: torch.Tensor) -> None:
        if module.training and module.mask_of_rows is not None:
            seen.append((output == 0) & (inputs[0] != 0) | (inputs[0] == 0))

    for module in loop.setting.model.modules():
        if isinstance(module, MaskDropout):
            module.register_forward_hook(look)  # pyright: ignore[reportArgumentType]
    return seen


def tanh_net() -> nn.Sequential:
    return nn.Sequential(nn.Flatten(), nn.Linear(48, 12), nn.Tanh(), nn.Dropout(0.9), nn.Linear(12, 3))


def test_the_steps_of_a_period_have_the_masks_of_their_slots() -> None:
    method = GyroDropout(rate=0.4, masks=5, together=2)
    loop = gyro_loop(method, model=tanh_net(), total_steps=10, microbatch_size=3)
    seen = dropped(loop)
    for _ in range(10):
        loop.step()
    masks = stream(0, "gyro_dropout", "masks", "3").random((5, 12), dtype=np.float32) < 0.4
    for step in range(10):
        chosen = stream(0, "gyro_dropout", "choice", step // 4).choice(5, 2, replace=False)  # 10 // 5 x 2 steps
        expected = masks[chosen[np.arange(8) * 2 // 8]]
        found = torch.cat(seen[3 * step : 3 * step + 3]).numpy()
        assert (found == expected).all()


def test_the_layers_are_found_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """And every step sets those that the model runs."""
    loop = gyro_loop(GyroDropout(rate=0.4, masks=5, together=2), model=tanh_net(), total_steps=10)
    seen = dropped(loop)
    loop.step()
    monkeypatch.setattr(nn.Module, "named_modules", lambda *_, **__: pytest.fail("a step walks the modules"))
    with pytest.raises(pytest.fail.Exception):
        masked(loop.setting.model)
    loop.step()
    assert len(seen) == 2 and all(rows.any() for rows in seen)


def test_it_stands_for_every_dropout_with_its_own_rate() -> None:
    model = nn.Sequential(nn.Dropout(0.9), nn.Sequential(nn.Dropout(0.1)), nn.Linear(4, 4))
    assert apply_gyro_dropout(model, rate=0.25) == ["0", "1.0"]
    assert [module.rate for module in model.modules() if isinstance(module, MaskDropout)] == [0.25, 0.25]


def test_without_dropout_it_stands_before_the_last_linear_layer() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2)).double()
    names, x = list(model.state_dict()), torch.randn(2, 3, dtype=torch.float64)
    plain = model(x)
    assert apply_gyro_dropout(model, rate=0.5, masks=3) == ["1"]
    assert list(model.state_dict()) == names and torch.equal(model(x), plain), "nothing is dropped unless it is told"
    (dropout,) = (module for module in model.modules() if isinstance(module, MaskDropout))
    dropout.mask_of_rows = torch.tensor([2, 0])
    kept = stream(0, "gyro_dropout", "masks", "1").random((3, 4), dtype=np.float32) >= 0.5
    hidden = model[0](x) * torch.from_numpy(kept[[2, 0]]) / 0.5
    torch.testing.assert_close(model(x), nn.functional.linear(hidden, *model[1].parameters()))
    model.eval()
    assert torch.equal(model(x), plain)
    with pytest.raises(RecipeError, match="gyro_dropout: found nothing to change"):
        apply_gyro_dropout(model)


def test_leaving_a_class_out_changes_nothing_for_the_others() -> None:
    class Alone(GyroDropout):
        def change_plan(self, state: State) -> None:
            state.shares = tuple(share for share in state.shares if share.code == 2)

    both, alone = (
        gyro_loop(kind(masks=8, together=8), model=tanh_net(), typing=typed()) for kind in (GyroDropout, Alone)
    )
    seen, fewer = dropped(both), dropped(alone)
    both.step()
    alone.step()
    assert torch.equal(seen[1], fewer[0]) and not torch.equal(seen[0], seen[1])


def test_sam_s_second_pass_has_the_masks_of_the_first() -> None:
    loop = gyro_loop(GyroDropout(masks=4, together=4), SAM(), model=tanh_net())
    seen = dropped(loop)
    loop.step()
    assert len(seen) == 2 and torch.equal(*seen)


def test_rate_zero_is_the_plain_run() -> None:
    method = GyroDropout().neutral()
    ours, plain = gyro_loop(method, model=small_net()), gyro_loop(model=small_net())
    assert [float(ours.step()) for _ in range(3)] == [float(plain.step()) for _ in range(3)]


def test_what_it_cannot_serve_is_refused_before_training() -> None:
    with pytest.raises(RecipeError, match="expected dropout, or else a linear layer"):
        apply_gyro_dropout(nn.Conv2d(1, 1, 1))
    model = nn.Sequential(nn.Dropout(), small_net())  # before a convolution: four dimensions
    with pytest.raises(RecipeError, match="gyro_dropout: found 4 dimensions in 0: expected 2, rows of features"):
        gyro_loop(GyroDropout(), model=model)
    with pytest.raises(RecipeError, match="found together 5 and masks 4"):
        GyroDropout(masks=4, together=5)
