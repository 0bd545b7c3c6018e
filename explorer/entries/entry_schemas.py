"""Publication of entries: the JSON Schemas `schemas/<kind>.v<version>.json`, and README.md, the specification.

Both are generated from the code; of the page, only its tables and known answers. After a record has changed,
`python -m explorer.entries.entry_schemas` writes them; a test compares the published files with the code.
"""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np

from explorer import merkle
from explorer.canonical import canonical, digest
from explorer.entries.fields import write_float
from explorer.entries.heads import MAX_BYTES, RUN
from explorer.entries.kinds import KINDS, Entry
from explorer.entries.numbers import StepNumbers, diagonal, encode_class, encode_joint
from explorer.entries.slots import encode_slots, slots_root
from explorer.provenance.commitments import commit
from explorer.provenance.encryption import reading_key, salt_of
from explorer.provenance.tags import leaf, tag
from explorer.rundir import write_bytes, write_json
from explorer.schema import json_schema

DIRECTORY = Path(__file__).parent / "schemas"
PAGE = Path(__file__).parent / "README.md"
MARKED = re.compile(r"(<!-- (kinds|known answers): [^\n]*-->\n).*?(<!-- end of \2 -->\n)", re.S)


def schema_name(kind: type[Entry]) -> str:
    """Return the name of the file that publishes the schema."""
    return f"{kind.KIND}.v{kind.VERSION}.json"


def entry_schema(kind: type[Entry]) -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) of an entry of this kind.

    A schema cannot state canonical form and size.
    """
    made = json_schema(kind, name=f"entries/{schema_name(kind)}")
    head = {"kind": {"const": kind.KIND}, "version": {"const": kind.VERSION}}
    return {
        **made,
        "$comment": f"RFC 8785 form, at most {MAX_BYTES} bytes, no fractions",
        "properties": {**head, **made["properties"]},
        "required": [*head, *made["required"]],
    }


def page(text: str) -> str:
    """Return the specification with its generated parts renewed."""
    made = {"kinds": _kinds(), "known answers": f"```json\n{json.dumps(known_answers(), indent=1)}\n```\n"}
    return MARKED.sub(lambda match: f"{match[1]}{made[match[2]]}{match[3]}", text)


def known_answers() -> dict[str, str]:
    """Return bytes and digests that every writer must compute, by description: a writer in another framework checks
    itself against them."""
    # The smallest inputs that tell orders apart: two classes, two layers, two slots.
    key = reading_key(bytes([1]) * 32, kind="step", class_path="open/mit", first=8)
    content = encode_class(_numbers(), 0)
    rows = np.array([5, 3])
    leaves = [leaf(row, tag(1, 0, bytes([row]) * 32), f"source {row}") for row in range(6)]
    table = np.frombuffer(b"".join(leaves), np.uint8).reshape(-1, 32)
    tensor = b"w|torch.float32|(2,)\n" + np.array([1, 2], "<f4").tobytes()
    entry = canonical({"blobs": {}, "kind": "end", "version": 1, "metrics": {"accuracy": write_float(0.75)}})
    answers = {
        "an entry of these four keys, canonical": entry,
        "its leaf hash": merkle.leaf_hash(entry),
        "root of no leaves": merkle.EMPTY_ROOT,
        "R": key,
        "salt": salt_of(key, 9),
        "content of a class: weights 1 and 0.5, norms 2 and 4": content,
        "commitment to it": commit(salt_of(key, 9), content),
        "joint content: |u|^2 1 and 2, inner product 0 and 0.25, with u -1 -2 and -3 -4": encode_joint(_numbers()),
        "tag leaf of row 5: class 1, authority 0, commitment 32 times 05, source 5": leaves[5],
        "root of two slots, rows 5 and 3 (row 3 alike)": slots_root(rows, table),
        "blob slots of that step": encode_slots([rows]),
        "leaf of the tensor w, type torch.float32, shape (2,), values 1 and 2": merkle.leaf_hash(tensor),
        "random of seed 7 after 40 steps": bytes.fromhex(digest({"seed": 7, "step": 40})),
    }
    return {name: value.hex() for name, value in answers.items()}


def _kinds() -> str:
    """Return the table of kinds."""
    lines = ["| kind | version | ledger of a | what it is | fields |", "|---|---|---|---|---|"]
    for kind in KINDS.values():
        schema = entry_schema(kind)
        names = [name for name in schema["properties"] if name not in ("kind", "version", "blobs")]
        fields = ", ".join(f"`{name}`" if name in schema["required"] else f"*{name}*" for name in names)
        title = (kind.__doc__ or "").partition("\n")[0]
        where = "run" if kind.KIND in RUN else "project"
        lines.append(
            f"| [`{kind.KIND}`](schemas/{schema_name(kind)}) | {kind.VERSION} | {where} | {title} | {fields} |"
        )
    return "\n".join(lines) + "\n"


def _numbers() -> StepNumbers:
    """Return two classes with numbers in two layers."""
    weights, norms = np.array([[1, 0.5], [1, 1]], np.float32), np.array([[2, 4], [0.5, 1]], np.float32)
    gram = np.zeros((2, 2, 2), np.float32)
    gram[:, [0, 1], [0, 1]] = diagonal(weights, norms).T
    gram[1, [0, 1], [1, 0]] = 0.25
    dots, updates = np.array([[-1, -3], [-2, -4]], np.float32), np.array([1, 2], np.float32)
    return StepNumbers(classes=(0, 1), weights=weights, norms=norms, dots=dots, gram=gram, updates=updates)


def main() -> None:
    """Write the schema files and the page of the package."""
    for kind in KINDS.values():
        write_json(DIRECTORY / schema_name(kind), entry_schema(kind))
    write_bytes(PAGE, page(PAGE.read_text()).encode())


if __name__ == "__main__":
    main()
