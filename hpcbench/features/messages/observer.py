"""Keeps messages of some steps of a run: chosen ranks write a file a step (hpcbench.contract.message_samples)."""

import time
from pathlib import Path

from hpcbench.comm.keeper import Keeper, spread
from hpcbench.contract.message_samples import SampledStep, write_samples
from hpcbench.errors import UserError
from hpcbench.features.messages.events import MessagesKept
from hpcbench.parallel.exact import gather
from hpcbench.train.observer import Observer
from hpcbench.train.trainer import Trainer

_MB = 10**6


class MessageObserver(Observer):
    """The kept messages of a run that has `train.keep_messages`.

    A step that is taken again after a checkpoint writes the same files again, each as a whole.

    Parameters
    ----------
    trainer
        Whose messages are kept.
    directory
        For the files.
    """

    def __init__(self, trainer: Trainer, directory: Path) -> None:
        self._trainer, self._directory = trainer, directory
        asked = trainer.run.train.keep_messages
        self._steps = frozenset(asked.steps) if asked else frozenset[int]()
        self._keeper: Keeper | None = None
        if asked and trainer.mesh.rank in spread(trainer.run.ranks, asked.ranks):
            self._keeper = Keeper(asked.each, round(asked.message_mb * _MB), round(asked.mb * _MB))
            trainer.policy.keep(self._keeper)

    def begin(self, step: int) -> None:
        """Before a step (from 1)."""
        if self._keeper is not None:
            self._keeper.begin(keeps=step in self._steps)

    def writes(self, step: int) -> bool:
        """Return whether files are written after this step."""
        return step in self._steps

    def end(self, step: int) -> MessagesKept | None:
        """After a step; what was written, where messages of it are kept: then this is a collective call.

        Raises
        ------
        UserError
            A file cannot be written.
        """
        kept = self._keeper.end() if self._keeper is not None else ()
        if step not in self._steps:
            return None
        begin = time.perf_counter()
        trainer, left_out = self._trainer, 0
        if self._keeper is not None:
            left_out = self._keeper.left_out
            try:
                self._directory.mkdir(exist_ok=True)
                write_samples(self._directory, SampledStep(trainer.mesh.rank, step, kept, left_out))
            except OSError as error:
                raise UserError(f"{self._directory}: messages cannot be written: {error.strerror}") from None
        own = [len(kept), sum(len(message.values) for message in kept), left_out]
        counts = gather(trainer.mesh.world, own, trainer.policy.exact)
        messages, nbytes, without_room = (round(sum(column)) for column in zip(*counts, strict=True))
        seconds = round(time.perf_counter() - begin, 3)
        return MessagesKept(step=step, messages=messages, bytes=nbytes, left_out=without_room, seconds=seconds)
