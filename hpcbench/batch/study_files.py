"""Check that the files read by ranks exist and are long enough."""

from collections.abc import Iterator
from pathlib import Path

from hpcbench.contract.problems import FieldPath
from hpcbench.contract.text_split import count_half_bytes, split_pieces
from hpcbench.errors import UserError
from hpcbench.files import exists, shown_path
from hpcbench.study.expand import ExpandedRun
from hpcbench.study.schema import ProgramStudy, Study

_SHORT_TEXT = 1 << 24
"""Maximum size in bytes of a text whose splits are measured. The splits of larger texts are always long enough."""


def check_files(runs: list[ExpandedRun], base: Path) -> None:
    """Check the files of all runs.

    Parameters
    ----------
    base
        Directory of the study file, which is the base of relative paths.

    Raises
    ------
    UserError
        A file is missing or too short. The message contains the line and field of the study.
    """
    checked: set[tuple[object, ...]] = set()
    for run in runs:
        if isinstance(run.study, ProgramStudy):
            directory = base / (run.study.program.directory or ".")
            if not directory.is_dir():
                raise UserError(
                    f"{run.where(('program', 'directory'))}: program.directory: {shown_path(directory)} is not a "
                    "directory (paths are relative to the directory of the study file): check the path"
                )
            continue
        key = (run.study.data, run.study.links, run.study.train.seq_len)
        if key in checked:
            continue
        checked.add(key)
        for place, name in _named_files(run.study):
            if not (exists(base / name) and (base / name).is_file()):
                raise UserError(
                    f"{run.where(place)}: {'.'.join(map(str, place))}: {shown_path(base / name)} is not a file (paths "
                    "are relative to the directory of the study file): check the path"
                )
        _check_length(run, run.study, base)


def _named_files(study: Study) -> Iterator[tuple[FieldPath, str]]:
    """Yield the field and file name of each file that a run reads."""
    data = study.data
    pair = (data.path or "").removesuffix(".bin").removesuffix(".idx")
    paths = [pair + suffix for suffix in (".bin", ".idx")] if data.source == "megatron" else [data.path]
    for name in paths:
        if name is not None:
            yield ("data", "path"), name
    if data.tokenizer is not None:
        yield ("data", "tokenizer"), data.tokenizer
    if study.links is not None:
        yield ("links",), study.links


def _check_length(run: ExpandedRun, study: Study, base: Path) -> None:
    """Refuse a text with a split shorter than one sample.

    If the study uses a tokenizer, only the run itself can check the length.
    """
    data, seq_len = study.data, study.train.seq_len
    if data.source != "file" or data.tokenizer is not None or data.path is None:
        return
    path = base / data.path
    try:
        if path.stat().st_size > max(_SHORT_TEXT, 100 * seq_len):
            return
        halves = count_half_bytes(split_pieces(path.read_bytes()), data.valid_fraction)
    except OSError as error:
        raise UserError(f"{run.where(('data', 'path'))}: data.path: {shown_path(path)}: {error.strerror}") from None
    for name, count in halves.items():
        if count <= seq_len + 1:
            raise UserError(
                f"{run.where(('data', 'path'))}: data.path: the {name} split of {shown_path(path)} has {count} bytes, "
                f"which is too short for seq_len {seq_len}: give a longer text, or change data.valid_fraction"
            )
