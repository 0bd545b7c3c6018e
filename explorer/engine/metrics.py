"""`metrics.jsonl`: a line a measurement, appended while the run trains and cut back to the checkpoint on resume.

{"step": 12, "metric": "train_loss", "value": 1.9459}
"""

import json
import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from explorer.errors import RunError, TrainingError


class MetricsWriter:
    """The only writer of a run's metrics. Use as a context manager."""

    def __init__(self, path: Path, *, offset: int) -> None:
        """Open the file and drop what lies behind `offset`: bytes that were written after the checkpoint."""
        self._path = path
        with self._reported():
            self._file = path.open("ab")
            size = self._file.tell()
            if size < offset:
                self._file.close()
                raise RunError(f"{path}: damaged: {size} bytes, the checkpoint expects {offset} or more")
            self._file.truncate(offset)
            self._file.seek(offset)

    def __enter__(self) -> "MetricsWriter":
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def write(self, step: int, metric: str, value: float) -> None:
        """Append one measurement after `step` steps. Raises `TrainingError` if the value is not finite."""
        if not math.isfinite(value):
            raise TrainingError(
                f"{metric} is {value} at step {step}: training diverged; a lower learning rate may help"
            )
        line = json.dumps({"step": step, "metric": metric, "value": value})
        with self._reported():
            self._file.write(line.encode() + b"\n")

    def flush(self) -> int:
        """Bring what was written to the disk; return the file's length in bytes."""
        with self._reported():
            self._file.flush()
            os.fsync(self._file.fileno())
        return self._file.tell()

    @contextmanager
    def _reported(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise RunError(f"cannot write {self._path}: {error.strerror or error}") from error
