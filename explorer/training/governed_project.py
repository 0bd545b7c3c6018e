"""A governed project for a dataset: what `explorer init --governed` writes, so that a governed run is one command away.

    governed.yaml              the recipe: a short training under the policy, recorded in a ledger
    governed/policy.yaml       the policy to edit: it says which class trains when and which layers
    governed/taxonomy.yaml     the classes, as the data's folders, columns or licences name them
    governed/                  their signed forms, the tags of all examples, and the keys that signed them

The classes are those that the dataset declares. One that declares none gets them from its folders, from a column of
text with few values, or, where there is nothing of the kind, from a division of its labels, which every view calls
simulated. All keys belong to one party, so the documents prove only that nothing was changed afterwards.
"""

import json
import re
import shlex
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from explorer import rundir
from explorer.data.dataset import Provenance, Rows
from explorer.data.sources import DATASETS, load
from explorer.errors import RecipeError
from explorer.models.table import MODELS
from explorer.provenance.policy import FORMAT as POLICY_FORMAT
from explorer.provenance.policy import read_policy
from explorer.provenance.spellings import format_time, lineage
from explorer.provenance.taxonomy import FORMAT as TAXONOMY_FORMAT
from explorer.provenance.taxonomy import Source, Taxonomy, TaxonomyClass, check_taxonomy
from explorer.recipes.choice import choose
from explorer.recipes.recipe import Recipe
from explorer.runlog.documents import POLICIES, TAXONOMY_FILE, TRUST_FILE
from explorer.schema import to_json
from explorer.training.demonstration import DAYS, GOVERNANCE, KEYS, RISK, WARNING, write_documents
from explorer.training.run_plan import total_steps
from explorer.training.tagging import origins_unknown
from explorer.yaml_document import parse_document

RECIPE, DIRECTORY = "governed.yaml", "governed"
POLICY, TAXONOMY_DRAFT, NAME = "policy.yaml", "taxonomy.yaml", "first"
MOST_CLASSES = 32  # a step runs once for each class in its batch, so more of them make it slow
MOST_STEPS = 300  # of the first governed run, so that it ends within minutes
STRICT = "refuse"  # the quarantine of the policy
ERASABLE = "weight-zero  # an example that was erased from its shard keeps its place, and trains nothing"
METHODS = f"methods:\n  - routing: {{policy: {NAME}}}\n  - contributions\n  - recorder\n"  # of the recipe
IGNORED = "*.pem\n*.pem.cosigned/\nsalts\n"  # private: keys, their memories, salts


@dataclass(frozen=True, kw_only=True, slots=True)
class GovernedProject:
    """The files that were written."""

    recipe: Path
    directory: Path  # of the documents
    classes: Mapping[str, int]  # training examples of each class
    late: str | None  # the class that the policy admits late; None: there is only one class
    simulated: bool

    @property
    def lines(self) -> list[str]:
        """The words for its author."""
        shown = ", ".join(f"{path} ({count:,})" for path, count in self.classes.items())
        late = f"{self.late} trains in the second half only" if self.late else "one class, which trains everything"
        return [
            f"{self.recipe}: the recipe of a governed run",
            f"{self.directory}/: its documents, {WARNING}",
            f"  classes  {shown}",
            *(
                ["           simulated provenance: made up from the labels, because the data names no sources"]
                * self.simulated
            ),
            f"  taxonomy {self.directory / TAXONOMY_DRAFT}: says of every class that it has no personal data; that is"
            " not checked,",
            "           and these keys have signed it; edit and sign it again, as its top says, before using a report",
            f"  policy   {self.directory / POLICY}: {late}; edit it, then sign it with the line at its top",
        ]


def begin_governed(
    project: Path, task: Mapping[str, Any], train: Mapping[str, Any], *, data: Path | None, now: int
) -> GovernedProject:
    """Write the recipe and the documents of a governed run into a project's directory, which has neither yet.

    Args:
        project: the directory.
        task: dataset and model, as in a specification.
        train: the training settings, as in a specification.
        data: the directory of the datasets.
        now: the time of issue, in seconds since 1970.

    Raises `RecipeError` where one of them is there already, and for a dataset that cannot be governed; `DataError` for
    one that cannot be read.
    """
    recipe, directory = project / RECIPE, project / DIRECTORY
    for path in (recipe, directory):
        if path.exists():
            raise RecipeError(
                f"{path}: exists already, and nothing is overwritten; remove it, or choose another directory"
            )
    task = {**task, "dataset": classed(task["dataset"], data), "model": unmixed(task["model"])}
    written = {"task": task, "train": train, **parse_document(METHODS, where=RECIPE).value}
    planned = Recipe.from_mapping(DIRECTORY, written, where=RECIPE, code=None)
    dataset = load(planned.dataset, data)
    declared = dataset.provenance
    if declared is None:
        raise RecipeError(origins_unknown(planned.dataset))
    counts = counted(declared)
    if len(counts) > MOST_CLASSES:
        raise RecipeError(
            f"found {len(counts)} classes, expected {MOST_CLASSES} or fewer, because a step runs once for each class in"
            " its batch; group them in a table (CSV) with the columns path,class, and name it as `provenance` of the"
            " dataset"
        )
    late = min(counts, key=lambda path: (counts[path], path)) if len(counts) > 1 else None
    taxonomy = _taxonomy(planned.dataset.name, counts, now)
    policy = _policy(taxonomy, late, directory, now, ERASABLE if isinstance(dataset.train.inputs, Rows) else STRICT)
    steps = total_steps(planned, examples=len(dataset.train), ssr=1.0)
    write_documents(
        directory,
        planned.dataset,
        data=data,
        taxonomy=taxonomy,
        policies=[read_policy(parse_document(policy, where=str(directory / POLICY)))],
        now=now,
        drafts={
            POLICY: policy,
            TAXONOMY_DRAFT: _draft(taxonomy, directory),
            ".gitignore": IGNORED,
        },
    )
    rundir.write_bytes(recipe, _recipe(task, train, steps).encode())
    return GovernedProject(recipe=recipe, directory=directory, classes=counts, late=late, simulated=declared.simulated)


# --- the classes of the data ---


def classed(dataset: Any, data: Path | None) -> Any:
    """Return a dataset, as a specification writes it, with the parameter that gives its examples classes."""
    source = choose(DATASETS, dataset, kind="dataset", where="task.dataset", code=None)
    before, after = asdict(source), asdict(source.with_classes(data))
    parameters = {} if isinstance(dataset, str) else dict(dataset[source.name] or {})
    parameters |= {name: value for name, value in after.items() if value != before[name]}
    return {source.name: parameters} if parameters else source.name


def unmixed(model: Any) -> Any:
    """Return a model, as a specification writes it, with group normalisation where it would have batch normalisation.

    A governed step computes every class by itself, so batch normalisation would centre each of them. Where the classes
    are the labels, as with folders, the model then sees nothing that tells them apart, and learns nothing.
    """
    spec = choose(MODELS, model, kind="model", where="task.model", code=None)
    if getattr(spec, "norm", None) != "batch":
        return model
    return {spec.name: {**({} if isinstance(model, str) else dict(model[spec.name] or {})), "norm": "group"}}


def counted(declared: Provenance) -> dict[str, int]:
    """Return the number of training examples of each class that has any."""
    counts = np.bincount(declared.codes, minlength=len(declared.classes)).tolist()
    return {path: count for path, count in zip(declared.classes, counts, strict=True) if count}


# --- the drafts ---


def _taxonomy(name: str, counts: Mapping[str, int], now: int) -> Taxonomy:
    """Return the classes with every branch above them."""
    paths = sorted({branch for path in counts for branch in lineage(path)})
    taxonomy = Taxonomy(
        format=TAXONOMY_FORMAT,
        name=re.sub(r"[^a-z0-9_.-]", "-", name),
        version=1,
        issued=format_time(now),
        expires=format_time(now + DAYS * 86_400),
        classes=tuple(
            TaxonomyClass(
                path=path,
                definition=(f"What the data declares as {path}" if path in counts else f"Everything below {path}")
                + "; not checked for personal data.",
                personal_data=False,
                source=Source.OTHER,
            )
            for path in paths
        ),
    )
    check_taxonomy(taxonomy, TAXONOMY_DRAFT)
    return taxonomy


def _draft(taxonomy: Taxonomy, directory: Path) -> str:
    """Return the text of the taxonomy."""
    files = (TAXONOMY_DRAFT, KEYS[GOVERNANCE], TRUST_FILE, TAXONOMY_FILE)
    draft, key, trust, signed = (shlex.quote(str(directory / name)) for name in files)
    head = (
        "# The classes. `personal_data` and `source` are not checked, and a report shows them as facts: edit them and",
        "# the definitions, raise the version, and sign again:",
        "#",
        f"#   explorer taxonomy sign {draft} --key {key} --trust {trust} --out {signed}",
        "#",
        "# The policy and the tags name a taxonomy by its digest: sign them again after it (`explorer tags sign`).",
    )
    return "\n".join((*head, yaml.safe_dump(to_json(taxonomy), sort_keys=False)))


def _policy(taxonomy: Taxonomy, late: str | None, directory: Path, now: int, quarantine: str) -> str:
    """Return the text of the policy: one class late, all others everywhere from the first step on."""
    branches = [class_.path for class_ in taxonomy.classes if "/" not in class_.path]
    first = json.dumps(late or branches[0])  # a quoted text: a class may be called 3
    rules = [f"  - {{classes: [{first}], progress: [0, 0.5], weight: 0}}"] if late else []
    rules += [f"  - {{classes: {json.dumps(branches)}, weight: 1}}"]
    begins, signed = format_time(now), f"{POLICIES}/{NAME}.json"
    files = (POLICY, TAXONOMY_FILE, KEYS[RISK], TRUST_FILE, signed)
    places = {name: shlex.quote(str(directory / name)) for name in files}
    reference = f'{{name: {taxonomy.name}, version: {taxonomy.version}, digest: "{taxonomy.digest}"}}'
    return "\n".join(
        (
            "# Which class of data trains which layers, and when. The first rule that fits decides; without one",
            "# the weight is 0. After an edit raise the version and sign it again:",
            "#",
            f"#   explorer policy sign {places[POLICY]} --taxonomy {places[TAXONOMY_FILE]} \\",
            f"#     --key {places[KEYS[RISK]]} --trust {places[TRUST_FILE]} --out {places[signed]}",
            "#",
            "# Other rules to try, above the others, and `confidential: [CLASS]` to encrypt the numbers of a class:",
            f"#   - {{classes: [{first}], depth: [0, 0.5], weight: 0}}        not the lower half of the layers",
            f'#   - {{classes: [{first}], layers: ["*norm*"], weight: 0}}     not these layers',
            f"#   - {{classes: [{first}], weight: 0.5}}                       half as strongly",
            f"format: {POLICY_FORMAT}",
            f"name: {NAME}",
            "version: 1",
            f"issued: {begins}",
            f"expires: {format_time(now + DAYS * 86_400)}",
            f"taxonomy: {reference}",
            f"quarantine: {quarantine}",
            "rules:",
            *rules,
            "",
        )
    )


def _recipe(task: Mapping[str, Any], train: Mapping[str, Any], steps: int) -> str:
    """Return the text of the recipe, with a budget of at most `MOST_STEPS` steps."""
    budget = 1.0 if steps <= MOST_STEPS else float(f"{MOST_STEPS / steps:.2g}")
    settings = yaml.safe_dump(
        {"task": dict(task), "train": dict(train)}, sort_keys=False, default_flow_style=None, width=120
    )
    return (
        "# A governed run: every batch trains class by class, under the policy, and a ledger records which class moved"
        " which layer.\n"
        f"name: {DIRECTORY}\n{settings}"
        f"budget: {budget:g}  # of the epochs above: about {min(steps, MOST_STEPS)} steps; 1 is the whole training\n"
        f"governance: {DIRECTORY}\n"
        f"{METHODS}"
    )
