"""`explorer probe`: what decides bits and speed of this machine."""

from collections.abc import Iterator

import torch

from explorer.machine_class import Machine
from explorer.page.document import Block
from explorer.page.terminal import Answer, table
from explorer.recipes.machine import this_machine
from explorer.schema import to_json


def probe() -> Answer:
    """Show what decides bits and speed of runs on this machine, so that sweeps can be planned for it elsewhere.

    A specification with `on: [{probe: FILE}]` is planned for the machine that printed FILE, by `explorer probe --json`.
    """
    here = this_machine(threads=torch.get_num_threads())
    return Answer(page=lambda: _page(here), record=lambda: to_json(here))


def _page(here: Machine) -> Iterator[Block | str]:
    rows = [
        ("hardware", here.hardware.name),
        ("device", here.hardware.device),
        ("CUDA devices", here.devices),
        ("cores", here.cores),
        ("threads", here.hardware.threads),
        *((name, version) for name, version in here.versions.items()),
        ("build of torch", here.torch_build),
        ("training code", here.training_code),
    ]
    yield table(("", "this machine"), rows)
    yield "\nnext: explorer probe --json > probe.json, and `on: [{probe: probe.json}]` in a sweep planned elsewhere"
