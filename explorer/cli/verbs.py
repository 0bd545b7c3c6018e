"""The verbs of the command line: their table, and the group that loads a verb when it is called.

A line of `VERBS` names the module and function of a verb, and its help in one sentence, so that `explorer --help`
imports no verb. A verb's own module imports what it needs at its top; therefore verbs that need torch, or pandas, share
no module with verbs that do not. Where an option of a verb needs more than the verb itself, the option has a line in
`PARTS`.
"""

import functools
import importlib
import inspect
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup

from explorer.cli.options import Json
from explorer.page.terminal import Answer, deliver, show

VERBS: dict[str, tuple[str, str]] = {  # words: module and function below explorer.cli, first sentence of its docstring
    "quickstart": (
        "quickstart:quickstart",
        "Train four recipes on the source code that is installed here; show which is as good as the baseline for less.",
    ),
    "init": (
        "init:init",
        "Begin a project with your own data: look at a folder, and write a specification that runs at once.",
    ),
    "methods": ("run:methods", "List the training methods, with their parameters, defaults, sources and interactions."),
    "models": ("models:models", "List the models, with their parameters, and the data and task that they are for."),
    "run": ("run:run", "Train one run, or train a recorded one again and compare it with its record bit for bit."),
    "run-at": (
        "run_at:run_at_",
        "Execute runs of a sweep that is published at a place: claim, train in a local directory, publish.",
    ),
    "data show": (
        "data:show",
        "List the datasets, or show the card of one: size, licence, classes, sources, skipped examples.",
    ),
    "data shard": (
        "data:shard",
        "Write a dataset as shards: files that are read, verified and decoded while a run trains.",
    ),
    "data sign": (
        "governed.signed_shards:sign",
        "Attest the index of shards, which has the digest of every one, with a key of data governance.",
    ),
    "data verify": (
        "governed.signed_shards:verify",
        "Read every shard and compare it with the index; with --trust, check the attestation of the index too.",
    ),
    "data find": (
        "governed.signed_shards:find",
        "Find the examples that hold an image or a text, such as what a person wants to have erased.",
    ),
    "data erase": (
        "governed.signed_shards:erase",
        "Overwrite training examples in their shards for good.",
    ),
    "replay": ("run:replay", "Execute steps of a recorded run again and compare them with its ledger, bit for bit."),
    "open": (
        "notebooks:open_notebook",
        "Open JupyterLab on a notebook: explore (tradeoff curves), sweep (edit, plan and run a sweep), "
        "ledger (what a governed run recorded, and its proofs) or report (write reports by clicks).",
    ),
    "results": ("results:results", "Show the verdict on every recipe of a sweep."),
    "report": (
        "report:report",
        "Write the report of a sweep, or the governance report of one run, and print where it is.",
    ),
    "export": (
        "exports:export",
        "Export results: as one interactive page that works offline, or as a table with one row per finished run.",
    ),
    "import": (
        "imports:import_",
        "Import runs of other tools: marked as unverified, and never compared with runs of your own.",
    ),
    "ask": (
        "ask:ask",
        "Find the best recipe under limits on quality, time, cost, memory, inference and deletability, with evidence.",
    ),
    "search": (
        "search:search",
        "Search for the recipe that reaches the target soonest, among all combinations of methods.",
    ),
    "confirm": ("confirm:confirm", "Run a recipe and its baseline on seeds that had no part in choosing it."),
    "trace": (
        "governed.audit:trace",
        "Show which classes and examples took part in updates, how strongly and since when, with proofs.",
    ),
    "conform": (
        "governed.audit:conform",
        "Check a run's record: gradients routable, examples typed, updates reconstructible, no contradiction.",
    ),
    "next": (
        "governed.next_steps:next_",
        "Show what is missing between a governed run and an audited one, in order, with the command for each step.",
    ),
    "pack": (
        "report:pack",
        "Pack a run into one file for an auditor: ledger, proofs, documents, grants, report, verifier.",
    ),
    "attest": (
        "governed.release:attest",
        "Attest the model of a finished run: what trained which layers, its ledger, and what deletion would take.",
    ),
    "verify": (
        "governed.release:verify",
        "Check a model against a deployment gate: signatures, digests, ledger, and each rule of the gate.",
    ),
    "observe": ("governed.release:observe", "Sign an observation of a verified model, and write it next to the model."),
    "read": (
        "governed.grant:read",
        "Read what a grant opens: numbers by step, layer and class, checked against commitments in the ledger.",
    ),
    "probe": (
        "probe:probe",
        "Show what decides bits and speed of runs on this machine, so that sweeps can be planned for it elsewhere.",
    ),
    "profile run": ("profile:run", "Measure step times on this machine, and predict the time and cost of whole runs."),
    "profile import": (
        "store:import_",
        "Import profiles from other machines: results of the same recipes get predicted times there.",
    ),
    "sweep plan": (
        "sweep_plan:plan",
        "Show what a sweep would run and why: its runs, their order, time, dollars and disk.",
    ),
    "sweep run": ("sweep:run", "Run the missing runs of a sweep."),
    "sweep status": (
        "sweep_status:status",
        "Show the state of a sweep: runs done, running, diverged, failed, set aside, interrupted, planned, by recipe.",
    ),
    "tune": (
        "tune:tune",
        "Tune every recipe of a sweep with equal effort: as many points at the same budget, on seeds of their own.",
    ),
    "sweep jobs": (
        "sweep_jobs:jobs",
        "Publish a sweep at a place, and write a file that lets a scheduler execute it without any process here.",
    ),
    "sweep profile": ("sweep:profile", "Measure the step times of all recipes of a sweep again."),
    "sweep prune": (
        "store:prune",
        "List the runs that an earlier specification of a sweep left behind, or remove them with --yes.",
    ),
    "store ingest": (
        "store:ingest",
        "Load finished runs into the database; runs that it already has stay as they are.",
    ),
    "store rebuild": ("store:rebuild", "Rebuild the database from the run directories."),
    "store export": ("store:export", "Write the results to a file, one row per finished run."),
    "ledger verify": ("governed.ledger:verify", "Check a ledger: files, signatures, quorum."),
    "ledger show": ("governed.ledger_show:show", "Print entries, one a line."),
    "ledger prove": ("governed.ledger:prove", "Write a proof that an entry is in the ledger."),
    "ledger check": (
        "governed.ledger:check",
        "Check a proof that an entry is in a ledger that trusted keys have signed.",
    ),
    "ledger countersign": (
        "governed.delegated_runs:countersign",
        "Sign with the trainer's own key what a delegated key has signed.",
    ),
    "ledger cosign": ("governed.ledger_web:cosign", "Verify a ledger and cosign it."),
    "ledger submit": ("governed.ledger_web:submit", "Have a ledger cosigned by a witness, over HTTP."),
    "ledger witness": ("governed.ledger_web:witness", "Cosign the checkpoints of known logs, over HTTP."),
    "ledger export": ("governed.ledger_web:export", "Write a ledger as static files for others to fetch."),
    "ledger serve": ("governed.ledger_web:serve", "Serve a ledger to others, as it grows."),
    "ledger monitor": ("governed.ledger_web:monitor", "Check a log for new entries, and that it was not rewritten."),
    "usage state": (
        "governed.usage:state",
        "State how much of whose data runs used: examples, tokens, steps, layers, share of the gradient.",
    ),
    "usage verify": (
        "governed.usage:verify",
        "Check a statement of use offline: its signers, its line, and the entries of the ledger that it rests on.",
    ),
    "delete plan": (
        "governed.delete:plan",
        "Show what a deletion takes: its level, what the target touched, time and cost, and what it cannot reach.",
    ),
    "delete run": (
        "governed.delete_run:run",
        "Delete examples from a run: make the run without them, with a certificate that anyone can check.",
    ),
    "delete certify": (
        "governed.delete:certify",
        "Certify a deletion made by `explorer delete run`, and record it in the project's ledger.",
    ),
    "delete erase": (
        "governed.delete:erase",
        "Destroy the numbers and the secret of a class, or the salts of records.",
    ),
    "delete evidence": (
        "governed.delete_run:evidence",
        "Measure what a model knows about a class, compared with models trained without it.",
    ),
    "delete verify": (
        "governed.delete:verify",
        "Check a deletion certificate: every claim in it is derived again from both ledgers and the new run.",
    ),
    "grant key": (
        "governed.grant:key",
        "Make a reader's key and print its public key, which goes into a grant as `public_key`.",
    ),
    "grant sign": ("governed.grant:sign", "Sign a grant, its owner first, or add a signature to a signed one."),
    "grant check": ("governed.grant:check", "Check that a grant is valid now: signatures, classes, expiry."),
    "grant answer": (
        "governed.grant:answer",
        "Answer a reader's request: check it and its grant, record it, and wrap the keys that it asks for.",
    ),
    "grant wrap": (
        "governed.grant:wrap",
        "Hand over all keys of a run that a grant covers, before any request: `RUN/grants/<id>.json`.",
    ),
    "grant revoke": (
        "governed.grant:revoke",
        "Revoke a grant in all runs of the project, and remove its wrapped keys.",
    ),
    "grant list": (
        "governed.grant:list_",
        "List the grants whose keys were wrapped for a run: grantee, classes, expiry, state.",
    ),
    "taxonomy sign": ("governed.tags:sign_taxonomy", "Sign a draft of a taxonomy, or add a signature to a signed one."),
    "taxonomy verify": ("governed.tags:verify_taxonomy", "Check the signatures of a signed taxonomy."),
    "taxonomy show": ("governed.tags:show_taxonomy", "Show the tree of classes with definitions, and its signers."),
    "policy check": (
        "governed.policy:check",
        "Check a policy and print its class x layer matrix, phase by phase, with the rule that decided each cell.",
    ),
    "policy sign": (
        "governed.policy:sign",
        "Sign a policy that fits its taxonomy, or add a signature to a signed one.",
    ),
    "policy simulate": (
        "governed.policy:simulate",
        "Estimate the updates of a recorded run under another policy, before paying for training.",
    ),
    "prices list": (
        "prices:list_",
        "List the prices of this machine, or of the named hardware, and show which one is used and why.",
    ),
    "prices add": ("prices:add", "Add the price of your own machine."),
    "prices import": (
        "prices:import_",
        "Import on-demand and spot prices from a local catalogue in SkyPilot's schema.",
    ),
    "prices remove": ("prices:remove", "Remove your own prices of a provider, of some hardware, or of both."),
    "tags make": ("governed.tags:make", "Make a tag table and its salts from records."),
    "tags dataset": (
        "data:tags_dataset",
        "Make the tag table of a dataset's training examples from its own provenance.",
    ),
    "tags sign": (
        "governed.tags:sign",
        "Sign a tag table with a key of data governance; with --attestation, add a signature.",
    ),
    "tags verify": ("governed.tags:verify", "Check a tag table against its signed attestation."),
    "tags erase": ("governed.tags:erase", "Destroy the salt of one record: it can no longer be linked to its tag."),
    "authority new": (
        "governed.authority:new",
        "Make a key and add it to the trust file, as a new authority or as a further key of a known one.",
    ),
    "authority passphrase": (
        "governed.authority:passphrase",
        "Encrypt a key file again, with a new passphrase and the current number of rounds.",
    ),
    "authority list": (
        "governed.authority:list_",
        "List the authorities of a trust file: roles, branches, keys, validity, quorums.",
    ),
    "authority revoke": ("governed.authority:revoke", "Revoke a key."),
    "authority quorum": ("governed.authority:quorum", "Set how many authorities of a role must sign."),
}


class Group(NamedTuple):
    """A word that several verbs begin with."""

    help: str
    default: str | None = None  # the verb that runs where none is named
    shows_help: bool = True  # whether the word by itself prints the help; else it is an error
    runs: bool = False  # whether the word by itself runs the default


GROUPS = {
    "profile": Group(
        "Measure how long a recipe takes, and what it costs, before training it. `explorer profile RECIPE` is short for"
        " `explorer profile run RECIPE`.",
        default="run",
    ),
    "data": Group(
        "Datasets: their cards, and shards of them. `explorer data NAME` is short for `explorer data show NAME`.",
        default="show",
        shows_help=False,
        runs=True,
    ),
    "sweep": Group("Plan, run and follow a sweep of recipes over budgets and seeds."),
    "store": Group("The database of results, built from the run directories."),
    "ledger": Group("The tamper-evident log of a run: integrity, entries, proofs."),
    "usage": Group(
        "State how much of whose data was used: usage RUNS --by class|authority|source.",
        default="state",
        shows_help=False,
    ),
    "delete": Group("Delete what a model learned from some examples, and prove it.", shows_help=False),
    "grant": Group("Grants: who may read which numbers of which runs, and until when."),
    "taxonomy": Group("The taxonomy: the tree of classes that data can have."),
    "policy": Group("The routing policy: which class may train which layer, and when."),
    "prices": Group("Prices of hardware by the hour: the shipped table, your own prices, catalogues."),
    "tags": Group("Tags: the class of every example, and who vouches for it."),
    "authority": Group("Keys, and the trust file that lists the trusted ones."),
}

PARTS = {  # options and arguments that need more imports than their verb
    "governed runs, next": "explorer.cli.governed.next_steps:after",
    "ledger --trust": "explorer.provenance.trust:read_trust",
    "ledger --trust, signers": "explorer.runlog.anchor:anchor_of_trust",
    "ledger DIR --trust, signers": "explorer.runlog.anchor:anchor_of_ledger",
    "ledger verify --trust": "explorer.audit.withheld:read_withheld",
    "ledger verify --contents": "explorer.audit.contents:examine_contents",
    "results SWEEP": "explorer.cli.verdicts:verdict_blocks",
    "results SWEEP, controls": "explorer.cli.verdicts:control_blocks",
    "results, of new runs": "explorer.store.upkeep:bring_up",
    "read --at": "explorer.store.place_copy:copy_of",
    "sweep run --at": "explorer.store.place_copy:publish_results",
    "export --to html": "explorer.report.sweep_report:offline_html",
    "results --out": "explorer.store.export:export",
    "results --against": "explorer.cli.verdicts:show_across",
    "results --composition": "explorer.cli.verdicts:show_composition",
    "sweep run, untuned": "explorer.cli.tune:tune_first",
    "sweep plan, untuned": "explorer.cli.tune:plan_untuned",
    "open": "explorer.views.lab:serve",
    "open --view": "explorer.views.explorer.checked_view:view_by_options",
    "prices list": "explorer.recipes.machine:hardware",
    "policy check --model": "explorer.training.model_layers:catalogue_layers",
    "sweep run --on": "explorer.sweep.dask_engine:DaskWorkers",
    "delete plan, by replay": "explorer.cli.governed.delete_run:elsewhere_words",
    "delete plan --profile": "explorer.training.replay:measure_replay",
    "delete plan --profile --loop": "explorer.cli.governed.delete_run:loop_time",
    "delete verify --counterfactual": "explorer.cli.governed.delete_run:counterfactual",
}


class Verbs(TyperGroup):
    """The group that lists its verbs from the table, and imports the one that is called."""

    def __init__(self, *, prefix: str = "", default: str | None = None, runs: bool = False, **options: Any) -> None:
        super().__init__(**options)
        self.prefix = prefix  # the words that lead to this group, with a space behind them
        self.default = default
        self.runs = runs

    def list_commands(self, ctx: Any) -> list[str]:
        names = [words.removeprefix(self.prefix) for words in VERBS if words.startswith(self.prefix)]
        return [name for name in names if " " not in name] + ([] if self.prefix else [*GROUPS])

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        words = f"{self.prefix}{cmd_name}"
        if words in GROUPS:
            return _group(words)
        return _command(cmd_name, f"explorer.cli.{VERBS[words][0]}") if words in VERBS else None

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        # As `short_help` a line is wrapped; as `help` it would be cut off.
        lines = {name: self._line(f"{self.prefix}{name}") for name in self.list_commands(ctx)}
        commands = [TyperCommand(name, short_help=line) for name, line in lines.items()]
        TyperGroup(commands=commands).format_commands(ctx, formatter)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        # `explorer profile RECIPE` is short for `explorer profile run RECIPE`: a first word that is neither a verb nor
        # a request for help belongs to the default verb.
        known = (*self.list_commands(ctx), *self.get_help_option_names(ctx))
        if self.default and (args[0] not in known if args else self.runs):
            args = [self.default, *args]
        return super().parse_args(ctx, args)

    def _line(self, words: str) -> str:
        return GROUPS[words].help if words in GROUPS else VERBS[words][1]


def part(name: str) -> Callable[..., Any]:
    """Import what an option of a verb needs, by its line in `PARTS`."""
    return _load(PARTS[name])


def _load(target: str) -> Callable[..., Any]:
    module, _, name = target.partition(":")
    return getattr(importlib.import_module(module), name)


def _group(name: str) -> Verbs:
    group = GROUPS[name]
    return Verbs(
        prefix=f"{name} ",
        default=group.default,
        runs=group.runs,
        name=name,
        help=group.help,
        no_args_is_help=group.shows_help,
        rich_markup_mode=None,
    )


def _command(name: str, target: str) -> Any:
    app = typer.Typer(add_completion=False, rich_markup_mode=None)
    app.command(name)(_delivered(_load(target)))
    return typer.main.get_command(app)


def _delivered(verb: Callable[..., Answer | None]) -> Callable[..., None]:
    """Return a verb that prints its answer and sets the exit status. `--json` is added where the verb has none."""
    # Typer reads the options of a verb from its signature, so the added option has to be written into it.
    signature = inspect.signature(verb)
    parameters = [*signature.parameters.values()]
    if signature.return_annotation in (Answer, Answer | None) and "json" not in signature.parameters:
        parameters.append(inspect.Parameter("json", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=Json))

    @functools.wraps(verb)
    def deliver_answer(**arguments: Any) -> None:
        answer = verb(**{name: value for name, value in arguments.items() if name in signature.parameters})
        if answer is None:
            return
        if status := deliver(answer, as_json=arguments.get("json", False)):
            raise typer.Exit(status)
        # For people only: what reads the output of a verb gets the answer and nothing else.
        if not arguments.get("json", False):
            show(answer.then(), file=sys.stderr)

    deliver_answer.__signature__ = signature.replace(parameters=parameters)  # pyright: ignore[reportAttributeAccessIssue]
    deliver_answer.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return deliver_answer
