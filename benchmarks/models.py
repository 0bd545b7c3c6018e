"""Models as others write them, under a signed policy: what was tried on each, and what held.

    python benchmarks/models.py        writes benchmarks/models.md

Every model of tests/foreign_models.py is trained in a plain loop and twice through `explorer.govern`, tensor by tensor
(tests/governance/foreign_trials.py says what is compared). Models of the `transformers` library are left out where it
is not installed. One or two minutes of one core.
"""

import contextlib
import platform
import sys
import tempfile
import time
import warnings
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import torch

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from options import options  # noqa: E402
from pages import write_page  # noqa: E402

from explorer.errors import ExplorerError  # noqa: E402
from explorer.training import govern  # noqa: E402
from tests.foreign_models import STRUCTURES, Foreign, published  # noqa: E402
from tests.governance import desk  # noqa: E402
from tests.governance.foreign_trials import Trial, papers, try_out  # noqa: E402

HEAD = """# Models as others write them

Trained in a plain loop, and twice through `explorer.govern` with the same weights and examples: 6 steps of one class
each under a policy that admits everybody to everything, and 2 steps under one that keeps a class out of the first half
of the depth. AdamW, tiny sizes, float32 on the CPU; {surroundings}; {seconds:.0f} s in all.

- *moved*: of all tensors, buffers included, how many move in the plain loop. The others are constant (masks,
  frequencies) or take no part (experts that no token chose, token types that are all alike).
- *open*: those that move under the open policy, and how many of all end with the same bits as in the plain loop.
- *denied*: tensors of the first half of the depth that a step of the denied class changed. It has to be 0.
- *other half*: tensors that a plain step of that class moves there, and that did not move. It has to be 0.
- *conforms*: whether the run with the denial conforms to its own signed record.

| model | what is special | layers | moved | open: moved, same bits | denied | other half | conforms |
|---|---|---|---|---|---|---|---|
"""


def line(foreign: Foreign, found: Trial | str) -> str:
    if isinstance(found, str):
        return f"| {foreign.name} | {foreign.says} | refused: {found} | | | | | |"
    same = found.tensors - len(found.still) - len(found.other)
    cells = (
        foreign.name,
        foreign.says,
        str(len(found.layers)),
        f"{found.moved} of {found.tensors}",
        f"{found.moved - len(found.still)} of {found.moved}, {same} of {found.tensors}",
        str(len(found.leaked)),
        str(len(found.stuck)),
        "yes" if found.conforms else f"no: {', '.join(found.faults)}",
    )
    return f"| {' | '.join(cells)} |"


def tried(foreign: Foreign) -> Trial | str:
    """Try a model: return what was found, or why it was refused."""
    with tempfile.TemporaryDirectory() as directory:
        here = Path(directory)
        try:
            return try_out(foreign, papers(here / "papers", foreign), here)
        except ExplorerError as error:
            return str(error)


def models() -> tuple[Foreign, ...]:
    try:
        return (*STRUCTURES, *published())
    except ImportError:
        print("transformers is not installed: its models are left out", file=sys.stderr)
        return STRUCTURES


def surroundings() -> str:
    found = [f"Python {platform.python_version()}", f"torch {torch.__version__}"]
    with contextlib.suppress(PackageNotFoundError):
        found.append(f"transformers {version('transformers')}")
    return ", ".join(found)


def main() -> int:
    options(__doc__).parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    govern.time.time = lambda: float(desk.NOW)  # the papers for tests are valid then
    began = time.perf_counter()
    lines, held = [], 0
    every = models()
    for foreign in every:
        found = tried(foreign)
        held += not isinstance(found, str) and found.holds
        lines.append(line(foreign, found))
        print(lines[-1], flush=True)
    said = HEAD.format(surroundings=surroundings(), seconds=time.perf_counter() - began)
    closing = f"\nEverything held for {held} of {len(every)} models.\n"
    write_page(HERE / "models.md", said + "\n".join(lines) + "\n" + closing)
    return 0 if held == len(every) else 1


if __name__ == "__main__":
    raise SystemExit(main())
