"""A million tags: made from records, signed, verified.

    python benchmarks/tags.py [RECORDS]        writes benchmarks/tags.md

Every verb runs as a process of its own, start-up included; memory is the most that it had resident at any time.
"""

import json
import os
import platform
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from options import options, verdict, whole
from pages import write_page

ROOT = Path(__file__).resolve().parents[1]
RECORDS = 1_000_000
SOURCES = 400
AUTHORITY = "example.com/data-governance"
CLASSES = ("open", "open/apache", "open/bsd", "open/mit")
TAXONOMY = {
    "format": "explorer/taxonomy/v1",
    "name": "licences",
    "version": 1,
    "expires": "2126-01-01T00:00:00Z",
    "classes": [
        {"path": path, "definition": f"All that is {path}.", "personal_data": False, "source": "public"}
        for path in CLASSES
    ],
}
DESCRIPTION = {
    "standards_version": "1.0.0",
    "title": "A benchmark",
    "identifier": "urn:example:benchmark",
    "location": "https://data.example.com/benchmark",
    "issuer": AUTHORITY,
    "description": "Records that are only numbers.",
    "origin_geography": "none",
    "issue_date": "2026-01-01",
    "generated": {"first": "2026-01-01", "last": "2026-01-01"},
    "method": "counted",
    "format": "UTF-8 text",
    "confidentiality": "public",
    "licence": "MIT",
    "intended_use": "measuring",
    "proprietary": False,
}


class Measured(NamedTuple):
    """One process."""

    seconds: float
    megabytes: float


def measure(*arguments: str) -> Measured:
    """Wall seconds and peak memory of a verb that has to succeed."""
    start = time.perf_counter()
    child = os.fork()
    if not child:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        os.execve(
            sys.executable, [sys.executable, "-m", "explorer", *arguments], os.environ | {"PYTHONPATH": str(ROOT)}
        )
    _, status, usage = os.wait4(child, 0)
    if status:
        sys.exit(f"explorer {' '.join(arguments)}: failed")
    return Measured(time.perf_counter() - start, usage.ru_maxrss / 1024)


def prepare(records: int) -> None:
    """Records, taxonomy, description, keys and trust in this directory."""
    with Path("records.jsonl").open("w") as file:
        for number in range(records):
            said = {"class": CLASSES[number % len(CLASSES)], "source": f"example-{number % SOURCES} 1.0"}
            file.write(json.dumps({"text": f"record {number}", **said}) + "\n")
    trust = ("--trust", "trust.json")
    key = ("--key", "key.pem", "--unencrypted", "--branch", "open")
    measure("authority", "new", AUTHORITY, "--role", "data-governance", *key, *trust)
    issued = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    Path("draft.yaml").write_text(json.dumps({**TAXONOMY, "issued": issued}))
    Path("description.yaml").write_text(json.dumps(DESCRIPTION))
    measure("taxonomy", "sign", "draft.yaml", "--key", "key.pem", *trust, "--out", "taxonomy.json")


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("records", nargs="?", type=whole(100), default=RECORDS)
    records = parser.parse_args().records
    here = Path.cwd()
    with tempfile.TemporaryDirectory() as directory:
        os.chdir(directory)
        prepare(records)
        believed = ("--taxonomy", "taxonomy.json", "--trust", "trust.json")
        salted = ("--salts", "t.salts")
        verify = ("tags", "verify", "t.parquet", "--attestation", "t.json", *believed)
        said = ("--description", "description.yaml", "--key", "key.pem", "--out", "t.json")
        made = {
            "explorer tags make": (
                measure("tags", "make", "records.jsonl", "--out", "t.parquet", *salted, "--authority", AUTHORITY),
                "",
            ),
            "explorer tags sign": (measure("tags", "sign", "t.parquet", *believed, *said), ""),
            "explorer tags verify": (measure(*verify), "below 10"),
            "explorer tags verify --records --salts": (measure(*verify, "--records", "records.jsonl", *salted), ""),
        }
        size = Path("t.parquet").stat().st_size
        os.chdir(here)
    lines = [
        "# Tags",
        "",
        f"{records:,} tags of {len(CLASSES)} classes and {SOURCES} sources, {size / 2**20:.1f} MiB as Parquet, on "
        f"{os.cpu_count()} cores of {platform.machine()}, Python {platform.python_version()}. One run each. Made by "
        "`benchmarks/tags.py`.",
        "",
        "| command, start-up included | seconds | target | tags a second | peak memory, MiB |",
        "|---|---|---|---|---|",
    ]
    for name, (found, target) in made.items():
        shown = verdict(found.seconds, target)
        rate = f"{records / found.seconds:,.0f}"
        lines.append(f"| `{name}` | {found.seconds:.2f} | {shown} | {rate} | {found.megabytes:.0f} |")
    write_page(Path(__file__).with_suffix(".md"), "\n".join(lines))
    print("\n".join(lines))


if __name__ == "__main__":
    main()
