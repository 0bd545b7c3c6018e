"""The report as JSON."""

import json
from dataclasses import asdict
from typing import Any

import explorer
from explorer.report.content import SweepContent
from explorer.views.composition_rows import composition_json


def as_json(content: SweepContent) -> str:
    """The numbers of the report; what is unknown is null."""
    document: dict[str, Any] = {
        "format": 1,
        "explorer": explorer.__version__,
        "sweep": content.sweep,
        "answer": content.sentence,
        "sections": [
            {
                "hardware": section.hardware,
                "metric": section.metric,
                "unit": section.unit,
                "higher_is_better": section.higher_is_better,
                "answer": section.answer.sentence,
                "equal_quality": [
                    asdict(result) | {"outcome": str(result.outcome), "significant": result.significant}
                    for result in section.answer.comparisons
                ],
                "recipes": [asdict(line) for line in section.recipes],
                "controls": [
                    asdict(each) | {"verdict": each.verdict, "gain_vanishes": each.gain_vanishes}
                    for each in section.controls
                ],
            }
            for section in content.sections
        ],
        "composition": {hardware: composition_json(found) for hardware, found in content.compositions.items()},
        "integrity": {"sound": content.sound, "summary": content.integrity, "findings": content.findings},
        "facts": dict(content.facts),
        "specification": content.specification,
        "database_sha256": content.database_sha256,
    }
    return json.dumps(document, indent=1, allow_nan=False, ensure_ascii=False) + "\n"
