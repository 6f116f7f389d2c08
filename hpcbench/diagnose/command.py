"""The command ``hpcbench diagnose``, which reads traces, and prints and saves the diagnosis."""

import math
import re
import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import get_args

from pydantic import ValidationError

from hpcbench.bench.progress import Show, progress
from hpcbench.contract.interpose import GroupPattern, Groups, Meaning
from hpcbench.diagnose.diagnosis import Diagnosis, diagnose
from hpcbench.diagnose.kineto import RankTrace, read_rank
from hpcbench.diagnose.own_runs import diagnose_submission, is_submission
from hpcbench.diagnose.results import Diagnosed
from hpcbench.diagnose.show import answer
from hpcbench.errors import UserError
from hpcbench.plot_style import need_matplotlib
from hpcbench.present.results import check_output, resolve_suffix
from hpcbench.programs.settings import load_groups

_RECORD = "hpcbench diagnose --run -- COMMAND"


def diagnose_files(
    paths: Sequence[Path],
    patterns: Sequence[str] = (),
    output: Path | None = None,
    codec_speed: float | None = None,
    link_gbit: float | None = None,
) -> int:
    """Diagnose traces, and return the exit status.

    Parameters
    ----------
    paths
        Trace files of the ranks of one job, directories of trace files, or an hpcbench submission.
    patterns
        ``REGEX=DIMENSION``: dimension of the groups whose description matches.
    output
        Additional output file. The file name's suffix selects the format.
    codec_speed
        Speed of encoding and decoding, in GB/s of uncompressed data.
    link_gbit
        Link bandwidth of a rank in Gbit/s.

    Raises
    ------
    UserError
        A trace cannot be read, the traces are not of the same job, or an option is wrong.
    """
    groups = check_options(patterns, output, codec_speed, link_gbit)
    if len(paths) == 1 and is_submission(paths[0]):
        return _diagnose_runs(paths[0], output, codec_speed, link_gbit)
    results = Diagnosed(replace(diagnose(_read(find_traces(paths)), groups, codec_speed), link_gbit=link_gbit))
    results.show()
    for pattern in _list_unmatched(results.diagnosis, groups):
        names = ", ".join(sorted({row.kind.description for row in results.diagnosis.rows} - {""})) or "not described"
        print(f"hpcbench: --group {pattern}: matches no group: the groups are {names}", file=sys.stderr)
    if output is not None:
        results.save([output])
    return 0


def _diagnose_runs(root: Path, output: Path | None, codec_speed: float | None, link_gbit: float | None) -> int:
    diagnoses = [
        (cell, replace(diagnosis, link_gbit=link_gbit)) for cell, diagnosis in diagnose_submission(root, codec_speed)
    ]
    if output is not None and len(diagnoses) > 1:
        cells = ", ".join(cell for cell, _ in diagnoses[:4])
        raise UserError(
            f"--output {output}: the submission has several cells ({cells}), but only one can be written: leave "
            "--output out"
        )
    for cell, diagnosis in diagnoses:
        if cell:
            print(f"{cell}:")
        Diagnosed(diagnosis).show()
    if output is not None:
        Diagnosed(diagnoses[0][1]).save([output])
    return 0


def print_answer(directory: Path, groups: Path | None) -> None:
    """Print the first two lines of a trace directory's diagnosis, or the reason why a diagnosis is impossible.

    Parameters
    ----------
    groups
        File that contains the dimensions of groups.
    """
    paths = sorted(directory.glob("*.json*"))
    lines = [
        "no diagnosis is possible: a diagnosis requires 8 steps of a torch.optim optimizer, and a program that does "
        "not use the profiler"
    ]
    if paths:
        traces = [read_rank(path, lambda done, size: None) for path in paths]
        lines = answer(diagnose(traces, load_groups(groups)))
    for line in lines:
        print(f"hpcbench: {line}", file=sys.stderr)


def check_options(
    patterns: Sequence[str], output: Path | None, codec_speed: float | None, link_gbit: float | None
) -> Groups:
    """Check the options, and return the group dimensions that the user specified.

    Raises
    ------
    UserError
        An option is wrong.
    """
    if codec_speed is not None and not codec_speed > 0:
        raise UserError(f"--codec-speed {codec_speed:g}: must be above 0, in GB/s of values")
    if link_gbit is not None and not 0 < link_gbit < math.inf:
        raise UserError(f"--link {link_gbit:g}: must be above 0, the bandwidth of a rank's link in Gbit/s")
    check_output("--output", output)
    if output is not None and resolve_suffix(output) == "html":
        need_matplotlib("a page")
    return read_groups(patterns)


def find_traces(paths: Sequence[Path]) -> list[Path]:
    """Return the given trace files, and the JSON files in the given directories."""
    traces = []
    for path in paths:
        if not path.exists():
            raise UserError(f"{path}: no such file or directory: give traces, or record them with `{_RECORD}`")
        if not path.is_dir():
            traces.append(path)
            continue
        inside = sorted(file for file in path.iterdir() if file.name.endswith((".json", ".json.gz")))
        if not inside:
            raise UserError(
                f"{path}: the directory contains no trace (*.json, *.json.gz): record traces with `{_RECORD}`"
            )
        traces += inside
    return traces


def read_groups(patterns: Sequence[str]) -> Groups:
    """Parse the group dimensions that the user specified.

    Raises
    ------
    UserError
        A pattern is not ``REGEX=DIMENSION``.
    """
    groups = []
    for pattern in patterns:
        match, equals, dimension = pattern.rpartition("=")
        if not equals or not match:
            raise UserError(f"--group {pattern}: give REGEX=DIMENSION, for example '^my_group$=DP'")
        try:
            groups.append(GroupPattern.model_validate({"match": match, "dimension": dimension}))
        except ValidationError:
            dimensions = ", ".join(get_args(Meaning))
            raise UserError(
                f"--group {pattern}: give a regular expression, and one of the dimensions {dimensions}"
            ) from None
    return Groups(groups=groups)


def _list_unmatched(diagnosis: Diagnosis, groups: Groups) -> list[str]:
    """Return the user's expressions that match no group of the traced calls."""
    descriptions = {row.kind.description for row in diagnosis.rows}
    given = [pattern for pattern in groups.groups if pattern.match is not None]
    return [
        f"{pattern.match}={pattern.dimension}"
        for pattern in given
        if not any(re.search(str(pattern.match), description) for description in descriptions)
    ]


def _read(paths: Sequence[Path]) -> list[RankTrace]:
    traces = []
    with progress(unit="MB") as show:
        for number, path in enumerate(paths, start=1):
            name = f"reading {path.name} ({number} of {len(paths)})"
            traces.append(read_rank(path, partial(_show_progress, show, name)))
    return traces


def _show_progress(show: Show, name: str, done: int, size: int) -> None:
    show(done >> 20, size >> 20, name)
