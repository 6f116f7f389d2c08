"""What the engine costs: a step on one rank beside a plain PyTorch loop, and data parallel steps beside PyTorch's DDP.

    python benchmarks/engine.py [--turns 9] [--steps 4] [--threads 1] [--ranks 4] [--only one|dp] [--tiny]

Everyone trains the same GPT from the same weights on the same samples, in fp32, with AdamW, clipping and the same
learning rates; the plain loop clips by torch.nn.utils.clip_grad_norm_ and steps torch.optim.AdamW, once as it is
(`foreach` where PyTorch chooses so) and once fused. DDP takes the fused one, speaks gloo over loopback, and has its
buckets as views; its hooks are PyTorch's fp16 compression and PowerSGD of rank 1, which has a single bucket. Losses
must agree to 1e-5 before anything is timed: other work would take other time. Schemes with a lossy codec, and the
hooks, are held to 5 %.

All live in the same processes and take turns of some steps, in rotated order; a turn takes as long as its slowest
rank. Times are medians over the turns, ratios are of these medians. Exit status 1 if a goal is missed.
"""

import argparse
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median, quantiles
from typing import Any

from rich.console import Console
from rich.table import Table

from hpcbench.console import columns
from hpcbench.train.config import Data, Layout, Model, Run, Scheme, SchemeRule, Train

MOST_OVERHEAD = 1.03
"""Of a step on one rank, beside the faster plain loop."""
AGREE, NEAR = 1e-5, 0.05
"""Relative differences of the losses: of exact contenders, and of lossy ones."""
CHECKED = 4
"""Steps after which the losses are compared; these are the warm-up, too."""


@dataclass(frozen=True)
class Size:
    """A model and how much of it a step computes."""

    name: str
    model: Model
    seq_len: int
    samples: int
    """A rank and step."""


def _model(layers: int, hidden: int, heads: int) -> Model:
    return Model(f"{layers}x{hidden}", layers, hidden, heads, 256, "rotary", 0.25, parallel_residual=True, tied=False)


COMPUTE = Size("compute", _model(4, 256, 4), 256, 4)
COMMUNICATION = Size("communication", _model(4, 384, 4), 32, 1)
TINY = Size("tiny", _model(2, 64, 4), 32, 2)

BASELINE = Scheme("baseline", "native", "none", [])
IDENTITY = Scheme("identity", "encoded", "none", [])
FP16, INT8, ZFP8 = (
    Scheme(name, "encoded", "none", [SchemeRule("DP", None, None, codec)])
    for name, codec in (("fp16", "fp16"), ("int8", "int8:256"), ("zfp8", "zfp:8"))
)


def run_of(size: Size, ranks: int, threads: int, scheme: Scheme = BASELINE, steps: int = 1000) -> Run:
    """A run of the engine; learning rates change too slowly for the number of steps to matter."""
    train = Train(
        steps=steps,
        warmup_steps=10,
        global_batch=ranks * size.samples,
        micro_batch=size.samples,
        seq_len=size.seq_len,
        precision="fp32",
        zero=0,
        seed=1,
        lr=1e-3,
        min_lr=1e-4,
        beta1=0.9,
        beta2=0.95,
        eps=1e-8,
        weight_decay=0.01,
        clip=1.0,
        bucket_mb=25.0,
        overlap=ranks > 1,
        eval_every=0,
        eval_samples=1,
    )
    return Run(
        schema=1,
        study="engine",
        site="local",
        run="engine",
        repeat=1,
        pairing="r1",
        cell={},
        model=size.model,
        data=Data("stdlib", None, 0.1),
        train=train,
        layout=Layout(dp=ranks),
        scheme=scheme,
        ranks=ranks,
        threads=threads,
        oversubscribe=ranks * threads > len(os.sched_getaffinity(0)),
        device="cpu",
        links=None,
    )


class Plain:
    """A loop such as anyone would write, around the engine's own model."""

    def __init__(self, run: Run, rank: int, corpus: Any, *, fused: bool, hook: str | None = None) -> None:
        import torch

        from hpcbench.train import initial
        from hpcbench.train.batches import Batches
        from hpcbench.train.model import GPT, loss

        train = run.train
        self._run, self._loss = run, loss
        with torch.device("meta"):
            model = GPT(run.model, train.seq_len)
        model = model.to_empty(device="cpu")
        for name, parameter in model.named_parameters():
            whole, shape = tuple(slice(0, n) for n in parameter.shape), tuple(parameter.shape)
            values = initial.values(name, shape, held=whole, config=run.model, seed=train.seed, dtype=torch.float32)
            parameter.data.copy_(values)
            parameter.requires_grad_()
        matrices = [p for p in model.parameters() if p.dim() > 1]
        vectors = [p for p in model.parameters() if p.dim() == 1]
        self._optimizer = torch.optim.AdamW(
            [{"params": matrices, "weight_decay": train.weight_decay}, {"params": vectors, "weight_decay": 0.0}],
            betas=(train.beta1, train.beta2),
            eps=train.eps,
            fused=fused or None,
        )
        self._model = distributed(model, hook) if run.ranks > 1 else model
        self._batches = Batches(
            corpus,
            seed=train.seed,
            seq_len=train.seq_len,
            global_batch=train.global_batch,
            micro_batch=train.micro_batch,
            rank=rank,
            size=run.ranks,
            device="cpu",
        )

    def step(self, k: int) -> float:
        """This rank's loss."""
        import torch

        from hpcbench.train.learning_rate import learning_rate

        (batch,) = self._batches.train(k)
        for group in self._optimizer.param_groups:
            group["lr"] = learning_rate(k, self._run.train)
        self._optimizer.zero_grad()
        loss = self._loss(self._model(batch.inputs), batch.targets)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self._model.parameters(), self._run.train.clip)
        self._optimizer.step()
        return float(loss.detach())


def distributed(model: Any, hook: str | None) -> Any:
    """DDP, perhaps with one of PyTorch's hooks."""
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
    from torch.nn.parallel import DistributedDataParallel

    # PowerSGD's later messages are sent by whichever thread of gloo is first: of two buckets ranks would mix them up
    limit = 1000 if hook == "powersgd" else None
    ddp = DistributedDataParallel(model, gradient_as_bucket_view=True, bucket_cap_mb=limit)
    if hook == "fp16":
        ddp.register_comm_hook(None, default_hooks.fp16_compress_hook)
    elif hook == "powersgd":
        state = powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=1, start_powerSGD_iter=2)
        ddp.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
    return ddp


@dataclass(frozen=True)
class Contender:
    """Who takes turns; `step` gives a part of the loss that the ranks' sum completes."""

    name: str
    step: Callable[[int], float]
    exact: bool


def contenders(size: Size, comm: Any, threads: int) -> list[Contender]:
    """All of one table, the reference first."""
    from hpcbench.comm.progress import Progress
    from hpcbench.comm.wait import Wait
    from hpcbench.train import text
    from hpcbench.train.trainer import Trainer

    run = run_of(size, comm.size, threads)
    corpus = text.load(run.data, run.train.seq_len)
    found = []

    def plain(name: str, **how: Any) -> None:
        loop = Plain(run, comm.rank, corpus, **how)
        found.append(Contender(name, lambda k: loop.step(k) / comm.size, how.get("hook") is None))

    def ours(scheme: Scheme, exact: bool) -> None:
        wait = Wait.GIVE_WAY if run.oversubscribe else Wait.SPIN
        progress = Progress(wait, background=run.train.overlap)
        trainer = Trainer(replace(run, scheme=scheme), comm.Dup(), progress, corpus)
        name = "hpcbench" if comm.size == 1 else f"hpcbench {scheme.name}"
        found.append(Contender(name, lambda k: trainer.step(k).loss / comm.size, exact))

    if comm.size == 1:
        plain("PyTorch, AdamW", fused=False)
        plain("PyTorch, AdamW fused", fused=True)
        ours(BASELINE, True)
    else:
        plain("DDP gloo", fused=True)
        plain("DDP gloo, fp16", fused=True, hook="fp16")
        plain("DDP gloo, PowerSGD", fused=True, hook="powersgd")
        for scheme in (BASELINE, IDENTITY, FP16, INT8, ZFP8):
            ours(scheme, scheme in (BASELINE, IDENTITY))
    return found


def worker(size: Size, *, turns: int, steps: int, threads: int, port: int) -> None:
    """Check and time all contenders of a size on the ranks that MPI started; rank 0 prints a JSON line each."""
    import torch
    from mpi4py import MPI

    comm = MPI.COMM_WORLD
    torch.set_num_threads(threads)
    if comm.size > 1:
        torch.distributed.init_process_group(
            "gloo", init_method=f"tcp://127.0.0.1:{port}", rank=comm.rank, world_size=comm.size
        )
    taking = contenders(size, comm, threads)
    losses = {one.name: [comm.allreduce(one.step(k)) for k in range(CHECKED)] for one in taking}
    expected = losses[taking[0].name]
    for one in taking:
        off = max(abs(a - b) / b for a, b in zip(losses[one.name], expected, strict=True))
        if not off <= (AGREE if one.exact else NEAR):
            raise SystemExit(f"engine: {one.name} does other work: losses {losses[one.name]}, not {expected}")
    times: dict[str, list[float]] = {one.name: [] for one in taking}
    for turn in range(turns):
        for one in (*taking[turn % len(taking) :], *taking[: turn % len(taking)]):
            comm.Barrier()
            start = time.perf_counter()
            for k in range(steps):
                one.step(CHECKED + turn * steps + k)
            times[one.name].append(comm.allreduce(time.perf_counter() - start, MPI.MAX) / steps)
    if comm.rank == 0:
        for one in taking:
            print(json.dumps({"name": one.name, "times": times[one.name], "loss": losses[one.name][-1]}), flush=True)
    if comm.size > 1:
        torch.distributed.destroy_process_group()


def measure(size: Size, ranks: int, options: argparse.Namespace) -> list[dict[str, Any]]:
    """Start the ranks, and read what they found."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    mpiexec = Path(sys.executable).with_name("mpiexec")
    command = [str(mpiexec), "-n", str(ranks), "-bind-to", "none", sys.executable, __file__]
    command += ["--worker", size.name, "--port", str(port), "--turns", str(options.turns)]
    command += ["--steps", str(options.steps), "--threads", str(options.threads)]
    environment = {**os.environ, "OMP_NUM_THREADS": str(options.threads), "GLOO_SOCKET_IFNAME": "lo"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, stdin=subprocess.DEVNULL)
    if done.returncode:
        raise SystemExit(f"engine: the ranks ended with {done.returncode}:\n{done.stderr[-3000:]}")
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def show(size: Size, ranks: int, rows: list[dict[str, Any]], reference: dict[str, Any]) -> Table:
    """A table: medians, and their ratios to the reference's."""
    tokens = size.samples * size.seq_len
    title = f"{size.name}: {size.model.name} GPT, {tokens} tokens a rank and step, {ranks} rank{'s' * (ranks > 1)}"
    table = Table(title=title, box=None, pad_edge=False, title_justify="left")
    for head in ("", "step, ms", "quartiles", f"x {reference['name']}", f"loss after {CHECKED} steps"):
        table.add_column(head, justify="right" if head else "left")
    for row in rows:
        low, _, high = quantiles((1e3 * t for t in row["times"]), n=4)
        ratio = median(row["times"]) / median(reference["times"])
        table.add_row(
            row["name"],
            f"{1e3 * median(row['times']):.2f}",
            f"{low:.2f} to {high:.2f}",
            "-" if row is reference else f"{ratio:.3f}",
            f"{row['loss']:.6f}",
        )
    return table


def main() -> int:
    """Measure, print, and say whether the goals are met."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=9)
    parser.add_argument("--steps", type=int, default=4, help="of a turn")
    parser.add_argument("--threads", type=int, default=1, help="of PyTorch, on each rank and both sides")
    parser.add_argument("--ranks", type=int, default=4, help="of the data parallel part")
    parser.add_argument("--only", choices=("one", "dp"))
    parser.add_argument("--tiny", action="store_true", help="to see that it works")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    parser.add_argument("--port", type=int, default=0, help=argparse.SUPPRESS)
    options = parser.parse_args()
    sizes = {size.name: size for size in (COMPUTE, COMMUNICATION, TINY)}
    if options.worker:
        how = {"turns": options.turns, "steps": options.steps, "threads": options.threads, "port": options.port}
        worker(sizes[options.worker], **how)
        return 0
    console = Console(width=columns(), highlight=False)
    cores = len(os.sched_getaffinity(0))
    missed = False
    for size in (TINY,) if options.tiny else (COMPUTE, COMMUNICATION):
        for ranks, part in ((1, "one"), (options.ranks, "dp")):
            if options.only not in (None, part):
                continue
            rows = measure(size, ranks, options)
            theirs = [row for row in rows if row["name"] in ("PyTorch, AdamW", "PyTorch, AdamW fused", "DDP gloo")]
            reference = min(theirs, key=lambda row: median(row["times"]))
            console.print(show(size, ranks, rows, reference))
            (own,) = (row for row in rows if row["name"] in ("hpcbench", "hpcbench baseline"))
            ratio, limit = median(own["times"]) / median(reference["times"]), MOST_OVERHEAD if ranks == 1 else 1.0
            verdict = "met" if ratio <= limit else "missed"
            missed |= ratio > limit
            console.print(f"goal, at most {limit:.2f} x {reference['name']}: {ratio:.3f}, {verdict}", "")
    shared = f"{options.ranks} ranks of {options.threads} thread share them: both sides wait for each other's cores"
    console.print(f"{options.turns} turns of {options.steps} steps, {options.threads} thread a rank, {cores} cores.")
    if options.ranks * options.threads > cores and options.only != "one":
        console.print(shared, soft_wrap=True)
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
