"""A run: one cell of a study with concrete values. The login node writes run.json, and every rank reads it.

Settings are fields of schemas that are shared with studies. To add a setting, add a field to one of these schemas.
"""

import json
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, ValidationError

from hpcbench.contract.layout import Layout, find_batch_misfit, find_model_misfit
from hpcbench.contract.nccl_fit import find_nccl_misfit
from hpcbench.contract.problems import make_user_error
from hpcbench.contract.scheme import NamedScheme
from hpcbench.contract.scheme_fit import explain_scheme_misfit
from hpcbench.contract.section import SHARE, Count, File, Line, Misfit, Name, Precision, Scalar, Section
from hpcbench.contract.synchrony import find_server_misfit, find_stream_misfit
from hpcbench.contract.traffic import TrafficSettings
from hpcbench.contract.training import Data, Model, Train, find_optimizer_misfit
from hpcbench.errors import UserError

_REMEDY = "write the file with `hpcbench submit`"
WRITTEN_BY = "run files are written by `hpcbench submit`"


class RankShape(Section):
    """The intended placement of the ranks on the machine."""

    nodes: Count
    ranks_per_node: Count
    cores_per_rank: Count
    gpus_per_rank: Annotated[str, Field(pattern=SHARE)]
    """GPUs per rank as a fraction: ``0``, ``1``, or ``1/2`` if two ranks share a GPU."""
    visibility: Literal["one", "socket", "all"]
    """GPUs that should be visible to a rank. ``one`` means only the rank's own GPU."""


class Run(Section):
    """One cell of a study."""

    model_config = ConfigDict(populate_by_name=True)

    version: Literal[1] = Field(1, alias="schema", description="Version of the file format.")
    study: Name
    site: Line
    run: Line
    repeat: Count
    pairing: Line
    cell: dict[str, Scalar]
    model: Model
    data: Data
    train: Train
    layout: Layout
    scheme: NamedScheme
    ranks: Count
    threads: Count
    oversubscribe: bool
    device: Literal["cpu", "cuda"]
    links: File | None
    """File with measured times of the machine's links and codecs, or None to use the default times."""
    shape: RankShape | None = None
    """The intended placement, or None if placement is not checked."""
    peak_tflops: dict[Precision, float] = Field(default_factory=dict)
    """Peak throughput of a GPU for dense products in TFLOP/s, keyed by precision, if the site sets it.

    Only the report uses this value.
    """
    gpu_aware_mpi: bool | None = None
    """Whether device pointers are passed to the MPI library, or None if the ranks detect support for them."""

    @property
    def setting(self) -> TrafficSettings:
        """The settings that determine the traffic of the run."""
        return TrafficSettings(self.layout, self.train, self.model.tied)

    def content(self) -> dict[str, Any]:
        """Return the run as JSON data with every key: the content of run.json."""
        return self.model_dump(mode="json", by_alias=True)


def check(run: Run, where: str) -> None:
    """Check that the settings are consistent.

    Raises
    ------
    UserError
        The settings are inconsistent. The message begins with `where`.
    """
    misfit = (
        find_model_misfit(run.model, run.train, run.layout)
        or find_stream_misfit(run.model, run.train, run.layout)
        or find_server_misfit(run.model, run.train, run.layout)
        or find_batch_misfit(run.train, run.layout)
        or find_optimizer_misfit(run.train)
        or _run_misfit(run)
    )
    if misfit:
        raise UserError(f"{where}: {misfit}")


def _run_misfit(run: Run) -> Misfit | None:
    """Return the first value that contradicts other settings of the run, or None if the settings are consistent."""
    if run.ranks != run.layout.ranks:
        product = "dp x cp x tp x pp" if run.layout.cp > 1 else "dp x tp x pp"
        return Misfit(("ranks",), f"{run.ranks} is not {product} = {run.layout.ranks}: {_REMEDY}")
    if run.train.sync != "all-reduce" and run.device != "cpu":
        return Misfit(("train", "sync"), f"{run.train.sync} supports only CPUs: use sync all-reduce")
    if misfit := find_nccl_misfit(run.train, run.layout, run.scheme, run.device):
        return misfit
    if run.layout.automatic:
        return Misfit(("layout", "stages"), f"auto is only allowed in a study: {_REMEDY}")
    if run.scheme.optimizer not in (None, run.train.optimizer):
        return Misfit(
            ("scheme", "optimizer"),
            f"{run.scheme.optimizer} differs from train.optimizer {run.train.optimizer}: {_REMEDY}",
        )
    unequal = explain_scheme_misfit(run.scheme, run.setting, run.data)
    return Misfit(("scheme", "rules"), unequal) if unequal else None


def read_run_data(path: Path) -> Any:
    """Return the JSON data of a run file.

    Raises
    ------
    UserError
        The file is missing or is not JSON.
    """
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}: {WRITTEN_BY}") from None
    except ValueError as error:
        raise UserError(f"{path}: not JSON: {error}: {WRITTEN_BY}") from None


def load(path: Path) -> tuple[Run, dict[str, Any]]:
    """Read a run file. Return the run and the file's JSON data.

    Raises
    ------
    UserError
        The file is missing, is not JSON, or does not match the schema of `Run`.
    """
    raw = read_run_data(path)
    try:
        run = Run.model_validate(raw)
    except ValidationError as error:
        raise UserError(f"{make_user_error(error, Run, lambda _: str(path))}; {_REMEDY}") from None
    if key := _missing(raw, run.content()):
        raise UserError(f"{path}: {key}: is missing: {_REMEDY}")
    check(run, str(path))
    return run, raw


def _missing(given: Any, expected: Any, name: str = "") -> str:
    """Return the first missing key of a run file, or an empty string.

    All keys are required, because ranks do not use default values.
    """
    if isinstance(expected, dict) and isinstance(given, dict):
        for key, value in expected.items():
            name_of_missing = _missing(given[key], value, f"{name}{key}.") if key in given else name + key
            if name_of_missing:
                return name_of_missing
    elif isinstance(expected, list) and isinstance(given, list):
        pairs = zip(given, expected, strict=False)
        return next(filter(None, (_missing(*pair, f"{name}{i}.") for i, pair in enumerate(pairs))), "")
    return ""
