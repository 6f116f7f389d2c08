"""Draft of a site's scheduler section for an LSF cluster."""

import re
import shutil

from hpcbench.batch.schedulers.cluster import Nodes, Sighting
from hpcbench.batch.schedulers.lsf_cluster import list_bsub_options, list_hosts, list_queues, read_parameters
from hpcbench.doctor.cluster import Cluster, Said

_SPARED = ("-wa", "-wt", "-rn", "-cwd", "-ti")
"""Optional job script options that some LSF variants lack."""


def survey(seen: Sighting) -> Cluster:
    """Survey queues, hosts, and limits."""
    cluster = Cluster("lsf", seen.fact, seen.name)
    hosts = _hosts(cluster)
    parameters = read_parameters()
    lrun, jsrun = shutil.which("lrun"), shutil.which("jsrun")  # these launchers request whole nodes
    cluster.queues, problem = list_queues(hosts, parameters.default_queue, slots=not (lrun or jsrun))
    if problem:
        cluster.notes.append(f"queues are unknown: {problem}")
    if parameters.max_array:
        cluster.scheduler["max_array"] = Said(parameters.max_array, "bparams: MAX_JOB_ARRAY_SIZE")
    else:
        cluster.notes.append(
            "bparams prints no MAX_JOB_ARRAY_SIZE (LSF's default is 1000): job arrays are used only if max_array is set"
        )
    refused = _refused(cluster)
    if parameters.reserves_per_task:
        cluster.notes.append(
            "bparams: with RESOURCE_RESERVE_PER_TASK=Y, -gpu num= counts for each slot: set gpu_request: none and "
            'directives: {-gpu: "num=N/host:j_exclusive=yes"}, where N is the number of GPUs of a node'
        )
    if refused:
        cluster.scheduler["refuses"] = Said(refused, "bsub -h does not list these options", sure=False)
    _request(cluster, lrun, jsrun)
    return cluster


def _refused(cluster: Cluster) -> list[str]:
    """Return the job script options that are missing in bsub's help text."""
    listed = list_bsub_options()
    if not listed:
        cluster.notes.append(
            "bsub -h lists no options: if LSF refuses jobs because of -wa, -wt, -rn, -cwd or -ti, add the option to "
            "`refuses` in the site file"
        )
        return []
    return [option for option in _SPARED if option not in listed]


def _request(cluster: Cluster, lrun: str | None, jsrun: str | None) -> None:
    """Set how jobs request accounts, nodes, and GPUs."""
    option = (
        Said("-G", f"{lrun} is LLNL's launcher, and LSF at LLNL charges a group", sure=False)
        if lrun
        else Said("-P", "LSF charges a project at most sites; LSF at LLNL uses -G", sure=False)
    )
    cluster.scheduler["account_option"] = option
    if jsrun or lrun:
        cluster.scheduler["allocation"] = Said(
            "nodes", f"{jsrun or lrun} is part of IBM's job step manager, so -nnodes requests whole nodes"
        )
        return
    cluster.scheduler["allocation"] = Said(
        "slots", "jsrun is not on PATH, so -n and span[ptile=] request slots", sure=False
    )
    chosen = cluster.chosen()
    kind = chosen.kind() if chosen else None
    if kind and kind.gpus:
        cluster.scheduler["gpu_request"] = Said(
            "gpu", "lshosts -gpu lists GPUs, so bsub -gpu requests them", sure=False
        )
    if chosen and re.search(r"\bEXCLUSIVE\b", chosen.sharing):
        cluster.scheduler["directives"] = Said(
            {"-x": None}, "bqueues -l: the queue is EXCLUSIVE, so -x requests exclusive hosts"
        )
    elif chosen:
        cluster.notes.append(
            "bqueues -l: the queue is not EXCLUSIVE, so -x is refused, and other jobs may share the hosts"
        )


def _hosts(cluster: Cluster) -> list[Nodes]:
    hosts, in_slices, problem = list_hosts()
    if problem:
        cluster.notes.append(f"hosts are unknown: {problem}")
    if in_slices:
        number = "its GPUs are" if len(in_slices) == 1 else "their GPUs are"
        cluster.notes.append(
            f"lshosts -gpu: {', '.join(in_slices)}: {number} in MIG mode and not counted, because a job would get "
            "slices"
        )
    return hosts
