"""The embedded dataset against its origin."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import torch
from sklearn.datasets import load_digits

from explorer.data.digits import Digits
from explorer.data.sources import load


def test_the_halves_are_the_file_in_its_order() -> None:
    """Ordered by writer, so the halves are different people; a shuffled split would not be."""
    images, labels = load_digits(return_X_y=True)
    dataset = Digits().load(None)
    assert (len(dataset.train), len(dataset.test)) == (899, 898)
    assert dataset.example_shape == (1, 8, 8)
    both = torch.cat([dataset.train.inputs, dataset.test.inputs]).flatten(1).numpy()
    assert (both == np.round(images * (255 / 16))).all()
    assert (torch.cat([dataset.train.labels, dataset.test.labels]).numpy() == labels).all()
    assert set(dataset.train.labels.tolist()) == set(range(10))


def test_mean_and_deviation_are_those_of_the_training_side() -> None:
    dataset = Digits().load(None)
    pixels = dataset.train.inputs.numpy().astype(np.float64) / 255
    np.testing.assert_allclose(dataset.mean, [pixels.mean()], atol=1e-4)
    np.testing.assert_allclose(dataset.std, [pixels.std()], atol=1e-4)


def test_larger_images_show_the_same() -> None:
    small, large = Digits().load(None), Digits(size=32).load(None)
    assert large.example_shape == (1, 32, 32)
    back = torch.nn.functional.avg_pool2d(large.train.inputs.float(), 4)
    assert torch.corrcoef(torch.stack([back.flatten(), small.train.inputs.float().flatten()]))[0, 1] > 0.97


def test_a_loaded_dataset_is_kept() -> None:
    assert load(Digits(), None) is load(Digits(), None)
    assert load(Digits(size=16), None).example_shape != load(Digits(), None).example_shape


def test_scikit_learn_is_read_and_not_imported() -> None:
    """Importing it takes as long as importing torch, in every kernel and worker of a sweep."""
    code = (
        "import sys; from explorer.data.digits import Digits; Digits().load(None);"
        " Digits().digest(None); assert 'torch' in sys.modules; assert 'sklearn' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(__file__).parent.parent.parent)
