"""The `explorer` command: its verbs, its errors and its exit status."""

import io
import os
import sys
from typing import Annotated, NoReturn

import typer

import explorer
from explorer.cli.verbs import Verbs
from explorer.errors import ExplorerError
from explorer.page.terminal import visible

INTERRUPTED = 130  # the exit status that shells expect after Ctrl-C

app = typer.Typer(
    name="explorer",
    cls=Verbs,
    help="Find the cheapest training recipe that is as good as your baseline, and prove what went into the model.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback(invoke_without_command=False)
def _common(
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=lambda v: _version(v), is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    if debug:
        os.environ["EXPLORER_DEBUG"] = "1"


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(explorer.__version__)
        raise typer.Exit


def main() -> None:
    """Run the command line. The exit status is 0 only if what was asked holds; errors go to standard error."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        # A name may not be UTF-8, and a terminal may know ASCII only: neither may end a verb halfway.
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        _run()
    except ExplorerError as error:
        _fail(error)
    except KeyboardInterrupt:
        print("explorer: interrupted. Finished work is kept; run the same command again to continue.", file=sys.stderr)
        sys.exit(INTERRUPTED)
    except BrokenPipeError:
        # The reader of the output has ended, as `head` does. That is no fault, so there is no message.
        _give_up_output()
        sys.exit(1)
    except OSError as error:
        # A full disk behind standard output, or a failure for which no part has words of its own.
        _give_up_output()
        _fail(error)


def _run() -> None:
    try:
        app()
    finally:
        if sys.stdout is not None:
            # Now, because a failure of the flush at exit could no longer be reported.
            sys.stdout.flush()


def _fail(error: Exception) -> NoReturn:
    """Print the message of an exception and exit; with --debug let its traceback through."""
    if os.environ.get("EXPLORER_DEBUG"):
        raise error
    print(f"explorer: {visible(str(error))}", file=sys.stderr)
    sys.exit(1)


def _give_up_output() -> None:
    """Keep Python from flushing to standard output again when it ends."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
