"""What this shell has that would steer a launcher, and whose plugin of submitit is in use."""

import os
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version

from hpcbench.batch.schedulers.clean_environment import clean_environment
from hpcbench.doctor.check import Check, report_missing, report_ok, report_unknown


def check_shell() -> Check:
    """Whether there are variables that an outer job or launcher left, which are kept from what is submitted."""
    names = sorted(os.environ.keys() - clean_environment(keep=("FLUX_URI",)).keys())
    if not names:
        return report_ok("shell", "no variables of an outer job or launcher")
    shown = ", ".join(names[:6]) + (f" and {len(names) - 6} more" if len(names) > 6 else "")
    return report_ok("shell", f"{shown} are set: what is submitted does not see them; are you inside a job?")


def check_submitit() -> list[Check]:
    """Its version, and which class answers to cluster="lsf": with several plugins, the last one wins silently."""
    try:
        checks = [report_ok("submitit", version("submitit"), needed=True)]
    except PackageNotFoundError:
        return [report_missing("submitit", "is not installed", "pip install 'submitit>=1.5,<1.6'", needed=True)]
    try:
        owner = import_module("hpcbench.batch.schedulers.submitit_lsf").owner()
    except (ImportError, AttributeError) as error:
        return [*checks, report_unknown("submitit lsf", f"who owns it cannot be asked: {error}")]
    ours = str(owner).startswith("hpcbench.")
    remedy = "" if ours else "another package registers lsf with submitit; hpcbench uses its own class all the same"
    return [*checks, report_ok("submitit lsf", f"{owner}{'' if ours else f': {remedy}'}")]
