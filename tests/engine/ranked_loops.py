"""Loops of several ranks, for the tests: `python -m tests.engine.ranked_loops SIZE OUT CONTROL SCENARIO ...`.

Each of SIZE ranks trains the loop of every scenario for a few steps, and writes the digest of its whole state, by the
name of the scenario, into the directory OUT. A rank is a fork of one process that has imported what they need, which
takes longer than their steps.
"""

import hashlib
import json
import os
import sys
import traceback
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from explorer.data.batches import Typing
from explorer.data.sources import load
from explorer.engine import lanes as lanes_module
from explorer.engine.loop import Loop
from explorer.engine.ranks import Ranks
from explorer.recipes import machine
from explorer.recipes.recipe import Recipe
from explorer.training.run import build_loop
from tests.recipes_for_tests import tiny_recipe, tiny_run

STEPS = 3
CLASSES = 3
SGD = {"sgd": {"lr": 0.1, "momentum": 0.9}}
ADAMW = {"adamw": {"lr": 1e-3}}
GPT = {"gpt-tiny": {"dropout": 0.1}}


def _recipe(*methods: Any, model: Any = None, optimizer: Any = SGD, **train: Any) -> Recipe:
    sizes = {"lanes": 8, "batch_size": 32}
    return tiny_recipe(methods, model=model, optimizer=optimizer, **(sizes | train))


def _text(*methods: Any, **train: Any) -> Recipe:
    recipe = _recipe(*methods, optimizer=ADAMW, **train)
    task = {"dataset": {"source": {"context": 32, "examples": 600}}, "model": GPT}
    return Recipe.from_mapping("text", {**recipe.to_mapping(), "task": task}, where="test")


SCENARIOS: dict[str, Callable[[], Recipe]] = {
    "resnet20": lambda: _recipe(model="resnet20"),
    "microbatches": lambda: _recipe(microbatch_size=2),
    "few rows": lambda: _recipe(batch_size=12, model={"resnet8": {"norm": "group"}}),  # of a class, in few lanes
    "gpt": _text,
    "muon": lambda: _text("muon"),
    "sam": lambda: _recipe("sam", "ema", {"gradient_clipping": {"threshold": 0.1}}, "mixup", "label_smoothing"),
    "stochastic": lambda: _recipe("stochastic_depth", {"random_subset": {"keep": 0.5, "start": 0, "end": 1}}, "swa"),
}
CONTROLS = {
    "": "lanes as they are",
    "all-reduce": "each rank adds up its own lanes, and torch adds the ranks",
    "lanes by rank": "as many lanes as ranks",
    "statistics of a rank": "batch normalisation over all rows of a rank",
}


def loop_of(recipe: Recipe, ranks: Ranks, *, typed: bool) -> Loop:
    """The loop of a recipe; `typed`: its examples belong to several classes, which have passes of their own."""
    loop = build_loop(tiny_run(recipe), data=None, ranks=ranks)
    if typed:
        count = len(load(recipe.dataset, None).train)
        names = {code: f"open/class-{code}" for code in range(CLASSES)}
        loop.setting.batches.__init__(  # the same batches, with classes
            loop.setting.batches.dataset,
            batch_size=loop.setting.batches.batch_size,
            seed=0,
            device=machine.device(),
            typing=Typing(codes=torch.arange(count).numpy() % CLASSES, names=names),
        )
    return loop


def digest_of(tensors: Mapping[str, Tensor]) -> str:
    total = hashlib.sha256()
    for name, tensor in sorted(tensors.items()):
        total.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        total.update(tensor.cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes())
    return total.hexdigest()


def trained(recipe: Recipe, ranks: Ranks, *, typed: bool = True) -> str:
    loop = loop_of(recipe, ranks, typed=typed)
    loop.align()
    loop.call("before_fit")
    for _ in range(STEPS):
        loop.step()
    return digest_of(loop.tensors())


def all_reduced(lanes: lanes_module.Lanes, results_of: Any, like: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The sum by torch's own reduction, whose order follows from the number of ranks."""
    mine = lanes._summed(lanes._mine, results_of) or {}
    total = {name: mine.get(name, torch.zeros_like(tensor)).clone() for name, tensor in like.items()}
    for name in sorted(total):
        dist.all_reduce(total[name])
    return total


def normalised_by_rank(loop: Loop) -> None:
    """Make one cell of the lanes of a rank."""
    lanes = loop._lanes

    def cells(share: Any) -> Any:
        mine = share.slots[[lane in lanes._mine for lane in lanes.lanes_of(share)]]
        return {lanes._mine.start: replace(share, slots=mine, lane=lanes._mine.start)} if len(mine) else {}

    lanes.cells = cells  # pyright: ignore[reportAttributeAccessIssue]


def run(ranks: Ranks, out: str, control: str, *names: str) -> None:
    rank, size = ranks.rank, ranks.size
    dist.init_process_group("gloo", init_method=f"file://{Path(out).absolute()}/meeting", rank=rank, world_size=size)
    assert control in CONTROLS
    if control == "all-reduce":
        lanes_module.Lanes.total = all_reduced  # pyright: ignore[reportAttributeAccessIssue]
    build = loop_of
    if control == "statistics of a rank":

        def merged(recipe: Recipe, ranks: Ranks, *, typed: bool) -> Loop:
            loop = build(recipe, ranks, typed=typed)
            normalised_by_rank(loop)
            return loop

        globals()["loop_of"] = merged
    digests: dict[str, str] = {}
    for name in names:
        recipe = SCENARIOS[name]()
        if control == "lanes by rank":
            recipe = replace(recipe, numbers=replace(recipe.numbers, lanes=size))
        digests[name] = trained(recipe, ranks)
    Path(out, f"{rank}.json").write_text(json.dumps(digests))
    dist.destroy_process_group()


def main(size: str, *arguments: str) -> int:
    """Return how many ranks failed."""
    children: list[int] = []
    for rank in range(int(size)):
        child = os.fork()
        if child == 0:
            status = 1
            try:
                run(Ranks(rank, int(size)), *arguments)
                status = 0
            except BaseException:
                traceback.print_exc()
            finally:
                sys.stderr.flush()
                os._exit(status)
        children.append(child)
    return sum(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) != 0 for child in children)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
