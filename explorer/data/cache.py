"""Cache of decoded images on disk: safetensors files in a directory of the user's.

The directory is `rundir.cache_directory()`. A file's name ends in a digest of
its sources, so a cache is never stale; it may be deleted at any time.
"""

from collections.abc import Callable, Mapping

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from explorer import rundir
from explorer.errors import DataError

Form = tuple[torch.dtype, tuple[int, ...]]  # of a tensor: its type, and its shape without the first dimension


def cached(name: str, forms: Mapping[str, Form], make: Callable[[], Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """Return the tensors of the cache `name`, which `make` returns the first time; they have these forms and one
    length.

    Raises `DataError` for a cache that holds anything else, and whatever `make` raises.
    """
    path = rundir.cache_directory() / f"{name}.safetensors"
    if not path.is_file():
        rundir.write_bytes(path, save({key: tensor.contiguous() for key, tensor in make().items()}))
    try:
        tensors = load(path.read_bytes())
    except (OSError, SafetensorError) as error:
        raise DataError(f"damaged cache {path}: delete it and try again ({error})") from error
    # The forms are checked, not trusted: the file may be from another version, or from another program.
    forms_read = {key: (tensor.dtype, tuple(tensor.shape[1:])) for key, tensor in tensors.items()}
    if forms_read != dict(forms) or any(tensor.ndim == 0 for tensor in tensors.values()):
        raise DataError(f"damaged cache {path}: delete it and try again (found {forms_read})")
    return tensors
