"""What no form asks yet and the record answers: the questions that a form would have to ask of governed training."""

from explorer.report.frameworks.answers import Answer, Field, Framework, NotRecorded, bound, has
from explorer.report.run_channels import UNRECORDED
from explorer.report.run_content import RunContent
from explorer.runlog.blobs import Missing
from explorer.views import text

MOST = 5  # layers that an answer names; the tables of the report have all


def _versions(content: RunContent) -> Answer | NotRecorded:
    if not content.policy or not has(content, "policy"):
        return NotRecorded(where="a policy: the run had none, or it is not believed")
    return bound(content, f"{content.policy.name}, throughout: a run has one policy from its first entry on", "policy")


def _activations(content: RunContent) -> Answer | NotRecorded:
    phases = content.policy.phases if content.policy else ()
    switched = [each for each in content.decisions if each.action == "activation"]
    if not phases:
        return NotRecorded(where="tables of weights in force, which the steps of a run with a policy name")
    words = [f"{each.phase or 'all steps'} from step {each.first:,}" for each in phases]
    words += [f"{each.about} at step {each.step:,}, by {each.decided_by}" for each in switched]
    references = tuple(each.reference for each in (*phases, *switched))
    return Answer(text="; ".join(words), references=references)


def _mass(content: RunContent) -> Answer | NotRecorded:
    where = "the sum of the lengths of each class's part of the updates, which no number of a step is"
    measured = [line for line in content.classes if line.share is not None]
    if not measured:
        return NotRecorded(where=where)
    words = ", ".join(f"{line.path} {line.share:.2%}" for line in measured)
    return Answer(text=f"shares of the summed gradient: {words}", references=(content.steps,), lacks=where)


def _split(content: RunContent) -> Answer | NotRecorded:
    """The part of each class in the update itself, in the layers that the run split exactly."""
    found = [(line.layer, cell) for line in content.layers for cell in line.cells if cell.update_share is not None]
    if not found:
        return NotRecorded(where="the numbers of a run whose recipe has exact contributions: this one's are not split")
    layers = list(dict.fromkeys(layer for layer, _ in found))
    words = [
        f"{layer}: {', '.join(f'{cell.class_} {cell.update_share:.1%}' for at, cell in found if at == layer)}"
        for layer in layers[:MOST]
    ]
    more = f"; and {text.count(len(layers) - MOST, 'layer')} more" if len(layers) > MOST else ""
    return Answer(text=f"{'; '.join(words)}{more}", references=(content.steps,))


def _denied(content: RunContent) -> Answer | NotRecorded:
    found = [f"{each.class_} {each.denied:,} of {each.examples:,}" for each in content.counts if each.denied]
    words = ", ".join(found) or "none"
    return Answer(text=f"examples in batches that no layer admitted: {words}", references=(content.steps,))


def _quarantined(content: RunContent) -> Answer | NotRecorded:
    words = text.count(content.quarantined, "slot")
    return Answer(text=f"{words} with examples that nobody to be believed vouches for", references=(content.steps,))


def _entropy(content: RunContent) -> Answer | NotRecorded:
    if content.profiles is None:
        return NotRecorded(where="profile entries: the recipe measures none")
    found = [line for line in content.depth if line.last.chi is not None and line.last.chi_null is not None]
    if not found:
        return NotRecorded(where=f"their blobs, which are {Missing.SEALED}" if content.confidential else "their blobs")
    words = [
        f"{line.layer}: {f'told apart {line.last.told.words}; ' if line.last.told else ''}chi above chance "
        f"{(line.last.chi or 0) - (line.last.chi_null or 0):.3g} nats (p {line.last.p_value:.2g}); entropy "
        f"{line.first.entropy:.3g} to {line.last.entropy:.3g} nats, not centred"
        for line in found[-MOST:]
    ]
    more = f"the last {MOST} of {len(found)} layers: " if len(found) > MOST else ""
    return Answer(text=f"{more}{'; '.join(words)}", references=(content.profiles,))


def _channels(content: RunContent) -> Answer | NotRecorded:
    words = "; ".join(f"{each.where}: {each.words}" for each in content.channels)
    return Answer(
        text=words or "none is on record",
        references=tuple(dict.fromkeys((content.whole, *(each.reference for each in content.channels)))),
        lacks="; ".join(UNRECORDED),
    )


def _quorum(content: RunContent) -> Answer | NotRecorded:
    if not content.quorum:
        return NotRecorded(where="the trust file that the first entry binds, which is not here")
    cosigned = ", ".join(content.opened.badge.cosigned_by)
    words = f"for {'; for '.join(content.quorum)}; cosigned by {cosigned or 'nobody whom the reader believes'}"
    return Answer(text=words, references=(content.genesis, content.whole), documents=(content.documents["trust file"],))


def _replay(content: RunContent) -> Answer | NotRecorded:
    found = content.replay
    if content.states is None:
        return NotRecorded(where="state entries: there is none yet")
    starts = ", ".join(f"{step:,}" for step in found.starts) or "none"
    words = (
        f"steps {found.begins:,} to {found.begins + found.covered:,} are closed by {found.states} recorded states; a "
        f"replay can begin after steps: {starts}"
    )
    return Answer(text=words, references=(content.states,), lacks="whether a replay was done: none leaves an entry")


def _deletions(content: RunContent) -> Answer | NotRecorded:
    history = content.history
    if history.unknown and not history.deletions:
        return NotRecorded(where=history.unknown)
    words = [
        f"{each.target} at {each.level}{', with this run as result' * each.is_result}" for each in history.deletions
    ]
    references = tuple(each.reference for each in history.deletions if each.reference)
    judged = f" (the project's ledger: {history.judged})" if history.judged else ""
    return Answer(text=f"{'; '.join(words) or 'none on record'}{judged}", references=(content.genesis, *references))


def _rotations(content: RunContent) -> Answer | NotRecorded:
    if not content.keys:
        return NotRecorded(where="the trust file that the first entry binds, which is not here")
    found = [
        f"{line.authority}: key {line.key[:16]} {f'revoked {line.revoked}' if line.revoked else 'took over'} "
        f"({line.not_before} to {line.not_after})"
        for line in content.keys
        if line.rotated or line.revoked
    ]
    words = "; ".join(found) or f"none among {text.count(len(content.keys), 'key')}"
    return bound(content, words, "trust file", lacks="" if content.keys_since is not None else "what came after")


def _limits(content: RunContent) -> Answer | NotRecorded:
    found = [note for each in content.conditions for note in each.notes]
    found += [f"{each.name} cannot be told: {one.message}" for each in content.conditions for one in each.untold]
    found += [f"{each.name}: {one.message}" for each in content.conditions for one in each.contradictions]
    words = "; ".join(found) or "nothing that was looked at stayed unread"
    return Answer(
        text=f"{words}; and what no record of this kind shows, at the end of the report", references=(content.whole,)
    )


UNASKED = Framework(
    name="Not asked by any of these, and on record",
    says="What governed training records beyond the forms above.",
    verified=None,
    fields=(
        Field(name="policy versions", reference="policy", asks="Which policy, in which versions?", answer=_versions),
        Field(
            name="policy activations",
            reference="policy",
            asks="When did which of its phases come into force?",
            answer=_activations,
        ),
        Field(
            name="update mass",
            reference="contributions",
            asks="How much did each class move each layer, as a sum of lengths?",
            answer=_mass,
        ),
        Field(
            name="update share",
            reference="contributions",
            asks="How much of the updates themselves was each class's?",
            answer=_split,
        ),
        Field(
            name="denied",
            reference="routing",
            asks="How many examples were denied?",
            answer=_denied,
        ),
        Field(name="quarantined", reference="routing", asks="How many were set aside?", answer=_quarantined),
        Field(
            name="entropy and chi",
            reference="profiles",
            asks="How far can classes be told apart in the layers?",
            answer=_entropy,
        ),
        Field(
            name="out-of-loop channels",
            reference="routing",
            asks="By which other ways may one class have acted on another?",
            answer=_channels,
        ),
        Field(
            name="quorum history",
            reference="trust",
            asks="How many of whom does it take, and who has cosigned?",
            answer=_quorum,
        ),
        Field(
            name="replay coverage",
            reference="replay",
            asks="Which stretches can be executed again and compared?",
            answer=_replay,
        ),
        Field(
            name="deletion history",
            reference="deletion",
            asks="What was deleted?",
            answer=_deletions,
        ),
        Field(name="key rotations", reference="trust", asks="Which keys changed or were revoked?", answer=_rotations),
        Field(name="known limits", reference="conformance", asks="What could not be checked?", answer=_limits),
    ),
)
