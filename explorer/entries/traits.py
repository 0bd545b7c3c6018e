"""What a method can do to a run that its steps do not record: facts that readers of a ledger need.

The method states them in its class (`engine.method.Method.traits`), the genesis carries them, and readers take them
from there: no reader has a list of methods.
"""

from typing import Literal

from explorer.schema import record


@record
class Traits:
    """The traits of one method."""

    probes: bool = False  # what layers make of examples of a class decides about other classes
    remembers: Literal["nothing", "classes", "model"] = "nothing"  # classes: a record of them, and no part of training
    averages: bool = False  # the run ends with other weights than its last step left
