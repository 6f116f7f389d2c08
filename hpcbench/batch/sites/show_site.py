"""Output of `hpcbench sites`: all sites, a single site, and site file faults."""

import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

from hpcbench.batch.scripts.launchers import solve
from hpcbench.batch.sites.check_site import check_file
from hpcbench.batch.sites.load_site import load_site, site_names
from hpcbench.batch.sites.site import Queue, Site
from hpcbench.console import show_table
from hpcbench.contract.text import count_noun
from hpcbench.errors import UserError
from hpcbench.files import shown_path
from hpcbench.resources import data_dir
from hpcbench.study.presets import is_scheme

_SEES = {"one": "its own GPU", "socket": "the GPUs of its socket", "all": "all GPUs of its node"}
_AWARE = {True: "yes", False: "no", None: "unknown"}


def show_sites() -> None:
    """Print the built-in sites."""
    for name in site_names():
        site, _ = load_site(name)
        retired = "; retired" if site.retired else ""
        schemes = f"; schemes: {', '.join(site.schemes)}" if site.schemes else ""
        facts = f"checked: {site.checked}{retired}{schemes}"
        print(f"{name:16s} {site.scheduler.kind:6s} {site.description or ''} ({facts})")


def check_sites(given: Sequence[str]) -> int:
    """Print all faults of site files or named sites. Return the exit status, 2 if there is a fault."""
    if not given:
        raise UserError("sites check: no file given: name the site files to check")
    status = 0
    for name in given:
        path = data_dir("sites") / f"{name}.yaml" if name in site_names() else Path(name)
        faults = check_file(path)
        print("\n".join(faults) if faults else f"{shown_path(path)}: valid{_note_interpreter(path)}")
        status = 2 if faults else status
    return status


def _note_interpreter(path: Path) -> str:
    """Return a note if the interpreter of a valid site file is missing on this machine."""
    python = load_site(str(path.absolute()))[0].python
    if "/" not in python or Path(python).expanduser().exists():
        return ""
    return f", but {shown_path(Path(python))} does not exist here: `python` must be a path on the compute nodes"


def show_site(name: str) -> None:
    """Validate a site file and print the site as a table."""
    from rich.table import Table
    from rich.text import Text

    site, document = load_site(name, "sites")
    table = Table(
        title=Text(f"{site.site}: {site.description or site.scheduler.kind}"),
        title_justify="left",
        show_header=False,
        box=None,
        pad_edge=False,
    )
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    before = None
    for head, text in (*_facts(site), ("file", document.name)):
        table.add_row("" if head == before else head, Text(text))
        before = head
    show_table(table)


def _facts(site: Site) -> Iterator[tuple[str, str]]:
    if site.retired:
        yield "retired", site.retired
    yield "scheduler", "; ".join(_scheduler(site))
    for name, queue in site.queues.items():
        yield "queues", f"{name}: {'; '.join(_queue(queue))}"
    if site.walltime:
        yield "walltime", f"{site.walltime} if a study sets none"
    yield "node", ", ".join(_node(site))
    if site.network:
        speed = [f"{site.network.bandwidth_gbit:g} Gbit/s per node"] if site.network.bandwidth_gbit else []
        delay = [f"{site.network.latency_us:g} us"] if site.network.latency_us else []
        yield "network", ", ".join([site.network.description, *speed, *delay])
    sees = f"; a rank sees {_SEES[site.visibility]}" if site.device == "cuda" else ""
    yield "launcher", f"{site.launcher.kind}{sees}"
    yield "GPU-aware MPI", _AWARE[site.gpu_aware_mpi]
    if site.device == "cuda":
        yield "transport", {"mpi": "MPI", "nccl": "NCCL"}[site.transport]
    unused = "; jobs request no GPUs, because device is cpu" if site.node.gpus else ""
    yield "runs on", "GPUs" if site.device == "cuda" else f"CPUs{unused}"
    yield ("launched" if site.scheduler.kind == "local" else "two nodes"), _example(site)
    for name, scheme in site.schemes.items():
        changes = f", with {scheme.process_changes}" if scheme.process_changes else ""
        preset = ", instead of the preset" if is_scheme(name) else ""
        yield "schemes", f"{name}: {scheme.algorithm}{changes}{preset}"
    if site.modules:
        yield "modules", ", ".join(site.modules)
    for name, value in site.environment.items():
        yield "environment", f"{name}={shlex.quote(value)}"
    yield from (("setup", line) for line in site.setup)
    yield from (("teardown", line) for line in site.teardown)
    yield "python", site.python
    yield from (("sources", source) for source in site.sources)
    yield "checked", site.checked


def _scheduler(site: Site) -> Iterator[str]:
    scheduler = site.scheduler
    yield scheduler.kind
    if scheduler.account_option:
        yield f"account by {scheduler.account_option}"
    if scheduler.queue_option:
        yield f"queue by {scheduler.queue_option}"
    if scheduler.kind == "lsf":
        yield {"nodes": "whole nodes by -nnodes", "slots": "slots by -n"}[scheduler.allocation]
        yield {"stdin": "bsub < script", "file": "bsub script"}[scheduler.hand_in]
    if scheduler.gpu_request != "none":
        yield f"GPUs by {scheduler.gpu_request}"
    if scheduler.max_array:
        yield f"arrays up to index {scheduler.max_array}"
    if scheduler.max_submitted:
        yield f"at most {count_noun(scheduler.max_submitted, 'job')} per user"
    if scheduler.refuses:
        yield f"refuses {', '.join(scheduler.refuses)}"
    for option, value in scheduler.directives.items():
        yield option if value is None else f"{option} {shlex.quote(str(value))}"


def _queue(queue: Queue) -> Iterator[str]:
    least, most = queue.min_nodes or 1, queue.most_nodes
    if most is not None:
        yield f"{least} to {most} nodes"
    elif least > 1:
        yield f"{least} nodes or more"
    if queue.bins:
        yield ", ".join(f"up to {b.max_nodes} nodes {b.max_walltime}" for b in queue.bins)
    if queue.max_walltime:
        yield f"at most {queue.max_walltime}"
    if queue.max_submitted:
        yield f"at most {count_noun(queue.max_submitted, 'job')} per user"
    yield queue.source or "no limits known"


def _node(site: Site) -> Iterator[str]:
    node = site.node
    if node.gpus:
        memory = f" with {node.gpu_memory_gb:g} GB" if node.gpu_memory_gb else ""
        lie = f" (by socket: {', '.join(map(str, node.socket_gpus))})" if node.socket_gpus else ""
        yield f"{node.gpus} x {node.gpu or 'GPU'}{memory}{lie}{', each for one process' if node.gpu_exclusive else ''}"
    here = " (counted here)" if node.cores == "auto" else ""
    sockets = f" on {node.sockets} sockets" if node.sockets > 1 else ""
    threads = f", {node.threads_per_core} threads per core" if node.threads_per_core > 1 else ""
    yield f"{node.usable_cores} usable cores{sockets}{threads}{here}"
    if node.cores_per_gpu:
        yield f"{node.cores_per_gpu} cores must be requested with each GPU"
    if node.memory_gb:
        yield f"{node.memory_gb:g} GB of memory"


def _example(site: Site) -> str:
    """Return the launch command for two nodes with the default ranks per node, as in a dry run."""
    nodes = 1 if site.scheduler.kind == "local" else 2
    shape, argv = solve(site, nodes=nodes, ranks_per_node=site.capacity.ranks_per_node or site.capacity.slots)
    return f"{shape}: {shlex.join(argv)} {shlex.quote(site.python)} ..."
