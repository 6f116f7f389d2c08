"""A resolved run as the worker reads it: the content of run.json."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hpcbench.study.expand import Run
from hpcbench.study.section import Precision


def run_file(
    run: Run,
    *,
    site: str,
    threads: int,
    oversubscribe: bool,
    device: str,
    base: Path,
    shape: Mapping[str, int | str] | None = None,
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
        How the launcher was asked to lay out the ranks: ``nodes``, ``ranks_per_node``, ``cores_per_rank``,
        ``gpus_per_rank`` (a fraction in words) and ``visibility``. The worker refuses to run in another shape.
    peak_tflops
        Precision -> dense peak of a GPU, where the site says one: the report prefers it to its own table.
    gpu_aware_mpi
        What the site says of its MPI library; None where the ranks are to find out.
    """
    study = run.study
    train = study.train.model_dump()
    if train["min_lr"] is None:
        train["min_lr"] = study.train.lr / 10
    train["seed"] = study.train.seed + run.repeat - 1
    data = study.data.model_dump()
    for key in ("path", "tokenizer"):
        if data[key] is not None:
            data[key] = str((base / data[key]).resolve())
    return {
        "schema": 1,
        "study": study.study,
        "site": site,
        "run": run.id,
        "repeat": run.repeat,
        "pairing": run.pairing,
        "cell": run.cell,
        "model": study.model.model_dump(),
        "data": data,
        "train": {key: float(value) if key in _FLOATS else value for key, value in train.items()},
        "layout": {**study.layout.model_dump(), "dp": run.size.dp, "tp": run.size.tp, "pp": run.size.pp},
        "scheme": {"name": run.scheme_name, **run.scheme.model_dump(exclude={"description"})},
        "ranks": run.size.ranks,
        "threads": threads,
        "oversubscribe": oversubscribe,
        "device": device,
        "links": str((base / study.links).resolve()) if study.links else None,
        "shape": dict(shape) if shape else None,
        "peak_tflops": {precision: float(peak) for precision, peak in (peak_tflops or {}).items()},
        "gpu_aware_mpi": gpu_aware_mpi,
    }


_FLOATS = {"lr", "min_lr", "beta1", "beta2", "eps", "weight_decay", "clip", "bucket_mb"}
