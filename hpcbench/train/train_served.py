"""Training loop with a parameter server, which executes rounds and logs updates."""

from collections.abc import Callable, Sequence

from hpcbench.parallel.exact import gather
from hpcbench.train import stop
from hpcbench.train.agreement import replicas_agree
from hpcbench.train.milestones import Milestones
from hpcbench.train.observer import Observer
from hpcbench.train.serving import ServedTrainer, rounds


def train_served(
    trainer: ServedTrainer,
    milestones: Milestones,
    *,
    taken: int = 0,
    told_to_stop: Callable[[], bool] = stop.never,
    observers: Sequence[Observer] = (),
) -> tuple[str, str, int]:
    """Run all remaining steps.

    A step is an update of the first shard. The step line contains the mean loss of the gradients in the update, the
    time since the previous update, and the bytes that the workers had sent when they pushed these gradients.

    Parameters
    ----------
    milestones
        Milestones of the run.
    taken
        Number of completed steps.
    told_to_stop
        Callback that returns whether to stop, called after each gradient of the first rank.
    observers
        Observers, for which a round is one step. The observers write nothing after a round.

    Returns
    -------
    The state of the run, the reason if the state is not ``completed``, and the number of completed steps.
    """
    settings, counted = trainer.run.train, milestones.counted
    every = settings.eval_every, settings.checkpoint_every
    done, stopped = taken, False
    for end in rounds(settings.steps, taken, every=every, counted=counted):
        if done + 1 == counted:
            trainer.forget_times()
        for observer in observers:
            observer.begin(done + 1)
        trainer.begin_counting()
        trainer.open(end)
        bad = ""
        while trainer.turn():
            done, bad = _log(trainer, milestones, done, bad)
            if not stopped and told_to_stop():
                stopped = True
                trainer.end_early()
        last = trainer.close()
        done, bad = _log(trainer, milestones, done, bad)
        done = last
        for observer in observers:
            observer.pause(done, more=True)
        answers = gather(trainer.mesh.world, [float(stopped), float(bool(bad))], trainer.policy.exact)
        stopped, failed = any(asked for asked, _ in answers), any(wrong for _, wrong in answers)
        if failed:
            trainer.finish()
            return "nan", bad or "the loss of another rank's shard is not finite", done
        if ended := milestones.reached(done, stopped=stopped):
            trainer.finish()
            return *ended, done
    trainer.finish()
    if not replicas_agree(trainer):
        return "failed", "replicas have different weights after the last step", settings.steps
    return "completed", "", settings.steps


def _log(trainer: ServedTrainer, milestones: Milestones, done: int, bad: str) -> tuple[int, str]:
    """Write the step lines of new updates. Return the last step, and the reason if the run must end."""
    for result in trainer.results():
        done += 1
        milestones.line(done, result)
        if result.diverged and not bad:
            bad = f"loss is {result.loss} at step {result.diverged}"
    return done, bad
