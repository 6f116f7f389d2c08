"""Draft of a site file for this machine, with the source of each value. Guesses and missing values are marked."""

import json
import os
import re
import socket
import sys
import textwrap
from typing import Any

from hpcbench.batch.files import now
from hpcbench.batch.schedulers.cluster import Nodes, QueueFacts, Sighting
from hpcbench.batch.scripts.duration import Duration
from hpcbench.batch.scripts.launchers import solve
from hpcbench.batch.sites.site import Scheduler, Site, is_amd
from hpcbench.contract.section import LABEL, NAME
from hpcbench.doctor import flux, lsf, slurm
from hpcbench.doctor.cluster import Cluster
from hpcbench.doctor.gpus import gpus_here
from hpcbench.doctor.mpi import launcher, loaded_modules, of_interest
from hpcbench.doctor.scheduler import answering, sightings
from hpcbench.errors import UserError
from hpcbench.study.yaml12 import parse_value

_SURVEYS = {"slurm": slurm.survey, "lsf": lsf.survey, "flux": flux.survey}
_COLUMN, _WIDTH = 44, 120
_TOLD_BY = {"slurm": "sinfo", "lsf": "lshosts", "flux": "flux resource list", "local": "this machine"}
_ORDER = list(Scheduler.model_fields)


def draft(name: str | None = None) -> str:
    """Return the text of a site file for this machine.

    Parameters
    ----------
    name
        Name of the site. The default is the cluster name, or the host name if the cluster has no name.
    """
    if name is not None and not re.fullmatch(NAME, name):
        raise UserError(
            f"--name {name!r}: is not a valid name of a site: use at most 64 letters, digits, dots, underscores and "
            "dashes"
        )
    return render(survey(sightings()), name)


def render(cluster: Cluster, name: str | None = None) -> str:
    """Format the survey of a cluster as a site file."""
    return _Text(cluster, name).text()


def survey(seen: list[Sighting]) -> Cluster:
    """Survey the machine by querying the scheduler that responds, if any."""
    working = answering(seen)
    if working:
        return _SURVEYS[working.kind](working)
    silent = [f"{sighting.kind}: {sighting.fact}" for sighting in seen]
    return Cluster("local", "no scheduler answers", socket.gethostname().partition(".")[0], notes=silent)


class _Text:
    """Lines of the file, in schema order."""

    def __init__(self, cluster: Cluster, name: str | None) -> None:
        self._cluster = cluster
        self._lines: list[str] = []
        self._queue = cluster.chosen()
        self._nodes = (
            _nodes_here() if cluster.kind == "local" else ((self._queue.kind() if self._queue else None) or Nodes(0))
        )
        self._name = name or _plain(cluster.name or socket.gethostname().partition(".")[0])

    def text(self) -> str:
        """Return the complete file."""
        host = socket.gethostname()
        self._note(f"Draft by `hpcbench doctor --draft-site`, {now()}, with the values detected on {host}.")
        self._note("Lines marked CHECK are guesses. Next: hpcbench sites check FILE; then a dry run with --site FILE.")
        self._put("site", self._name, "" if self._name == self._cluster.name else "choose any name")
        self._scheduler()
        self._queues()
        self._node()
        self._note("network: {description: ?, bandwidth_gbit: ?}   # fill in from the site's pages")
        self._launcher()
        self._environment()
        self._ranks()
        self._lines.append("sources:")
        self._lines.append(f"  - {_flow(f'hpcbench doctor --draft-site on {host}, {now()}: {self._cluster.fact}')}")
        self._put("checked", "never", "write how and when a study ran on this machine")
        return "\n".join(self._lines) + "\n"

    def _scheduler(self) -> None:
        self._lines.append("scheduler:")
        self._put("  kind", self._cluster.kind, self._cluster.fact)
        for key, finding in sorted(self._cluster.scheduler.items(), key=lambda item: _ORDER.index(item[0])):
            self._put(f"  {key}", finding.value, finding.source, sure=finding.sure)
        for note in self._cluster.notes:
            self._note(note, indent=2)

    def _queues(self) -> None:
        lines = [line for line in self._cluster.queues if line.name]
        alike = [line for line in lines if not self._why_left_out(line)]
        if alike:
            self._lines.append(
                f"{'queues:':{_COLUMN}}# the first queue is the default; limits at the time of this draft"
            )
        listed = sorted(alike, key=lambda line: (line is not self._queue, bool(line.barred)))
        for line in listed:
            limits = {
                "min_nodes": line.min_nodes,
                "max_nodes": line.max_nodes,
                "max_walltime": line.max_walltime,
                "max_submitted": line.max_submitted,
                "source": f"{line.source}, {now()[:10]}",
            }
            self._put(f"  {_flow(line.name)}", {key: value for key, value in limits.items() if value is not None})
            notes = [f"closed to you: {line.barred}"] if line.barred else []
            for note in (*notes, *(note for note in line.notes if not line.barred.startswith(note))):
                self._note(f"{line.name}: {note}", indent=2)
        for line in lines:
            if why := self._why_left_out(line):
                self._note(f"{line.name} is left out {why}", indent=2 if alike else 0)
        default = listed[0] if listed else self._queue
        if default and default.max_walltime:
            usual = min(Duration.parse(default.max_walltime), Duration.parse("2h"))
            self._put(
                "walltime", str(usual), "default for studies without a walltime; shorter jobs start sooner", sure=False
            )

    def _why_left_out(self, line: QueueFacts) -> str:
        """Return why a queue is omitted from the file, or an empty string if the file contains the queue."""
        if not line.open:
            return "(closed)"
        if not re.fullmatch(LABEL, line.name):
            return "(not a valid queue name in a site file: use at most 128 letters, digits and . _ : / @ + -)"
        kind = line.kind()
        if line is self._queue or kind is None or kind.shape == self._nodes.shape:
            return ""
        return f"(other nodes: {'; '.join(map(str, line.nodes)) or 'unseen'}); a site file describes one kind of node"

    def _node(self) -> None:
        nodes = self._nodes
        where = _TOLD_BY[self._cluster.kind]
        cores, sockets, by_socket = _fitting(nodes)
        of = f"of {self._queue.name}: " if self._queue and self._queue.name else ""
        self._lines.append(f"{'node:':{_COLUMN}}# {_clean(of)}{_clean(str(nodes))}")
        certain = nodes.gpus is not None and not nodes.doubt
        seen = where if nodes.gpus is not None else "unseen"
        self._put("  gpus", nodes.gpus or 0, ": ".join(filter(None, (seen, nodes.doubt))), sure=certain)
        if nodes.gpu:
            self._put("  gpu", nodes.gpu, f"{where}: the full name, such as NVIDIA H100, helps readers")
        if nodes.gpu_memory_gb:
            self._put("  gpu_memory_gb", nodes.gpu_memory_gb, where)
        elif nodes.gpus:
            self._note("gpu_memory_gb: ?   # fill in: no scheduler reports it", indent=2)
        if self._cluster.kind == "local":
            self._put("  cores", "auto", "counted when a study is submitted")
        elif nodes.cores:
            self._put("  cores", cores, f"{where}; subtract cores that are reserved for the system", sure=False)
        else:
            self._put("  cores", cores, "not detected: give the cores of a compute node that jobs may use", sure=False)
        certain = nodes.sockets is not None and sockets == nodes.sockets
        self._put("  sockets", sockets, where if certain else "not detected: run lscpu on a compute node", sure=certain)
        if by_socket:
            how = (
                where
                if by_socket == nodes.socket_gpus
                else "the GPUs do not divide evenly among the sockets; run nvidia-smi topo -m on a compute node"
            )
            self._put("  socket_gpus", list(by_socket), how, sure=by_socket == nodes.socket_gpus)
        if nodes.threads:
            self._put("  threads_per_core", nodes.threads, f"{where}: as the scheduler counts them")
        if nodes.memory_gb:
            self._put("  memory_gb", nodes.memory_gb, where)

    def _launcher(self) -> None:
        kind, args, source = launcher(self._cluster.kind)
        start: dict[str, Any] = {"kind": kind}
        if args:
            start["args"] = args
        self._put("launcher", start, source, sure=False)
        nodes = self._nodes
        if nodes.gpus:
            self._note(
                "launcher.visibility: one or all; all allows direct copies between GPUs of a node, which changes "
                "results"
            )
        if not nodes.gpus:
            self._put("device", "cpu", "no GPUs were detected", sure=False)
        elif is_amd(nodes.gpu):
            why = (
                "hpcbench's own training needs CUDA; for a study of your own program on these GPUs, write cuda, so "
                "that jobs request them (docs/how-to/amd.md)"
            )
            self._put("device", "cpu", why, sure=False)
        else:
            why = "the nodes have GPUs; write cpu to measure without them, or if they are by AMD (docs/how-to/amd.md)"
            self._put("device", "cuda", why if not nodes.gpu else why.partition(", or")[0], sure=False)
        aware = os.environ.get("MPICH_GPU_SUPPORT_ENABLED")
        why = f"MPICH_GPU_SUPPORT_ENABLED is {_clean(aware)} here; " if aware else ""
        self._put(
            "gpu_aware_mpi", None, f"{why}unknown, which counts as no; each run's log contains what its ranks detected"
        )

    def _ranks(self) -> None:
        """Write the number of ranks per node if one rank per GPU or core does not fit on the detected node."""
        site = Site.model_validate(parse_value("\n".join([*self._lines, "checked: never"]), "draft"))
        usual = site.capacity.ranks_per_node
        if usual is not None and not _fits(site, usual):
            most = next((ranks for ranks in range(usual - 1, 0, -1) if _fits(site, ranks)), 1)
            self._put("ranks_per_node", most, f"{usual} ranks do not fit on the detected node", sure=False)

    def _environment(self) -> None:
        loaded = loaded_modules()
        modules = of_interest(loaded)
        if modules:
            self._put("modules", modules, "selected from the modules loaded here", sure=False)
        else:
            self._note("modules: [...]   # fill in if the MPI library or Python comes from modules")
        others = [name for name in loaded if name not in modules]
        if others:
            self._note(f"also loaded here: {', '.join(others)}")
        self._note("environment: {NAME: value}   # fill in what the site recommends for MPI and its network")
        python = "auto" if self._cluster.kind == "local" else sys.executable
        self._put(
            "python",
            python,
            "this interpreter runs hpcbench here; it must also exist on compute nodes, with mpi4py and torch",
            sure=False,
        )
        if self._cluster.kind != "local":
            self._note(
                "work: /a/parallel/file/system   # fill in if compute nodes cannot write to the directory in which you "
                "run hpcbench"
            )

    def _put(self, key: str, value: Any, source: str = "", *, sure: bool = True) -> None:
        text = f"{key}: {_flow(value)}"
        comment = f"{'' if sure else 'CHECK: '}{_clean(source)}" if source or not sure else ""
        if not comment:
            self._lines.append(text)
        elif len(text) < _COLUMN and _COLUMN + 2 + len(comment) <= _WIDTH:
            self._lines.append(f"{text:{_COLUMN}}# {comment}")
        else:
            self._note(comment, indent=len(key) - len(key.lstrip()))
            self._lines.append(text)

    def _note(self, text: str, indent: int = 0) -> None:
        prefix = " " * indent + "# "
        self._lines += textwrap.wrap(
            _clean(text),
            _WIDTH,
            initial_indent=prefix,
            subsequent_indent=prefix,
            break_long_words=False,
            break_on_hyphens=False,
        )


def _flow(value: Any) -> str:
    """Format a value as single-line YAML, without quotes if possible."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {_flow(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_flow, value)) + "]"
    plain = isinstance(value, str) and re.fullmatch(r"-{0,2}[A-Za-z/][A-Za-z0-9_./-]*", value)
    if plain and value.lower() not in ("true", "false", "null", "yes", "no", "on", "off"):
        return str(value)
    return json.dumps(_clean(value) if isinstance(value, str) else value)


def _clean(text: str) -> str:
    return "".join(c if c.isprintable() else " " for c in text)


def _plain(name: str) -> str:
    cleaned = re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-._")[:64]
    return cleaned or "here"


def _fits(site: Site, ranks: int) -> bool:
    try:
        solve(site, nodes=1, ranks_per_node=ranks)
    except ValueError:
        return False
    return True


def _fitting(nodes: Nodes) -> tuple[int, int, tuple[int, ...] | None]:
    """Return consistent numbers of cores, sockets and GPUs per socket. Inconsistent site files are refused."""
    cores, gpus = nodes.cores or max(1, nodes.gpus or 0), nodes.gpus or 0
    sockets = nodes.sockets if nodes.sockets and nodes.sockets <= cores else 1
    if nodes.socket_gpus and len(nodes.socket_gpus) == sockets and sum(nodes.socket_gpus) == gpus:
        even = len(set(nodes.socket_gpus)) == 1
        return cores, sockets, None if even else nodes.socket_gpus
    each, remainder = divmod(gpus, sockets)
    return cores, sockets, (*[each] * (sockets - 1), each + remainder) if remainder else None


def _nodes_here() -> Nodes:
    gpus = gpus_here()
    memory = max((gpu.memory_gb or 0 for gpu in gpus.gpus), default=0)
    model = " and ".join(dict.fromkeys(gpu.model for gpu in gpus.gpus)) or None
    return Nodes(1, gpus=len(gpus.gpus), gpu=model, gpu_memory_gb=memory or None, cores=len(os.sched_getaffinity(0)))
