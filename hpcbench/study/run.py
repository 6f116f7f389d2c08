"""Content of run.json, the settings of a run."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import ValidationError

from hpcbench.contract import run as contract
from hpcbench.contract.problems import make_user_error
from hpcbench.contract.program import ProgramRun
from hpcbench.contract.scheme import Scheme
from hpcbench.contract.section import Precision
from hpcbench.contract.training import Transport
from hpcbench.errors import UserError
from hpcbench.study.expand import ExpandedRun
from hpcbench.study.schema import ProgramStudy


def run_file(
    run: ExpandedRun,
    *,
    site: str,
    threads: int,
    oversubscribe: bool,
    device: Literal["cpu", "cuda"],
    base: Path,
    shape: contract.RankShape | None = None,
    peak_tflops: Mapping[Precision, float] | None = None,
    gpu_aware_mpi: bool | None = None,
    transport: Transport = "mpi",
) -> dict[str, Any]:
    """Return a run as plain JSON data with all keys.

    Parameters
    ----------
    base
        Base directory of relative paths in `data.path`, `data.tokenizer` and `links`.
    shape
        Requested rank placement. The worker refuses to run with a different shape.
    peak_tflops
        Dense GPU peak in TFLOP/s, keyed by precision, if the site defines it. Reports prefer this peak to their own
        table.
    gpu_aware_mpi
        Whether the MPI library accepts device pointers, according to the site, or None if the ranks must detect this.
    transport
        Library for GPU messages, if the study does not set one.

    Raises
    ------
    UserError
        The study runs another program, or a value is invalid for this run, such as a seed that becomes too large.
    """
    study = run.study
    if isinstance(study, ProgramStudy):
        raise UserError(
            f"{run.where(('program',))}: program: hpcbench cannot model this program, only studies with model, train "
            "and layout: trace the program with `hpcbench diagnose --run -- COMMAND`, or run the study"
        )
    links = study.links
    files = {key: str((base / path).resolve()) for key in ("path", "tokenizer") if (path := getattr(study.data, key))}
    content = {
        **_named(run, site, base),
        "model": study.model,
        "data": {**study.data.model_dump(), **files},
        "train": {
            **study.train.model_dump(),
            "seed": study.train.seed + run.repeat - 1,
            "transport": study.train.transport or transport,
        },
        "layout": run.size.layout,
        "threads": threads,
        "oversubscribe": oversubscribe,
        "device": device,
        "links": str((base / links).resolve()) if links else None,
        "shape": shape,
        "peak_tflops": dict(peak_tflops or {}),
        "gpu_aware_mpi": gpu_aware_mpi,
    }
    try:
        resolved = contract.Run.model_validate(content)
    except ValidationError as error:
        raise make_user_error(error, contract.Run, run.where) from None
    contract.check(resolved, f"run {run.id}")
    return resolved.content()


def program_file(
    run: ExpandedRun,
    *,
    site: str,
    threads: int,
    oversubscribe: bool,
    device: Literal["cpu", "cuda"],
    base: Path,
    shape: contract.RankShape,
    peak_tflops: Mapping[Precision, float],
) -> dict[str, Any]:
    """Return a run of another program as plain JSON data with all keys. For parameters, see `run_file`.

    Raises
    ------
    UserError
        A value of the study is invalid for this run, such as a seed that becomes too large with the repeats.
    """
    study = run.study
    assert isinstance(study, ProgramStudy)
    content = {
        **_named(run, site, base),
        "program": {**study.program.model_dump(), "seed": study.program.seed + run.repeat - 1},
        "directory": str((base / (study.program.directory or ".")).resolve()),
        "threads": threads,
        "oversubscribe": oversubscribe,
        "device": device,
        "shape": shape,
        "peak_tflops": dict(peak_tflops),
    }
    try:
        return ProgramRun.model_validate(content).content()
    except ValidationError as error:
        raise make_user_error(error, ProgramRun, run.where) from None


def _named(run: ExpandedRun, site: str, base: Path) -> dict[str, Any]:
    """Return the fields common to all run files: run name, scheme, and number of ranks."""
    scheme = run.scheme.model_dump(include=set(Scheme.model_fields))
    if scheme["preload"]:
        scheme["preload"] = str((base / scheme["preload"]).absolute())
    return {
        "study": run.study.study,
        "site": site,
        "run": run.id,
        "repeat": run.repeat,
        "pairing": run.pairing,
        "cell": run.cell,
        "scheme": {"name": run.scheme_name, **scheme},
        "ranks": run.size.layout.ranks,
    }
