"""The perceptron and its gated form against their closed forms."""

import math

import pytest
import torch

from explorer.models.perceptron import GatedPerceptron, Perceptron, gated_hidden


def gelu(x: float) -> float:
    return x * (1 + math.erf(x / math.sqrt(2))) / 2


def test_the_gated_form_is_its_closed_form() -> None:
    """One place, two numbers wide: sum over hidden units of down * gelu(gate . x) * (up . x)."""
    made = GatedPerceptron(2, hidden=8, branches=1).double()
    for parameter in made.parameters():
        torch.nn.init.normal_(parameter)
    x = [0.7, -1.3]
    gate, up, down = (matrix.weight.tolist() for matrix in (made.gate, made.up, made.down))
    units = [
        gelu(sum(w * v for w, v in zip(gate[u], x, strict=True))) * sum(w * v for w, v in zip(up[u], x, strict=True))
        for u in range(8)
    ]
    expected = [sum(w * unit for w, unit in zip(row, units, strict=True)) for row in down]
    found = made(torch.tensor(x, dtype=torch.float64).view(1, 1, 2))
    assert found.flatten().tolist() == pytest.approx(expected, rel=1e-12)


def test_there_are_no_biases_and_nothing_in_is_nothing_out() -> None:
    assert [name for name, _ in GatedPerceptron(4, hidden=8, branches=1).named_parameters()] == [
        "gate.weight",
        "up.weight",
        "down.weight",
    ]
    assert not GatedPerceptron(4, hidden=8, branches=1)(torch.zeros(1, 3, 4)).any()


@pytest.mark.parametrize("hidden, expected", [(3072, 2048), (1024, 680), (352, 232), (48, 32), (8, 8), (1, 8)])
def test_two_thirds_to_the_nearest_eight(hidden: int, expected: int) -> None:
    assert gated_hidden(hidden) == expected
    assert hidden < 48 or abs(expected - 2 * hidden / 3) <= 4


def test_as_many_numbers_as_in_the_plain_form() -> None:
    plain, gated = (
        sum(parameter.numel() for parameter in made.parameters() if parameter.ndim == 2)
        for made in (Perceptron(96, hidden=384, branches=1), GatedPerceptron(96, hidden=gated_hidden(384), branches=1))
    )
    assert plain == gated
