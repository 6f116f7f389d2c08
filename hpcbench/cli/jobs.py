"""Commands that submit, monitor, and cancel jobs."""

import tempfile
from pathlib import Path
from typing import Annotated

import typer

from hpcbench.cli.options import Sets, SiteName
from hpcbench.errors import UserError

Root = Annotated[
    Path | None,
    typer.Argument(metavar="[DIR]", help="A submission; by default the newest below results/.", show_default=False),
]


def submit(
    study: Annotated[Path, typer.Argument(help="Study file (YAML).", show_default=False)],
    site: SiteName = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Write the scripts and show what would run.")] = False,
    check: Annotated[
        bool,
        typer.Option("--check", help="With --dry-run: also check files, images, account and queues on this machine."),
    ] = False,
    out: Annotated[
        Path | None, typer.Option(help="Directory of the numbered submissions; by default results/STUDY.")
    ] = None,
    sets: Sets = None,
    only: Annotated[
        str | None,
        typer.Option(
            metavar="EXPR",
            help="Only some runs: conditions key=pattern, and patterns of run ids, joined by commas. All must hold: "
            "'scheme=baseline,repeat=1', 'r1-*'.",
        ),
    ] = None,
    after: Annotated[
        str | None,
        typer.Option(help="Submission, or study, whose jobs must complete before these start.", show_default=False),
    ] = None,
    after_any: Annotated[bool, typer.Option("--after-any", help="Start even if those jobs did not complete.")] = False,
    again: Annotated[bool, typer.Option("--again", help="Submit runs again that already wait or run.")] = False,
    more: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            help="Add N repeats with new seeds to the newest submission of the study.",
            show_default=False,
        ),
    ] = None,
    wait: Annotated[bool, typer.Option("--wait", help="Follow the jobs until they end.")] = False,
) -> None:
    """Submit the jobs of a study. Repeat the command to resume an interrupted submission."""
    from hpcbench.batch.show_jobs import show_progress, show_submission
    from hpcbench.batch.submit import Options
    from hpcbench.batch.submit import submit as submit_study
    from hpcbench.predict.memory_check import check_memory

    if check and not dry_run:
        raise UserError("--check: needs --dry-run: a real submission makes these checks anyway")
    options = Options(site, dry_run, check, out, sets, only, after, after_any, again, more)
    with show_progress() as progress:
        submission = submit_study(study, options, progress, check_memory)
    show_submission(submission, dry_run=dry_run)
    if not dry_run and more is None:
        from hpcbench.predict.store import store_prediction

        store_prediction(submission.root, submission.runs, submission.site, study.parent)
    if wait and not dry_run:
        from hpcbench.report.live import follow

        raise typer.Exit(follow(submission.root))


def status(
    directory: Root = None,
    watch: Annotated[bool, typer.Option("--watch", help="Follow the jobs until they end.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print jobs and runs as JSON, for programs.")] = False,
) -> None:
    """Show the state of jobs and runs. The exit status is 1 if a run failed."""
    from hpcbench.batch.find_submission import find_root
    from hpcbench.batch.show_jobs import encode_status, show_status
    from hpcbench.batch.tracking.track import track
    from hpcbench.contract.submission import read_submission

    if watch and json:
        raise UserError("--watch --json: give only one of them: --json prints the current state once")
    root = find_root(directory)
    if watch:
        if read_submission(root).dry_run:
            raise UserError(f"{root}: is a dry run, so there is nothing to watch: submit the study without --dry-run")
        from hpcbench.report.live import follow

        raise typer.Exit(follow(root))
    tracked = track(root)
    if json:
        typer.echo(encode_status(tracked))
    else:
        show_status(tracked)
    raise typer.Exit(int(tracked.failed))


def cancel(
    directory: Root = None,
    only: Annotated[
        str | None,
        typer.Option(metavar="EXPR", help="Only the jobs of some runs, named as for submit: scheme=naive-*|identity."),
    ] = None,
) -> None:
    """Cancel the running and pending jobs of a submission."""
    from hpcbench.batch.cancel import cancel as end
    from hpcbench.batch.find_submission import find_root

    root = find_root(directory)
    typer.echo(f"{root}: {end(root, only)}")


def retry(
    directory: Root = None,
    all: Annotated[
        bool, typer.Option("--all", help="Include runs that failed by themselves, ran out of memory or were cancelled.")
    ] = False,
    whole_jobs: Annotated[
        bool, typer.Option("--whole", help="Repeat all runs of those jobs, so that pairs share an allocation again.")
    ] = False,
    sets: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="KEY=VALUE", help="Another limit of the jobs: --set walltime=4h, queue, account."
        ),
    ] = None,
    update: Annotated[
        bool, typer.Option("--update", help="Write the job scripts again from the current site file.")
    ] = False,
) -> None:
    """Resubmit failed runs. Runs resume from their checkpoints."""
    from hpcbench.batch.find_submission import find_root
    from hpcbench.batch.retry import retry as submit_again
    from hpcbench.batch.show_jobs import show_retried

    root = find_root(directory)
    show_retried(root, submit_again(root, all=all, whole_jobs=whole_jobs, sets=sets or (), update=update))


def run(
    command: Annotated[
        list[str] | None,
        typer.Argument(metavar="-- COMMAND...", help="The program with its launcher.", show_default=False),
    ] = None,
    scheme: Annotated[
        str | None, typer.Option(help="Scheme by name or file, for the program's messages.", show_default=False)
    ] = None,
    groups: Annotated[
        Path | None, typer.Option(help="File with the dimensions of the program's groups.", show_default=False)
    ] = None,
    dry: Annotated[bool, typer.Option("--dry", help="Change nothing; only list the program's messages.")] = False,
    out: Annotated[Path | None, typer.Option(help="Directory for one file per rank.", show_default=False)] = None,
    log: Annotated[
        Path | None, typer.Option(help="File for the traffic: events, one JSON object per line.", show_default=False)
    ] = None,
) -> None:
    """Run a PyTorch program with compressed or counted messages."""
    from hpcbench.programs.command import run as run_program

    if not dry:
        raise typer.Exit(run_program(command or [], scheme=scheme, groups=groups, dry=dry, out=out, log=log))
    from hpcbench.diagnose.command import print_answer

    if out:
        out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="hpcbench-traces-", dir=out) as traces:
        status = run_program(
            command or [], scheme=scheme, groups=groups, dry=dry, out=out, log=log, traces=Path(traces)
        )
        if status == 0:
            print_answer(Path(traces), groups)
    raise typer.Exit(status)
