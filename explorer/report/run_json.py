"""The governance report of a run as JSON."""

import json
from dataclasses import asdict
from typing import Any

import explorer
from explorer.report.run_content import LIMITS, RunContent


def as_json(content: RunContent) -> str:
    """The figures of the report, each with the entries that it rests on; what is unknown is null."""
    document: dict[str, Any] = {
        "format": 1,
        "explorer": explorer.__version__,
        "run": content.run,
        "simulated_provenance": content.simulated,
        "answer": content.sentence,
        "facts": dict(content.facts),
        "metrics": {"values": dict(content.metrics), "reference": content.end and asdict(content.end)},
        "integrity": {
            **asdict(content.integrity),
            "sums": content.sums,
            "sums_agree": content.sums_agree,
            "conditions": [{**asdict(each), "holds": each.holds} for each in content.conditions],
        },
        "confidential": content.confidential,
        "classes": [asdict(line) for line in content.classes],
        "quarantined_slots": content.quarantined,
        "vouchers": [asdict(line) for line in content.vouchers],
        "not_vouched": content.vouched,
        "policy": content.policy and asdict(content.policy),
        "decisions": [asdict(line) for line in content.decisions],
        "profiles": {
            "rows": [asdict(each) for each in content.opened.profiles],
            "reference": content.profiles and asdict(content.profiles),
        },
        "reproduce": [command for command, _ in content.commands],
        "limits": list(LIMITS),
        "entries": [asdict(each) for each in content.entries],
        "entries_not_listed": content.unlisted,
    }
    return json.dumps(document, indent=1, allow_nan=False, ensure_ascii=False) + "\n"
