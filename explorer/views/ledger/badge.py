"""The integrity badge: in a word, and then in sentences, whether a ledger is to be believed and by whom."""

from dataclasses import dataclass
from typing import Literal

from explorer.audit.history import Badge
from explorer.page import amounts
from explorer.page.document import sentence
from explorer.page.html import Markup, element, fragment

Verdict = Literal["verified", "unchecked", "broken"]
TITLES: dict[Verdict, str] = {
    "verified": "Verified",
    "unchecked": "Not checked against anybody",
    "broken": "Broken",
}
SIGNS: dict[Verdict, str] = {"verified": "\u2713", "unchecked": "?", "broken": "\u2717"}

NOBODY = "checkpoint: nobody is trusted"  # the one finding that is about the caller
SIMULATED = "Simulated provenance: this data has no real sources; the classes were cut for demonstration."
OUTCOMES = {
    "finished": "the run is finished",
    "stopped": "the run was stopped before its last step",
    "unfinished": "its last entry is not 'end': unfinished, there may be more to come",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Words:
    """What a badge says."""

    verdict: Verdict
    sentences: tuple[str, ...]
    findings: tuple[str, ...]  # what is wrong

    @property
    def title(self) -> str:
        return TITLES[self.verdict]


def badge_words(found: Badge) -> Words:
    """A ledger is broken where something contradicts it, whoever is trusted; without trust it is not verified."""
    findings = tuple(each for each in found.faults if found.anchored or not each.startswith(NOBODY))
    size = f"{amounts.count(found.size, 'entry', 'entries')} for {amounts.count(found.steps, 'step')}; "
    size += OUTCOMES[found.outcome]
    if found.blobs.erased:
        entries = ", ".join(map(str, found.blobs.by))
        size += f"; {amounts.count(found.blobs.erased, 'blob')} erased, by entry {entries} of the project's ledger: "
        size += "what was in them cannot be told"
    if findings:
        return Words(
            verdict="broken",
            sentences=(size, "Keep a copy of the directory before anything writes to it."),
            findings=findings,
        )
    if not found.anchored:
        why = (
            "The files agree with each other, as a forger's would. Say whom to believe: a trust file from another "
            "source than this run."
        )
        return Words(verdict="unchecked", sentences=(size, why), findings=())
    signed = f"Signed by {', '.join(found.signed_by)}"
    signed += f"; cosigned by {', '.join(found.cosigned_by)}." if found.cosigned_by else "; nobody has cosigned it."
    roll_back = "A roll-back to an earlier state can only be seen by who holds a later checkpoint."
    return Words(verdict="verified", sentences=(size, signed, roll_back), findings=())


def badge_html(words: Words) -> Markup:
    """Return the badge as HTML."""
    sign = element("span", SIGNS[words.verdict], aria_hidden="true")
    chip = element("span", sign, f" {words.title}", class_=f"x-badge x-{words.verdict}", role="status")
    sentences = element("span", " ".join(map(sentence, words.sentences)), class_="x-note")
    findings = element("ul", *(element("li", finding) for finding in words.findings), class_="x-warn")
    return chip + " " + sentences + (findings if words.findings else "")


def is_simulated(classes: tuple[str, ...]) -> bool:
    """Whether the classes stand for no real sources. Their maker says so by their branch."""
    return any(path == "simulated" or path.startswith("simulated/") for path in classes)


def simulated_note(classes: tuple[str, ...]) -> Markup:
    """Return what is shown above everything else where the provenance is simulated; nothing elsewhere."""
    return element("p", SIMULATED, class_="x-simulated", role="note") if is_simulated(classes) else fragment()
