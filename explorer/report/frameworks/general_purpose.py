"""Technical documentation of general-purpose models: Annex XI of the EU AI Act. Section 1 is for all of them, section 2
for those with systemic risk alone.

Compute is told as steps, batches and hardware: nothing here counts floating-point operations, and none are estimated.
Time comes from the run's result, which no entry binds, and the answer says so. Nothing measures energy.
"""

from explorer import records, rundir
from explorer.errors import RunError
from explorer.records import ResultRecord
from explorer.report.frameworks.answers import (
    GENERAL_PURPOSE_DATES,
    Answer,
    Field,
    Framework,
    NotRecorded,
    bound,
    described,
    has,
    nowhere,
)
from explorer.report.frameworks.technical_documentation import design, methods
from explorer.report.run_content import RunContent
from explorer.views import text as words

GENERAL = "Annex XI, section 1(1)"
DETAIL = "Annex XI, section 1(2)"
SYSTEMIC = "Annex XI, section 2"
PROVIDER = "the provider's own documentation: a run's ledger tells how a model was trained, not what it is offered for"


def _interface(content: RunContent) -> Answer | NotRecorded:
    answer = described("format")(content)
    if isinstance(answer, NotRecorded):
        return answer
    return bound(content, f"training data: {answer.text}", "tags", lacks="inputs and outputs of the model in use")


def _training_data(content: RunContent) -> Answer | NotRecorded:
    answer = described("title", "description", "source", "method", "issuer", "licence")(content)
    if isinstance(answer, NotRecorded):
        return answer
    return bound(content, answer.text, "tags", lacks="how sources were found unsuitable, and measures against biases")


def _points(content: RunContent) -> Answer | NotRecorded:
    if not has(content, "tags"):
        return NotRecorded(where="the tags' attestation, which is not here or not believed")
    tagged = sum(line.records or 0 for line in content.taxonomy)
    read = sum(line.examples - line.denied for line in content.counts)
    return Answer(
        text=f"{tagged:,} examples tagged with a class; in batches {read:,} were read, counted with repetition",
        references=(content.genesis, content.steps),
        documents=(content.documents["tags"],),
        lacks="tokens, bytes or hours: tags and entries count examples alone",
    )


def _evaluation(content: RunContent) -> Answer | NotRecorded:
    if content.end is None or not content.metrics:
        return NotRecorded(where="the last entry, which has no evaluation")
    found = "; ".join(f"{name} {value}" for name, value in content.metrics.items())
    return Answer(
        text=f"last evaluation: {found}",
        references=(content.end,),
        lacks="the data of the evaluation, its criteria, and what the model cannot do",
    )


def _compute(content: RunContent) -> Answer | NotRecorded:
    record = content.pinned.record
    if record is None:
        return NotRecorded(where="the recipe beside the ledger (run.json), as its first entry binds it")
    machine = record.hardware
    used = f"{words.count(machine.threads, 'thread')}, {words.count(machine.world_size, 'process', 'processes')}"
    return Answer(
        text=f"{record.steps:,} steps of batch {record.batch_size:,} in {record.precision} on {machine.name} ({used})",
        references=(content.genesis, content.steps),
        documents=(content.documents["recipe"],),
        lacks="the number of floating-point operations: none are counted, and none are estimated",
    )


def _time(content: RunContent) -> Answer | NotRecorded:
    path = content.directory / rundir.RESULT
    lacks = "a time that is on record: entries hold no clock, and no entry binds the result of the run"
    try:
        result = records.read(ResultRecord, path)
    except RunError:
        return NotRecorded(where=f"{rundir.RESULT} beside the ledger, which is not there or cannot be read")
    if result.run_id != content.run:
        return NotRecorded(where=f"{rundir.RESULT} beside the ledger, which is another run's")
    shared = ", while other runs shared the machine" if result.contended else ""
    spent = result.timings
    return Answer(
        text=f"{words.seconds(spent.training())} for {result.timed_steps:,} optimiser steps, "
        f"{words.seconds(spent.warmup)} for the first ones, {words.seconds(spent.evaluation)} for evaluation, "
        f"as {rundir.RESULT} has it{shared}",
        references=(content.steps,),
        lacks=lacks,
    )


GENERAL_PURPOSE = Framework(
    name="EU AI Act, Annex XI: technical documentation of general-purpose models",
    says="What providers of general-purpose models keep up to date under Article 53(1)(a). Section 2 is for models "
    "with systemic risk alone.",
    dates=GENERAL_PURPOSE_DATES,
    fields=(
        Field(
            name="intended tasks",
            reference=f"{GENERAL}(a)",
            asks="What is the model to do, and in which kinds of systems?",
            answer=nowhere(PROVIDER),
            verified=False,
        ),
        Field(
            name="acceptable use",
            reference=f"{GENERAL}(b)",
            asks="Which use of it is acceptable?",
            answer=nowhere(PROVIDER),
            verified=False,
        ),
        Field(
            name="release and distribution",
            reference=f"{GENERAL}(c)",
            asks="When and how is it released?",
            answer=nowhere(PROVIDER),
            verified=False,
        ),
        Field(
            name="architecture",
            reference=f"{GENERAL}(d)",
            asks="What is its architecture?",
            answer=design,
            verified=False,
        ),
        Field(
            name="number of parameters",
            reference=f"{GENERAL}(d)",
            asks="How many parameters has it?",
            answer=nowhere("sizes of tensors: the ledger has their digests; model.safetensors has their shapes"),
            verified=False,
        ),
        Field(
            name="inputs and outputs",
            reference=f"{GENERAL}(e)",
            asks="Of which modality and format are inputs and outputs?",
            answer=_interface,
            verified=False,
        ),
        Field(
            name="licence of the model",
            reference=f"{GENERAL}(f)",
            asks="Under which licence is the model?",
            answer=nowhere(PROVIDER),
            verified=False,
        ),
        Field(
            name="integration",
            reference=f"{DETAIL}(a)",
            asks="Which technical means does its integration take?",
            answer=nowhere(PROVIDER),
            verified=False,
        ),
        Field(
            name="training methodology",
            reference=f"{DETAIL}(b)",
            asks="How was it trained: methods, techniques, steps?",
            answer=methods,
            verified=False,
        ),
        Field(
            name="design rationale",
            reference=f"{DETAIL}(b)",
            asks="Why was it designed so, and what is it optimised for?",
            answer=nowhere("the reasons of those who designed it: the recipe says what was chosen, not why"),
            verified=False,
        ),
        Field(
            name="training data of a general-purpose model",
            reference=f"{DETAIL}(c)",
            asks="Which data, of which type and provenance, curated how?",
            answer=_training_data,
            verified=False,
        ),
        Field(
            name="number of data points",
            reference=f"{DETAIL}(c)",
            asks="How many data points are there?",
            answer=_points,
            verified=False,
        ),
        Field(
            name="compute",
            reference=f"{DETAIL}(d)",
            asks="Which computation did training take?",
            answer=_compute,
            verified=False,
        ),
        Field(
            name="training time",
            reference=f"{DETAIL}(d)",
            asks="How long did training take?",
            answer=_time,
            verified=False,
        ),
        Field(
            name="energy",
            reference=f"{DETAIL}(e)",
            asks="How much energy did it take, known or estimated?",
            answer=nowhere("a measurement of energy: nothing here measures it, and none is estimated from time"),
            verified=False,
        ),
        Field(
            name="evaluation",
            reference=f"{SYSTEMIC}(1)",
            asks="How was it evaluated, by which criteria, with which results and limits?",
            answer=_evaluation,
            verified=False,
        ),
        Field(
            name="adversarial testing",
            reference=f"{SYSTEMIC}(2)",
            asks="How was it attacked in tests, and adapted afterwards?",
            answer=nowhere("reports of such tests: observations in the project's ledger hold metrics alone"),
            verified=False,
        ),
        Field(
            name="system architecture",
            reference=f"{SYSTEMIC}(3)",
            asks="How do its software components build on each other?",
            answer=nowhere(PROVIDER),
            verified=False,
        ),
    ),
)
