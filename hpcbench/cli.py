"""The command line. Each command is a few lines that call a package, which is imported only then."""

import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from hpcbench.bench.commands import bench
from hpcbench.errors import UserError

app = typer.Typer(
    name="hpcbench",
    help="Does compressing the training traffic pay, on this machine?",
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

Root = Annotated[
    Path | None,
    typer.Argument(metavar="[DIR]", help="A submission; by default the newest below results/.", show_default=False),
]


def _version(wanted: bool) -> None:
    if wanted:
        from hpcbench import __version__

        typer.echo(f"hpcbench {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Print the version, or help if there is no command."""


@app.command()
def submit(
    study: Annotated[Path, typer.Argument(help="Study file (YAML).", show_default=False)],
    site: Annotated[str | None, typer.Option(help="Site by name or file; by default the study's.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Write the scripts and show what would run.")] = False,
    out: Annotated[
        Path | None, typer.Option(help="Directory of the numbered submissions; by default results/STUDY.")
    ] = None,
    sets: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Override the study: --set train.steps=50.")
    ] = None,
    only: Annotated[
        str | None,
        typer.Option(
            metavar="EXPR",
            help="Only some runs: key=pattern parts and run id patterns, joined by commas, all of which must hold: "
            "'scheme=baseline,repeat=1', 'r1-*'.",
        ),
    ] = None,
    after: Annotated[
        str | None,
        typer.Option(
            help="Submission, or study, whose jobs must have completed before these begin.", show_default=False
        ),
    ] = None,
    after_any: Annotated[bool, typer.Option("--after-any", help="Begin even if those jobs did not complete.")] = False,
    again: Annotated[bool, typer.Option("--again", help="Submit runs again that already wait or run.")] = False,
    wait: Annotated[bool, typer.Option("--wait", help="Follow the jobs until they end.")] = False,
) -> None:
    """Hand the jobs of a study to the site's scheduler. Called again, it continues an interrupted submission."""
    from hpcbench.batch.show_jobs import handing_in, show_submission
    from hpcbench.batch.submit import Options
    from hpcbench.batch.submit import submit as submit_study
    from hpcbench.predict.fits import check_memory

    options = Options(site, dry_run, out, sets, only, after, after_any, again)
    with handing_in() as progress:
        submission = submit_study(study, options, progress, check_memory)
    show_submission(submission, dry_run=dry_run)
    if not dry_run:
        from hpcbench.predict.kept import keep

        keep(submission.root, study, site=site, sets=sets or (), only=only)
    if wait and not dry_run:
        from hpcbench.report.live import follow

        raise typer.Exit(follow(submission.root))


@app.command()
def status(
    directory: Root = None,
    watch: Annotated[bool, typer.Option("--watch", help="Follow the jobs until they end.")] = False,
) -> None:
    """Show the state of jobs and runs. The exit status is 1 if a run failed."""
    from hpcbench.batch.find_submission import find_root
    from hpcbench.batch.show_jobs import show_status
    from hpcbench.batch.tracking.track import track
    from hpcbench.contract.submission import read_submission

    root = find_root(directory)
    if watch:
        if read_submission(root).dry_run:
            raise UserError(f"{root}: a dry run: there is nothing to watch: submit the study without --dry-run")
        from hpcbench.report.live import follow

        raise typer.Exit(follow(root))
    tracked = track(root)
    show_status(tracked)
    raise typer.Exit(int(tracked.failed))


@app.command()
def cancel(
    directory: Root = None,
    only: Annotated[
        str | None,
        typer.Option(metavar="EXPR", help="Only the jobs of some runs, named as for submit: scheme=naive-*|identity."),
    ] = None,
) -> None:
    """End the running jobs of a submission, and drop the waiting ones."""
    from hpcbench.batch.cancel import cancel as end
    from hpcbench.batch.find_submission import find_root

    root = find_root(directory)
    typer.echo(f"{root}: {end(root, only)}")


@app.command()
def retry(
    directory: Root = None,
    all: Annotated[
        bool, typer.Option("--all", help="Also runs that failed by themselves, ran out of memory or were cancelled.")
    ] = False,
    whole: Annotated[
        bool, typer.Option("--whole", help="Repeat all runs of those jobs, so that pairs share an allocation again.")
    ] = False,
) -> None:
    """Hand in again the runs that a second try can mend. Runs continue from their checkpoints."""
    from hpcbench.batch.find_submission import find_root
    from hpcbench.batch.retry import retry as hand_in_again
    from hpcbench.batch.show_jobs import show_retried

    root = find_root(directory)
    show_retried(root, hand_in_again(root, all=all, whole=whole))


@app.command(context_settings={"ignore_unknown_options": True})
def run(
    command: Annotated[
        list[str] | None,
        typer.Argument(metavar="-- COMMAND...", help="The program with its launcher.", show_default=False),
    ] = None,
    scheme: Annotated[
        str | None, typer.Option(help="Scheme by name or file, for the program's messages.", show_default=False)
    ] = None,
    groups: Annotated[
        Path | None, typer.Option(help="File that tells what the program's groups are.", show_default=False)
    ] = None,
    dry: Annotated[bool, typer.Option("--dry", help="Change nothing; only list what the program sends.")] = False,
    out: Annotated[
        Path | None, typer.Option(help="Directory that keeps a file from each rank.", show_default=False)
    ] = None,
    log: Annotated[
        Path | None, typer.Option(help="File for what was sent: events, one JSON object a line.", show_default=False)
    ] = None,
) -> None:
    """Run any PyTorch program, its messages compressed or counted."""
    from hpcbench.program.command import run as run_program

    raise typer.Exit(run_program(command or [], scheme=scheme, groups=groups, dry=dry, out=out, log=log))


@app.command()
def report(
    paths: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="[PATHS...]",
            help="Submissions, bundles or log files, or NAME=FILE for logs to compare, the baseline's first; by default"
            " the newest submission below results/.",
            show_default=False,
        ),
    ] = None,
    format: Annotated[
        str | None,
        typer.Option(
            metavar="table|md|latex|csv|json|html|junit",
            help="How to print; by default what --output's suffix says. html is a page to keep, junit for CI servers.",
        ),
    ] = None,
    output: Annotated[Path | None, typer.Option(help="File to write, in place of the terminal.")] = None,
    tables: Annotated[
        str,
        typer.Option(
            metavar="NAME,...|all",
            help="Further tables: speed, phases, loss, traffic, memory, energy, schemes, runs, published.",
        ),
    ] = "",
    plots: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Directory to write all figures to, as SVG and PNG.")
    ] = None,
    exports: Annotated[
        list[Path] | None,
        typer.Option(
            "--export",
            metavar="FILE",
            help="Also write measured rows: records, runs, channels or phases.{csv,jsonl,parquet}, or all as .sqlite.",
            show_default=False,
        ),
    ] = None,
    against: Annotated[
        Path | None,
        typer.Option(
            metavar="OLD", help="An earlier submission: show what changed since; status 1 if something got worse."
        ),
    ] = None,
    trace: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Directory for what traced steps are made of (train.trace): a file a run, for Perfetto.",
        ),
    ] = None,
    bundle: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="File to pack submissions and report into, for somebody else's `hpcbench report FILE`: .tar.zst,"
            " .tar.gz or .tar.xz.",
        ),
    ] = None,
    anonymous: Annotated[
        bool, typer.Option("--anonymous", help="In the bundle, replace the names of hosts and users.")
    ] = False,
    replace: Annotated[
        list[str] | None,
        typer.Option(metavar="OLD=NEW", help="In the bundle, also replace this word, such as an account's name."),
    ] = None,
) -> None:
    """Compare the runs with the baseline, or with earlier ones.

    The exit status is 1 if a run failed or a threshold is not kept.
    """
    from hpcbench.batch.find_submission import find_root
    from hpcbench.report.main import Bundle
    from hpcbench.report.main import report as report_paths

    roots = paths or [find_root(None)]
    packed = Bundle(bundle, anonymous, replace or ())
    raise typer.Exit(report_paths(roots, format, output, tables, plots, exports or (), against, trace, packed))


@app.command()
def predict(
    study: Annotated[Path, typer.Argument(help="Study file (YAML).", show_default=False)],
    site: Annotated[str | None, typer.Option(help="Site by name or file; by default the study's.")] = None,
    measured: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Tables of `hpcbench bench gemm` and `network`, and below it results of earlier runs of this site; "
            "by default measured/SITE.",
            show_default=False,
        ),
    ] = None,
    ranks: Annotated[
        list[int] | None,
        typer.Option(help="So many ranks, by more replicas with as many tokens each; may be given several times."),
    ] = None,
    sets: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Override the study: --set train.steps=50.")
    ] = None,
    only: Annotated[
        str | None,
        typer.Option(metavar="EXPR", help="Some of the runs, as `hpcbench submit --only`.", show_default=False),
    ] = None,
    partition: Annotated[
        bool,
        typer.Option("--partition", help="Say how to cut the model into stages and replicas over as many ranks."),
    ] = False,
    format: Annotated[str, typer.Option(metavar="table|md|json|html", help="How to print.")] = "table",
    output: Annotated[Path | None, typer.Option(help="File to write, in place of the terminal.")] = None,
    plots: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Directory to write figures to, as SVG and PNG.")
    ] = None,
) -> None:
    """Say a step's time, memory and traffic before it runs. The exit status is 1 if a run does not fit its devices."""
    from hpcbench.predict.show import show

    raise typer.Exit(
        show(
            study,
            site=site,
            measured=measured,
            ranks=ranks or (),
            sets=sets or (),
            format=format,
            output=output,
            plots=plots,
            only=only,
            partition=partition,
        )
    )


@app.command()
def sites(
    words: Annotated[
        list[str] | None,
        typer.Argument(metavar="[NAME|FILE | check FILE...]", help="A site to show, or site files to check."),
    ] = None,
) -> None:
    """List the sites, show one, or check site files. The exit status is 2 if there are faults."""
    from hpcbench.batch.sites.show_site import check_sites, show_site, show_sites

    if not words:
        show_sites()
    elif words[0] == "check":
        raise typer.Exit(check_sites(words[1:]))
    elif len(words) > 1:
        raise UserError(
            f"sites: one site is shown at a time: to check files, use `hpcbench sites check {words[0]} ...`"
        )
    else:
        show_site(words[0])


@app.command()
def schema(what: Annotated[str, typer.Argument(metavar="study|site")] = "study") -> None:
    """Print the JSON Schema of study or site files, for editors."""
    import json

    if what == "study":
        from hpcbench.study.schema import json_schema
    elif what == "site":
        from hpcbench.batch.sites.site import json_schema
    else:
        raise UserError(f"schema {what!r}: is unknown: use study or site")
    typer.echo(json.dumps(json_schema(), indent=2))


@app.command()
def doctor(
    site: Annotated[
        str | None, typer.Option(metavar="NAME|FILE", help="Site whose needs are checked; by default this machine's.")
    ] = None,
    run: Annotated[bool, typer.Option("--run", help="Also start two ranks with the launcher on a cluster.")] = False,
    json: Annotated[Path | None, typer.Option(help="File for the findings.")] = None,
    draft_site: Annotated[
        bool, typer.Option("--draft-site", help="Print a first site file for this machine, and check nothing.")
    ] = False,
    name: Annotated[str | None, typer.Option(help="Name of the drafted site; by default the cluster's.")] = None,
) -> None:
    """Check what works here, or draft a site file. The exit status is 1 if something that is needed does not work."""
    if draft_site:
        from hpcbench.doctor.draft_site import draft

        typer.echo(draft(name), nl=False)
        return
    if name is not None:
        raise UserError("--name: names a drafted site: add --draft-site, or use --site")
    from hpcbench.doctor.examine import examine
    from hpcbench.doctor.show_checks import show, write

    checks = examine(site, run=run)
    show(checks)
    if json is not None:
        write(checks, json)
    raise typer.Exit(int(any(check.failed for check in checks)))


app.add_typer(bench, name="bench")


def main() -> None:
    """Run the command line. Each failure of the user's or the machine's is told in one line."""
    sys.exit(_run())


_usage_error: type[Any] = next(kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "ClickException")
"""The base class of all errors of the command line itself, in typer or click, depending on the version."""


def _run() -> int:
    try:
        result = app(sys.argv[1:] or ["--help"], standalone_mode=False)
        sys.stdout.flush()
        return result if isinstance(result, int) else 0
    except UserError as error:
        return _fail(*error.lines, status=2)
    except _usage_error as error:
        return _fail(f"{error.format_message()} (see hpcbench --help)", status=2)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # nobody reads on; keep the exit quiet
        return 141
    except OSError as error:
        return _fail(f"{f'{error.filename}: ' if error.filename else ''}{error.strerror or error}", status=2)
    except (KeyboardInterrupt, typer.Abort):
        return 130


def _fail(*faults: str, status: int) -> int:
    for fault in faults:
        print(f"hpcbench: {' '.join(fault.splitlines())}", file=sys.stderr)
    return status
