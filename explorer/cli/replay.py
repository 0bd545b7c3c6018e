"""`explorer replay`."""

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from explorer.cli.output import print_json, visible
from explorer.cli.settings import Data, Json, OwnLoop
from explorer.errors import RunError

if TYPE_CHECKING:
    from explorer.training.replay import Elsewhere, Replayed


def register(app: typer.Typer) -> None:
    app.command()(replay)


def replay(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The directory of a recorded run.")],
    steps: Annotated[
        str | None,
        typer.Option("--steps", metavar="A:B", help="From step A to before step B. Default: all that are on record."),
    ] = None,
    data: Data = None,
    governance: Annotated[
        Path | None, typer.Option("--governance", metavar="DIR", help="Where the salts of the tags are now.")
    ] = None,
    loop: OwnLoop = None,
    json: Json = False,
) -> None:
    """Execute steps of a recorded run again and compare them with its ledger, bit for bit.

    Whether the ledger is whole and who signed it, `explorer ledger verify` says.
    """
    from dataclasses import asdict

    def on_environment(differing: "tuple[Elsewhere, ...]") -> None:
        if not json:
            print_elsewhere(differing)

    if loop is not None:
        from explorer.training.govern import load_loop
        from explorer.training.govern import replay as execute_own

        if steps is not None:
            raise RunError("--steps: a loop of one's own is executed from its first step to its end")
        found = execute_own(run, load_loop(loop), private=governance, on_environment=on_environment)
    else:
        from explorer.training.replay import replay as execute

        wanted = None if steps is None else parse_steps(steps)
        found = execute(run, steps=wanted, data=data, private=governance, on_environment=on_environment)
    if json:
        print_json({**asdict(found), "equal": found.equal})
    else:
        print(visible("\n".join(_lines(found))))
    if not found.equal:
        raise typer.Exit(1)


def parse_steps(text: str) -> tuple[int, int]:
    """The two numbers of A:B.

    >>> parse_steps("0:100")
    (0, 100)
    """
    found = re.fullmatch(r"([0-9]{1,15}):([0-9]{1,15})", text)
    if found is None:
        raise RunError(f"--steps: found {text!r:.40}, expected A:B, such as 100:150 for the 50 steps from 100 on")
    return int(found[1]), int(found[2])


def print_elsewhere(differing: "tuple[Elsewhere, ...]") -> None:
    """Before the work begins, which may take long."""
    if differing:
        print("not where it was recorded; bits may differ for that alone:")
    for each in differing:
        print(visible(f"  {each.what}: {each.recorded} then, {each.here} here"), flush=True)


def _lines(found: "Replayed") -> list[str]:
    """What was compared, and what came of it."""
    lines = [f"{found.run}: steps {found.first}:{found.last}, executed from {found.source}"]
    if found.secrets_missing:
        lines.append(f"  commitments not compared, their secrets are not here: {', '.join(found.secrets_missing)}")
    if found.sealed_missing:
        lines.append(f"  numbers not compared, they are sealed with those secrets: {', '.join(found.sealed_missing)}")
    done = f"{found.steps} steps, {found.states} states and {found.blobs} blobs in {found.entries} entries"
    if found.difference is None:
        return [*lines, f"  bit for bit as it is on record: {done}"]
    first = found.difference
    return [
        *lines,
        f"  NOT as it is on record, after {done} that are",
        f"  entry {first.entry}, {first.kind} at step {first.step}: {first.field}",
        f"    expected {first.expected}",
        f"    found    {first.found}",
    ]
