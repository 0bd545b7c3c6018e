"""The methods as functions, for a training loop of one's own: `explorer.functional.mixup`, one name a method.

    import numpy as np
    from torch.nn import functional as F

    from explorer import functional

A function has the parameters, ranges and defaults of its method. What changes a batch returns it; what changes a model
does so in place, before the optimiser is built, and returns the names of the changed layers. Random numbers come from
`draws`, a numpy generator that you make once. A wrong shape, type or value is one error (`explorer.errors`). In the
examples `model` is a network, `batches` has its inputs and class numbers, and `optimizer` steps its parameters.
"""

from importlib import import_module
from typing import Any

# By method, so that a name says where its function is, and nothing is loaded before one is asked for.
FORMS: dict[str, str] = {
    "alibi": "apply_alibi",
    "augmix": "augmix",
    "batch_size_warmup": "batch_size_warmup",
    "blurpool": "apply_blurpool",
    "channels_last": "channels_last",
    "colout": "colout",
    "cutmix": "cutmix",
    "cutout": "cutout",
    "ema": "ema",
    "factorize": "apply_factorize",
    "gated_linear_units": "apply_gated_linear_units",
    "ghost_batchnorm": "apply_ghost_batchnorm",
    "gradient_clipping": "gradient_clipping",
    "gyro_dropout": "gyro_dropout",
    "label_smoothing": "smooth_labels",
    "layer_freezing": "layer_freezing",
    "low_precision_groupnorm": "apply_low_precision_groupnorm",
    "low_precision_layernorm": "apply_low_precision_layernorm",
    "mixup": "mixup",
    "muon": "muon",
    "progressive_resizing": "progressive_resizing",
    "randaugment": "randaugment",
    "random_subset": "random_subset",
    "rotary": "apply_rotary",
    "sam": "sam",
    "schedule_free": "schedule_free",
    "selective_backprop": "selective_backprop",
    "seq_length_warmup": "seq_length_warmup",
    "squeeze_excite": "apply_squeeze_excite",
    "stochastic_depth": "stochastic_depth",
    "swa": "swa",
    "weight_standardization": "apply_weight_standardization",
    "whitening": "apply_whitening",
}

ABSENT: dict[str, str] = {
    "compile": "torch.compile(model) does it; the method adds only that a resumed run compiles the same graphs",
}
"""The methods without a function, and why."""


def __getattr__(name: str) -> Any:
    """Return the function of a method. It is imported on first use, because it loads torch."""
    if name in FORMS:
        return getattr(import_module(f"explorer.methods.{name}"), FORMS[name])
    reason = f": {ABSENT[name]}" if name in ABSENT else ""
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}{reason}")


def __dir__() -> list[str]:
    """Return the names of the functions, for completion; nothing is loaded."""
    return sorted(FORMS)
