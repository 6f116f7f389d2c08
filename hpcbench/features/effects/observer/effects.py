"""Observer that measures the effects of codecs after selected steps."""

import math
import time

from hpcbench.contract.traffic import list_live_traffic
from hpcbench.errors import UserError
from hpcbench.features.effects.events import CodecEffect, CodecEffectsMeasured
from hpcbench.features.effects.observer.repeated_step import RepeatedStep
from hpcbench.train.observer import Observer
from hpcbench.train.trainer import Trainer


class EffectObserver(Observer):
    """Observer of a run with the setting `train.codec_effects`.

    Parameters
    ----------
    trainer
        The run's trainer.

    Raises
    ------
    UserError
        Messages of the scheme depend on earlier messages, such as residuals, which repeated steps would change.
    """

    def __init__(self, trainer: Trainer) -> None:
        self._trainer, self._settings = trainer, trainer.run.train.codec_effects
        self._traffic = list_live_traffic(trainer.run.setting)
        policy = trainer.policy
        treatments = (treatment for channel in policy.channels for treatment in policy.treatments(channel))
        if self._settings and any(treatment.depends_on_past for treatment in treatments):
            raise UserError(
                f"train.codec_effects: messages of scheme {trainer.run.scheme.name} depend on earlier messages, so its "
                "steps cannot be repeated: measure the effects with the baseline"
            )

    def writes(self, step: int) -> bool:
        """Return whether effects are measured after this step."""
        return self._settings is not None and step in self._settings.steps

    def end(self, step: int) -> CodecEffectsMeasured | None:
        """Measure the effects after a step (a collective call), if the step was selected."""
        if self._settings is None or step not in self._settings.steps:
            return None
        begin, repeated, effects = time.perf_counter(), RepeatedStep(self._trainer, step + 1), []
        for traffic in self._traffic:
            for codec in self._settings.codecs:
                loss, update, descent = map(_or_none, repeated.measure({traffic: codec}))
                effect = CodecEffect(traffic=" ".join(traffic), codec=codec, loss=loss, update=update, descent=descent)
                effects.append(effect)
        seconds = round(time.perf_counter() - begin, 3)
        return CodecEffectsMeasured(step=step, effects=tuple(effects), seconds=seconds)


def _or_none(value: float) -> float | None:
    return value if math.isfinite(value) else None
