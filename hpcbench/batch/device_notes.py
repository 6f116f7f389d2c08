"""Notes of a dry run about the device of the ranks: unused GPUs, and schemes that the site's GPUs cannot run."""

from collections.abc import Sequence

from hpcbench.batch.sites.site import Site, is_amd
from hpcbench.contract.nccl_fit import explain_exact_calls
from hpcbench.contract.text import count_noun
from hpcbench.study.expand import ExpandedRun
from hpcbench.study.schema import ProgramStudy


def list_device_notes(runs: Sequence[ExpandedRun], site: Site) -> list[str]:
    """Return notes about GPUs that the jobs do not request, and about schemes that GPUs cannot run.

    Runs of the engine are refused elsewhere if the GPUs cannot run their scheme.
    """
    if not site.node.gpus:
        return []
    is_program = any(isinstance(run.study, ProgramStudy) for run in runs)
    if site.device == "cpu":
        gpus = count_noun(site.node.gpus, "GPU")
        if not is_program:
            return [f"ranks compute on CPUs (device: cpu in the site file), and do not use the {gpus} of a node"]
        return [
            f"jobs do not request the {gpus} of a node (device: cpu in the site file): if the program uses GPUs, also "
            "those of AMD, write device: cuda in your site file"
        ]
    schemes = {run.scheme_name: run.scheme for run in runs}
    encoding = {name: scheme for name, scheme in schemes.items() if scheme.algorithm != "native"}
    if encoding and is_amd(site.node.gpu):
        remedy = (
            "compare arguments, environment or another system (`hpcbench schemes`)"
            if is_program
            else "write device: cpu in the site file"
        )
        return [
            f"{', '.join(encoding)}: hpcbench's kernels need CUDA and were never run on GPUs by AMD, such as those of "
            f"{site.site}: {remedy}"
        ]
    return [] if not is_program else [f"{name}: {note}" for name in encoding for note in _list_nccl_notes(runs, name)]


def _list_nccl_notes(runs: Sequence[ExpandedRun], name: str) -> list[str]:
    """List why calls of a program stay exact with a scheme if the program communicates over NCCL."""
    example = next(run for run in runs if run.scheme_name == name)
    through_host = isinstance(example.study, ProgramStudy) and example.study.program.groups.cuda
    refusal = "" if through_host else explain_exact_calls(example.scheme)
    return [f"if the program uses NCCL, {refusal}"] if refusal else []
