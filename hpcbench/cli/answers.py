"""Commands that analyze runs: report, history, predict, diagnose, tune."""

from pathlib import Path
from typing import Annotated

import typer

from hpcbench.cli.options import Output, Plots, Sets, SiteName, offer_formats


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
        offer_formats("table|md|latex|csv|json|html|junit", "html is a self-contained page, junit for CI servers."),
    ] = None,
    output: Output = None,
    tables: Annotated[
        str,
        typer.Option(
            metavar="NAME,...|all",
            help="Further tables: speed, phases, loss, traffic, axes, experts, sparse, sparsity, memory, energy, "
            "network, schemes, predicted, strong-scaling, weak-scaling, synchrony, runs, published, prediction-error, "
            "method. all leaves out published.",
        ),
    ] = "",
    plots: Plots = None,
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
            help="Directory for the events of traced steps (train.trace): one file per run, for Perfetto.",
        ),
    ] = None,
    bundle: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="File to pack submissions into, for `hpcbench report FILE` elsewhere: .tar.gz, .tar.xz or .tar.",
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
    """Compare the runs with the baseline or with earlier runs.

    The exit status is 1 if a run failed or a threshold is not met.
    """
    from hpcbench.batch.find_submission import find_root
    from hpcbench.report.main import report as report_paths

    roots = paths or [find_root(None)]
    to_bundle = bundle, anonymous, replace or ()
    raise typer.Exit(report_paths(roots, format, output, tables, plots, exports or (), against, trace, *to_bundle))


def history(
    paths: Annotated[
        list[Path],
        typer.Argument(
            metavar="PATHS...",
            help="SQLite files of `hpcbench report --export FILE.sqlite`, one or more submissions each, or directories"
            " of them.",
            show_default=False,
        ),
    ],
    fail_if_slower: Annotated[
        str | None,
        typer.Option(
            metavar="PERCENT",
            help="Exit with status 1 if the newest level of a series is significantly slower than its fastest level,"
            " by this much or more, such as 5%.",
            show_default=False,
        ),
    ] = None,
    since: Annotated[
        str,
        typer.Option(
            metavar="DATE", help="Leave out submissions before this day, such as 2026-11-01.", show_default=False
        ),
    ] = "",
    format: Annotated[str | None, offer_formats("table|md|latex|json|html")] = None,
    output: Output = None,
    plots: Plots = None,
) -> None:
    """Show the speed of a study over weeks, and when it changed."""
    from hpcbench.report.history.show import parse_percent, show_history

    limit = parse_percent(fail_if_slower) if fail_if_slower is not None else None
    raise typer.Exit(show_history(paths, limit, since, format, output, plots))


def predict(
    study: Annotated[Path, typer.Argument(help="Study file (YAML).", show_default=False)],
    site: SiteName = None,
    measured: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Directory with the tables of `hpcbench bench gemm` and `network`, and with results of earlier runs "
            "of this site; by default measured/SITE.",
            show_default=False,
        ),
    ] = None,
    ranks: Annotated[
        list[int] | None,
        typer.Option(
            help="Number of ranks, with more replicas of the same number of tokens; may be given several times."
        ),
    ] = None,
    sets: Sets = None,
    only: Annotated[
        str | None,
        typer.Option(metavar="EXPR", help="Only some runs, as for `hpcbench submit --only`.", show_default=False),
    ] = None,
    partition: Annotated[
        bool,
        typer.Option(
            "--partition",
            help="Also print the fastest split of the model into stages and replicas on the same number of ranks.",
        ),
    ] = False,
    program: Annotated[
        str,
        typer.Option(
            metavar="NAME[,OPTION]",
            help="Training program that carries out the study: hpcbench (the engine), megatron-core, nemo, maxtext, "
            "torchtitan, fsdp, deepspeed, ...; a wrong name lists all. Options after commas: fp8 and shard=N.",
        ),
    ] = "hpcbench",
    format: Annotated[str | None, offer_formats("table|md|latex|csv|json|html")] = None,
    output: Output = None,
    plots: Plots = None,
) -> None:
    """Predict the time, memory and traffic of a step. The exit status is 1 if a run does not fit in device memory."""
    from hpcbench.predict.results import predict_and_show

    raise typer.Exit(
        predict_and_show(
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
            program=program,
        )
    )


def diagnose(
    traces: Annotated[
        list[str],
        typer.Argument(
            metavar="TRACE...",
            help="Traces of torch.profiler (export_chrome_trace), one for each rank, also compressed by gzip; or a"
            " directory of them. With --run: -- COMMAND..., the program with its launcher.",
        ),
    ],
    run: Annotated[bool, typer.Option("--run", help="Run a program, and record traces of three of its steps.")] = False,
    directory: Annotated[
        Path, typer.Option(metavar="DIR", help="With --run: where to write the traces; all nodes must see it.")
    ] = Path("traces"),
    group: Annotated[
        list[str] | None,
        typer.Option(
            metavar="REGEX=DIMENSION", help="Dimension of the groups whose description matches.", show_default=False
        ),
    ] = None,
    output: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Also write a file: .html, .md, .tex, .csv, .json or .txt.")
    ] = None,
    codec_speed: Annotated[
        float | None,
        typer.Option(metavar="GB/S", help="Speed of a codec in GB/s of values; by default 500 on a GPU, 50 on a core."),
    ] = None,
    link: Annotated[
        float | None,
        typer.Option(
            metavar="GBIT/S",
            help="Bandwidth of a rank's link in Gbit/s, to show the share of it that each call reaches.",
        ),
    ] = None,
) -> int:
    """Determine from traces whether the network is the bottleneck."""
    from hpcbench.diagnose.command import check_options, diagnose_files

    check_options(group or (), output, codec_speed, link)
    if not run:
        return diagnose_files([Path(trace) for trace in traces], group or (), output, codec_speed, link)
    from hpcbench.programs.command import record

    status = record(traces, directory)
    return diagnose_files([directory], group or (), output, codec_speed, link) or status


def tune(
    study: Annotated[Path, typer.Argument(help="Study file (YAML) with one cell.", show_default=False)],
    loss_budget: Annotated[
        str, typer.Option(metavar="PERCENT", help="Largest increase of the loss, such as 1%.", show_default=False)
    ],
    max_runs: Annotated[int, typer.Option(min=2, max=1000, help="Largest number of runs.")] = 12,
    node_hours: Annotated[
        float | None, typer.Option(min=0.0, help="Largest number of node-hours.", show_default=False)
    ] = None,
    site: SiteName = None,
    measured: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Measured tables and earlier runs, as for `hpcbench predict`."),
    ] = None,
    traces: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Traces of the program, which predict gains: `hpcbench diagnose --run`."),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Directory of the search; by default results/STUDY-tune.")] = None,
    sets: Sets = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the plan, and run nothing.")] = False,
    output: Annotated[
        Path | None, typer.Option(metavar="FILE", help="File for the result: .html, .md, .json or another format.")
    ] = None,
) -> None:
    """Find the fastest scheme whose loss stays within a budget. Repeat the command to resume an interrupted search."""
    from hpcbench.tune.command import TuneOptions
    from hpcbench.tune.command import tune as search_scheme

    options = TuneOptions(loss_budget, max_runs, node_hours, site, measured, traces, out, sets or (), dry_run, output)
    raise typer.Exit(search_scheme(study, options))
