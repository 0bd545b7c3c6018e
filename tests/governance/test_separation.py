"""Entropy and chi against closed forms; the linear probe; and what each of them cannot see."""

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from explorer.data.streams import stream
from explorer.entries.entropy_profile import Told, balanced, told_apart, told_of, wilson
from explorer.governance.separation import ProbeResult, centred, chi, probe, project, separation, spectrum


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


@pytest.mark.slow
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


# --- the linear probe ---

PROBES, WIDTH = 64, 64


def two_classes(differ: str, seed: int, *, probes: int = PROBES, width: int = WIDTH) -> tuple[Tensor, np.ndarray]:
    """Rows of two classes, which differ in one respect."""
    rows = stream(seed, "rows", differ).standard_normal((2 * probes, width))
    second = rows[probes:]
    match differ:
        case "a quarter":
            second += 0.25
        case "a half":
            second += 0.5
        case "the sign":
            np.abs(rows, out=rows)
            second *= -1
        case "the length":
            second *= 1.5
        case "the spread":
            rows[:probes, ::2] *= 3
            second[:, 1::2] *= 3
    return torch.from_numpy(rows), np.repeat([0, 1], probes)


def found(rows: Tensor, labels: np.ndarray, seed: int = 0, permutations: int = 99) -> ProbeResult:
    return probe(rows, labels, permutations=permutations, draws=stream(seed, "linear probe"))


def told(rows: Tensor, labels: np.ndarray) -> Told:
    answer = told_apart(found(rows, labels).counts)
    assert answer is not None
    return answer


def corrected_chi(rows: Tensor, labels: np.ndarray) -> float:
    draws = stream(0, "chi")
    apart = separation(project(rows, draws), labels, permutations=19, draws=draws)
    return apart.chi - apart.null


@pytest.mark.parametrize(
    ("differ", "least"), [("a quarter", 0.68), ("a half", 0.9), ("the sign", 0.99), ("the length", 0.65)]
)
def test_the_probe_finds_what_chi_does_not(differ: str, least: float) -> None:
    """The control is chi: on the same rows it says next to nothing."""
    for seed in range(3):
        rows, labels = two_classes(differ, seed)
        answer = told(rows, labels)
        assert answer.accuracy >= least and answer.low > answer.chance == 0.5
        assert found(rows, labels).p_value == 0.01
        assert corrected_chi(rows, labels) < 0.06, "of log 2 = 0.69"


def test_the_probe_does_not_see_the_shape_of_a_spread_and_chi_does() -> None:
    """What the module says that it cannot see; so chi stays."""
    rows, labels = two_classes("the spread", 0)
    assert told(rows, labels).low < 0.5 < told(rows, labels).high
    draws = stream(0, "chi")
    assert separation(project(rows, draws), labels, permutations=99, draws=draws).p_value < 0.05


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sizes", "width"), [((16, 16), 64), ((10, 30), 8), ((12, 12, 24), 20)], ids=["wide", "unequal", "three"]
)
def test_where_labels_mean_nothing_p_values_are_calibrated(sizes: tuple[int, ...], width: int) -> None:
    """About 6 of 120 draws come below 0.05, and 14 or more in fewer than 0.3% of tests. `benchmarks/probe.md` has more
    draws."""
    labels = np.repeat(range(len(sizes)), sizes)
    rows = (torch.from_numpy(stream(seed, "null").standard_normal((len(labels), width))) for seed in range(120))
    answers = [found(each, labels, seed, permutations=19) for seed, each in enumerate(rows)]
    assert 1 <= sum(each.p_value <= 0.05 for each in answers) <= 13
    assert np.mean([balanced(each.counts) for each in answers]) == pytest.approx(1 / len(sizes), abs=0.03)


def test_scores_of_what_was_fitted_would_be_believed_without_folds() -> None:
    """The control of cross-validation: more columns than rows, labels that mean nothing. Fitted to all of it a linear
    rule is right about everything."""
    rows, labels = two_classes("nothing", 0, probes=16, width=200)
    targets = torch.from_numpy(2.0 * labels - 1)
    fitted = rows @ torch.linalg.lstsq(rows, targets[:, None]).solution
    assert (fitted[:, 0].sign() == targets).all()
    answer = told(rows, labels)
    assert answer.low < 0.5 < answer.high


def test_several_classes_and_which_of_them_is_told_apart() -> None:
    """Two classes that are one, a third that is far away, with a quarter of the probes."""
    labels = np.repeat([0, 1, 2], [40, 40, 20])
    rows = torch.from_numpy(stream(3, "three").standard_normal((100, 30)))
    rows[80:] += 2
    counts = found(rows, labels).counts
    assert counts.sum(1).tolist() == [40, 40, 20]
    third, first, whole = told_of(counts, 2), told_of(counts, 0), told_apart(counts)
    assert third is not None and first is not None and whole is not None
    assert third.accuracy == 1.0 and third.chance == 0.5
    assert 0.5 < first.accuracy < 0.9, "it differs only from the third"
    assert whole.chance == pytest.approx(1 / 3) and 0.5 < whole.accuracy < 0.85


def test_a_class_weighs_as_much_with_few_probes() -> None:
    """Nine of ten probes are of one class: taking everything for it is right nine times in ten, and worth nothing."""
    labels = np.repeat([0, 1], [90, 10])
    rows = torch.from_numpy(stream(1, "unequal").standard_normal((100, 5)))
    assert told(rows, labels).accuracy < 0.7
    rows[90:] += 3
    assert told(rows, labels).accuracy > 0.95
    assert told_apart(np.array([[90, 0], [10, 0]])) == pytest.approx((0.5, 0.31, 0.69, 0.5), abs=0.2)


def test_the_same_rows_give_the_same_counts_and_another_seed_other_folds() -> None:
    rows, labels = two_classes("a quarter", 0)
    assert np.array_equal(found(rows, labels).counts, found(rows, labels).counts)
    several = {tuple(found(rows, labels, seed).counts.ravel()) for seed in range(6)}
    assert len(several) > 1


def test_units_of_a_column_mean_nothing() -> None:
    """Scaling is fitted to the training folds: a column in other units changes no answer but through the length."""
    rows, labels = two_classes("a half", 0)
    scaled = rows.clone()
    scaled[:, 0] *= 1e-6
    assert told(scaled, labels).accuracy > 0.9


@pytest.mark.parametrize("rows", [torch.zeros(20, 4), torch.ones(20, 4) * 1e8], ids=["dead", "constant"])
def test_a_layer_that_says_nothing_is_at_chance(rows: Tensor) -> None:
    answer = found(rows, np.repeat([0, 1], 10))
    assert balanced(answer.counts) == 0.5
    assert answer.p_value == 1.0


@pytest.mark.parametrize("labels", [[0], [0, 0, 0], [0, 1], [0, 1, 1], [0, 0, 1, 1]])
def test_few_probes_give_counts_and_no_claim(labels: list[int]) -> None:
    rows = torch.from_numpy(stream(0, "few").standard_normal((len(labels), 3)))
    counts = found(rows, np.array(labels)).counts
    answer = told_apart(counts)
    if labels == [0, 0, 1, 1]:
        assert answer is not None and answer.low < 0.6, answer
    else:
        assert answer is None


def test_more_outputs_than_are_looked_at_are_projected() -> None:
    rows, labels = two_classes("the sign", 0, probes=10, width=3000)
    assert told(rows, labels).accuracy == 1.0


def test_rows_and_labels_pair() -> None:
    with pytest.raises(ValueError, match="3 rows and 2 labels"):
        found(torch.zeros(3, 2), np.array([0, 1]))


def test_intervals_are_wilsons_and_combine_by_distance() -> None:
    """Wilson's interval of 45 of 50 is 0.786 to 0.957, as tables have it. Of two equal shares the half width is that
    of one by root 2. 2.25 times as many examples make up for the folds."""
    assert wilson(45, 50) == pytest.approx((0.7864, 0.9565), abs=1e-4)
    both = told_apart(np.array([[405, 45], [45, 405]]))
    assert both is not None
    low, high = wilson(180, 200)
    assert both == pytest.approx((0.9, 0.9 - (0.9 - low) / 2**0.5, 0.9 + (high - 0.9) / 2**0.5, 0.5), abs=1e-9)
    assert both.words == "0.90 (0.87 to 0.92), chance 0.50"


def test_a_common_mean_hides_what_varies_unless_it_is_taken_off() -> None:
    """20 directions around a mean that is far away: as they are the rows use one."""
    rows = torch.from_numpy(stream(0, "mean").standard_normal((200, 20)))
    assert spectrum(rows).effective_rank > 17
    assert spectrum(rows + 100).effective_rank < 1.1
    assert spectrum(centred(rows + 100)).effective_rank > 17
    assert spectrum(centred(torch.ones(5, 3) / 3)) == (0.0, 1.0, 0.0)
