"""The governance report of a run as JSON, in the form that `schemas/run_report.v2.json` publishes."""

import json

from explorer.report.run_content import RunContent
from explorer.report.run_document import run_report
from explorer.schema import to_json


def as_json(content: RunContent) -> str:
    """The figures of the report, each with the entries that it rests on; what is unknown is null."""
    return json.dumps(to_json(run_report(content)), indent=1, allow_nan=False, ensure_ascii=False) + "\n"
