"""Schema of site files: a machine's scheduler, nodes, network, launcher, and environment."""

import os
import re
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator

from hpcbench.batch.scripts.duration import Duration
from hpcbench.contract.section import OPTION, Count, Label, Line, Name, PathLine, Precision, Section, Variable
from hpcbench.contract.training import Transport
from hpcbench.study.container import Container
from hpcbench.study.schema import SchemeEntry
from hpcbench.study.size import Capacity

Option = Annotated[str, Field(pattern=OPTION, max_length=100)]


SHOWS_ALL = ("mpich", "openmpi", "mvapich", "mpirun_rsh", "ibrun")
"""Launchers that always make all GPUs of a node visible to its ranks."""


def _duration(text: str | None) -> str | None:
    return text if text is None else str(Duration.parse(text))


class Bin(Section):
    """A range of node counts with its own walltime limit."""

    max_nodes: Count = Field(
        description="Maximum nodes of a job in this bin; the minimum is one more than the maximum of the bin before."
    )
    max_walltime: str = Field(description="Maximum walltime of these jobs, such as 2h.")

    _walltime = field_validator("max_walltime")(_duration)


class Queue(Section):
    """A queue (LSF, Flux), partition, or quality of service (Slurm), with its limits."""

    min_nodes: Count | None = Field(None, description="Minimum nodes of a job.")
    max_nodes: Count | None = Field(None, description="Maximum nodes of a job.")
    max_walltime: str | None = Field(None, description="Maximum walltime of a job, such as 12h.")
    bins: list[Bin] = Field(default_factory=list, description="Walltime by node count, smallest first.")
    max_submitted: Count | None = Field(None, description="Maximum waiting and running jobs of a user.")
    source: Line | None = Field(None, description="Source of the limits, and the date of reading.")

    _walltime = field_validator("max_walltime")(_duration)

    @property
    def most_nodes(self) -> int | None:
        """Maximum number of nodes per job, or None if unknown."""
        bounds = [self.max_nodes, self.bins[-1].max_nodes if self.bins else None]
        return min((bound for bound in bounds if bound), default=None)


class Scheduler(Section):
    """The job scheduler and its settings."""

    kind: Literal["local", "slurm", "lsf", "flux"] = Field(
        description="local runs jobs on this machine, one after another."
    )
    account_option: Option | None = Field(None, description="Option for the account: -G, -P, --account or --bank.")
    queue_option: Option | None = Field(None, description="Option for the queue, if not --partition, -q or --queue.")
    gpu_request: Literal["none", "gres", "gpus-per-node", "gpus-per-task", "gpu"] = Field(
        "none", description="Option that requests GPUs; none if nodes include their GPUs. LSF has gpu."
    )
    allocation: Literal["nodes", "slots"] = Field(
        "nodes", description="LSF: whole nodes by -nnodes, or slots by -n with span[ptile=]."
    )
    hand_in: Literal["stdin", "file"] = Field("stdin", description="LSF: bsub < script, or bsub script.")
    max_array: int | None = Field(None, ge=1, description="Largest index of a job array; by default no arrays.")
    refuses: list[Option] = Field(
        default_factory=list,
        description="Options that the site refuses, such as -cwd. Scripts omit them.",
    )
    max_submitted: Count | None = Field(None, description="Maximum jobs of a user in all queues.")
    directives: dict[Option, str | int | None] = Field(
        default_factory=dict, description="More options for the head of each script; null for an option without value."
    )

    @field_validator("directives")
    @classmethod
    def _one_line(cls, directives: dict[str, str | int | None]) -> dict[str, str | int | None]:
        for option, value in directives.items():
            if isinstance(value, str) and (not value or not value.isprintable()):
                raise ValueError(
                    f"{option}: the value must be one line and not empty: use null for an option without a value"
                )
        return directives


class Node(Section):
    """The hardware of a compute node."""

    gpus: int = Field(0, ge=0, le=1024, description="Number of GPUs.")
    gpu: Line | None = Field(None, description="Model of the GPUs.")
    gpu_memory_gb: float | None = Field(None, gt=0, description="Memory of a GPU in GB.")
    gpu_peak_tflops: dict[Precision, Annotated[float, Field(gt=0)]] = Field(
        default_factory=dict,
        description="Dense peak of a GPU by precision in TFLOP/s, for models that hpcbench does not contain.",
    )
    gpu_exclusive: bool = Field(False, description="Whether a GPU accepts only one process.")
    cores: Count | Literal["auto"] = Field(
        "auto", description="Cores that jobs may use; auto uses all cores of this machine."
    )
    sockets: Count = Field(1, description="Sockets, each with the same share of the cores.")
    socket_gpus: list[Annotated[int, Field(ge=0)]] | None = Field(
        None, description="GPUs of each socket; by default equal shares."
    )
    cores_per_gpu: Count | None = Field(
        None, description="Number of cores that a job must request with each GPU, if the site allows no other number."
    )
    threads_per_core: Count = Field(1, description="Hardware threads per core, as the scheduler counts them.")
    memory_gb: float | None = Field(None, gt=0, description="Host memory in GB.")

    @property
    def usable_cores(self) -> int:
        """Number of cores available to jobs."""
        return len(os.sched_getaffinity(0)) if self.cores == "auto" else self.cores

    @property
    def socket_cores(self) -> int:
        """Number of cores per socket available to jobs."""
        return self.usable_cores // self.sockets

    @property
    def gpus_by_socket(self) -> tuple[int, ...]:
        """Number of GPUs on each socket."""
        return tuple(self.socket_gpus or [self.gpus // self.sockets] * self.sockets)


class Network(Section):
    """The network between nodes."""

    description: Line = Field(description="For people.")
    bandwidth_gbit: float | None = Field(None, gt=0, description="Bandwidth of a node in one direction, in Gbit/s.")
    latency_us: float | None = Field(
        None, gt=0, description="Latency of a small message between nodes, in microseconds."
    )


class Launcher(Section):
    """The launcher that starts the ranks of a job."""

    kind: Literal["auto", "mpich", "openmpi", "mvapich", "mpirun_rsh", "srun", "jsrun", "lrun", "ibrun", "flux"] = (
        Field(description="Dialect of the launcher; auto detects this machine's launcher.")
    )
    program: Line | None = Field(None, description="Path of the launcher; by default searched on PATH.")
    args: list[Line] = Field(default_factory=list, description="Additional arguments, appended to hpcbench's.")
    mpi: Literal["spectrum", "mvapich"] | None = Field(
        None,
        description="MPI library of the ranks that jsrun or lrun start, by default spectrum. Only Spectrum MPI gets "
        "-gpu if gpu_aware_mpi is true; set variables for MVAPICH in environment.",
    )
    visibility: Literal["one", "socket", "all"] | None = Field(
        None,
        description="GPUs that a rank sees: its own, its socket's, or the node's. This changes the measurement. By "
        "default its own if the launcher supports that, else all.",
    )


class Site(Section):
    """Facts that job scripts need about a machine."""

    site: Name = Field(description="Name.")
    description: Line | None = Field(None, description="Short description.")
    scheduler: Scheduler = Field(description="The scheduler of the jobs.")
    queues: dict[Label, Queue] = Field(default_factory=dict, description="Queues; the first is the default.")
    walltime: str | None = Field(None, description="Walltime of a job if the study sets none, such as 2h.")
    node: Node = Field(default_factory=Node, description="One compute node.")
    network: Network | None = Field(None, description="The network between the nodes.")
    launcher: Launcher = Field(description="The launcher of the ranks.")
    ranks_per_node: Count | None = Field(None, description="Usual number of ranks per node; by default its GPUs.")
    threads: Count | None = Field(None, description="Threads per rank; by default its share of the cores.")
    oversubscribe: bool = Field(False, description="Whether ranks may share cores, for trials, not for measurements.")
    device: Literal["cpu", "cuda"] = Field("cpu", description="Device on which ranks compute.")
    gpu_aware_mpi: bool | None = Field(
        None, description="Whether the MPI library accepts device pointers; by default unknown, which counts as no."
    )
    transport: Transport = Field(
        "mpi", description="Library that carries the messages of GPUs if a study sets no train.transport."
    )
    modules: list[Line] = Field(default_factory=list, description="Modules to load.")
    environment: dict[Variable, Line] = Field(
        default_factory=dict, description="Environment variables, taken literally."
    )
    schemes: dict[Name, SchemeEntry] = Field(
        default_factory=dict, description="Schemes of this machine, such as an MPI library that compresses."
    )
    setup: list[Line] = Field(default_factory=list, description="Shell lines to run before the ranks.")
    teardown: list[Line] = Field(default_factory=list, description="Shell lines to run after the ranks.")
    templates: PathLine | None = Field(
        None, description="Directory of the site's own job templates, searched before hpcbench's."
    )
    container: Container | None = Field(
        None, description="How containers are run here, and perhaps the image; a study may set the other fields."
    )
    python: Line = Field("python3", description="The interpreter; auto is the one that runs hpcbench.")
    work: PathLine | None = Field(
        None, description="Directory that contains results/; by default the working directory."
    )
    retired: Line | None = Field(None, description="When the machine was switched off, and the consequences.")
    sources: list[Line] = Field(default_factory=list, description="Sources of the facts.")
    checked: Line = Field(description="How and when this file was last tested on the machine, or never.")

    _walltime = field_validator("walltime")(_duration)

    @property
    def visibility(self) -> Literal["one", "socket", "all"]:
        """Part of the node's GPUs that a rank sees.

        On a node without GPUs, the part of the node to which a rank is confined.
        """
        if self.launcher.visibility is not None:
            return self.launcher.visibility
        return "all" if self.device == "cuda" and self.launcher.kind in SHOWS_ALL else "one"

    @property
    def capacity(self) -> Capacity:
        """Site properties that determine the size of a run."""
        usual = self.ranks_per_node or (self.node.gpus if self.device == "cuda" else None)
        if usual is None and self.scheduler.kind != "local":
            usual = self.node.usable_cores // (self.threads or 1)
        slots = max(1, self.node.usable_cores // (self.threads or 1))
        return Capacity(self.site, usual, slots, self.device, self._most_nodes)

    @property
    def _most_nodes(self) -> tuple[int, str] | None:
        """Largest node limit of all queues, and a message with its source.

        The result is None if the limit of any queue is unknown. A local launcher without arguments starts all ranks on
        this machine. A program such as `hpcbench-virtual-hosts`, arguments or variables may name more hosts.
        """
        if self.scheduler.kind == "local" and not (self.launcher.program or self.launcher.args or self.environment):
            return 1, f"{self.site} is a single machine, and virtual-hosts (--site) emulates several nodes"
        bounds = {name: queue.most_nodes for name, queue in self.queues.items()}
        maxima = {name: bound for name, bound in bounds.items() if bound is not None}
        if not maxima or len(maxima) < len(bounds):
            return None
        name = max(maxima, key=lambda name: maxima[name])
        source = f" ({self.queues[name].source})" if self.queues[name].source else ""
        if len(maxima) == 1:
            return maxima[name], f"queue {name} of {self.site} allows at most {maxima[name]}{source}"
        return maxima[name], f"the largest queue of {self.site}, {name}, allows at most {maxima[name]}{source}"


def is_amd(gpu: str | None) -> bool:
    """Return whether a GPU model is by AMD. Slurm's names of models are abbreviations such as ``mi250x``."""
    return bool(gpu and re.search(r"\bmi\d|amd|radeon|vega|instinct", gpu, re.IGNORECASE))


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema of a site file, for editors."""
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **Site.model_json_schema()}
