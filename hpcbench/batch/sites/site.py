"""A site: one machine, its scheduler, nodes, network, launcher and environment."""

import os
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator

from hpcbench.batch.scripts.duration import Duration
from hpcbench.contract.section import OPTION, Count, Label, Line, Name, PathLine, Precision, Section, Variable
from hpcbench.study.container import Container
from hpcbench.study.schema import SchemeEntry
from hpcbench.study.size import Capacity

Option = Annotated[str, Field(pattern=OPTION, max_length=100)]


SHOWS_ALL = ("mpich", "openmpi", "mvapich", "mpirun_rsh", "ibrun")
"""Launchers that cannot keep a node's GPUs from a rank."""


def _duration(text: str | None) -> str | None:
    return text if text is None else str(Duration.parse(text))


class Bin(Section):
    """A range of node counts with a walltime of its own."""

    max_nodes: Count = Field(description="Jobs of up to so many nodes, and more than the bin before allows.")
    max_walltime: str = Field(description="Longest of them, such as 2h.")

    _walltime = field_validator("max_walltime")(_duration)


class Queue(Section):
    """A queue (LSF, Flux), partition or quality of service (Slurm), and what it allows."""

    min_nodes: Count | None = Field(None, description="Least nodes of a job.")
    max_nodes: Count | None = Field(None, description="Most nodes of a job.")
    max_walltime: str | None = Field(None, description="Longest job, such as 12h.")
    bins: list[Bin] = Field(default_factory=list, description="Walltime by node count, smallest first.")
    max_submitted: Count | None = Field(None, description="Jobs that a user may have in it, waiting or running.")
    source: Line | None = Field(None, description="Where the limits are said, and when they were read.")

    _walltime = field_validator("max_walltime")(_duration)


class Scheduler(Section):
    """What takes the jobs."""

    kind: Literal["local", "slurm", "lsf", "flux"] = Field(description="local runs them here, one after another.")
    account_option: Option | None = Field(None, description="How the account is given: -G, -P, --account or --bank.")
    queue_option: Option | None = Field(None, description="How a queue is given, if not by --partition, -q or --queue.")
    gpu_request: Literal["none", "gres", "gpus-per-node", "gpus-per-task", "gpu"] = Field(
        "none", description="How the head of a script asks for GPUs; none where a node comes with them. LSF has gpu."
    )
    allocation: Literal["nodes", "slots"] = Field(
        "nodes", description="LSF: whole nodes by -nnodes, or slots by -n with span[ptile=]."
    )
    hand_in: Literal["stdin", "file"] = Field("stdin", description="LSF: bsub < script, or bsub script.")
    max_array: int | None = Field(None, ge=1, description="Largest index of a job array; by default no arrays.")
    refuses: list[Option] = Field(
        default_factory=list,
        description="Options that the site turns away, such as -cwd: scripts do without, and notes say what is lost.",
    )
    max_submitted: Count | None = Field(None, description="Jobs that a user may have in all queues.")
    directives: dict[Option, str | int | None] = Field(
        default_factory=dict, description="More options for the head of each script; null for one without a value."
    )

    @field_validator("directives")
    @classmethod
    def _one_line(cls, directives: dict[str, str | int | None]) -> dict[str, str | int | None]:
        for option, value in directives.items():
            if isinstance(value, str) and (not value or not value.isprintable()):
                raise ValueError(f"{option}: the value must be one line and not empty: use null for none")
        return directives


class Node(Section):
    """One compute node."""

    gpus: int = Field(0, ge=0, le=1024, description="GPUs.")
    gpu: Line | None = Field(None, description="Their model.")
    gpu_memory_gb: float | None = Field(None, gt=0, description="Memory of each.")
    gpu_peak_tflops: dict[Precision, Annotated[float, Field(gt=0)]] = Field(
        default_factory=dict,
        description="Dense peak of each by precision, in TFLOP/s, where hpcbench does not know the model.",
    )
    gpu_exclusive: bool = Field(False, description="Each GPU takes one process only.")
    cores: Count | Literal["auto"] = Field("auto", description="Cores that jobs may use; auto counts this machine's.")
    sockets: Count = Field(1, description="Sockets, each with the same share of the cores.")
    socket_gpus: list[Annotated[int, Field(ge=0)]] | None = Field(
        None, description="GPUs of each socket; by default the same share, so that it is needed where they differ."
    )
    cores_per_gpu: Count | None = Field(
        None, description="Cores that must be asked for with each GPU, where the site takes neither more nor fewer."
    )
    threads_per_core: Count = Field(1, description="Hardware threads of a core, as the scheduler counts them.")
    memory_gb: float | None = Field(None, gt=0, description="Host memory.")

    @property
    def usable_cores(self) -> int:
        """Cores that jobs may use, as a number."""
        return len(os.sched_getaffinity(0)) if self.cores == "auto" else self.cores

    @property
    def socket_cores(self) -> int:
        """Cores of a socket that jobs may use."""
        return self.usable_cores // self.sockets

    @property
    def gpus_by_socket(self) -> tuple[int, ...]:
        """GPUs of each socket."""
        return tuple(self.socket_gpus or [self.gpus // self.sockets] * self.sockets)


class Network(Section):
    """What lies between the nodes."""

    description: Line = Field(description="For people.")
    bandwidth_gbit: float | None = Field(None, gt=0, description="Of a node, one way, in Gbit/s.")
    latency_us: float | None = Field(None, gt=0, description="Of a small message between nodes.")


class Launcher(Section):
    """What starts the ranks inside a job."""

    kind: Literal["auto", "mpich", "openmpi", "mvapich", "mpirun_rsh", "srun", "jsrun", "lrun", "ibrun", "flux"] = (
        Field(description="Its dialect; auto finds out whose the launcher of this machine is.")
    )
    program: Line | None = Field(None, description="Its path; by default found on PATH.")
    args: list[Line] = Field(default_factory=list, description="More arguments, after ours.")
    mpi: Literal["spectrum", "mvapich"] | None = Field(
        None,
        description="MPI library of the ranks that jsrun or lrun start, by default spectrum. Spectrum MPI alone gets "
        "-gpu where gpu_aware_mpi is true; what MVAPICH needs goes into environment.",
    )
    visibility: Literal["one", "socket", "all"] | None = Field(
        None,
        description="GPUs that a rank sees: its own, its socket's, or the node's. It changes what is measured. By "
        "default its own where the launcher can see to that, else all.",
    )


class Site(Section):
    """One machine: what a job script needs to know of it."""

    site: Name = Field(description="Name.")
    description: Line | None = Field(None, description="For people.")
    scheduler: Scheduler = Field(description="What takes the jobs.")
    queues: dict[Label, Queue] = Field(default_factory=dict, description="Queues; the first is the default.")
    walltime: str | None = Field(None, description="Limit of a job where the study has none, such as 2h.")
    node: Node = Field(default_factory=Node, description="One compute node.")
    network: Network | None = Field(None, description="What lies between the nodes.")
    launcher: Launcher = Field(description="What starts the ranks.")
    ranks_per_node: Count | None = Field(None, description="Usual ranks a node; by default its GPUs.")
    threads: Count | None = Field(None, description="Threads a rank; by default its share of the cores.")
    oversubscribe: bool = Field(False, description="Ranks may share cores: to try things out, not to measure.")
    device: Literal["cpu", "cuda"] = Field("cpu", description="What ranks compute on.")
    gpu_aware_mpi: bool | None = Field(
        None, description="The MPI library takes device pointers; by default unknown, which counts as no."
    )
    modules: list[Line] = Field(default_factory=list, description="Modules to load.")
    environment: dict[Variable, Line] = Field(default_factory=dict, description="Variables, taken literally.")
    schemes: dict[Name, SchemeEntry] = Field(
        default_factory=dict, description="Schemes that this machine adds, such as an MPI library that compresses."
    )
    setup: list[Line] = Field(default_factory=list, description="Shell lines of the site's own, run before the ranks.")
    teardown: list[Line] = Field(default_factory=list, description="Shell lines of the site's own, run after them.")
    templates: PathLine | None = Field(
        None, description="Directory of job templates of one's own, used before those that come with hpcbench."
    )
    container: Container | None = Field(
        None, description="How containers are run here, or also in which image; a study may say the rest."
    )
    python: Line = Field("python3", description="The interpreter; auto takes the one that runs hpcbench.")
    work: PathLine | None = Field(None, description="Directory that holds results/; by default where hpcbench is run.")
    retired: Line | None = Field(None, description="When the machine was switched off, and what follows from that.")
    sources: list[Line] = Field(default_factory=list, description="Where the facts come from.")
    checked: Line = Field(description="How and when this file was last proved on the machine, or never.")

    _walltime = field_validator("walltime")(_duration)

    @property
    def visibility(self) -> Literal["one", "socket", "all"]:
        """GPUs that a rank sees. Where there are none, a rank keeps to its own part of the node all the same."""
        if self.launcher.visibility is not None:
            return self.launcher.visibility
        return "all" if self.device == "cuda" and self.launcher.kind in SHOWS_ALL else "one"

    @property
    def capacity(self) -> Capacity:
        """What the size of a run depends on, and what it can do."""
        usual = self.ranks_per_node or (self.node.gpus if self.device == "cuda" else None)
        if usual is None and self.scheduler.kind != "local":
            usual = self.node.usable_cores // (self.threads or 1)
        slots = max(1, self.node.usable_cores // (self.threads or 1))
        return Capacity(self.site, usual, slots, self.device, self._most_nodes)

    @property
    def _most_nodes(self) -> tuple[int, str] | None:
        """The most nodes of a job in any queue, in words too; None where a queue does not say."""
        bounds = {
            name: min(
                (most for most in (queue.max_nodes, *[b.max_nodes for b in queue.bins[-1:]]) if most), default=None
            )
            for name, queue in self.queues.items()
        }
        known = {name: bound for name, bound in bounds.items() if bound is not None}
        if not known or len(known) < len(bounds):
            return None
        name = max(known, key=lambda name: known[name])
        source = f" ({self.queues[name].source})" if self.queues[name].source else ""
        if len(known) == 1:
            return known[name], f"queue {name} of {self.site} takes at most {known[name]}{source}"
        return known[name], f"no queue of {self.site} takes more than {name} does, {known[name]}{source}"


def json_schema() -> dict[str, Any]:
    """JSON Schema of a site file, for editors."""
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **Site.model_json_schema()}
