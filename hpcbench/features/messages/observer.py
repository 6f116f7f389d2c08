"""Observer that samples the messages of selected steps. Selected ranks write one file per step.

`hpcbench.contract.message_samples` describes the files.
"""

import time
from pathlib import Path

from hpcbench.comm.message_sampler import MessageSampler, choose_evenly
from hpcbench.contract.message_samples import SampledStep, write_samples
from hpcbench.errors import UserError
from hpcbench.features.messages.events import MessagesKept
from hpcbench.parallel.exact import gather
from hpcbench.train.observer import Observer
from hpcbench.train.trainer import Trainer

_MB = 10**6


class MessageObserver(Observer):
    """Message sampler of a run with the setting `train.keep_messages`.

    If a step is repeated after a restart from a checkpoint, its files are replaced.

    Parameters
    ----------
    trainer
        Trainer whose messages are sampled.
    directory
        Output directory, which is created if it does not exist.
    """

    def __init__(self, trainer: Trainer, directory: Path) -> None:
        self._trainer, self._directory = trainer, directory
        settings = trainer.run.train.keep_messages
        self._steps = frozenset(settings.steps) if settings else frozenset[int]()
        self._sampler: MessageSampler | None = None
        if settings and trainer.mesh.rank in choose_evenly(trainer.run.ranks, settings.ranks):
            self._sampler = MessageSampler(settings.each, round(settings.message_mb * _MB), round(settings.mb * _MB))
            trainer.policy.sample(self._sampler)

    def begin(self, step: int) -> None:
        """Begin a step, counted from 1."""
        if self._sampler is not None:
            self._sampler.begin(sampled=step in self._steps)

    def writes(self, step: int) -> bool:
        """Return whether files are written after this step."""
        return step in self._steps

    def end(self, step: int) -> MessagesKept | None:
        """End a step (a collective call).

        If the messages of the step were sampled, write the files and return the event.

        Raises
        ------
        UserError
            A file cannot be written.
        """
        samples = self._sampler.end() if self._sampler is not None else ()
        if step not in self._steps:
            return None
        begin = time.perf_counter()
        trainer, left_out = self._trainer, 0
        if self._sampler is not None:
            left_out = self._sampler.left_out
            try:
                self._directory.mkdir(exist_ok=True)
                write_samples(self._directory, SampledStep(trainer.mesh.rank, step, samples, left_out))
            except OSError as error:
                raise UserError(f"{self._directory}: messages cannot be written: {error.strerror}") from None
        written = [len(samples), sum(len(message.values) for message in samples), left_out]
        counts = gather(trainer.mesh.world, written, trainer.policy.exact)
        messages, nbytes, without_room = (round(sum(column)) for column in zip(*counts, strict=True))
        seconds = round(time.perf_counter() - begin, 3)
        return MessagesKept(step=step, messages=messages, bytes=nbytes, left_out=without_room, seconds=seconds)
