"""Erasure: Article 17 of the GDPR, with the duty to account for it (5(2)), to tell recipients (19) and to keep records
(30). Every answer goes through the deletions on record, one after the other."""

from collections.abc import Callable, Iterable

from explorer.report.frameworks.answers import Answer, Field, Framework, NotRecorded, Resolver, nowhere, unique
from explorer.report.run_certificates import Certified
from explorer.report.run_content import RunContent
from explorer.report.run_history import DeletionLine
from explorer.report.run_references import Document

DESK = "the records of whoever answers requests: of a request the ledger has a salted commitment alone"


def _deletions(say: Callable[[DeletionLine], str | None], *, lacks: str = "") -> Resolver:
    """What is said of each deletion; None: nothing."""

    def answer(content: RunContent) -> Answer | NotRecorded:
        lines = content.history.deletions
        if not lines:
            return NotRecorded(where=_none(content))
        said = [(line, words) for line in lines if (words := say(line)) is not None]
        if not said:
            named = any(line.certificate for line in lines)
            why = "which does not name it" if named else "which is not here or not believed"
            return NotRecorded(where=f"the certificate of a deletion, {why}")
        return Answer(
            text="; ".join(f"{line.target}: {words}" for line, words in said),
            references=unique(line.reference for line, _ in said if line.reference),
            documents=tuple(_certificates(line for line, _ in said)),
            lacks=lacks,
        )

    return answer


def _none(content: RunContent) -> str:
    unknown = content.history.unknown
    return (
        f"{unknown}: what was deleted is not known here" if unknown else "the project's ledger: it has none of this run"
    )


def _certificates(lines: Iterable[DeletionLine]) -> Iterable[Document]:
    for line in lines:
        if line.digest:
            yield Document(what="certificate of a deletion", digest=line.digest)


def _certified(say: Callable[[Certified], str | None]) -> Callable[[DeletionLine], str | None]:
    return lambda line: None if line.certificate is None else say(line.certificate)


def _destroyed(*kinds: str) -> Callable[[Certified], str | None]:
    """What the signer lists as to be destroyed."""

    def say(found: Certified) -> str | None:
        counts = [f"{found.to_destroy[kind]} {kind}" for kind in kinds if kind in found.to_destroy]
        return f"to be destroyed by whoever keeps them, as the signer lists: {', '.join(counts)}" if counts else None

    return say


def _unreached(*words: str) -> Callable[[Certified], str | None]:
    """What the signer says that the deletion did not reach."""

    def say(found: Certified) -> str | None:
        mine = [each for each in found.not_reached if any(word in each for word in words)]
        return f"not reached, as the signer says: {' / '.join(mine)}" if mine else None

    return say


def _request(line: DeletionLine) -> str | None:
    found = line.certificate
    return f"commitment {found.request}" if found and found.request else None


def _action(line: DeletionLine) -> str:
    means = f" {line.certificate.means}" if line.certificate else ""
    return f"{line.level}{', this run is the result' if line.is_result else ''}.{means}"


ERASURE = Framework(
    name="GDPR, Articles 17, 19, 30 and 5(2): erasure, request by request",
    says="The enforcement report of the European Data Protection Board of 2026 (32 authorities, 764 controllers) found "
    "procedures and locations that nobody knew, forgotten backups, and pseudonymisation sold as deletion; by its "
    "Opinion 28/2024 a model is anonymous case by case, and measures that nobody documented are a failure to account.",
    fields=(
        Field(
            name="receipt",
            reference="Article 17(1)",
            asks="Which request was received, and when?",
            answer=_deletions(_request, lacks="the day of receipt, and the request itself, which names a person"),
        ),
        Field(
            name="identity basis",
            reference="Article 12(6)",
            asks="On what basis was the person identified?",
            answer=nowhere(DESK),
        ),
        Field(
            name="scope",
            reference="Article 17(1)",
            asks="What was to be erased?",
            answer=_deletions(lambda line: f"from {line.other}" if line.is_result else "from this run"),
        ),
        Field(
            name="datasets",
            reference="Article 30(1)",
            asks="Where was it: datasets?",
            answer=_deletions(_certified(_unreached("the examples themselves"))),
        ),
        Field(
            name="shards",
            reference="Article 30(1)",
            asks="Where was it: shards?",
            answer=nowhere("the data's own inventory: a run knows rows of its tag table, and no files of the data"),
        ),
        Field(
            name="checkpoints",
            reference="Article 30(1)",
            asks="Where was it: checkpoints and models?",
            answer=_deletions(_certified(_destroyed("model", "checkpoint", "secret", "numbers"))),
        ),
        Field(
            name="caches",
            reference="Article 30(1)",
            asks="Where was it: caches and copies made on the way?",
            answer=_deletions(_certified(_destroyed("spool", "notebook", "measurements"))),
        ),
        Field(
            name="backups",
            reference="Article 30(1)",
            asks="Where was it: backups?",
            answer=_deletions(_certified(_unreached("backups"))),
        ),
        Field(
            name="derived descendants",
            reference="Articles 17(2) and 30(1)",
            asks="Where was it: models derived from the model?",
            answer=_deletions(_certified(_unreached("models that were trained further"))),
        ),
        Field(
            name="synthetic descendants",
            reference="Articles 17(2) and 30(1)",
            asks="Where was it: synthetic data made with the model?",
            answer=nowhere("an observation by whoever generated it: a run's record ends with its model"),
        ),
        Field(
            name="action and level",
            reference="Article 17(1)",
            asks="What was done: made inactive (G0), ablated (G1), exact by structure (G2) or by replay (G3)?",
            answer=_deletions(_action),
        ),
        Field(
            name="evidence",
            reference="Article 5(2)",
            asks="What proves it?",
            answer=_deletions(lambda line: line.digest and f"certificate sha256:{line.digest}"),
        ),
        Field(
            name="date",
            reference="Article 12(3)",
            asks="When was it done?",
            answer=_deletions(_certified(lambda found: f"certified {found.issued}, by the signer's own word")),
        ),
        Field(
            name="recipients informed",
            reference="Article 19",
            asks="Which recipients were told?",
            answer=nowhere(DESK),
        ),
        Field(
            name="refusals",
            reference="Article 17(3)",
            asks="Which requests were refused, on what ground?",
            answer=nowhere(DESK),
        ),
    ),
)
