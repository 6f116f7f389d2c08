"""Model inputs from a site file and a study."""

from dataclasses import replace
from pathlib import Path

from hpcbench.batch.sites.site import Site
from hpcbench.contract import run as contract
from hpcbench.errors import UserError
from hpcbench.predict.devices import list_gpus
from hpcbench.predict.machine import Machine, make_cpu_machine, make_gpu_machine
from hpcbench.predict.program import ENGINE, TrainingProgram
from hpcbench.predict.workload import Workload, make_workload
from hpcbench.study.expand import ExpandedRun
from hpcbench.study.run import run_file


def describe_site(site: Site, ranks_per_node: int, ranks: int) -> Machine:
    """Return the machine model of a site.

    Parameters
    ----------
    ranks
        Number of ranks of the run. On a site without a scheduler, all nodes are on this machine, so all ranks share its
        cores.

    Raises
    ------
    UserError
        No table describes the site's GPU.
    """
    node, gbit = site.node, site.network.bandwidth_gbit if site.network else None
    if site.device == "cpu":
        nodes = 1 if site.scheduler.kind == "local" else -(-ranks // ranks_per_node)
        together = nodes * node.usable_cores
        memory_bytes = node.memory_gb * 1e9 / ranks_per_node if node.memory_gb else None
        machine = make_cpu_machine(
            site.site,
            cores=max(1, site.threads or together // ranks),
            memory_bytes=memory_bytes,
            node_gbit=gbit,
        )
        shared_cores = float(together) if ranks > together else None
        return replace(machine, shared_cores=shared_cores, oversubscribed=site.oversubscribe)
    # On nodes with four V100 GPUs on two sockets, the link between sockets is slower than NVLink.
    within = 32.0 if "V100" in (node.gpu or "") and node.sockets == 2 and ranks_per_node > node.gpus // 2 else None
    latency = site.network.latency_us * 1e-6 if site.network and site.network.latency_us else None
    gpu_machine = make_gpu_machine(
        node.gpu or "",
        memory_gb=node.gpu_memory_gb,
        node_gbit=gbit,
        latency_s=latency,
        within_gb_s=within,
    )
    if gpu_machine is None:
        raise UserError(
            f"{site.site}: node.gpu: {node.gpu!r} has no table of matrix products (GPUs with one: "
            f"{', '.join(list_gpus())}): measure the table with `hpcbench bench gemm`"
        )
    return gpu_machine


def read_workload(
    run: ExpandedRun, site: Site, base: Path, program: TrainingProgram = ENGINE, *, memory_only: bool = False
) -> Workload:
    """Return the workload of a study's run with a training program.

    Parameters
    ----------
    memory_only
        Whether only the memory use is predicted. Memory use is the same with every transport.

    Raises
    ------
    UserError
        The run has a setting that the model does not cover.
    """
    raw = run_file(
        run,
        site=site.site,
        threads=site.threads or 1,
        oversubscribe=site.oversubscribe,
        device=site.device,
        base=base,
        transport=site.transport,
    )
    if memory_only:
        raw["train"]["transport"] = None
    try:
        run_contract = contract.Run.model_validate(raw)
        return make_workload(run_contract, ranks_per_node=run.size.ranks_per_node, program=program)
    except ValueError as error:
        raise UserError(f"{run.where(('train',))}: {error}: predict the study without this setting") from None
