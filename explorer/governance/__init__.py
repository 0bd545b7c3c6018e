"""Governed training: methods that act in the loop by signed documents, and the modules that they share.

    credentials              the documents of a run, checked, and each example compared with its tag
    shared_state             state that the methods of a run share
    layers, region_modules   a policy's layers and sealed regions, in a model
    journal                  the numbers of a step, as entries, commitments and blobs of the ledger

A new method is its file and a line in this table.
"""

from explorer.engine.method import Method
from explorer.governance.contributions import Contributions
from explorer.governance.entropy import Entropy
from explorer.governance.entropy_gate import EntropyGate
from explorer.governance.governed_freezing import GovernedFreezing
from explorer.governance.governed_selective_backprop import GovernedSelectiveBackprop
from explorer.governance.recorder import Recorder
from explorer.governance.routing import Routing

_ALL: tuple[type[Method], ...] = (
    Contributions,
    Entropy,
    EntropyGate,
    GovernedFreezing,
    GovernedSelectiveBackprop,
    Recorder,
    Routing,
)

METHODS: dict[str, type[Method]] = {method.name: method for method in _ALL}
