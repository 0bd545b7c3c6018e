"""Which rows of `results` are meant."""

from dataclasses import astuple, dataclass, fields
from typing import Any


@dataclass(frozen=True, kw_only=True, slots=True)
class Filter:
    """The rows that agree in everything that is not None; there may be none."""

    dataset: str | None = None
    model: str | None = None
    sweep: str | None = None
    hardware: str | None = None
    threads: int | None = None
    world_size: int | None = None

    @property
    def sql(self) -> str:
        """The condition, with a mark for each of the `parameters`."""
        chosen = (field.name for field in fields(self) if getattr(self, field.name) is not None)
        return " AND ".join(f"{name} = ?" for name in chosen) or "true"

    @property
    def parameters(self) -> tuple[Any, ...]:
        return tuple(value for value in astuple(self) if value is not None)


EVERYTHING = Filter()
