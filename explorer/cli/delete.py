"""`explorer delete`: what deleting some examples takes, doing it, and checking that it was done."""

import typer


def register(app: typer.Typer) -> None:
    group = typer.Typer(name="delete", help="Delete what a model learned from some examples, and prove it.")
    app.add_typer(group)
