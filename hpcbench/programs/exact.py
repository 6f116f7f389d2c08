"""Reasons why a program's calls were not encoded, with possible remedies."""

from collections.abc import Sequence
from typing import Any

from rich.table import Table

from hpcbench.contract.scheme import Scheme
from hpcbench.programs.dimensions import remedy

PLAN = "plan"
"""Reason recorded for calls that `auto` left to PyTorch because PyTorch was faster."""
LOSSY = ("parameters", "functional gather", "outside backward")
"""Reasons recorded for calls that are exact unless `lossy` of the groups file names them."""
CUDA, TORCHCOMMS = "device cuda", "torchcomms"
"""Reasons recorded for GPU calls without a carrier."""

_REASONS: dict[str, tuple[str, str]] = {
    "operation": ("never encoded", ""),
    "type": ("not a 16- or 32-bit float type", ""),
    "complex": ("complex numbers", ""),
    "small": ("small", "min_bytes in a groups file, if larger calls are rare"),
    "one rank": ("one rank", "start more ranks"),
    "unknown group": ("the dimension of the group is unknown", ""),
    "exact group": ("dimension EXACT in the groups file", ""),
    "no codec": ("the scheme has no codec for this dimension", "a rule for this dimension in the scheme"),
    "outside backward": ("outside a backward pass", "lossy: [sums-outside-backward], if these are gradients"),
    "parameters": ("parameters", "lossy: [parameters], if checkpoints may be lossy"),
    "functional gather": ("may be a checkpoint", "lossy: [functional-gathers], if checkpoints may be lossy"),
    "not of data parallelism": ("not part of data parallelism", "layout in a groups file, if this is pipeline traffic"),
    CUDA: (
        "on a GPU, in a group without NCCL",
        "backend nccl, or cuda: true in a groups file (experimental): pip install cupy-cuda13x or cupy-cuda12x",
    ),
    TORCHCOMMS: (
        "sent by torchcomms, but only c10d's own NCCL is supported",
        "TORCH_DISTRIBUTED_USE_TORCHCOMMS=0",
    ),
    "point to point over nccl": ("messages between two ranks are not encoded over NCCL", ""),
    "variable size over nccl": (
        "the codec's messages vary in size, but NCCL requires a fixed size",
        "a codec of fixed size, such as int8:256, fp8e4m3 or zfp:8",
    ),
    "algorithm over nccl": ("over NCCL, two-shot is the only algorithm", "algorithm: encoded in the scheme"),
    "auto over nccl": ("auto has no measured speeds for NCCL", "algorithm: encoded in the scheme"),
    "between nodes over nccl": ("over NCCL, nodes are not distinguished", "a rule without between_nodes"),
    PLAN: ("PyTorch's collective is faster, or there is one node", ""),
    "between nodes": ("only plans of a group distinguish nodes", ""),
}
"""Reasons why calls were not encoded. Each reason has a description and a possible remedy."""


def explain(why: str) -> str:
    """Return the description of a reason."""
    return _REASONS.get(why, (why, ""))[0]


def is_idle(rows: Sequence[dict[str, Any]], scheme: Scheme) -> bool:
    """Return whether calls should have been encoded, but none was.

    Parameters
    ----------
    rows
        Counts written by the ranks.
    """
    if scheme.algorithm == "native" or any(row["codec"] for row in rows):
        return False
    return scheme.algorithm != "auto" or not any(row["why"] == PLAN for row in rows)


def state_idle(name: str, rows: Sequence[dict[str, Any]]) -> str:
    """Return a message for a run in which no call was encoded."""
    most = max(rows, key=lambda row: int(row["call_bytes"]), default=None)
    reason = f": most bytes were sent exactly ({explain(most['why'])})" if most else ""
    return f"no call was encoded, so scheme {name} has changed nothing{reason}"


def state_cuda(rows: Sequence[dict[str, Any]]) -> str | None:
    """Return a message if GPU calls were not encoded because they had no carrier, or None."""
    totals = {why: sum(int(row["call_bytes"]) for row in rows if row["why"] == why) for why in (CUDA, TORCHCOMMS)}
    parts = [f"{nbytes / 1e6:.3f} MB were {explain(why)}" for why, nbytes in totals.items() if nbytes]
    return f"tensors on GPUs were sent exactly: {'; '.join(parts)}" if parts else None


def list_lossy_remedies(rows: Sequence[dict[str, Any]]) -> list[str]:
    """Return a sentence for each kind of calls that a groups file could release for encoding.

    Calls that send less than a tenth of all bytes are left out.
    """
    total = sum(int(row["call_bytes"]) for row in rows)
    sentences = []
    for why in LOSSY:
        nbytes = sum(int(row["call_bytes"]) for row in rows if row["why"] == why)
        meaning, way_out = _REASONS[why]
        if nbytes and nbytes >= total / 10:
            sentences.append(
                f"{nbytes / 1e6:.3f} of {total / 1e6:.3f} MB were sent exactly ({meaning}): to encode them, give "
                f"--groups FILE with {way_out}"
            )
    return sentences


def tabulate_reasons(rows: Sequence[dict[str, Any]]) -> Table:
    """Return a table with one row per reason, in descending order of bytes."""
    totals: dict[tuple[str, str], tuple[int, int]] = {}
    for row in rows:
        meaning, way_out = _REASONS.get(row["why"], (row["why"], ""))
        if row["why"] == "unknown group":
            way_out = f"--groups FILE with {remedy(row['group'])}"
        calls, nbytes = totals.get((meaning, way_out), (0, 0))
        totals[meaning, way_out] = calls + int(row["calls"]), nbytes + int(row["call_bytes"])
    table = Table(box=None, pad_edge=False)
    table.add_column("exact because")
    table.add_column("calls", justify="right")
    table.add_column("MB", justify="right")
    table.add_column("what would change that")
    for (meaning, way_out), (calls, nbytes) in sorted(totals.items(), key=lambda total: -total[1][1]):
        table.add_row(meaning, str(calls), f"{nbytes / 1e6:.3f}", way_out)
    return table
