"""Command line. Each command imports its package when called."""

import os
import sys
from typing import Annotated, Any

import typer

from hpcbench.bench.commands import bench
from hpcbench.cli.answers import diagnose, history, predict, report, tune
from hpcbench.cli.jobs import cancel, retry, run, status, submit
from hpcbench.cli.machine import doctor, schema, schemes, sites
from hpcbench.errors import UserError

app = typer.Typer(
    name="hpcbench",
    help="Does compressing the training traffic pay, on this machine?",
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        from hpcbench import __version__
        from hpcbench.versions import package_revision

        revision = package_revision()
        typer.echo(f"hpcbench {__version__}" + (f" (revision {revision})" if revision else ""))
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_version, is_eager=True, help="Print the version and revision, and exit."),
    ] = False,
) -> None:
    """Print the version, or help without a command."""


app.command()(submit)
app.command()(status)
app.command()(cancel)
app.command()(retry)
app.command(context_settings={"ignore_unknown_options": True})(run)
app.command()(report)
app.command()(history)
app.command()(diagnose)
app.command()(predict)
app.command()(tune)
app.command()(sites)
app.command()(schemes)
app.command()(schema)
app.command()(doctor)
app.add_typer(bench, name="bench")


def main() -> None:
    """Run the command line. User errors and system errors are reported on one line."""
    sys.exit(_run())


_usage_error: type[Any] = next(kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "ClickException")
"""Base class of command-line usage errors, in typer or click depending on the version."""


def _run() -> int:
    try:
        result = app(sys.argv[1:] or ["--help"], standalone_mode=False, prog_name="hpcbench")
        sys.stdout.flush()
        return result if isinstance(result, int) else 0
    except UserError as error:
        return _fail(*error.lines, status=2)
    except _usage_error as error:
        command = error.ctx.command_path if getattr(error, "ctx", None) else "hpcbench"
        return _fail(f"{error.format_message().rstrip('.')}: see `{command} --help`", status=2)
    except BrokenPipeError:
        os.dup2(
            os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno()
        )  # the reader has closed the pipe, so exit without a message
        return 141
    except OSError as error:
        return _fail(f"{f'{error.filename}: ' if error.filename else ''}{error.strerror or error}", status=2)
    except (KeyboardInterrupt, typer.Abort):
        return 130


def _fail(*faults: str, status: int) -> int:
    for fault in faults:
        print(f"hpcbench: {' '.join(fault.splitlines())}", file=sys.stderr)
    return status
