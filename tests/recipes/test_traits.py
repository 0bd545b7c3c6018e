"""Traits that methods and datasets state, against what their code does."""

import inspect

import pytest
import torch

from explorer.data.dataset import DataSource
from explorer.data.sources import DATASETS
from explorer.engine.method import Method
from explorer.recipes.settings import METHODS


@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
def test_a_method_states_what_it_remembers(method: type[Method]) -> None:
    assert (method.traits.remembers != "nothing") == (method.memory is not Method.memory)


@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
def test_a_method_states_that_it_changes_the_model_at_the_end(method: type[Method]) -> None:
    """A method that replaces the model for evaluation ends with that one."""
    shows_another = method.before_evaluation is not Method.before_evaluation
    assert method.traits.averages == (shows_another and method.after_fit is not Method.after_fit)


@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
def test_a_method_states_that_probes_decide(method: type[Method]) -> None:
    code = inspect.getsource(inspect.getmodule(method) or method)
    assert method.traits.probes == ("choose_probes(" in code and "DecisionNote(" in code)


@pytest.mark.parametrize("source", DATASETS.values(), ids=DATASETS)
def test_a_dataset_states_what_it_fits_on_its_examples(source: type[DataSource]) -> None:
    """Pictures in memory are normalised by the mean of the training side; text is read byte by byte, and what is read
    while a run trains is normalised by numbers in the recipe, or each scan by itself."""
    by_numbers = source.modality == "text" or source.name in ("image_shards", "volume_shards", "brats", "brats_slices")
    assert set(source.fitted) == (set() if by_numbers else {"normalisation"})


@pytest.mark.parametrize("name", ["digits", "clutter", "clutter3d"])
def test_what_is_fitted_does_shape_the_preparation(name: str) -> None:
    dataset = DATASETS[name]().load(None)
    prepare = dataset.preparation(torch.device("cpu"))
    assert abs(float(prepare(dataset.train.inputs).mean())) < 1e-2  # centred by the training side
    assert abs(float(prepare(dataset.test.inputs).mean())) > 1e-3  # and not by the other
