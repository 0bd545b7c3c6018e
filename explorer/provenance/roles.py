"""What an authority may do, and as what somebody observes a model."""

from enum import StrEnum


class Role(StrEnum):
    """What an authority may sign."""

    DATA_GOVERNANCE = "data-governance"  # the taxonomy, and tags in its branches
    MODEL_RISK = "model-risk"  # the routing policy
    TRAINER = "trainer"  # the ledger of a run
    AUDITOR = "auditor"  # requests to read
    EVALUATOR = "evaluator"  # what it has found out about a model


class Observer(StrEnum):
    """As what somebody says something about a model."""

    EVALUATOR = "evaluator"
    FINE_TUNER = "fine-tuner"
    DEPLOYER = "deployer"
