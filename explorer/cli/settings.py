"""The options that several verbs share."""

from pathlib import Path
from typing import Annotated

import typer

Runs = Annotated[
    Path, typer.Option("--runs", envvar="EXPLORER_RUNS", metavar="DIR", help="Directory of all runs and results.")
]
Data = Annotated[
    Path | None,
    typer.Option("--data", envvar="EXPLORER_DATA", metavar="DIR", help="Directory of datasets that are not embedded."),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
OwnLoop = Annotated[
    str | None,
    typer.Option(
        "--loop",
        metavar="MODULE:FUNCTION",
        help="Of a loop of your own: the function that trains by the `govern` it is handed. Its module is executed.",
    ),
]
Spec = Annotated[Path, typer.Argument(metavar="SPEC", help="A sweep specification (YAML).")]
RUNS = Path("runs")

CANNOT_BE_TOLD = 3
"""The exit status where nothing contradicts what was asked, and some of it was erased or is sealed."""
