"""Export of exactly what is shown: rows as CSV or Parquet, the chart as SVG or PNG, and beside them their origin.

`exports/<name>.csv` comes with `exports/<name>.csv.json`: the question that was asked, the digest of the database
snapshot and of the file, and the date.
"""

import datetime
import hashlib
import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import altair as alt
import pandas as pd
import vl_convert

from explorer import __version__, rundir

Format = Literal["csv", "parquet", "svg", "png"]
FORMATS: tuple[Format, ...] = ("csv", "parquet", "svg", "png")
VEGA_LITE = ".".join(alt.SCHEMA_VERSION.lstrip("v").split(".")[:2])


def export(
    kind: Format,
    *,
    rows: pd.DataFrame,
    chart: alt.LayerChart,
    query: Mapping[str, Any],
    snapshot: str,
    directory: Path,
    name: str,
) -> Path:
    """Write one file and its provenance into `directory`, and return the file's path.

    `chart` has a width in pixels. `query` says what was asked, as JSON; `snapshot` is the digest of the database.
    Raises `RunError` if the disk refuses.
    """
    content = encode(kind, rows=rows, chart=chart)
    path = directory / f"{name}.{kind}"
    rundir.write_bytes(path, content)
    rundir.write_json(
        path.with_name(f"{path.name}.json"),
        {
            "file": path.name,
            "sha256": hashlib.sha256(content).hexdigest(),
            "rows": len(rows),
            "query": dict(query),
            "database_sha256": snapshot,
            "made_at": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "explorer": __version__,
        },
    )
    return path


def encode(kind: Format, *, rows: pd.DataFrame, chart: alt.LayerChart) -> bytes:
    """The bytes of the file."""
    if kind == "csv":
        return rows.to_csv(index=False, lineterminator="\n").encode()
    if kind == "parquet":
        buffer = io.BytesIO()
        rows.to_parquet(buffer, index=False)
        return buffer.getvalue()
    specification = on_paper(chart)
    if kind == "svg":
        return vl_convert.vegalite_to_svg(specification, vl_version=VEGA_LITE).encode()
    return vl_convert.vegalite_to_png(specification, vl_version=VEGA_LITE, scale=2)


def on_paper(chart: alt.LayerChart) -> dict[str, Any]:
    """The chart's specification on a white ground, because a picture does not know the page it will stand on."""
    specification = chart.to_dict()
    specification["config"]["background"] = "white"
    return specification
