"""Entropy: closed forms, what chi says of shuffled and of separated classes, and why nothing is clamped elementwise."""

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from explorer.data.streams import stream
from explorer.governance.spectrum import chi, project, separation, spectrum


def draws(purpose: str = "test") -> np.random.Generator:
    return stream(0, purpose)


def noise(examples: int, dimensions: int, purpose: str = "noise") -> Tensor:
    return torch.from_numpy(draws(purpose).standard_normal((examples, dimensions)))


def plogp(*shares: float) -> float:
    return -sum(share * math.log(share) for share in shares)


def test_identical_rows_have_no_entropy() -> None:
    found = spectrum(torch.ones(7, 5) * 3)
    assert found.entropy == pytest.approx(0, abs=1e-12)
    assert found.effective_rank == pytest.approx(1)
    assert found.renyi2 == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize(("examples", "dimensions"), [(8, 8), (8, 20)])
def test_orthonormal_rows_have_the_entropy_of_their_number(examples: int, dimensions: int) -> None:
    found = spectrum(torch.eye(examples, dimensions) * 2)
    assert found.entropy == pytest.approx(math.log(examples))
    assert found.effective_rank == pytest.approx(examples)
    assert found.renyi2 == pytest.approx(math.log(examples))


@pytest.mark.parametrize("angle", [0.1, 0.7, math.pi / 2])
def test_two_clusters_have_a_closed_form(angle: float) -> None:
    """p and q of the rows along two directions: the eigenvalues are (1 +- sqrt(1 - 4 p q sin^2)) / 2."""
    p, q = 0.3, 0.7
    rows = torch.tensor([[1.0, 0, 0]] * 3 + [[math.cos(angle), math.sin(angle), 0]] * 7)
    root = math.sqrt(1 - 4 * p * q * math.sin(angle) ** 2)
    values = ((1 + root) / 2, (1 - root) / 2)
    found = spectrum(rows)
    assert found.entropy == pytest.approx(plogp(*values), abs=1e-6)
    assert found.renyi2 == pytest.approx(-math.log(sum(value**2 for value in values)), abs=1e-6)
    assert chi(rows, np.array([0] * 3 + [1] * 7)) == pytest.approx(plogp(*values), abs=1e-6), "each is of rank 1"


def test_the_length_of_a_row_means_nothing() -> None:
    rows = noise(20, 6)
    scaled = rows * torch.linspace(0.1, 50, 20)[:, None]
    assert spectrum(scaled).entropy == pytest.approx(spectrum(rows).entropy, rel=1e-12)


def test_either_matrix_has_the_spectrum() -> None:
    """Wide and tall outputs: zero columns change the shape and nothing else."""
    rows = noise(12, 6)
    wide = torch.cat([rows, torch.zeros(12, 30, dtype=rows.dtype)], dim=1)
    assert spectrum(wide) == pytest.approx(spectrum(rows), rel=1e-10)


def test_rows_without_a_direction_are_left_out() -> None:
    rows = noise(10, 4)
    with_dead = torch.cat([rows, torch.zeros(3, 4, dtype=rows.dtype)])
    assert spectrum(with_dead) == spectrum(rows)
    labels = np.arange(13) % 2
    assert chi(with_dead, labels) == chi(rows, labels[:10])
    assert spectrum(torch.zeros(3, 4)) == (0.0, 1.0, 0.0)
    dead = separation(torch.zeros(3, 4), np.array([0, 1, 1]), permutations=9, draws=draws())
    assert dead == (0.0, 0.0, 1.0)


def test_orthogonal_classes_reach_the_entropy_of_the_labels() -> None:
    labels = np.repeat([3, 5, 9], (40, 60, 100))
    rows = torch.zeros(200, 9)
    for place, label in enumerate((3, 5, 9)):
        mine = torch.from_numpy(labels == label)
        rows[mine, 3 * place : 3 * place + 3] = noise(int(mine.sum()), 3, f"class {label}").float()
    most = plogp(0.2, 0.3, 0.5)
    assert chi(rows, labels) == pytest.approx(most)
    found = separation(rows, labels, permutations=99, draws=draws("permutations"))
    assert found.p_value == 0.01
    assert found.chi - found.null == pytest.approx(most, abs=0.08), "less the bias that every sample has"


def test_equal_classes_cannot_be_told_apart() -> None:
    rows = noise(30, 4).repeat(2, 1)
    assert chi(rows, np.repeat([0, 1], 30)) == pytest.approx(0, abs=1e-12)


def test_corrected_chi_covers_zero_for_shuffled_classes() -> None:
    """200 draws of labels that mean nothing: p is uniform, the corrected chi is around 0, chi itself is not."""
    found = []
    for seed in range(200):
        rows = torch.from_numpy(stream(seed, "rows").standard_normal((64, 4)))
        labels = stream(seed, "labels").permutation(np.repeat([0, 1], 32))
        found.append(separation(rows, labels, permutations=19, draws=stream(seed, "permutations")))
    corrected = np.array([each.chi - each.null for each in found])
    error = corrected.std(ddof=1) / math.sqrt(len(corrected))
    assert abs(corrected.mean()) < 3 * error
    raw = np.array([each.chi for each in found])
    assert raw.mean() > 10 * error, "the control: without the correction, separation would be found in noise"
    p_values = np.array([each.p_value for each in found])
    assert np.mean(p_values <= 0.05) < 0.1
    assert 0.4 < p_values.mean() < 0.65


def test_classes_that_differ_a_little_are_told_apart() -> None:
    labels = np.repeat([0, 1], 128)
    rows = noise(256, 8)
    rows[labels == 1, 0] *= 2
    assert separation(rows, labels, permutations=99, draws=draws("permutations")).p_value == 0.01


def test_the_smallest_p_value_says_how_many_permutations_there_were() -> None:
    labels = np.repeat([0, 1], 8)
    rows = torch.eye(2)[torch.from_numpy(labels)]
    assert separation(rows, labels, permutations=9, draws=draws()).p_value == 0.1


def test_many_dimensions_bias_chi_and_projection_takes_it_away() -> None:
    labels = np.arange(256) % 2
    rows = noise(256, 512)
    projected = project(rows, draws("projection"))
    assert projected.shape == (256, 16)
    assert chi(rows, labels) > 0.5, "of at most 0.69, in noise"
    assert chi(projected, labels) < 0.05


def test_projection_is_keyed_and_leaves_few_dimensions_alone() -> None:
    rows = noise(64, 40)
    assert torch.equal(project(rows, draws("projection")), project(rows, draws("projection")))
    assert not torch.equal(project(rows, draws("projection")), project(rows, draws("another")))
    narrow = rows[:, :4]
    assert project(narrow, draws("projection")) is narrow
    assert project(noise(5, 40), draws("projection")).shape == (5, 1)


def test_clamping_the_gram_matrix_would_spoil_the_spectrum() -> None:
    """The control of a published mistake: negative cosines set to 0, and the matrix is no density any more."""
    rows = noise(60, 8)
    unit = rows / rows.norm(dim=1, keepdim=True)
    gram = unit @ unit.T / 60
    values = torch.linalg.eigvalsh(gram)
    assert spectrum(rows).entropy == pytest.approx(float(torch.special.entr(values.clamp(min=0)).sum()))
    clamped = torch.linalg.eigvalsh(gram.clamp(min=0))
    assert float(clamped.min()) < -0.005, "not positive semidefinite"
    assert float(torch.special.entr(clamped.clamp(min=0)).sum()) > spectrum(rows).entropy + 0.3


def test_rows_and_labels_belong_together() -> None:
    with pytest.raises(ValueError, match="3 rows and 2 labels"):
        chi(torch.ones(3, 2), np.array([0, 1]))
