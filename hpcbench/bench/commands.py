"""Commands of ``hpcbench bench``. Each command imports its measurement when it is called."""

from pathlib import Path
from typing import Annotated

import typer

bench = typer.Typer(help="Measure this machine, without jobs and models.", rich_markup_mode=None)


@bench.callback()
def bench_root() -> None:
    """Measure this machine, without jobs and models."""


Outputs = Annotated[
    list[Path] | None,
    typer.Option(
        "--output",
        metavar="FILE",
        help="File for the results in the format of its suffix: .json, .csv, .html, .md, .tex, .txt; may be given "
        "several times.",
    ),
]
Plots = Annotated[Path | None, typer.Option(metavar="DIR", help="Directory to write the figure to, as SVG and PNG.")]


@bench.command("codecs")
def bench_codecs(
    codecs: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[CODEC...]", help="Codecs as in a study; by default some of each family.", show_default=False
        ),
    ] = None,
    data: Annotated[
        str,
        typer.Option(
            metavar="NAME|FILE",
            help="gauss, heavy-tail, smooth, sparse, gradient, activation, weight, moment; or a file with values: "
            ".npy, .npz:KEY, .bin, .safetensors:KEY, .pt:KEY.",
        ),
    ] = "gradient",
    type: Annotated[str, typer.Option(metavar="float32|float16|bfloat16", help="Type of the values.")] = "float32",
    mib: Annotated[float, typer.Option(help="MiB of values, taken from the beginning of a file.")] = 64.0,
    repeats: Annotated[int, typer.Option(help="Number of timed repeats.")] = 5,
    isa: Annotated[
        str | None, typer.Option(help="Build of the kernels: avx512, avx2, sse2, generic; by default the fastest.")
    ] = None,
    device: Annotated[str, typer.Option(metavar="cpu|gpu", help="Device that the codecs run on.")] = "cpu",
    outputs: Outputs = None,
    plots: Plots = None,
) -> None:
    """Measure size, speed and error of codecs. The exit status is 1 if an error is above its bound."""
    from hpcbench.bench.main import bench_codecs as measure

    code = measure(
        codecs or [],
        data=data,
        type=type,
        mib=mib,
        repeats=repeats,
        isa=isa,
        device=device,
        outputs=outputs or (),
        plots=plots,
    )
    raise typer.Exit(code)


Ranks = Annotated[
    int | None,
    typer.Option(help="Ranks to start on this machine; not under mpirun or srun.", show_default=False),
]


@bench.command("network")
def bench_network(
    codecs: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[CODEC...]", help="Codecs as in a study; by default some of each family.", show_default=False
        ),
    ] = None,
    ranks: Ranks = None,
    max_mb: Annotated[float, typer.Option(help="MiB of the largest of the MPI library's collectives.")] = 64.0,
    repeats: Annotated[int, typer.Option(help="Number of timed repeats.")] = 5,
    outputs: Outputs = None,
    between_work: Annotated[
        bool,
        typer.Option(
            "--between-work",
            help="Also measure the core time of calls between computations, for `hpcbench predict`; the links must be "
            "unlimited.",
        ),
    ] = False,
) -> None:
    """Measure links, codecs and the MPI library with all ranks at work: mpirun -n 8 hpcbench bench network."""
    from hpcbench.bench.network_main import bench_network as measure

    raise typer.Exit(
        measure(
            codecs or [], ranks=ranks, max_mb=max_mb, repeats=repeats, outputs=outputs or (), between_work=between_work
        )
    )


@bench.command("collectives")
def bench_collectives(
    op: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="all-reduce, reduce-scatter, all-gather, broadcast, reduce, all-to-all; several allowed.",
            show_default="all-reduce",
        ),
    ] = None,
    codec: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME", help="Codecs as in a study; several allowed.", show_default="int8:256, zfp:8, xpk"
        ),
    ] = None,
    algorithm: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="encoded, auto, two-shot, hierarchical, hierarchical-encoded, ring, doubling, homomorphic; several "
            "allowed.",
            show_default="encoded",
        ),
    ] = None,
    slices: Annotated[
        list[int] | None,
        typer.Option(
            metavar="N",
            help="Number of slices that a vector is pipelined in; several allowed.",
            show_default="the plan's",
        ),
    ] = None,
    min: Annotated[str, typer.Option(metavar="SIZE", help="First size: 4096, 64K, 1M.")] = "1K",
    max: Annotated[str, typer.Option(metavar="SIZE", help="Largest size; sizes grow by factors of four.")] = "256M",
    ranks: Ranks = None,
    repeats: Annotated[int, typer.Option(help="Number of timed repeats; ten times as many for sizes up to 64K.")] = 5,
    data: Annotated[str, typer.Option(metavar="NAME|FILE", help="Values, named as for bench codecs.")] = "gradient",
    links: Annotated[Path | None, typer.Option(help="File of bench network, from which plans are chosen.")] = None,
    tune: Annotated[Path | None, typer.Option(help="File of bench network, to which measured times are added.")] = None,
    plan: Annotated[bool, typer.Option("--plan", help="Print the plans, measure nothing.")] = False,
    outputs: Outputs = None,
    plots: Plots = None,
) -> None:
    """Measure collectives with codecs, and the MPI library's own: mpirun -n 8 hpcbench bench collectives."""
    from hpcbench.bench.collectives_main import BenchFiles, Settings
    from hpcbench.bench.collectives_main import bench_collectives as measure

    settings = Settings(
        operations=op or [],
        codecs=codec or [],
        algorithms=algorithm or [],
        slices=slices or [],
        least=min,
        most=max,
        ranks=ranks,
        repeats=repeats,
        data=data,
        plan=plan,
    )
    raise typer.Exit(measure(settings, BenchFiles(links=links, tune=tune, outputs=outputs or (), plots=plots)))


@bench.command("gemm")
def bench_gemm(
    site: Annotated[
        str, typer.Option(help="Name of the site; the table is written to measured/SITE/gemm.json.")
    ] = "local",
    device: Annotated[str, typer.Option(metavar="cpu|gpu", help="Device that computes.")] = "cpu",
    precision: Annotated[str, typer.Option(metavar="fp32|fp64|bf16|fp16", help="Precision of the values.")] = "fp32",
    hidden: Annotated[list[int] | None, typer.Option(help="Widths of layers; several allowed.")] = None,
    tokens: Annotated[list[int] | None, typer.Option(help="Tokens of a micro-batch; several allowed.")] = None,
    repeats: Annotated[int, typer.Option(help="Number of repeats; the fastest is reported.")] = 3,
    beside: Annotated[
        int,
        typer.Option(
            help="Number of other processes that compute at the same time: ranks that share the cores, minus 1."
        ),
    ] = 0,
    out: Annotated[Path | None, typer.Option(metavar="DIR", help="Output directory; by default measured/SITE.")] = None,
) -> None:
    """Measure matrix products, memory-bound operations and whole layers, for `hpcbench predict`."""
    from hpcbench.bench.gemm_main import bench_gemm as measure

    usual = ([128, 256, 512, 1024], [128, 512, 1024]) if device == "cpu" else ([1024, 2048, 4096, 8192], [1024, 4096])
    raise typer.Exit(
        measure(
            site=site,
            device=device,
            precision=precision,
            hidden=hidden or usual[0],
            tokens=tokens or usual[1],
            repeats=repeats,
            out=out,
            beside=beside,
        )
    )
