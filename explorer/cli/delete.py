"""`explorer delete`: what deleting some examples takes, doing it, and checking that it was done."""

import typer

from explorer.cli.delete_certify import certify
from explorer.cli.delete_erase import erase
from explorer.cli.delete_evidence import evidence
from explorer.cli.delete_plan import plan
from explorer.cli.delete_run import run
from explorer.cli.delete_verify import verify


def register(app: typer.Typer) -> None:
    group = typer.Typer(name="delete", help="Delete what a model learned from some examples, and prove it.")
    group.command("plan")(plan)
    group.command("run")(run)
    group.command("certify")(certify)
    group.command("erase")(erase)
    group.command("evidence")(evidence)
    group.command("verify")(verify)
    app.add_typer(group)
