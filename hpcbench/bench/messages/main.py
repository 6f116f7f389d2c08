"""The command ``hpcbench bench messages``: from a directory to tables and files.

NumPy and the kernels are imported when they are used.
"""

from pathlib import Path

from rich.console import Console
from rich.text import Text

from hpcbench.bench import options
from hpcbench.console import columns
from hpcbench.errors import UserError
from hpcbench.plot_style import need_matplotlib
from hpcbench.present.results import save


def bench_messages(path: Path, codecs: list[str], *, json: Path | None = None, plot: Path | None = None) -> int:
    """Look at the messages that runs kept, and print what they are like.

    Parameters
    ----------
    path
        Directory of a run, or of a submission.
    codecs
        Codecs that they go through; none for a selection.
    json, plot
        Files to write, too.

    Returns
    -------
    int
        0, or 1 if a lossless codec did not give every bit back.

    Raises
    ------
    UserError
        An option is wrong, a package is missing, or there are no messages.
    """
    for option, file in (("--json", json), ("--plot", plot)):
        options.check_output(option, file)
    options.codecs(codecs)
    try:
        from hpcbench.bench.machine import machine
        from hpcbench.bench.messages import anatomy, coded, find, table, verdict
        from hpcbench.bench.progress import progress
        from hpcbench.codecs.registry import get_codec
    except ModuleNotFoundError as error:
        raise UserError(f"bench messages: needs {error.name}: pip install {error.name}") from None
    if plot is not None:
        need_matplotlib("--plot")
    found = find.sources(path)
    chosen = tuple(dict.fromkeys(codecs)) or coded.DEFAULT
    with progress(unit="files") as show:
        findings = anatomy.look_at(found, chosen, show)
    if not findings.rows:
        raise UserError(f"{path}: the files hold no messages: keep steps in which ranks send some")
    judged = verdict.judge(findings)
    console = Console(width=columns(), highlight=False)
    table.render(findings, judged, chosen, console)
    lossless = [name for name in chosen if get_codec(name).lossless]
    defects = anatomy.broken(findings, lossless)
    for one in defects:
        where = f"{one.key.channel}, step {one.key.step}, rank {one.rank}, message {one.place}"
        console.print(Text(f"{one.codec}: does not give every bit back ({where}): a defect of the codec", style="red"))
    settings = {"path": str(path), "codecs": list(chosen), "files": len(found)}
    if json is not None:
        save(json, table.as_json(findings, judged, machine(), settings), "--json")
    if plot is not None:
        from hpcbench.bench.messages.plot import draw

        models = sorted({source.model for source in found if source.model})
        draw(findings, f"Messages of {', '.join(models) or path.name}, by channel and step", plot)
    return int(bool(defects))
