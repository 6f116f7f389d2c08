"""NCCL checks: version, transport, GPUDirect, and all-reduce rate relative to the nominal link rate."""

import re
import shlex

from hpcbench.batch.schedulers.attempt import attempt
from hpcbench.batch.sites.site import Site
from hpcbench.doctor.check import Check, report_missing, report_ok, report_unknown
from hpcbench.doctor.job_shell import in_job, job_environment
from hpcbench.doctor.ranks import PATIENCE, last_error, rank_command

OLDEST = (2, 27)
"""Oldest NCCL version supported by PyTorch 2.13."""
FRACTION = 0.5
"""Fraction of the nominal link rate below which an all-reduce is reported as slow."""


def check_nccl(site: Site, *, run: bool, alone: bool = True) -> list[Check]:
    """Test NCCL with two ranks on a node, if the site has GPUs.

    Parameters
    ----------
    run, alone
        As in `hpcbench.doctor.ranks.check_world`.
    """
    if site.device != "cuda":
        return []
    needed = site.transport == "nccl"
    if (site.scheduler.kind != "local" or not alone) and not run:
        return [
            report_unknown("NCCL", "not tried on a cluster's login node", "start two ranks with hpcbench doctor --run")
        ]
    try:
        with rank_command(site, 2) as command:
            argv = [*command, "-m", "hpcbench.doctor.nccl_probe"]
            answer = attempt(in_job(site, argv), seconds=PATIENCE, env=job_environment())
    except ValueError as error:
        return [report_unknown("NCCL", f"two ranks do not fit on a node of the site: {error}")]
    facts = dict(re.findall(r"^nccl (\w+)=(.+)$", answer.out, re.MULTILINE))
    if "rate" not in facts:
        if answer.present and answer.status is None:
            remedy = "check that the ranks see the GPUs, and that NCCL_SOCKET_IFNAME is correct"
            return [report_unknown("NCCL", f"{shlex.join(argv)}: {answer.problem}", remedy, needed=needed)]
        fact = last_error(answer.err) or answer.problem or "the ranks printed nothing"
        remedy = "pip install cupy-cuda13x nvidia-nccl-cu13 (CUDA 12: cupy-cuda12x nvidia-nccl-cu12)"
        return [report_missing("NCCL", fact, remedy, needed=needed)]
    return [
        _version(facts.get("version", ""), needed=needed),
        _interface(facts),
        _gpu_direct(facts),
        _rate(site, facts),
    ]


def _version(version: str, *, needed: bool) -> Check:
    parts = tuple(int(part) for part in version.split(".") if part.isdigit())
    if parts < OLDEST:
        remedy = "install a newer nvidia-nccl-cu12 or nvidia-nccl-cu13"
        return report_missing("NCCL", f"{version}, older than {'.'.join(map(str, OLDEST))}", remedy, needed=needed)
    return report_ok("NCCL", version, needed=needed)


def _interface(facts: dict[str, str]) -> Check:
    name = "NCCL interface"
    ways = f"; two ranks exchange messages via {facts['ways']}" if "ways" in facts else ""
    if "interface" not in facts:
        return report_unknown(name, f"NCCL's log names no interface{ways}")
    if "NET/Socket" in ways:
        remedy = "messages use sockets: NCCL found no InfiniBand or other plugin; see NCCL_IB_HCA and NCCL_NET"
        return report_unknown(name, f"{facts['interface']}{ways}", remedy)
    return report_ok(name, f"{facts['interface']}{ways}")


def _gpu_direct(facts: dict[str, str]) -> Check:
    name = "GPUDirect RDMA"
    if facts.get("gpudirect") == "yes":
        return report_ok(name, "used between the ranks")
    if facts.get("gpudirect") == "no":
        return report_missing(
            name, "messages pass through host memory", "load nvidia-peermem, or use a kernel with DMA-BUF"
        )
    return report_unknown(name, "the two ranks are on one node, and use no network between them")


def _rate(site: Site, facts: dict[str, str]) -> Check:
    """Compare the all-reduce rate with the nominal network rate, if the ranks use the network."""
    name, rate = "NCCL all-reduce", float(facts["rate"])
    fact = f"{rate / 1e9:.3g} GB/s, two ranks, 64 MiB"
    if facts.get("shared"):
        return report_unknown(name, f"{fact}; both ranks share one GPU, so this is not the rate of a link")
    if "NET/" not in facts.get("ways", ""):
        return report_ok(name, f"{fact}, within a node")
    nominal = site.network.bandwidth_gbit if site.network else None
    if nominal is None:
        return report_unknown(name, fact, "add network.bandwidth_gbit to the site file to compare this rate")
    share = rate * 8 / (nominal * 1e9)
    fact = f"{fact}: {share:.0%} of the link's {nominal:g} Gbit/s"
    if share < FRACTION:
        return report_missing(name, fact, "check the interface above, and GPUDirect RDMA")
    return report_ok(name, fact)
