"""All of the forms, and a run's answers to them.

A mapping helps whoever fills in such a form to find what is on record; it is no legal advice, and claims no conformity
with anything. Each date, title and reference says whether it was verified against the official text (`verified`).
"""

from explorer.report.frameworks.answers import Answered, Framework, Mapped
from explorer.report.frameworks.data_governance import DATA_GOVERNANCE
from explorer.report.frameworks.erasure import ERASURE
from explorer.report.frameworks.general_purpose import GENERAL_PURPOSE
from explorer.report.frameworks.risk_management import RISK_MANAGEMENT
from explorer.report.frameworks.technical_documentation import TECHNICAL_DOCUMENTATION
from explorer.report.frameworks.training_summary import TRAINING_SUMMARY
from explorer.report.frameworks.unasked import UNASKED
from explorer.report.run_content import RunContent

FRAMEWORKS: tuple[Framework, ...] = (
    TRAINING_SUMMARY,
    DATA_GOVERNANCE,
    TECHNICAL_DOCUMENTATION,
    GENERAL_PURPOSE,
    ERASURE,
    RISK_MANAGEMENT,
    UNASKED,
)

DISCLAIMER = (
    "This mapping helps whoever fills in these forms to find what is on record. The questions are in our own words; "
    "the forms' own text decides. It is no legal advice, and no claim that anything conforms to a law or a standard."
)


def mapped(content: RunContent) -> tuple[Mapped, ...]:
    """Every framework with an answer to each of its fields, from the record and nothing else."""
    return tuple(
        Mapped(
            framework=framework,
            answers=tuple(Answered(field=field, answer=field.answer(content)) for field in framework.fields),
        )
        for framework in FRAMEWORKS
    )
