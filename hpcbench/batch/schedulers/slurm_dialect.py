"""Output of Slurm's sbatch, and remedies for refusals."""

import re

from hpcbench.batch.schedulers.accounts import slurm_remedy
from hpcbench.batch.schedulers.submit_command import SubmitDialect

_WANTS_GPUS = re.compile(
    r"GPU spec|CPU job|GPU jobs? only|--gres|--gpus"
    r"|(?:request|specify|specified|ask|require|reserve|need)\w*\s+(?:(?!partition|queue|qos|node)[\w-]+\s+){0,4}gpus?\b"
    r"|\bgpus?\s+(?:[\w-]+\s+){0,3}(?:request|specify|specified|require|reserve|need)",
    re.IGNORECASE,
)
"""Messages of site plugins that require jobs to request GPUs."""

DIALECT = SubmitDialect(
    id=re.compile(r"^Submitted batch job (\d+)(?: on cluster \S+)?\s*$", re.MULTILINE),
    busy=re.compile("Resource temporarily unavailable|Slurm temporarily unable to accept job"),
    unclear=re.compile("Socket timed out|Zero Bytes were transmitted|Message receive failure|Unexpected message"),
    remedies=(
        (
            re.compile("DOS line breaks"),
            "use UNIX line breaks in the templates and in setup: of the site file (dos2unix)",
        ),
        (
            re.compile("[Ii]nvalid partition|nvalid qos|nvalid QOS"),
            "set queue: in the study to one of the machine's queues",
        ),
        (re.compile("MaxWall"), "set walltime: in the study to a time that the queue allows"),
        (
            re.compile("(QOS|Assoc)(Max|Min|Grp)"),
            "use fewer jobs or nodes at once, or set queue: in the study to another queue",
        ),
        (
            re.compile("[Ii]nvalid (generic resource|gres|GRES|Trackable)|GRES|TRES|[Gg][Pp][Uu] type|type of GPU"),
            "set scheduler.gpu_request of the site file to a form that the site accepts; if the site requires a GPU "
            "model, set gpu_request to none and add --gres: gpu:MODEL:NUMBER to scheduler.directives",
        ),
        (
            _WANTS_GPUS,
            "set scheduler.gpu_request of the site file to gres, gpus-per-node or gpus-per-task",
        ),
        (
            re.compile("[Nn]ode count|number of nodes|(Min|Max)Nodes|node limit"),
            "set nodes: in the study to a number that the queue allows",
        ),
        (
            re.compile(r"[Tt]ime limit\b|[Ww]all ?(clock|time)|--time\b"),
            "set walltime: in the study to a time that the queue allows",
        ),
        (
            re.compile(r"[Aa]ccount\b|[Pp]roject\b|--account|[Bb]alance|[Aa]llocation (has|is) "),
            slurm_remedy,
        ),
        (re.compile("[Rr]eservation"), "write --reservation in scheduler.directives of the site file"),
        (re.compile("[Pp]artition"), "set queue: in the study to one of the machine's queues"),
        (
            re.compile("QOS|[Pp]olicy|[Ll]imit"),
            "use fewer jobs or nodes at once, or set queue: in the study to another queue",
        ),
        (
            re.compile("node configuration|Memory spec|--mem|gres|(?i:processors)|CPU count"),
            "check node: and scheduler: of the site file",
        ),
        (re.compile("Unable to contact"), "Slurm's controller does not answer: try again later"),
        (re.compile("[Dd]ependency"), "the scheduler no longer lists the job to wait for: submit without `after`"),
    ),
)
