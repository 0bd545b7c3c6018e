"""Pages of the benchmarks: Markdown next to the script that writes it, whose last line says when and on what machine.

Measured on 2026-11-22: AMD EPYC (AVX512), 2 cores, Python 3.11.7, torch 2.13.0+cpu.
"""

import datetime
import os
import platform
import re
from pathlib import Path
from typing import NamedTuple

import torch

from explorer.recipes import machine

_MEASURED = re.compile(r"^Measured on (\d{4}-\d\d-\d\d): (.+)\.$", re.MULTILINE)


class Measured(NamedTuple):
    """When a page was measured, and where."""

    date: str
    machine: str


def write_page(path: Path, text: str) -> None:
    """Write a page of figures that were measured just now, on this machine."""
    path.write_text(f"{text.rstrip()}\n\n{measured_here()}\n", encoding="utf-8")


def measured_here() -> str:
    """Return the last line of a page that is written now."""
    date = datetime.datetime.now(datetime.UTC).date()
    name, cores = machine.hardware(threads=1).name, os.cpu_count()
    return f"Measured on {date}: {name}, {cores} cores, Python {platform.python_version()}, torch {torch.__version__}."


def measured(text: str, *, where: str) -> Measured:
    """Read that line. Raises `ValueError` for a page without it, or with several."""
    lines = _MEASURED.findall(text)
    if len(lines) != 1:
        raise ValueError(f"{where}: found {len(lines)} lines 'Measured on DATE: MACHINE.', expected one")
    return Measured(*lines[0])
