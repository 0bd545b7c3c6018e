"""Technical documentation: Annex IV of the EU AI Act for high-risk systems, and the logs of Articles 12, 18 and 19."""

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


def methods(content: RunContent) -> Answer | NotRecorded:
    """How the run was trained, as its recipe says."""
    record = content.pinned.record
    if record is None:
        return NotRecorded(where="the recipe beside the ledger (run.json), as its first entry binds it")
    optimizer, recipe = "", record.identity.get("recipe")
    train = recipe.get("train") if isinstance(recipe, dict) else None
    if isinstance(train, dict) and isinstance(train.get("optimizer"), dict):
        optimizer = f"; optimiser {', '.join(map(str, train['optimizer']))}"
    text = f"{', '.join(record.methods) or 'no methods'}; {record.steps:,} steps of batch {record.batch_size:,}"
    return bound(content, f"{text}, {record.precision}{optimizer}", "recipe")


def _pretrained(content: RunContent) -> Answer | NotRecorded:
    parents = content.opened.ledger.genesis.parents
    words = "; ".join(each.words for each in parents) or "none: the run names no model that it starts from"
    return bound(content, words)


def design(content: RunContent) -> Answer | NotRecorded:
    """The model and its layers."""
    layers, record = content.opened.layers, content.pinned.record
    model = f"{record.model} on {record.dataset}, " if record else ""
    text = f"{model}{len(layers)} layers from {layers[0]} to {layers[-1]}" if layers else f"{model}no layers"
    return bound(content, text, *(["recipe"] if record else []), lacks="the reasons for the design")


def _scope(content: RunContent) -> Answer | NotRecorded:
    if not has(content, "tags", "taxonomy"):
        return NotRecorded(where="the taxonomy and the tags, which are not here or not believed")
    found = [f"{line.path} {line.records:,}" for line in content.taxonomy if line.records]
    return bound(content, f"tagged examples by class: {', '.join(found)}", "tags", "taxonomy")


def _labels(content: RunContent) -> Answer | NotRecorded:
    signers = [
        f"{line.name}, signed by {'; '.join(line.signed_by)}" for line in content.vouchers if line.what == "tags"
    ]
    if not signers or not has(content, "tags"):
        return NotRecorded(where="the tags' attestation, which is not here or not believed")
    return bound(content, f"provenance: {'; '.join(signers)}", "tags", lacks="labels of the task")


def _oversight(content: RunContent) -> Answer | NotRecorded:
    """What people signed before the run could act on it, and what the run decided by itself."""
    if not content.policy:
        return NotRecorded(where="a policy that people have signed: the run had none, or it is not believed")
    signed = next((line.signed_by for line in content.vouchers if line.what == "policy"), ())
    words = f"policy {content.policy.name}, signed by {'; '.join(signed)}; {len(content.decisions)} decisions on record"
    return Answer(
        text=words,
        references=(content.genesis, content.whole),
        documents=(content.documents["policy"],),
        lacks="oversight of the system in use",
    )


def _validation(content: RunContent) -> Answer | NotRecorded:
    if content.end is None:
        return NotRecorded(where="the last entry: the ledger has none, the run is unfinished")
    found = "; ".join(f"{name} {value}" for name, value in content.metrics.items()) or "no metric"
    observed = [f"{each.role} in {each.reference}" for each in content.history.observations]
    seen = f"; observed by {', '.join(observed)}" if observed else ""
    return Answer(
        text=f"last evaluation: {found}{seen}",
        references=(content.end, *(each.reference for each in content.history.observations)),
        lacks="validation procedures, the data that was used for them, and results by group",
    )


def _logs(content: RunContent) -> Answer | NotRecorded:
    """Signed by checkpoints; entries hold no time, cosignatures do."""
    cosigned = content.opened.badge.cosigned_by
    verdict = content.integrity.title
    words = f"{content.facts['Ledger']}; {verdict.lower()}; cosigned: {', '.join(cosigned) or 'by nobody'}"
    return Answer(
        text=words,
        references=(content.whole,),
        lacks="" if cosigned else "a date: entries hold none, and nobody has cosigned the ledger at a time",
    )


def _security(content: RunContent) -> Answer | NotRecorded:
    words = "an append-only Merkle log under signed checkpoints; blobs and documents by digest"
    sealed = f"; {content.confidential}" if content.confidential else ""
    return Answer(
        text=f"{words}{sealed}",
        references=(content.whole,),
        lacks="measures around the system, its host and its keys",
    )


TECHNICAL_DOCUMENTATION = Framework(
    name="EU AI Act, Annex IV, Articles 12, 18 and 19: technical documentation and logs",
    says="For high-risk systems.",
    dates=HIGH_RISK_DATES,
    fields=(
        Field(
            name="methods",
            reference="Annex IV(2)(a)",
            asks="By which methods and steps was the system made?",
            answer=methods,
        ),
        Field(
            name="pre-trained parts",
            reference="Annex IV(2)(a)",
            asks="Which models trained by others, or before, are in it?",
            answer=_pretrained,
        ),
        Field(
            name="design",
            reference="Annex IV(2)(b)",
            asks="How is it designed, and why so?",
            answer=design,
        ),
        Field(
            name="data provenance",
            reference="Annex IV(2)(d)",
            asks="Where does the training data come from?",
            answer=described("issuer", "source", "source_metadata", "origin_geography", "licence"),
        ),
        Field(name="data scope", reference="Annex IV(2)(d)", asks="What is the scope of the data?", answer=_scope),
        Field(
            name="data characteristics",
            reference="Annex IV(2)(d)",
            asks="What are its main characteristics?",
            answer=described("title", "description", "format", "generated", "confidentiality", "proprietary"),
        ),
        Field(
            name="data obtained and selected",
            reference="Annex IV(2)(d)",
            asks="How was it obtained and selected?",
            answer=described("method", "consent_location", lacks="how it was selected"),
        ),
        Field(name="data labelling", reference="Annex IV(2)(d)", asks="How was it labelled?", answer=_labels),
        Field(
            name="data cleaning",
            reference="Annex IV(2)(d)",
            asks="How was it cleaned?",
            answer=described("privacy_technologies", lacks="any other cleaning, such as the search for outliers"),
        ),
        Field(
            name="human oversight",
            reference="Annex IV(2)(e)",
            asks="Which measures let people oversee it?",
            answer=_oversight,
        ),
        Field(
            name="validation",
            reference="Annex IV(2)(g)",
            asks="How was it validated and tested, and what came out?",
            answer=_validation,
        ),
        Field(
            name="signed logs",
            reference="Annex IV(2)(g)",
            asks="Where are the logs and reports, dated and signed by who answers for them?",
            answer=_logs,
        ),
        Field(
            name="cybersecurity",
            reference="Annex IV(2)(h)",
            asks="Which measures protect it?",
            answer=_security,
        ),
        Field(
            name="record-keeping",
            reference="Articles 12 and 19",
            asks="Are events recorded automatically?",
            answer=lambda content: Answer(
                text=f"{len(content.opened.recorded):,} steps, {len(content.decisions)} decisions and the states "
                "between them, written as the run went on",
                references=(content.whole,),
                lacks="events of the system in use",
            ),
            verified=False,
        ),
        Field(
            name="retention",
            reference="Article 18",
            asks="Are documents kept for ten years?",
            answer=nowhere("the records of whoever keeps the documents"),
            verified=False,
        ),
    ),
)
