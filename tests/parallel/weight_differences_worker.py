"""Worker that gathers differences of weights on two replicas, and prints JSON lines.

The arguments are names of functions of this module.
"""

import sys
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from gradient_schemes_worker import WORLD, predict, run_with, tell, train
from planting import Patch, list_faults
from torch import Tensor, nn

from hpcbench.comm.policy import Policy
from hpcbench.comm.progress import Progress
from hpcbench.comm.wait import Wait
from hpcbench.contract.layout import Layout
from hpcbench.contract.rule import Rule
from hpcbench.contract.scheme import Scheme
from hpcbench.parallel import differences
from hpcbench.parallel.adamw import AdamW
from hpcbench.parallel.buckets import Bucket
from hpcbench.parallel.exact import digest
from hpcbench.parallel.mesh import Mesh
from hpcbench.parallel.pieces import Piece, make_piece
from hpcbench.parallel.sharding import Held, Shard
from hpcbench.parallel.weights import GatheredAfterStep

N, BLOCK, STEPS = 200, 32, 40
CODEC = f"int4:{BLOCK}"
RULE = Rule(dimension="ZERO", codec=CODEC, differences=True)


def trained() -> None:
    """Train with encoded weights and with encoded differences."""
    for settings in ({"zero": 1}, {"zero": 2}, {"zero": 1, "precision": "bf16", "overlap": False}):
        errors, sent = [], []
        for rule in (RULE.changed(differences=False), RULE):
            run = run_with(rule, **settings)
            trainer, bytes_of_steps, _ = train(run)
            errors.append(max(_lag(piece) for piece in trainer.data_parallel.pieces))
            sent.append(bytes_of_steps)
        predicted = [predict(run, step) for step in range(len(sent[0]))]
        tell(test="trained", settings=settings, errors=errors, sent=sent, predicted=predicted)


def _lag(piece: Piece) -> float:
    """Return the relative difference between the weights and the master weights."""
    return float((piece.bucket.values[piece.owned].float() - piece.master).norm() / piece.master.norm())


def recursion() -> None:
    """Gather a random walk of weights, and compare all weights with a model in NumPy."""
    mesh = Mesh(WORLD.Dup(), Layout(dp=2), Progress(Wait.GIVE_WAY))
    for dtype in ("float32", "bfloat16"):
        tell(test="recursion", fault=None, dtype=dtype, **_walk(mesh, getattr(torch, dtype)))
    for name, fault in FAULTS_OF_DIFFERENCES.items():
        with fault():
            tell(test="recursion", fault=name, dtype="float32", **_walk(mesh, torch.float32))


def _walk(mesh: Mesh, dtype: torch.dtype) -> dict[str, Any]:
    initial = torch.randn(N, generator=torch.Generator().manual_seed(1)).to(dtype)
    bucket = Bucket([Held(nn.Parameter(initial), Shard("w", (N,)))], 2)
    piece = make_piece(bucket, AdamW(0.9, 0.95, 1e-8, 0.0), part=WORLD.rank, parts=2, feedback=False)
    weights = GatheredAfterStep(mesh, Policy(Scheme(algorithm="two-shot", rules=[RULE])), overlap=False)
    masters = bucket.values.float().numpy()  # with padding
    reference = masters.copy()
    same, errors = True, []
    for step in range(STEPS):
        seed = torch.Generator().manual_seed(100 + step)
        masters = masters.copy()
        masters[:N] += 1e-2 * torch.randn(N, generator=seed).numpy()
        piece.master.copy_(torch.from_numpy(masters)[piece.owned])
        weights.give(piece, piece.master)
        weights.settle()
        changes = np.concatenate([_code(part) for part in np.split(_round(masters, dtype) - reference, 2)])
        reference = _round(reference + changes, dtype)
        same = same and np.array_equal(bucket.values.float().numpy(), reference)
        errors.append(float(np.linalg.norm(bucket.values.double().numpy() - masters) / np.linalg.norm(masters)))
    return {"same": same, "errors": errors, "digest": digest([bucket.values.clone()])}


def _round(values: Any, dtype: torch.dtype) -> Any:
    return torch.from_numpy(values).to(dtype).float().numpy()


def _code(values: Any) -> Any:
    """Encode and decode one message with 4-bit integers and one scale per block, in float32."""
    decoded = np.zeros_like(values)
    for start in range(0, values.size, BLOCK):
        block = values[start : start + BLOCK]
        top = np.abs(block).max()
        levels = np.rint(block * (np.float32(7) / top)) if top else block
        decoded[start : start + BLOCK] = levels * (top / np.float32(7))
    return decoded


# ---------------------------------------------------------------- planted faults


def reference_not_updated() -> Patch:
    """Every difference is relative to the initial weights, as if the reference were never updated."""
    initial: dict[int, Tensor] = {}
    subtract, add = differences.subtract, differences.add

    def from_initial(source: Tensor, piece: Piece) -> Tensor:
        initial.setdefault(id(piece), piece.bucket.values.clone())
        piece.bucket.values.copy_(initial[id(piece)])
        return subtract(source, piece)

    return patch.multiple(differences, subtract=from_initial, add=add)


def exact_at_the_owner() -> Patch:
    """The owner adds its exact difference, so its weights differ from those of the other replicas."""
    subtract, add = differences.subtract, differences.add
    exact_changes: dict[int, Tensor] = {}

    def remember(source: Tensor, piece: Piece) -> Tensor:
        exact_changes[id(piece)] = subtract(source, piece)
        return exact_changes[id(piece)].clone()

    def exact(piece: Piece, changes: Tensor) -> None:
        changes[piece.owned] = exact_changes[id(piece)]
        add(piece, changes)

    return patch.multiple(differences, subtract=remember, add=exact)


def errors_accumulate() -> Patch:
    """Differences are relative to the previous master weights, so the errors of all messages add up."""
    before: dict[int, Tensor] = {}

    def from_masters(source: Tensor, piece: Piece) -> Tensor:
        held = before.get(id(piece), piece.bucket.values[piece.owned])
        before[id(piece)] = source.clone()
        return source - held

    return patch.object(differences, "subtract", from_masters)


FAULTS_OF_DIFFERENCES = list_faults(reference_not_updated, exact_at_the_owner, errors_accumulate)


if __name__ == "__main__":
    for name in sys.argv[1:]:
        globals()[name]()
