"""Slurm's executor of submitit, for scripts that are ready."""

import re
from pathlib import Path

from submitit.slurm.slurm import SlurmExecutor

from hpcbench.batch.schedulers.slurm_query import SlurmQuery
from hpcbench.batch.schedulers.submit_command import Dialect
from hpcbench.batch.schedulers.submitit_script import Script, ScriptExecutor, ScriptJob
from hpcbench.batch.schedulers.submitit_watcher import StatusWatcher

DIALECT = Dialect(
    id=re.compile(r"^Submitted batch job (\d+)(?: on cluster \S+)?\s*$", re.MULTILINE),
    busy=re.compile("Resource temporarily unavailable|Slurm temporarily unable to accept job"),
    unclear=re.compile("Socket timed out|Zero Bytes were transmitted|Message receive failure|Unexpected message"),
    remedies=(
        (re.compile("[Ii]nvalid account|account or"), "set account: in the study to one that may run there"),
        (re.compile("[Ii]nvalid partition|nvalid qos|[Pp]artition"), "set queue: in the study to one of the machine's"),
        (re.compile("time limit is invalid"), "set walltime: in the study to what the queue allows"),
        (re.compile("QOS|[Pp]olicy|[Ll]imit"), "fewer jobs or nodes at once, or another queue: in the study"),
        (
            re.compile("node configuration|Memory spec|GRES|gres"),
            "check node: and scheduler: of the site file",
        ),
        (re.compile("Unable to contact"), "Slurm's controller does not answer: try again later"),
        (re.compile("[Dd]ependency"), "what it was to wait for is forgotten: submit without `after`"),
    ),
)


class SlurmScriptJob(ScriptJob):
    """A job script in Slurm's hands."""

    _cancel_command = "scancel"
    watcher = StatusWatcher(SlurmQuery().words)


class SlurmScriptExecutor(ScriptExecutor, SlurmExecutor):
    """Hands scripts to sbatch in an environment that holds nothing of another job."""

    job_class = SlurmScriptJob  # type: ignore[assignment]
    program = "sbatch"
    dialect = DIALECT

    def __init__(self, folder: Path) -> None:
        ScriptExecutor.__init__(self, folder)  # Slurm's wants srun here, which a login node may lack

    def command(self, script: Script) -> list[str]:
        """The line of `sbatch` for a script."""
        return [self.program, *script.options, str(script.path)]
