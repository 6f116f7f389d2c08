"""Implementation of the command `hpcbench run`."""

import tempfile
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from hpcbench.contract.call_treatment import explain_undecidable
from hpcbench.contract.interpose import Interposition, TracedSteps
from hpcbench.contract.scheme import NamedScheme
from hpcbench.errors import UserError
from hpcbench.programs.exact import is_idle, list_lossy_remedies, state_cuda, state_idle, tabulate_reasons
from hpcbench.programs.launch import Ended, launch
from hpcbench.programs.log import Log
from hpcbench.programs.sent import unknown
from hpcbench.programs.settings import load_groups, load_scheme
from hpcbench.programs.table import summed, table


def run(
    command: Sequence[str],
    *,
    scheme: str | None,
    groups: Path | None,
    dry: bool,
    out: Path | None,
    log: Path | None = None,
    traces: Path | None = None,
) -> int:
    """Run a program and print its traffic.

    Parameters
    ----------
    command
        The program, including its launcher.
    scheme
        Name or file of a scheme. A dry run does not require a scheme.
    groups
        File that assigns dimensions to groups.
    dry
        Whether to only count messages.
    out
        Directory for one file per rank. The directory must be on a file system that all nodes share.
    log
        Log file to which the counts are written as events.
    traces
        Existing directory for traces of some steps, one trace per rank. If None, no steps are traced.

    Returns
    -------
    int
        Exit status of the program, or 1 if no rank has reported counts or no call was encoded.
    """
    if not command:
        raise UserError(
            "no program given: write its command after --, for example `hpcbench run --dry -- torchrun train.py`"
        )
    if scheme is None and not dry:
        raise UserError("no scheme given: add --scheme, for example --scheme naive-int8, or --dry to only count calls")
    chosen = load_scheme(scheme) if scheme else NamedScheme(name="none", algorithm="native")
    reason = explain_undecidable(chosen)
    if reason:
        raise UserError(f"--scheme {chosen.name}: {reason}")
    with tempfile.TemporaryDirectory(prefix="hpcbench-run-") as temporary:
        where = (out or Path(temporary)).resolve()
        traced = TracedSteps(directory=str(traces.resolve())) if traces else None
        settings = Interposition(scheme=chosen, groups=load_groups(groups), dry=dry, out=str(where), trace=traced)
        traffic_log = Log(log, command, settings) if log else None
        ended = launch(command, settings)
    rows = summed(ended.ranks)
    idle = state_idle(chosen.name, rows) if rows and not dry and is_idle(rows, chosen) else None
    _show(ended, out, idle)
    if traffic_log:
        traffic_log.close(ended, idle)
    return ended.status or int(not ended.ranks or idle is not None)


def record(command: Sequence[str], directory: Path) -> int:
    """Run a program unchanged, trace some steps on each rank, and return the program's exit status.

    Raises
    ------
    UserError
        The command does not exist, or no rank has written a trace.
    """
    if not command:
        raise UserError(
            "no program given: write its command after --, for example `hpcbench diagnose --run -- torchrun train.py`"
        )
    directory.mkdir(parents=True, exist_ok=True)
    for earlier in directory.glob("rank*.json.gz"):
        earlier.unlink()
    settings = Interposition(
        scheme=NamedScheme(name="none", algorithm="native"),
        dry=True,
        out=str(directory),
        trace=TracedSteps(directory=str(directory.resolve())),
    )
    with tempfile.TemporaryDirectory(prefix="hpcbench-run-") as counts:
        ended = launch(command, settings.model_copy(update={"out": counts}))
    if not any(directory.glob("rank*.json.gz")):
        assert settings.trace is not None
        steps = 2 + settings.trace.wait + settings.trace.active
        reason = (
            f"exit status {ended.status}"
            if ended.status
            else f"a trace requires {steps} steps of a torch.optim optimizer"
        )
        raise UserError(f"{command[0]}: no rank has written a trace ({reason})")
    return ended.status


def _show(ended: Ended, out: Path | None, idle: str | None) -> None:
    console = Console(
        stderr=True, width=None if Console(stderr=True).is_terminal else 160, highlight=False, markup=False
    )
    if not ended.ranks:
        remedy = (
            f"the program itself ended with exit status {ended.status}: see its messages above"
            if ended.status
            else "check that hpcbench is installed in the program's environment, and that the program uses "
            "torch.distributed"
        )
        console.print(f"hpcbench: no rank has reported: {remedy}")
        return
    shown = len(ended.ranks)
    console.print(f"hpcbench: calls of PyTorch's collectives on {shown} of {ended.world} ranks", style="bold")
    console.print(table(ended.ranks))
    if shown < ended.world and out is None:
        console.print(
            "The other ranks were on other nodes, or were killed: to collect the counts of all nodes, give --out DIR "
            "on a shared file system."
        )
    for group in unknown(ended.ranks):
        console.print(
            f"hpcbench: the dimension of group {group.group!r} is unknown, so {(group.bytes or 0) / 1e6:.3f} MB "
            f"were sent exactly: give --groups FILE with {group.remedy}"
        )
    on_gpus = state_cuda(summed(ended.ranks))
    if on_gpus:
        console.print(f"hpcbench: {on_gpus}.", style="bold")
    if idle:
        console.print(f"hpcbench: {idle}. The reasons:", style="bold")
        console.print(tabulate_reasons(summed(ended.ranks)))
        return
    for sentence in list_lossy_remedies(summed(ended.ranks)):
        console.print(f"hpcbench: {sentence}.")
