"""The content of run.json: what a study's run becomes on a site."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from hpcbench.contract import run as contract
from hpcbench.contract.scheme import NamedScheme, Scheme
from hpcbench.contract.section import Precision
from hpcbench.study.expand import Run


def run_file(
    run: Run,
    *,
    site: str,
    threads: int,
    oversubscribe: bool,
    device: Literal["cpu", "cuda"],
    base: Path,
    shape: contract.Shape | None = None,
    peak_tflops: Mapping[Precision, float] | None = None,
    gpu_aware_mpi: bool | None = None,
) -> dict[str, Any]:
    """The run as plain JSON data, every key present.

    Parameters
    ----------
    threads
        Threads a rank.
    oversubscribe
        Whether ranks may share cores.
    device
        ``cpu`` or ``cuda``.
    base
        Directory that a relative `data.path`, `data.tokenizer` or `links` starts from.
    shape
        How the launcher was asked to lay out the ranks. The worker refuses to run in another shape.
    peak_tflops
        Precision -> dense peak of a GPU, where the site says one: the report prefers it to its own table.
    gpu_aware_mpi
        What the site says of its MPI library; None where the ranks are to find out.
    """
    study, links = run.study, run.study.links
    data = {key: str((base / path).resolve()) for key in ("path", "tokenizer") if (path := getattr(study.data, key))}
    resolved = contract.Run(
        study=study.study,
        site=site,
        run=run.id,
        repeat=run.repeat,
        pairing=run.pairing,
        cell=run.cell,
        model=study.model,
        data=study.data.changed(**data),
        train=study.train.changed(seed=study.train.seed + run.repeat - 1),
        layout=run.size.layout,
        scheme=NamedScheme(name=run.scheme_name, **run.scheme.model_dump(include=set(Scheme.model_fields))),
        ranks=run.size.layout.ranks,
        threads=threads,
        oversubscribe=oversubscribe,
        device=device,
        links=str((base / links).resolve()) if links else None,
        shape=shape,
        peak_tflops=dict(peak_tflops or {}),
        gpu_aware_mpi=gpu_aware_mpi,
    )
    contract.check(resolved, f"run {run.id}")
    return resolved.content()
