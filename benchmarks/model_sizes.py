"""Every model family at its full size: parameters, and the memory of one real step in a process of its own.

    python benchmarks/model_sizes.py [NAME...]        without names: all, and writes benchmarks/model_sizes.md

A step is forward, loss, backward and AdamW in fp32 on the CPU, one thread, as a run starts its weights. Peak memory is
the process's own, Python and torch included.
"""

import argparse
import os
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

from options import options
from pages import write_page

LIMIT = 24.0  # GiB


class Case(NamedTuple):
    """A model at full size and what it is trained on for a step."""

    model: str
    parameters: dict[str, Any]
    shape: tuple[int, ...]  # of an example
    classes: int
    batch: int
    note: str = ""


GPT2 = {"depth": 12, "width": 768, "heads": 12}
CASES = {
    "resnet110": Case("resnet110", {}, (3, 32, 32), 10, 128),
    "resnet18": Case("resnet18", {}, (3, 224, 224), 1000, 8),
    "resnet34": Case("resnet34", {}, (3, 224, 224), 1000, 8),
    "resnet50": Case("resnet50", {}, (3, 224, 224), 1000, 8),
    "resnet101": Case("resnet101", {}, (3, 224, 224), 1000, 8),
    "unet": Case("unet", {}, (3, 256, 256), 2, 2),
    "unet3d": Case("unet3d", {}, (3, 64, 64, 64), 3, 1),
    "gpt-small": Case("gpt-small", {}, (1024,), 256, 4),
    "gpt": Case("gpt", GPT2, (1024,), 256, 2),
    "gpt, GPT-2": Case("gpt", GPT2, (1024,), 50_257, 1, "the published 124M"),
    "gpt, all choices": Case(
        "gpt",
        GPT2 | {"positions": "alibi", "glu": True, "document_mask": True},
        (1024,),
        256,
        2,
        "ALiBi, GLU, documents",
    ),
}


def step(case: Case) -> None:
    """Train one step in this process and print parameters and peak memory in GiB."""
    import torch
    import torch.nn.functional as F

    from explorer.engine.modules import initialise
    from explorer.models.table import MODELS

    torch.set_num_threads(1)
    torch.manual_seed(0)
    spec = MODELS[case.model](**case.parameters)
    model = spec.build(example_shape=case.shape, classes=case.classes)
    initialise(model, seed=0)
    places = case.shape if spec.task == "language" else case.shape[1:] if spec.task == "segmentation" else ()
    targets = torch.randint(0, case.classes, (case.batch, *places))
    inputs = torch.randn(case.batch, *case.shape)
    if spec.takes == "text":
        inputs = torch.randint(0, case.classes, (case.batch, *case.shape))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    logits = model(inputs)
    if spec.task == "segmentation":
        logits = logits.movedim(1, -1)
    loss = F.cross_entropy(logits.reshape(-1, case.classes), targets.flatten())
    loss.backward()
    optimizer.step()
    assert loss.isfinite() and all(parameter.grad is not None for parameter in model.parameters())
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(sum(parameter.numel() for parameter in model.parameters()), f"{peak:.2f}")


def measured(name: str) -> str:
    """A row of the table, from a process of its own."""
    environment = os.environ | {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    command = [sys.executable, __file__, "--step", name]
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
    parameters, peak = done.stdout.split()
    case = CASES[name]
    shape = " x ".join(map(str, case.shape))
    note = f" ({case.note})" if case.note else ""
    assert float(peak) < LIMIT, f"{name}: {peak} GiB"
    columns = (f"`{case.model}`{note}", shape, case.classes, case.batch, f"{int(parameters):,}", peak)
    return f"| {' | '.join(map(str, columns))} |"


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("cases", nargs="*", metavar="CASE", help=f"some of {', '.join(CASES)}; default: all")
    parser.add_argument("--step", choices=CASES, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.step:
        return step(CASES[given.step])
    arguments = given.cases
    if lost := [name for name in arguments if name not in CASES]:
        parser.error(f"found {lost[0]!r}; expected some of {', '.join(CASES)}")
    lines = [
        "# Model families at full size",
        "",
        "One step of training (forward, loss, backward, AdamW; fp32, one CPU thread) in a process of its own. Peak",
        f"resident memory, Python and torch included, has to stay below {LIMIT:.0f} GiB. Made by",
        "`benchmarks/model_sizes.py`.",
        "",
        "| model | example | classes | batch | parameters | peak GiB |",
        "|---|---|---|---|---|---|",
    ]
    for name in arguments or CASES:
        lines.append(measured(name))
        print(lines[-1], flush=True)
    if not arguments:
        write_page(Path(__file__).with_suffix(".md"), "\n".join(lines))


if __name__ == "__main__":
    main()
