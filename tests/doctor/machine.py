"""Simulated machines whose commands print text from a file.

The file contains ``$ command`` lines, each followed by its output.
"""

import shlex
import shutil
from pathlib import Path

import pytest

from hpcbench.batch.sites.check_site import check_file
from hpcbench.batch.sites.load_site import load_site
from hpcbench.batch.sites.site import Site

HERE = Path(__file__).parent
_PLAIN = ("bash", "sh", "cat", "env", "sleep", "git", "dirname", "grep")


def recorded(name: str) -> dict[str, str]:
    """Return the command lines of a file with their outputs."""
    answers: dict[str, str] = {}
    command = ""
    for line in (HERE / f"{name}.txt").read_text(encoding="utf-8").splitlines(keepends=True):
        if line.startswith("$ "):
            command = line[2:].strip()
            answers[command] = ""
        elif command:
            answers[command] += line
    return answers


class Machine:
    """A simulated machine, whose programs are in the only directory on PATH."""

    def __init__(self, directory: Path, patch: pytest.MonkeyPatch) -> None:
        self.directory = directory
        directory.mkdir()
        for name in _PLAIN:
            (directory / name).symlink_to(shutil.which(name) or f"/bin/{name}")
        patch.setenv("PATH", str(directory))

    def answers(self, recording: dict[str, str]) -> None:
        """Add programs that answer these command lines, and fail for all other command lines."""
        programs: dict[str, list[str]] = {}
        for line, text in recording.items():
            program, _, arguments = line.partition(" ")
            here = f"{shlex.quote(arguments)}) cat <<'END-OF-ANSWER'\n{text.rstrip(chr(10))}\nEND-OF-ANSWER\n;;"
            programs.setdefault(program, []).append(here)
        for program, cases in programs.items():
            refuse = f'*) echo "{program}: no answer to $*" >&2; exit 3;;'
            self.script(program, "\n".join(['case "$*" in', *cases, refuse, "esac"]))

    def script(self, program: str, text: str) -> None:
        """Add a program with this shell script."""
        path = self.directory / program
        path.unlink(missing_ok=True)
        path.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
        path.chmod(0o755)


def site_of(text: str, directory: Path) -> Site:
    """Return the site of a drafted file, which must be valid."""
    path = directory / "drafted.yaml"
    path.write_text(text, encoding="utf-8")
    assert check_file(path) == []
    return load_site(str(path))[0]


def change(recording: dict[str, str], command: str, old: str, new: str) -> dict[str, str]:
    """Return a recording in which a part of a command's output is replaced."""
    assert old in recording[command]
    return {**recording, command: recording[command].replace(old, new)}


SHAPES = "sinfo --noheader --exact --format=%P|%D|%c|%X|%Y|%Z|%m|%G"
PARTITIONS = "scontrol --oneliner show partition"
CONFIG = "scontrol show config"
ASSOC = "sacctmgr --noheader --parsable2 show assoc where user=root format=Account,Partition,QOS,MaxSubmit"
QOS = "sacctmgr --noheader --parsable2 show qos format=Name,MaxWall,MaxSubmitPU,MaxJobsPU,MaxTRES,MaxTRESPU"
SLURM = recorded("slurm-22.05")
PLAIN_LSF = {line: text for line, text in recorded("lsf-jsrun").items() if not line.startswith("jsrun")}
