"""Memory check of a study's runs before submission."""

from collections.abc import Sequence
from pathlib import Path

from hpcbench.batch.sites.site import Site
from hpcbench.errors import UserError
from hpcbench.predict import devices
from hpcbench.predict.memory import predict_memory, suggest_remedy
from hpcbench.predict.study_inputs import read_workload
from hpcbench.study.expand import ExpandedRun


def check_memory(runs: Sequence[ExpandedRun], site: Site, base: Path) -> None:
    """Reject a study if `hpcbench predict` reports that a run does not fit into memory.

    Studies are not rejected on sites without GPUs or with unknown GPU memory. Runs of other programs, whose models are
    unknown, and runs with settings that the model does not cover are skipped.

    Raises
    ------
    UserError
        A run does not fit into memory. The message suggests a remedy.
    """
    if site.device == "cpu":
        return
    device = devices.find_device(site.node.gpu or "", site.node.gpu_memory_gb)
    limit = device.memory_bytes if device else site.node.gpu_memory_gb and site.node.gpu_memory_gb * 1e9
    if not limit:
        return
    for run in runs:
        if run.repeat != 1:
            continue
        try:
            workload = read_workload(run, site, base, memory_only=True)
        except UserError:
            continue
        needed = predict_memory(workload, limit)
        if needed.fits is False:
            raise UserError(
                f"{run.where(('layout',))}: layout: run {run.id} needs {needed.bytes / 1e9:.1f} GB on rank "
                f"{needed.rank} ({needed.peak}), but a GPU of {site.site} has {limit / 1e9:.0f} GB: "
                f"{suggest_remedy(workload, needed)}"
            )
