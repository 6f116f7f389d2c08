"""PyTorch programs that engine.py measures: a plain loop with the engine's model, DDP over gloo or MPI, and FSDP2.

DDP over MPI uses a communication hook that passes each bucket to hpcbench's MPI library and waits in the same way as
hpcbench. The only remaining difference is the engine itself.
"""

import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from engine_runs import GLOO, MPI, NONE, Contender, Step
from mpi4py import MPI as mpi  # noqa: N811
from torch import Tensor, distributed, nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.futures import Future
from torch.nn.parallel import DistributedDataParallel

from hpcbench.comm.wait import Wait
from hpcbench.contract.run import Run
from hpcbench.train import initial
from hpcbench.train.batches import Batches
from hpcbench.train.learning_rate import learning_rate
from hpcbench.train.model import GPT, loss

Wrap = Callable[[GPT], nn.Module]
Hook = Callable[[Any, distributed.GradBucket], Future[Tensor]]


class Plain:
    """A plain PyTorch training loop.

    Parameters
    ----------
    run
        Run whose model is trained from the same weights as in the engine.
    rank
        Rank whose samples are used.
    corpus
        Text of the samples.
    wrap
        Function that distributes the model over the ranks.
    fused
        Whether to use PyTorch's fused AdamW instead of PyTorch's default implementation.
    """

    def __init__(self, run: Run, rank: int, corpus: Any, *, wrap: Wrap, fused: bool = True) -> None:
        train = self._train = run.train
        self._ranks = run.ranks
        self._model = wrap(model_of(run))
        matrices = [p for p in self._model.parameters() if p.dim() > 1]
        vectors = [p for p in self._model.parameters() if p.dim() == 1]
        self._optimizer = torch.optim.AdamW(
            [{"params": matrices, "weight_decay": train.weight_decay}, {"params": vectors, "weight_decay": 0.0}],
            betas=(train.beta1, train.beta2),
            eps=train.eps,
            fused=fused or None,
        )
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

    def step(self, k: int) -> Step:
        """Take step k."""
        begin = time.perf_counter()
        (batch,) = self._batches.train(k)
        for group in self._optimizer.param_groups:
            group["lr"] = learning_rate(k, self._train)
        self._optimizer.zero_grad()
        mean = loss(self._model(batch.inputs), batch.targets)
        mean.backward()
        reduced = time.perf_counter()
        nn.utils.clip_grad_norm_(self._model.parameters(), self._train.clip)
        self._optimizer.step()
        end = time.perf_counter()
        return Step(float(mean.detach()) / self._ranks, reduced - begin, end - reduced)


def model_of(run: Run) -> GPT:
    """Build the model with the initial weights of the engine."""
    with torch.device("meta"):
        model = GPT(run.model, run.train.seq_len)
    model = model.to_empty(device="cpu")
    for name, parameter in model.named_parameters():
        full_slice, shape = tuple(slice(0, n) for n in parameter.shape), tuple(parameter.shape)
        values = initial.values(
            name, shape, held=full_slice, config=run.model, seed=run.train.seed, dtype=torch.float32
        )
        parameter.data.copy_(values)
        parameter.requires_grad_()
    return model


def full_slice(model: GPT) -> nn.Module:
    """Return the plain loop on one rank."""
    return model


def ddp(model: GPT, hook: Hook | None = None, state: Any = None, bucket_mb: float | None = None) -> nn.Module:
    """Return DDP whose gradients are views of its buckets."""
    wrapped = DistributedDataParallel(model, gradient_as_bucket_view=True, bucket_cap_mb=bucket_mb)
    if hook:
        wrapped.register_comm_hook(state, hook)
    return wrapped


def powersgd(model: GPT) -> nn.Module:
    """Return DDP with PowerSGD of rank 1 in a single bucket.

    With two buckets, the threads of gloo could send the later messages in different orders on different ranks.
    """
    state = powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=1, start_powerSGD_iter=2)
    return ddp(model, powerSGD_hook.powerSGD_hook, state, bucket_mb=1000)


def fsdp2(model: GPT) -> nn.Module:
    """Return FSDP2 with one unit per block.

    Each pass gathers weights, and gradients are reduce-scattered, as in ZeRO-3.
    """
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh("cpu", (distributed.get_world_size(),))
    for block in model.blocks.values():
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model


def allreduce(comm: mpi.Comm) -> Hook:
    """Return a hook that sums each bucket with the blocking call of the MPI library."""

    def hook(state: Any, bucket: distributed.GradBucket) -> Future[Tensor]:
        values = bucket.buffer().div_(comm.size)
        comm.Allreduce(mpi.IN_PLACE, values.numpy())
        done: Future[Tensor] = Future()
        done.set_result(values)
        return done

    return hook


class Iallreduce:
    """Hook that starts the sum of each bucket, with a thread that advances the sum and completes its future.

    Hook and thread never make MPI calls at the same time, so MPI_THREAD_SERIALIZED is enough.
    """

    def __init__(self, comm: mpi.Comm, wait: Wait) -> None:
        self._comm, self._wait = comm, wait
        self._calls, self._work = threading.Lock(), threading.Event()
        self._under_way: list[tuple[mpi.Request, Tensor, Future[Tensor]]] = []
        threading.Thread(target=self._drive, name="Iallreduce", daemon=True).start()

    def __call__(self, state: Any, bucket: distributed.GradBucket) -> Future[Tensor]:
        """Start the sum of a full bucket. DDP calls this method."""
        values, done = bucket.buffer().div_(self._comm.size), Future[Tensor]()
        with self._calls:
            request = self._comm.Iallreduce(mpi.IN_PLACE, values.numpy())
            self._under_way.append((request, values, done))
        self._work.set()
        return done

    def _drive(self) -> None:
        while True:
            self._work.wait()
            moved = time.perf_counter()
            while self._under_way:
                if ended := self._ended():
                    moved = time.perf_counter()
                for values, done in ended:
                    done.set_result(values)
                self._wait.pause(time.perf_counter() - moved)
            self._work.clear()
            if self._under_way:
                self._work.set()

    def _ended(self) -> list[tuple[Tensor, Future[Tensor]]]:
        with self._calls:
            tested = [(request.Test(), values, done) for request, values, done in self._under_way]
            self._under_way = [each for each, (over, _, _) in zip(self._under_way, tested, strict=True) if not over]
        return [(values, done) for over, values, done in tested if over]


def peers(run: Run, comm: mpi.Comm, corpus: Any) -> Iterator[Contender]:
    """List the PyTorch programs. The losses of the first program are the reference."""

    def loop(wrap: Wrap, **how: Any) -> Callable[[], Callable[[int], Step]]:
        return lambda: Plain(run, comm.rank, corpus, wrap=wrap, **how).step

    if comm.size == 1:
        yield Contender("PyTorch, AdamW", NONE, loop(full_slice, fused=False), fair=True)
        yield Contender("PyTorch, fused AdamW", NONE, loop(full_slice), fair=True)
        return
    wait = Wait.GIVE_WAY if run.oversubscribe else Wait.SPIN

    def nonblocking(model: GPT) -> nn.Module:
        return ddp(model, Iallreduce(comm.Dup(), wait).__call__)

    def blocking(model: GPT) -> nn.Module:
        return ddp(model, allreduce(comm.Dup()))

    yield Contender("DDP, MPI_Allreduce", MPI, loop(blocking), fair=True)
    yield Contender("DDP, MPI_Iallreduce", MPI, loop(nonblocking), fair=True)
    yield Contender("DDP", GLOO, loop(ddp))
    fp16 = partial(ddp, hook=default_hooks.fp16_compress_hook)
    yield Contender("DDP, fp16 hook", GLOO, loop(fp16), exact=False)
    yield Contender("DDP, PowerSGD", GLOO, loop(powersgd), exact=False)
    yield Contender("FSDP2", GLOO, loop(fsdp2))
