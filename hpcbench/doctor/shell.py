"""Checks of this shell's environment, and of submitit and its LSF plugin."""

import os
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version

from hpcbench.batch.schedulers.clean_environment import clean_environment
from hpcbench.doctor.check import Check, report_missing, report_ok, report_unknown


def check_shell() -> Check:
    """Check for variables of an enclosing job or launcher, which are not passed to submitted jobs."""
    names = sorted(os.environ.keys() - clean_environment(keep=("FLUX_URI",)).keys())
    if not names:
        return report_ok("shell", "no variables of an outer job or launcher")
    shown = ", ".join(names[:6]) + (f" and {len(names) - 6} more" if len(names) > 6 else "")
    return report_ok("shell", f"{shown}: set in this shell, but not in submitted jobs; are you inside a job?")


def check_submitit() -> list[Check]:
    """Check submitit's version, and its class for cluster="lsf".

    If several plugins are installed, the last plugin silently takes precedence.
    """
    try:
        checks = [report_ok("submitit", version("submitit"), needed=True)]
    except PackageNotFoundError:
        return [report_missing("submitit", "is not installed", "pip install 'submitit>=1.5,<1.6'", needed=True)]
    try:
        owner = import_module("hpcbench.batch.schedulers.submitit_lsf").owner()
    except (ImportError, AttributeError) as error:
        return [*checks, report_unknown("submitit lsf", f"its owner is unknown: {error}")]
    if str(owner).startswith("hpcbench."):
        return [*checks, report_ok("submitit lsf", owner)]
    reason = "hpcbench is not installed here" if owner == "none" else "another package registers lsf with submitit"
    return [*checks, report_ok("submitit lsf", f"{owner}: {reason}; hpcbench still uses its own class")]
