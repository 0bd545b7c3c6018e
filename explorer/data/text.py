"""`text`: any file below the data directory, byte by byte. Nobody says where it comes from, so it has no provenance."""

import hashlib
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Annotated, ClassVar

from pydantic import Field

from explorer import rundir
from explorer.data.blocks import cut
from explorer.data.dataset import Dataset, DataSource, Modality, TaskName
from explorer.data.sequences import Text
from explorer.errors import DataError

MAX_BYTES = 2**30
TEST = 10  # the last tenth


@dataclass(frozen=True, kw_only=True, slots=True)
class LocalText(DataSource):
    """A file as it is; the last tenth of it is the test side."""

    name: ClassVar[str] = "text"
    summary: ClassVar[str] = "any local file, byte by byte; its last tenth is the test side"
    source: ClassVar[str] = "a file of yours"
    licence: ClassVar[str] = "whatever holds for the file"
    modality: ClassVar[Modality] = "text"
    task: ClassVar[TaskName] = "language"
    metrics: ClassVar[tuple[str, ...]] = ("bits_per_byte",)

    path: Annotated[str, Field(min_length=1, max_length=1000)]
    context: Annotated[int, Field(ge=8, le=4096)] = 128

    def load(self, data: Path | None) -> Dataset:
        content = self._content(data)
        middle = len(content) - len(content) // TEST
        train, test = (cut(side, context=self.context) for side in (content[:middle], content[middle:]))
        if not len(train) or not len(test):
            least = TEST * (self.context + 1)
            raise DataError(f"dataset 'text': {self.path}: {len(content)} bytes, expected {least} or more")
        return Text.of(train, test)

    def digest(self, data: Path | None) -> str:
        return hashlib.sha256(self._content(data)).hexdigest()

    def _content(self, data: Path | None) -> bytes:
        if data is None:
            raise DataError("dataset 'text': give the directory that holds the file by --data or EXPLORER_DATA")
        path = PurePosixPath(self.path)
        if path.is_absolute() or ".." in path.parts:
            raise DataError(f"dataset 'text': {self.path!r} leaves the data directory: expected a path below it")
        if not (data / path).is_file():  # a pipe would be waited for
            raise DataError(f"dataset 'text': no file {data / path}: expected it below the directory of --data")
        return rundir.read_bytes(data / path, max_bytes=MAX_BYTES, error=DataError)
