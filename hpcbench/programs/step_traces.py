"""Traces of some steps of a program that does not use the profiler itself. A step ends with each optimizer step."""

import logging
import os
from pathlib import Path
from typing import Any

import torch.distributed as dist
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.profiler import profile, schedule

from hpcbench.contract.interpose import TracedSteps

log = logging.getLogger("hpcbench.torch")


class StepTraces:
    """Profiler of one rank, from `watch` to the end of the traced steps.

    Parameters
    ----------
    settings
        Steps to trace, and the output directory.
    """

    def __init__(self, settings: TracedSteps) -> None:
        self._settings = settings
        self._profiler: Any = None
        self._optimizer: Optimizer | None = None
        self._steps = 0
        self._hook: Any = None

    def watch(self) -> None:
        """Start counting optimizer steps."""
        self._hook = register_optimizer_step_post_hook(self._step)

    def _step(self, optimizer: Optimizer, *_: object) -> None:
        """Advance to the next step.

        If a program has several optimizers, only the first optimizer's steps are counted.
        """
        if self._optimizer is None:
            self._optimizer = optimizer
        if optimizer is not self._optimizer:
            return
        try:
            self._advance()
        except RuntimeError as error:  # for example, if the program uses the profiler itself
            log.warning("hpcbench: no trace: %s", " ".join(str(error).split())[:200])
            self._hook.remove()

    def _advance(self) -> None:
        self._steps += 1
        if self._profiler is None:
            plan = schedule(wait=self._settings.wait, warmup=1, active=self._settings.active, repeat=1)
            self._profiler = profile(schedule=plan, on_trace_ready=self._export, record_shapes=True)
            self._profiler.start()
            return
        self._profiler.step()
        if self._steps > 1 + self._settings.wait + self._settings.active + 1:
            self._profiler.stop()
            self._hook.remove()

    def _export(self, profiler: Any) -> None:
        rank = dist.get_rank() if dist.is_initialized() else int(os.environ.get("RANK", "0"))
        profiler.export_chrome_trace(str(Path(self._settings.directory) / f"rank{rank}.json.gz"))
