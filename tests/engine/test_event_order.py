"""The loop's pseudocode, held against a recorded run."""

from dataclasses import dataclass
from typing import ClassVar

import explorer.engine.loop
from explorer.engine.clock import Clock
from explorer.engine.loop import Loop, Setting
from explorer.engine.method import HOOKS, Kind, Method
from explorer.training.run import build_loop
from tests.recipes_for_tests import tiny_recipe, tiny_run

STEPS, MICROBATCHES = 7, 2


@dataclass(frozen=True, kw_only=True, slots=True)
class First(Method):
    """Uses every hook."""

    name: ClassVar[str] = "first"
    kind: ClassVar[Kind] = Kind.SURGERY


@dataclass(frozen=True, kw_only=True, slots=True)
class Second(Method):
    """Uses every hook, later."""

    name: ClassVar[str] = "second"
    kind: ClassVar[Kind] = Kind.AVERAGE


@dataclass(frozen=True, kw_only=True, slots=True)
class Observer(Method):
    """Uses every hook, last."""

    name: ClassVar[str] = "observer"
    kind: ClassVar[Kind] = Kind.RECORD


for _kind in (First, Second, Observer):
    for _hook in HOOKS:
        setattr(_kind, _hook, lambda self, state: None)


def pseudocode() -> list[tuple[int, str]]:
    """The indented lines of the docstring, as (depth, text)."""
    text = explorer.engine.loop.__doc__ or ""
    lines = [line for line in text.splitlines() if line.startswith("    ")]
    return [((len(line) - len(line.lstrip())) // 4 - 1, line.strip()) for line in lines]


def unrolled(lines: list[tuple[int, str]], depth: int = 0) -> list[str]:
    """The hooks in the order in which the pseudocode runs them."""
    result: list[str] = []
    index = 0
    while index < len(lines):
        _, text = lines[index]
        index += 1
        if not text.startswith("for "):
            result.append(text)
            continue
        body = []
        while index < len(lines) and lines[index][0] > depth:
            body.append(lines[index])
            index += 1
        times = {"for step:": STEPS, "for share:": 1, "for lane:": 1, "for microbatch:": MICROBATCHES}[text]
        result += unrolled(body, depth + 1) * times
    return result


def recorded() -> list[tuple[str, str]]:
    trace: list[tuple[str, str]] = []
    plain = build_loop(tiny_run(tiny_recipe(microbatch_size=32)), data=None)
    setting: Setting = plain.setting
    clock = Clock(setting.batches.device, warmup_steps=0, split=False)
    loop = Loop(setting, (First(), Second(), Observer()), clock, trace=lambda hook, name: trace.append((hook, name)))
    loop.call("before_fit")
    for _ in range(STEPS):
        loop.step()
    loop.call("after_fit")
    loop.evaluate()
    loop.call("after_run")
    return trace


def test_the_pseudocode_is_what_happens() -> None:
    hooks = [hook for hook, name in recorded() if name == "first"]
    assert hooks == unrolled(pseudocode())
    assert set(hooks) == set(HOOKS)


def test_after_hooks_run_in_reverse_and_observers_last() -> None:
    pairs: dict[str, list[str]] = {}
    for hook, name in recorded():
        pairs.setdefault(hook, []).append(name)
    for hook, names in pairs.items():
        expected = ["second", "first"] if hook.startswith("after_") else ["first", "second"]
        assert names[:3] == [*expected, "observer"], hook
