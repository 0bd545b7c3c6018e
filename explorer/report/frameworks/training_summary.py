"""The public summary of training content that providers of general-purpose models owe: Article 53(1)(d) of the EU AI
Act, in the sections of the template of the AI Office."""

from explorer.provenance.taxonomy import Source
from explorer.report.frameworks.answers import (
    GENERAL_PURPOSE_DATES,
    Answer,
    Field,
    Framework,
    NotRecorded,
    Resolver,
    bound,
    described,
    has,
    nowhere,
)
from explorer.report.run_content import RunContent

GENERAL = "Article 53(1)(d), template: general information"
SOURCES_OF_DATA = "Article 53(1)(d), template: list of data sources"
PROCESSING = "Article 53(1)(d), template: data processing"
PROVIDER = "a statement of the provider's: a run's ledger names who trained and signed, not who puts on the market"
ATTESTED = "a field of its own in the description that the tags' attestation carries, which has none"


def _versions(content: RunContent) -> Answer | NotRecorded:
    """The model by what its record binds; what the provider calls it is for the provider to say."""
    return Answer(
        text=f"run {content.run}, ledger {content.facts['Ledger']}, root {content.facts['Root']}",
        references=(content.whole,),
        lacks="under which name and version the model is placed on the market",
    )


def _content(content: RunContent) -> Answer | NotRecorded:
    answer = described("title", "description", "identifier")(content)
    if isinstance(answer, NotRecorded) or not has(content, "taxonomy"):
        return answer
    kinds = [f"{line.path} ({line.records:,} records)" for line in content.taxonomy if line.records]
    return bound(content, f"{answer.text}; classes: {', '.join(kinds)}", "tags", "taxonomy")


def _size(content: RunContent) -> Answer | NotRecorded:
    where = "counts of tokens, bytes or hours: tags and entries count examples alone"
    if not has(content, "tags"):
        return NotRecorded(where=where)
    records = sum(line.records or 0 for line in content.taxonomy)
    trained = sum(line.examples for line in content.counts)
    text = f"{records:,} examples tagged with a class; {trained:,} stood in batches, counted with repetition"
    return Answer(
        text=text,
        references=(content.genesis, content.steps),
        documents=(content.documents["tags"],),
        lacks="the band: below 1 billion, up to 10 trillion, or more tokens, and its likes for other modalities",
    )


def _source(source: Source) -> Resolver:
    """Which of the run's classes the taxonomy puts into a category, with how many tagged examples."""

    def answer(content: RunContent) -> Answer | NotRecorded:
        if not has(content, "taxonomy", "tags"):
            return NotRecorded(where="the taxonomy and the tags, which are not here or not believed")
        mine = [line for line in content.taxonomy if line.source == source and line.records]
        denied = {line.path for line in content.classes if line.first_admitted is None}
        found = [
            f"{line.path} ({line.records:,} tagged examples{', denied everywhere' if line.path in denied else ''})"
            for line in mine
        ]
        before = "; what the model that the run starts from had learned from is in that run's ledger"
        parents = before if content.opened.ledger.genesis.parents else ""
        text = ", ".join(found) or "no tagged example of this category"
        return bound(content, f"{text}{parents}", "taxonomy", "tags")

    return answer


TRAINING_SUMMARY = Framework(
    name="EU AI Act, Article 53(1)(d): summary of training content",
    says="The public summary that providers of general-purpose AI models owe.",
    dates=GENERAL_PURPOSE_DATES,
    fields=(
        Field(
            name="provider",
            reference=GENERAL,
            asks="Who provides the model?",
            answer=nowhere(PROVIDER),
        ),
        Field(
            name="contact",
            reference=GENERAL,
            asks="How can the provider be reached?",
            answer=nowhere(PROVIDER),
        ),
        Field(
            name="versions",
            reference=GENERAL,
            asks="Which model, in which versions, is this about?",
            answer=_versions,
        ),
        Field(
            name="release date",
            reference=GENERAL,
            asks="When was the model placed on the market?",
            answer=nowhere(PROVIDER),
        ),
        Field(
            name="summary version",
            reference=GENERAL,
            asks="Which version of the summary is this?",
            answer=nowhere(PROVIDER),
        ),
        Field(
            name="last update",
            reference=GENERAL,
            asks="When was the summary last changed?",
            answer=nowhere(PROVIDER),
        ),
        Field(
            name="modalities",
            reference=GENERAL,
            asks="Text, images, audio, video, other: what was it trained on?",
            answer=described("format", lacks="the modalities as such: the description has the format alone"),
        ),
        Field(name="size band", reference=GENERAL, asks="How much of each modality?", answer=_size),
        Field(name="content", reference=GENERAL, asks="What kinds of content are in it?", answer=_content),
        Field(
            name="languages",
            reference=GENERAL,
            asks="Which languages are in it?",
            answer=nowhere(ATTESTED),
        ),
        Field(
            name="latest acquisition",
            reference=GENERAL,
            asks="When was data last acquired?",
            answer=nowhere("a day of acquisition in the description, which has when the data was generated and issued"),
        ),
        Field(
            name="ongoing collection",
            reference=GENERAL,
            asks="Does collecting go on after release?",
            answer=nowhere(ATTESTED),
        ),
        Field(
            name="first use",
            reference=GENERAL,
            asks="When was the data first used for training?",
            answer=nowhere(
                "a date in an entry: entries hold no wall-clock, so that a replay arrives at the same bytes"
            ),
        ),
        Field(
            name="selection rationale",
            reference=GENERAL,
            asks="Why were these sources chosen?",
            answer=nowhere(ATTESTED),
        ),
        Field(
            name="public",
            reference=SOURCES_OF_DATA,
            asks="Which publicly available datasets were used?",
            answer=_source(Source.PUBLIC),
        ),
        Field(
            name="licensed",
            reference=SOURCES_OF_DATA,
            asks="Which private datasets are licensed from rights holders?",
            answer=_source(Source.LICENSED),
        ),
        Field(
            name="other third-party private",
            reference=SOURCES_OF_DATA,
            asks="Which private datasets came from others without such a licence?",
            answer=_source(Source.THIRD_PARTY),
        ),
        Field(
            name="crawled",
            reference=SOURCES_OF_DATA,
            asks="What was crawled from the web?",
            answer=_source(Source.CRAWLED),
        ),
        Field(
            name="crawlers",
            reference=SOURCES_OF_DATA,
            asks="By which crawlers, and how do they behave?",
            answer=nowhere(ATTESTED),
        ),
        Field(
            name="crawl period",
            reference=SOURCES_OF_DATA,
            asks="From when until when was it crawled?",
            answer=nowhere(ATTESTED),
        ),
        Field(
            name="crawled domains",
            reference=SOURCES_OF_DATA,
            asks="Which domains were crawled most?",
            answer=nowhere(ATTESTED),
        ),
        Field(
            name="user",
            reference=SOURCES_OF_DATA,
            asks="What came from users of the provider's services?",
            answer=_source(Source.USER),
        ),
        Field(
            name="synthetic",
            reference=SOURCES_OF_DATA,
            asks="What was made by models or programs?",
            answer=_source(Source.SYNTHETIC),
        ),
        Field(
            name="generators",
            reference=SOURCES_OF_DATA,
            asks="Which models made it?",
            answer=nowhere(ATTESTED),
        ),
        Field(
            name="other sources",
            reference=SOURCES_OF_DATA,
            asks="What came from anywhere else?",
            answer=_source(Source.OTHER),
        ),
        Field(
            name="opt-outs",
            reference=PROCESSING,
            asks="How were reservations of text and data mining respected?",
            answer=nowhere(ATTESTED),
        ),
        Field(
            name="illegal content",
            reference=PROCESSING,
            asks="What was done to keep illegal content out?",
            answer=nowhere(ATTESTED),
        ),
        Field(
            name="other processing",
            reference=PROCESSING,
            asks="What else was done to the data?",
            answer=described("privacy_technologies", lacks="any other processing"),
        ),
    ),
)
