"""Text for people in signed documents and trust files: one line that a terminal shows as it stands."""

from typing import Annotated

from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError


def _one_line(text: str) -> str:
    hidden = next((char for char in text if not char.isprintable()), None)
    if hidden is not None:
        raise PydanticCustomError(
            "line", "expected one line of printable text, without {hidden}", {"hidden": repr(hidden)}
        )
    if not text.strip():
        raise PydanticCustomError("line", "expected one line of printable text")
    return text


Line = Annotated[
    str, AfterValidator(_one_line), Field(min_length=1, json_schema_extra={"pattern": r"^[^\x00-\x1f\x7f-\x9f]+$"})
]
"""The type of text for people that a terminal can show: no control characters, no marks that turn its direction."""
