"""Data and data governance of high-risk systems: Article 10 of the EU AI Act."""

from explorer.report.frameworks.answers import (
    HIGH_RISK_DATES,
    Answer,
    Field,
    Framework,
    NotRecorded,
    bound,
    described,
    has,
    nowhere,
)
from explorer.report.run_content import RunContent

ASSESSED = "an assessment by people, which no entry and no document of a run has a place for"


def _design(content: RunContent) -> Answer | NotRecorded:
    """The policy and the recipe are the choices that are on record."""
    found = []
    if content.policy:
        found.append(f"policy {content.policy.name}, {len(content.policy.rules)} rules, by default nothing is admitted")
    record = content.pinned.record
    if record is not None:
        found.append(f"{record.model} on {record.dataset} with {', '.join(record.methods) or 'no methods'}")
    if not found:
        return NotRecorded(where="a policy, and the recipe beside the ledger")
    documents = [name for name in ("policy", "recipe") if has(content, name)]
    return bound(content, "; ".join(found), *documents, lacks="why they were chosen")


def _personal(content: RunContent) -> Answer | NotRecorded:
    """Which classes may hold personal data, as the taxonomy says."""
    if not has(content, "taxonomy"):
        return NotRecorded(where="the taxonomy, which is not here or not believed")
    found = [line.path for line in content.taxonomy if line.in_run and line.personal_data]
    if not found:
        return bound(content, "no class of the run may hold personal data", "taxonomy")
    words = f"may hold personal data: {', '.join(found)}"
    return bound(content, words, "taxonomy", lacks="for what purpose it was first collected")


def _labelling(content: RunContent) -> Answer | NotRecorded:
    """Provenance labels: the tags. Labels of the task are another matter."""
    tags = [line for line in content.vouchers if line.what == "tags"]
    if not tags or not has(content, "tags"):
        return NotRecorded(where="the tags' attestation, which is not here or not believed")
    words = "; ".join(f"{sum(line.counts.values()):,} provenance tags, {line.name}" for line in tags)
    return bound(content, words, "tags", lacks="how the labels that the model learns were made")


def _quantity(content: RunContent) -> Answer | NotRecorded:
    if not has(content, "tags"):
        return NotRecorded(where="the tags' attestation, which is not here or not believed")
    records = sum(line.records or 0 for line in content.taxonomy)
    read = sum(line.examples - line.denied for line in content.counts)
    return Answer(
        text=f"{records:,} examples tagged with a class; in batches {read:,} were read, counted with repetition",
        references=(content.genesis, content.steps),
        documents=(content.documents["tags"],),
    )


def _errors(content: RunContent) -> Answer | NotRecorded:
    doubts = [words for line in content.vouchers for words in line.doubts]
    if not has(content, "tags"):
        return NotRecorded(where="the tags' attestation, which is not here or not believed")
    words = f"tags that are not believed: {'; '.join(doubts) or 'none'}; slots never read: {content.quarantined:,}"
    return Answer(
        text=words,
        references=(content.genesis, content.steps),
        documents=(content.documents["tags"],),
        lacks="errors of content",
    )


DATA_GOVERNANCE = Framework(
    name="EU AI Act, Article 10: data and data governance",
    says="For high-risk systems.",
    dates=HIGH_RISK_DATES,
    fields=(
        Field(
            name="design choices",
            reference="Article 10(2)(a)",
            asks="Which design choices were made?",
            answer=_design,
        ),
        Field(
            name="collection",
            reference="Article 10(2)(b)",
            asks="How was the data collected?",
            answer=described("method", "generated"),
        ),
        Field(
            name="origin",
            reference="Article 10(2)(b)",
            asks="Where does the data come from?",
            answer=described("issuer", "source", "source_metadata", "origin_geography"),
        ),
        Field(
            name="original purpose",
            reference="Article 10(2)(b)",
            asks="Of personal data: for what purpose was it collected at first?",
            answer=_personal,
        ),
        Field(name="annotation", reference="Article 10(2)(c)", asks="How was it annotated?", answer=nowhere(ASSESSED)),
        Field(name="labelling", reference="Article 10(2)(c)", asks="How was it labelled?", answer=_labelling),
        Field(
            name="cleaning",
            reference="Article 10(2)(c)",
            asks="How was it cleaned?",
            answer=described("privacy_technologies", lacks="any other cleaning"),
        ),
        Field(
            name="updating",
            reference="Article 10(2)(c)",
            asks="How is it kept up to date?",
            answer=described("previous_issue_date", "issue_date", lacks="how it is kept up to date from here on"),
        ),
        Field(name="enrichment", reference="Article 10(2)(c)", asks="Was it enriched?", answer=nowhere(ASSESSED)),
        Field(
            name="aggregation",
            reference="Article 10(2)(c)",
            asks="Was it put together from several datasets?",
            answer=described("source_metadata"),
        ),
        Field(
            name="assumptions",
            reference="Article 10(2)(d)",
            asks="What is the data assumed to measure and to stand for?",
            answer=nowhere(ASSESSED),
        ),
        Field(
            name="availability",
            reference="Article 10(2)(e)",
            asks="Is the data that is needed available?",
            answer=described("location", "storage_geography", "processing_geography", lacks="whether it is enough"),
        ),
        Field(name="quantity", reference="Article 10(2)(e)", asks="How much of it is there?", answer=_quantity),
        Field(
            name="suitability",
            reference="Article 10(2)(e)",
            asks="Does it suit the purpose?",
            answer=described("intended_use", lacks="an assessment of it"),
        ),
        Field(
            name="bias examination",
            reference="Article 10(2)(f)",
            asks="Was it examined for biases?",
            answer=nowhere(ASSESSED),
        ),
        Field(
            name="bias mitigation",
            reference="Article 10(2)(g)",
            asks="What was done against biases?",
            answer=nowhere(ASSESSED),
        ),
        Field(name="gaps", reference="Article 10(2)(h)", asks="What does the data lack?", answer=nowhere(ASSESSED)),
        Field(
            name="relevance",
            reference="Article 10(3)",
            asks="Is the data relevant to the purpose?",
            answer=nowhere(ASSESSED),
        ),
        Field(
            name="representativeness",
            reference="Article 10(3)",
            asks="Does it stand for those whom the system is used on?",
            answer=nowhere(ASSESSED),
        ),
        Field(name="errors", reference="Article 10(3)", asks="Is it free of errors, as far as can be?", answer=_errors),
        Field(
            name="context",
            reference="Article 10(4)",
            asks="Does it fit the place and setting of use?",
            answer=described("origin_geography", lacks="the place and setting of use"),
        ),
        Field(
            name="special categories",
            reference="Article 10(5)",
            asks="Were special categories of personal data used to find biases, and with which safeguards?",
            answer=nowhere("a flag of its own: a taxonomy tells personal data from other, and no categories of it"),
            verified=False,
        ),
    ),
)
