"""The verbs of the command line: the one table of them, and the group that loads a verb when it is called.

A line of `VERBS` names the module and function of a verb, and its help in one sentence, so that `explorer --help`
imports no verb. A verb's own module imports what it needs at its top; therefore verbs that need torch, or pandas, share
no module with verbs that do not. Where an option of a verb needs more than the verb itself, the option has a line in
`PARTS`.
"""

import functools
import importlib
import inspect
from collections.abc import Callable
from typing import Any, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup

from explorer.cli.options import Json
from explorer.page.terminal import Answer, deliver

VERBS: dict[str, tuple[str, str]] = {  # words: module and function below explorer.cli, first sentence of its docstring
    "quickstart": (
        "quickstart:quickstart",
        "Train five recipes on real handwriting at five budgets and three seeds; show which is as good for less.",
    ),
    "methods": (
        "run:methods",
        "The training methods: what each does, its parameters, defaults, source and interactions.",
    ),
    "run": ("run:run", "Train one run, or train a recorded one again and compare it with its record bit for bit."),
    "data": (
        "data:data_",
        "The datasets; of one, the card: size, licence, classes, where the examples come from, what was passed over.",
    ),
    "replay": ("run:replay", "Execute steps of a recorded run again and compare them with its ledger, bit for bit."),
    "open": (
        "notebooks:open_notebook",
        "Open JupyterLab on a notebook: explore (tradeoff curves), sweep (edit, plan and run a sweep), "
        "ledger (what a governed run recorded, and its proofs) or report (write reports by clicks).",
    ),
    "results": ("results:results", "The verdict on every recipe of a sweep."),
    "report": (
        "report:report",
        "Write the report of a sweep, or the governance report of one run, and print where it is.",
    ),
    "ask": (
        "ask:ask",
        "The best recipe under limits on quality, time, money, inference and deletability, with the evidence.",
    ),
    "confirm": ("confirm:confirm", "Run a recipe and its baseline on seeds that had no part in choosing it."),
    "trace": (
        "trace:trace",
        "Which classes and which examples took part in updates, how strongly, since when; with proofs.",
    ),
    "conform": (
        "conform:conform",
        "Check a run's record: gradients routable, examples typed, updates reconstructible, no contradiction.",
    ),
    "pack": (
        "pack:pack",
        "Put a run into one file for an auditor: ledger, proofs, documents, grants, report, verifier.",
    ),
    "attest": (
        "release:attest",
        "Sign for the model of a finished run: what trained it where, under which ledger, and what deleting "
        "would take.",
    ),
    "verify": (
        "release:verify",
        "Judge a model before it is let run: signatures, digests, ledger, and the gate's own rules, one by one.",
    ),
    "observe": (
        "release:observe",
        "Sign an observation of a model whose record you believe, and lay it beside the model.",
    ),
    "read": (
        "read:read",
        "Read what a grant opens: numbers by step, layer and class, each held against its commitment in the ledger.",
    ),
    "profile run": (
        "profile:run",
        "Measure the time of a step in each phase on this machine, and say what whole runs will take and cost.",
    ),
    "profile import": (
        "profile_import:import_",
        "Take in profiles from other machines: results of the same recipes get predicted times there.",
    ),
    "sweep plan": ("sweep:plan", "What a sweep would run: how many runs, what is done already, time and dollars."),
    "sweep run": ("sweep:run", "Run what is missing of a sweep."),
    "sweep status": (
        "sweep_status:status",
        "Where a sweep stands: runs done, running, failed, interrupted and planned, by recipe and budget.",
    ),
    "sweep profile": ("sweep:profile", "Measure the step times of a sweep's recipes again, all of them in turn."),
    "sweep prune": (
        "sweep_prune:prune",
        "List the runs that an earlier specification of a sweep left behind, or remove them with --yes.",
    ),
    "store ingest": (
        "results:ingest",
        "Load finished runs into the database; runs that are there already are left alone.",
    ),
    "store rebuild": ("results:rebuild", "Make the database anew from the run directories."),
    "store export": ("results:export", "Write the results to a file."),
    "ledger verify": ("ledger:verify", "Check a ledger: files, signatures, quorum."),
    "ledger show": ("ledger_show:show", "Print entries, one a line."),
    "ledger prove": ("ledger:prove", "Write a proof that an entry is there."),
    "ledger check": ("ledger:check", "Check a proof, anywhere."),
    "ledger cosign": ("ledger_web:cosign", "Verify a ledger and cosign it."),
    "ledger submit": ("ledger_web:submit", "Have a ledger cosigned by a witness, over HTTP."),
    "ledger witness": ("ledger_web:witness", "Cosign the checkpoints of logs that you know, over HTTP."),
    "ledger export": ("ledger_web:export", "Write a ledger as static files for others to fetch."),
    "ledger serve": ("ledger_web:serve", "Serve a ledger to others, as it grows."),
    "ledger monitor": ("ledger_web:monitor", "Look what is new in a log, and whether it is still the same."),
    "usage state": (
        "usage:state",
        "State how much of whose data runs used: examples, tokens, steps, layers, share of the gradient.",
    ),
    "usage verify": (
        "usage:verify",
        "Check a statement of use offline: who signed it, that the line is the signed one, and that the "
        "ledger has its entries.",
    ),
    "delete plan": (
        "delete:plan",
        "What a deletion takes: its level, what the target touched, time and money, and what it cannot reach.",
    ),
    "delete run": (
        "delete_run:run",
        "Make the run that never had some examples out of one that had them, with a certificate that "
        "strangers can check.",
    ),
    "delete certify": (
        "delete:certify",
        "Certify a deletion that `explorer delete run` has made, and put it on record in the project's ledger.",
    ),
    "delete erase": ("delete:erase", "Destroy the numbers and the secret of a class, or the salts of records."),
    "delete evidence": (
        "delete_run:evidence",
        "Measure what a model knows of a class, beside models that were trained without it.",
    ),
    "delete verify": (
        "delete:verify",
        "Check a certificate of deletion: every claim in it is derived again from both ledgers and the new run.",
    ),
    "grant key": (
        "grant:key",
        "Make a reader's key and print its public key, which goes into a grant as `public_key`.",
    ),
    "grant sign": ("grant:sign", "Sign a grant, its owner first, or add a signature to a signed one."),
    "grant check": ("grant:check", "Whether a grant holds now: who signed it, for which classes, until when."),
    "grant answer": (
        "grant:answer",
        "Answer a reader's request: check it and its grant, put it on record, and wrap the keys for just what it asks.",
    ),
    "grant wrap": (
        "grant:wrap",
        "Hand over ahead all the keys of a run that a grant covers, for its grantee alone: `RUN/grants/<id>.json`.",
    ),
    "grant revoke": (
        "grant:revoke",
        "Take a grant back, in all runs of the project: it opens nothing any more, and its wrapped keys are removed.",
    ),
    "grant list": (
        "grant:list_",
        "The grants whose keys were wrapped for a run: to whom, for what, until when, and whether they still count.",
    ),
    "taxonomy sign": ("taxonomy:sign", "Sign a draft, or add a signature to a signed file."),
    "taxonomy verify": (
        "taxonomy:verify",
        "Check the signatures of a signed taxonomy; exit status 0 only if it is believed now.",
    ),
    "taxonomy show": ("taxonomy:show", "Print the tree with definitions, and who signed it."),
    "policy check": (
        "policy:check",
        "Check a policy and print its class x layer matrix, phase by phase, with the rule that decided each cell.",
    ),
    "policy sign": ("policy:sign", "Sign a policy that fits its taxonomy, or add a signature to a signed one."),
    "policy simulate": (
        "policy:simulate",
        "What a recorded run's numbers say its updates would have been under another policy, before training "
        "is paid for.",
    ),
    "prices list": (
        "prices:list_",
        "The prices of this machine, or of the hardware named: which of them costs are made with, and why.",
    ),
    "prices add": ("prices:add", "Say what a machine of your own costs."),
    "prices import": (
        "prices:import_",
        "Take prices from a catalogue in SkyPilot's schema, of which you have a copy: on demand and spot.",
    ),
    "prices remove": (
        "prices:remove",
        "Take rows out of your own prices again: those of a provider, those of some hardware, or those of both.",
    ),
    "tags make": ("tags:make", "Make a tag table and its salts from records."),
    "tags dataset": (
        "data:tags_dataset",
        "Make the tag table of a dataset's training examples, from what the dataset itself says about them.",
    ),
    "tags sign": (
        "tags:sign",
        "Vouch for a tag table, with a key of data governance; with --attestation, join others who do.",
    ),
    "tags verify": ("tags:verify", "Check a tag table: exit status 0 only if every tag in it is believed now."),
    "tags erase": ("tags:erase", "Destroy the salt of one record: nobody can link it to its tag any more."),
    "authority new": (
        "authority:new",
        "Make a key and add it to the trust file, as a new authority or as a further key of one that is there.",
    ),
    "authority passphrase": (
        "authority:passphrase",
        "Encrypt a key file again: with another passphrase, and with as many rounds as new key files have.",
    ),
    "authority list": (
        "authority:list_",
        "Whom a trust file believes, for what, from when until when, and how many of them it takes.",
    ),
    "authority revoke": ("authority:revoke", "Believe a key no longer."),
    "authority quorum": ("authority:quorum", "Say how many authorities of a role it takes."),
}


class Group(NamedTuple):
    """A word that several verbs begin with."""

    help: str
    default: str | None = None  # the verb that is meant where none is named
    shows_help: bool = True  # where nothing follows it; else that is an error


GROUPS = {
    "profile": Group(
        "How long a recipe takes, and what it costs, before it is trained. `explorer profile RECIPE` is short for"
        " `explorer profile run RECIPE`.",
        default="run",
    ),
    "sweep": Group("Plan, run and follow a sweep of recipes over budgets and seeds."),
    "store": Group("The database, made from the run directories."),
    "ledger": Group("The tamper-evident log of a run: integrity, entries, proofs."),
    "usage": Group(
        "State how much of whose data was used: usage RUNS --by class|authority|source.",
        default="state",
        shows_help=False,
    ),
    "delete": Group("Delete what a model learned from some examples, and prove it.", shows_help=False),
    "grant": Group("Who may read which numbers of which runs, until when."),
    "taxonomy": Group("The tree of classes that data can have."),
    "policy": Group("Which class may train which layer, and when."),
    "prices": Group("What an hour of hardware costs: the shipped table, your own rows, catalogues."),
    "tags": Group("What class every example has, and who vouches for it."),
    "authority": Group("Keys, and the trust file that says which of them are believed."),
}

PARTS = {  # options and arguments that need more than their verb
    "ledger --trust": "explorer.provenance.trust:read_trust",
    "ledger --trust, signers": "explorer.runlog.anchor:anchor_of_trust",
    "ledger verify --trust": "explorer.audit.withheld:read_withheld",
    "ledger verify --contents": "explorer.audit.contents:examine_contents",
    "results SWEEP": "explorer.cli.answer:verdict_blocks",
    "results SWEEP, controls": "explorer.cli.answer:control_blocks",
    "results --composition": "explorer.cli.composition:show_composition",
    "open --view": "explorer.views.explorer.question:from_token",
    "prices list": "explorer.recipes.machine:hardware",
    "policy check --model": "explorer.training.model_layers:catalogue_layers",
    "delete plan, by replay": "explorer.cli.delete_run:elsewhere_words",
    "delete plan --profile": "explorer.training.replay:measure_replay",
    "delete verify --counterfactual": "explorer.cli.delete_run:counterfactual",
}


class Verbs(TyperGroup):
    """A group that lists its verbs from the table, and imports the one that is called."""

    def __init__(self, *, prefix: str = "", default: str | None = None, **options: Any) -> None:
        super().__init__(**options)
        self.prefix = prefix  # the words that lead to this group, with a space behind them
        self.default = default

    def list_commands(self, ctx: Any) -> list[str]:
        names = [words.removeprefix(self.prefix) for words in VERBS if words.startswith(self.prefix)]
        return [name for name in names if " " not in name] + ([] if self.prefix else [*GROUPS])

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        words = f"{self.prefix}{cmd_name}"
        if words in GROUPS:
            return _group(words)
        return _command(cmd_name, f"explorer.cli.{VERBS[words][0]}") if words in VERBS else None

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        lines = {name: self._line(f"{self.prefix}{name}") for name in self.list_commands(ctx)}
        TyperGroup(commands=[TyperCommand(name, help=line) for name, line in lines.items()]).format_commands(
            ctx, formatter
        )

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if self.default and args and args[0] not in (*self.list_commands(ctx), *self.get_help_option_names(ctx)):
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
    signature = inspect.signature(verb)
    parameters = [*signature.parameters.values()]
    if signature.return_annotation in (Answer, Answer | None) and "json" not in signature.parameters:
        parameters.append(inspect.Parameter("json", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=Json))

    @functools.wraps(verb)
    def deliver_answer(**arguments: Any) -> None:
        asked = {name: value for name, value in arguments.items() if name in signature.parameters}
        answer = verb(**asked)
        if answer is not None and (status := deliver(answer, as_json=arguments.get("json", False))):
            raise typer.Exit(status)

    deliver_answer.__signature__ = signature.replace(parameters=parameters)  # pyright: ignore[reportAttributeAccessIssue]
    deliver_answer.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return deliver_answer
