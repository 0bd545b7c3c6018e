"""The NIST AI Risk Management Framework 1.0: those of its outcomes that a record of training bears on."""

from explorer.report.frameworks.answers import Answer, Field, Framework, NotRecorded, bound, described, has, nowhere
from explorer.report.frameworks.data_governance import ASSESSED
from explorer.report.run_content import RunContent
from explorer.report.run_references import Reference


def _origin(content: RunContent) -> Answer | NotRecorded:
    answer = described("issuer", "source", "origin_geography", "method", "generated")(content)
    if isinstance(answer, NotRecorded):
        return answer
    parents = "; ".join(each.words for each in content.opened.ledger.genesis.parents)
    return bound(content, f"{answer.text}; starts from: {parents or 'nothing that was trained before'}", "tags")


def _inventory(content: RunContent) -> Answer | NotRecorded:
    text = f"run {content.run}, ledger {content.facts['Ledger']}"
    return Answer(text=text, references=(content.whole,), lacks="an inventory of all systems")


def _roles(content: RunContent) -> Answer | NotRecorded:
    if not content.keys:
        return NotRecorded(where="the trust file that the first entry binds, which is not here")
    roles: dict[str, set[str]] = {}
    for line in content.keys:
        roles.setdefault(line.role, set()).add(line.authority)
    words = "; ".join(f"{role}: {', '.join(sorted(who))}" for role, who in sorted(roles.items()))
    return bound(content, f"{words}; quorum for {'; for '.join(content.quorum)}", "trust file")


def _explained(content: RunContent) -> Answer | NotRecorded:
    """What is on record about how the model came to be; what it does with an input is not."""
    measured = [line for line in content.classes if line.share is not None]
    if not measured:
        return NotRecorded(where="numbers of the steps: they were not measured, are sealed, or are not here")
    profiles = f"; entropy profiles of {len(content.depth)} layers" if content.depth else ""
    return Answer(
        text=f"{content.sentence}{profiles}",
        references=(content.steps, *([content.profiles] if content.profiles and content.depth else [])),
        lacks="an explanation of single outputs",
    )


def _privacy(content: RunContent) -> Answer | NotRecorded:
    if not has(content, "taxonomy"):
        return NotRecorded(where="the taxonomy, which is not here or not believed")
    personal = {line.path for line in content.taxonomy if line.in_run and line.personal_data}
    words = [
        f"{line.path}: {'denied everywhere' if line.first_admitted is None else 'trained'}, "
        f"deletable {line.deletable.level or 'at no exact level that is established'}"
        for line in content.classes
        if line.path in personal
    ]
    text = "; ".join(words) or "no class of the run may hold personal data"
    return Answer(
        text=text,
        references=(content.genesis, content.steps),
        documents=(content.documents["taxonomy"],),
        lacks="an assessment of the risk",
    )


def _accountability(content: RunContent) -> Answer | NotRecorded:
    held = ", ".join(f"{each.name}: {each.outcome}" for each in content.conditions)
    return Answer(text=f"{content.integrity.title}; {held}", references=(content.whole,))


def _after(content: RunContent) -> Answer | NotRecorded:
    found = content.history.observations
    if not found:
        return NotRecorded(where="observations of the model in the project's ledger")
    return Answer(
        text="; ".join(f"{each.role}, statement {each.statement[:16]}" for each in found),
        references=tuple[Reference, ...](each.reference for each in found),
        lacks="a plan for monitoring",
    )


RISK_MANAGEMENT = Framework(
    name="NIST AI Risk Management Framework 1.0",
    says="Voluntary. Except for GOVERN 1.2, the numbers of its outcomes are as commonly stated.",
    fields=(
        Field(
            name="origin of training data",
            reference="GOVERN 1.2",
            asks="Are the origin and the history of the training data documented?",
            answer=_origin,
        ),
        Field(
            name="inventory",
            reference="GOVERN 1.6",
            asks="Is the system in an inventory?",
            answer=_inventory,
            verified=False,
        ),
        Field(
            name="roles",
            reference="GOVERN 2.1",
            asks="Who is responsible for what?",
            answer=_roles,
            verified=False,
        ),
        Field(
            name="rights of others",
            reference="GOVERN 6.1",
            asks="Which rights of others bear on the data?",
            answer=described("licence", "proprietary", "consent_location"),
            verified=False,
        ),
        Field(
            name="legal risks of components",
            reference="MAP 4.1",
            asks="Which legal risks do data and software of others bring along?",
            answer=nowhere(ASSESSED),
            verified=False,
        ),
        Field(
            name="transparency and accountability",
            reference="MEASURE 2.8",
            asks="Can it be seen what was done, and who answers for it?",
            answer=_accountability,
            verified=False,
        ),
        Field(
            name="explained",
            reference="MEASURE 2.9",
            asks="Is the model explained, validated and documented?",
            answer=_explained,
            verified=False,
        ),
        Field(
            name="privacy",
            reference="MEASURE 2.10",
            asks="Was the risk to privacy examined?",
            answer=_privacy,
            verified=False,
        ),
        Field(
            name="after deployment",
            reference="MANAGE 4.1",
            asks="Is the model watched once it is in use?",
            answer=_after,
            verified=False,
        ),
    ),
)
