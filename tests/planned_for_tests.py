"""What a run is planned to be, for tests of what methods refuse."""

from typing import Any

from explorer.engine.method import Planned
from explorer.engine.optimizer import Constant, SGDSpec


def planned(**different: Any) -> Planned:
    """A short run on small images in fp32, but for what is given."""
    usual: dict[str, Any] = {
        "task": "classification",
        "example_shape": (2, 6, 4),
        "classes": 3,
        "steps": 10,
        "batch_size": 8,
        "optimizer": SGDSpec(lr=0.1),
        "schedule": Constant(),
        "precision": "fp32",
        "microbatch_size": None,
    }
    return Planned(**usual | different)
