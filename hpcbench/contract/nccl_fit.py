"""Constraints of NCCL: on runs that use it as the message transport, and on schemes for programs that use it."""

from typing import Literal

from hpcbench.codecs import spec
from hpcbench.contract.layout import Layout
from hpcbench.contract.scheme import NamedScheme, Scheme
from hpcbench.contract.section import Misfit
from hpcbench.contract.training import UNFLUSHED, Train

VARIABLE = ("mpc", "xpk", "threshold", "rowsparse")
"""Codec families with variable message sizes."""


def find_nccl_misfit(
    train: Train, layout: Layout, scheme: NamedScheme, device: Literal["cpu", "cuda"]
) -> Misfit | None:
    """Return the first constraint of the nccl transport that a run violates, or None if it satisfies all.

    Features without NCCL support are refused. Otherwise, traffic that silently uses MPI would be compared with traffic
    over NCCL.
    """
    if train.transport != "nccl":
        return None
    path = ("train", "transport")
    if device == "cpu":
        return Misfit(
            path, "nccl sends only arrays on GPUs, but the device is cpu: use mpi, or a site with device cuda"
        )
    if train.schedule in UNFLUSHED and layout.pp > 1:
        return Misfit(
            path,
            f"schedule {train.schedule} sends headers with its activations, in an order that NCCL cannot keep without "
            "tags: use mpi, or schedule 1f1b",
        )
    if train.sync != "all-reduce":
        return Misfit(
            path,
            f"the parameter server of sync {train.sync} receives from any rank, which NCCL cannot do: use mpi, or sync "
            "all-reduce",
        )
    if train.offload:
        return Misfit(
            path, "nccl does not reach the host memory that train.offload uses: use mpi, or set offload to false"
        )
    if scheme.algorithm == "auto":
        return Misfit(
            path,
            f"algorithm auto of scheme {scheme.name} chooses by measured times, which do not exist for nccl: use mpi, "
            "or a scheme with algorithm encoded",
        )
    for rule in scheme.all_rules:
        if spec.parse(rule.codec).family in VARIABLE:
            return Misfit(
                path,
                f"nccl needs the sizes of messages before they arrive, but with codec {rule.codec} of scheme "
                f"{scheme.name} the sizes vary: use mpi, or another codec",
            )
    return None


def explain_exact_calls(scheme: Scheme) -> str:
    """Return why calls of a program over NCCL stay exact with a scheme, or an empty string if all may be encoded."""
    if scheme.algorithm == "auto":
        return "algorithm auto encodes no call, because it has no measured speeds of NCCL: use algorithm: encoded"
    if scheme.algorithm not in ("encoded", "two-shot"):
        return f"algorithm {scheme.algorithm} encodes no call: use algorithm: encoded"
    varying = [rule.codec for rule in scheme.all_rules if spec.parse(rule.codec).family in VARIABLE]
    if varying:
        return f"calls with codec {varying[0]} stay exact, because its messages vary in size: use a codec of fixed size"
    if any(rule.between_nodes for rule in scheme.all_rules):
        return "calls with a rule for between_nodes stay exact: use a rule without it"
    return ""
