"""Worker that compares attention over two and four ranks with dense attention in one process.

The worker prints one JSON line per case.
"""

import json
from collections.abc import Iterator
from contextlib import nullcontext
from itertools import product
from unittest.mock import patch

import context_faults
import torch
from attention_cases import FAULTS, A, B, D, M, dense, random
from mpi4py import MPI

from hpcbench.comm.group import Group
from hpcbench.comm.policy import Policy
from hpcbench.comm.progress import Progress
from hpcbench.comm.relay import Relay
from hpcbench.comm.wait import Wait
from hpcbench.contract.scheme import Scheme
from hpcbench.parallel.context.attention import WAYS
from hpcbench.parallel.context.passing import Homeward, Sharers, go_round

WORLD = MPI.COMM_WORLD


def groups() -> Iterator[Group]:
    """Yield this rank's groups of two and four ranks, with and without background progress."""
    for ranks, overlap in product((2, 4), (False, True)):
        yield Group(WORLD.Split(WORLD.rank // ranks), Progress(Wait.GIVE_WAY, background=overlap))


def errors(way: str, ranks: Sharers, *, causal: bool, dtype: torch.dtype) -> dict[str, float]:
    """Return the relative errors of the output and of the gradients, each the maximum over the ranks."""
    attention, order = WAYS[way]  # type: ignore[index]
    group = ranks.group
    places = order(M, group.rank, group.size)
    full = [random(B, A, M * group.size, D, seed=seed).requires_grad_() for seed in range(3)]
    upstream = random(B, A, M * group.size, D, seed=3)
    expected = dense(*full, causal=causal)
    expected.backward(upstream)  # type: ignore[no-untyped-call]
    local = [x.detach()[:, :, places].to(dtype).requires_grad_() for x in full]
    result = attention(*local, ranks, causal=causal)
    result.backward(upstream[:, :, places].to(dtype))
    pairs = {"result": (result.detach(), expected.detach())}
    pairs |= {name: (x.grad, y.grad) for name, x, y in zip("qkv", local, full, strict=True)}
    results = {
        name: float((mine.double() - theirs[:, :, places]).norm() / theirs[:, :, places].norm())
        for name, (mine, theirs) in pairs.items()
    }
    return {name: max(WORLD.allgather(error)) for name, error in results.items()}


def say(**fields: object) -> None:
    if WORLD.rank == 0:
        print(json.dumps(fields), flush=True)


def attention() -> None:
    """Check all methods against dense attention.

    All group sizes are checked, with and without a causal mask, and with the collectives of MPI and of hpcbench.
    """
    for group in groups():
        overlap = group._own.progress.background
        scheme = Scheme(algorithm="encoded" if overlap else "native")
        for way, causal in product(WAYS, (True, False)):
            ranks = Sharers.of(group, Policy(scheme), overlap=overlap)
            case = {"way": way, "ranks": group.size, "overlap": overlap, "causal": causal}
            say(scene="attention", **case, errors=errors(way, ranks, causal=causal, dtype=torch.float64))
            sent = [ranks.forward.counters.message_bytes, ranks.backward.counters.message_bytes]
            say(scene="bytes", **case, sent=WORLD.allgather(sent))
            if causal and group.size == 4 and overlap:
                ranks = Sharers.of(group, Policy(Scheme(algorithm="encoded", default="mpc")), overlap=True)
                say(scene="lossless", **case, errors=errors(way, ranks, causal=True, dtype=torch.float64))
                ranks = Sharers.of(group, Policy(scheme), overlap=True)
                say(scene="half", **case, errors=errors(way, ranks, causal=True, dtype=torch.bfloat16))


def faulty() -> None:
    group = Group(WORLD.Dup(), Progress(Wait.GIVE_WAY))
    for way, faults in FAULTS.items():
        for fault in faults:
            ranks = Sharers.of(group, Policy(Scheme(algorithm="native")), overlap=False)
            with context_faults.FAULTS[fault]():
                say(scene="fault", way=way, fault=fault, errors=errors(way, ranks, causal=True, dtype=torch.float64))


def blocks(ranks: Sharers) -> list[list[list[float]]]:
    """Return the decoded values of each block, indexed by the owner and then by the rank that decodes."""
    own_block = random(1000, seed=WORLD.rank).float()
    seen = {source: block.clone().tolist() for source, block in go_round(own_block, ranks)}
    everyones = WORLD.allgather([seen[source] for source in range(WORLD.size)])
    return [[rank[source] for rank in everyones] for source in range(WORLD.size)]


def passed_on() -> None:
    """Check that a lossy codec yields the same decoded block on all ranks except the owner, on every path."""
    group = Group(WORLD.Dup(), Progress(Wait.GIVE_WAY))
    for codec, anew in (("zfp:4", False), ("zfp:4", True), ("none", False)):
        ranks = Sharers.of(group, Policy(Scheme(algorithm="encoded", default=codec)), overlap=False)
        with patch.object(Relay, "keep", lambda self, message, memory: None) if anew else nullcontext():
            blocks_seen = blocks(ranks)
        alike = all(
            rank == others[0] for owner in range(4) if (others := without(blocks_seen[owner], owner)) for rank in others
        )
        exact = all(rank == blocks_seen[owner][owner] for owner in range(4) for rank in blocks_seen[owner])
        counters = ranks.forward.counters
        sizes = [counters.calls, counters.message_bytes, counters.wire_bytes, counters.coded_bytes]
        say(scene="passed on", codec=codec, anew=anew, alike=alike, exact=exact, sizes=sizes)


def without(items: list[list[float]], index: int) -> list[list[float]]:
    return items[:index] + items[index + 1 :]


def homeward() -> None:
    """Check that the owner of a block receives the contributions of all ranks.

    Each rank adds 10^source x (rank + 1) to the block of `source`, so each digit of the sum identifies a rank.
    """
    group = Group(WORLD.Dup(), Progress(Wait.GIVE_WAY))
    ranks = Sharers.of(group, Policy(Scheme(algorithm="native")), overlap=False)
    home = Homeward(ranks, torch.zeros(3))
    for hop in range(WORLD.size):
        source = (WORLD.rank - hop) % WORLD.size
        home.add(torch.full((3,), 10.0**source * (WORLD.rank + 1)))
    say(scene="homeward", found=WORLD.allgather(home.at_home().tolist()))


if __name__ == "__main__":
    attention()
    faulty()
    passed_on()
    homeward()
