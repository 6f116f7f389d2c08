"""Tests of hostile text in a study's program.

The text is either refused with a one-line message, or passed on unchanged.
"""

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hostile_text import HOSTILE, Keys, changed, texts, yaml

from hpcbench.batch.plan_jobs import plan
from hpcbench.batch.scripts.render import render
from hpcbench.batch.sites.load_site import load_site
from hpcbench.contract.interpose import VARIABLE, Interposition
from hpcbench.contract.program import Program, ProgramRun, load
from hpcbench.contract.run import RankShape
from hpcbench.errors import UserError
from hpcbench.programs.rank import prepared
from hpcbench.study.expand import ExpandedRun, expand
from hpcbench.study.load import Loaded, load_study
from hpcbench.study.run import program_file
from hpcbench.study.size import Capacity

WORD, MATRIX = ("program", "values", "word"), ("matrix", "program.values.varied", 0)
STUDY: dict[str, Any] = {
    "study": "fuzz",
    "site": "local",
    "program": {
        "command": "python play.py",
        "log": {"line": "loss (?P<loss>.*)", "evaluation": "held (?P<loss>.*)"},
        "start": "rank",
        "steps": 3,
        "env": {"MINE": "v", "USES": "{word} {varied}"},
        "values": {"word": "w", "varied": "w"},
        "directory": ".",
        "groups": {
            "groups": [{"match": "m", "dimension": "DP"}, {"axes": ["DP"], "dimension": "DP"}],
            "layout": [{"dimension": "DP", "size": 2}],
            "lossy": ["parameters"],
        },
        "precision": "fp32",
    },
    "nodes": 1,
    "ranks_per_node": 2,
    "scheme": "naive-int8",
    "baseline": {"scheme": "naive-int8"},
    "matrix": {"program.values.varied": ["w"]},
    "repeats": 1,
}
TEXTS = [
    *HOSTILE,
    "{seed} {{seed}} ${seed} { seed } {word} {Seed }",
    "{SEED}",
    '{"lr": 1, "seed": [{seed}]}',
    "{nobody}",
    "{0} {} {seed!r} {seed:>9} {word.__class__}",
    "%(seed)s %s %% $seed \\1 \\g<0>",
    "[b-\n]",
    "a{99999999999}",
    "(" * 3000,
    "\ud800",
    "👩‍💻 \u202e \ufeff",
    "'",
    '"',
]
SEED = "1234"


def loaded(directory: Path, study: dict[str, Any]) -> Loaded:
    path = directory / "study.yaml"
    path.write_text(yaml(study), encoding="utf-8", errors="surrogatepass")
    return load_study(path)


def filled(text: str) -> str:
    """Return a text with the placeholders for seed and word filled in."""
    return re.sub(r"\{(seed|word)\}", lambda found: {"seed": SEED, "word": "w"}[found[1]], text)


def may_stand(text: str) -> bool:
    """Return whether a command may contain a text. The text must be one line without unknown placeholders."""
    return text.isprintable() and set(re.findall(r"\{([A-Za-z_]\w*)\}", text)) <= {"seed", "word"}


def written(run: ExpandedRun, directory: Path) -> Path:
    shape = RankShape(nodes=1, ranks_per_node=2, cores_per_rank=1, gpus_per_rank="0", visibility="one")
    content = program_file(
        run, site="x", threads=1, oversubscribe=False, device="cpu", base=directory, shape=shape, peak_tflops={}
    )
    path = directory / "run.json"
    path.write_text(json.dumps(content), encoding="utf-8")
    return path


def arrived(directory: Path, study: dict[str, Any]) -> tuple[ProgramRun, list[str], dict[str, str]]:
    """Return the run, and the command and environment of its first rank."""
    (run,) = expand(loaded(directory, study), Capacity("here", None, 8))
    path = written(run, directory)
    read = load(path)
    return read, *prepared(read, path, "m", {"PMI_RANK": "0", "PMI_SIZE": "2"})


def check(directory: Path, keys: Keys, text: str) -> bool:
    """Return whether a field accepts a text.

    If the field refuses the text, check that each message is one line and names the study.
    """
    value = f"python play.py {shlex.quote(text)}" if keys == ("program", "command") else text
    study = changed(STUDY, keys, value)
    if keys[:2] == ("program", "values") or keys == MATRIX:
        study["program"]["command"] = f"python play.py {{{'word' if keys == WORD else 'varied'}}}"
    if keys == ("program", "values", "varied", "+"):
        study["matrix"] = {f"program.values.{text}": ["w"]}
    try:
        run, arguments, variables = arrived(directory, study)
    except UserError as error:
        lines = str(error).split("\n")
        assert all(line.isprintable() and len(line) < 1000 and "study.yaml" in line for line in lines), lines
        return False
    settings = Interposition.model_validate_json(variables[VARIABLE])
    if keys == ("program", "command"):
        assert arguments == [sys.executable, "play.py", filled(text)]
    elif keys == ("program", "env", "MINE"):
        assert variables["MINE"] == filled(text)
    elif keys == ("program", "env", "MINE", "+"):
        assert variables[text] == "v"
    elif keys in (WORD, MATRIX) and (keys == MATRIX or "varied" not in text):
        assert arguments[-1] == text, "braces in a value are not filled in"
    elif keys[-1] == "match":
        assert settings.groups.groups[0].match == text
    elif keys[-1] in ("line", "evaluation"):
        assert getattr(run.program.log, str(keys[-1])) == text
    elif keys[-1] == "directory":
        assert run.directory == str((directory / os.path.expanduser(text)).resolve())  # noqa: PTH111 (any text)
    return True


FIELDS = [
    *(keys for keys in texts(STUDY) if keys[0] in ("program", "matrix") and keys[-1] not in ("+", "varied")),
    ("program", "log"),
    ("program", "env", "MINE", "+"),
    ("program", "values", "word", "+"),
]


def test_the_study_has_every_text_of_a_program() -> None:
    schema = Program.model_json_schema()
    of_text = {
        name
        for part in (schema, *schema["$defs"].values())
        for name, field in part.get("properties", {}).items()
        if '"string"' in json.dumps(field)
    }
    assert of_text <= {str(key) for keys in FIELDS for key in keys}


@pytest.mark.parametrize("text", TEXTS, ids=lambda text: ascii(text)[:40])
def test_hostile_text_of_a_program_is_refused_in_one_line_or_arrives(tmp_path: Path, text: str) -> None:
    taken = {keys for keys in FIELDS if check(tmp_path, keys, text)}
    if may_stand(text):  # the program receives these two
        assert {("program", "command"), ("program", "env", "MINE")} <= taken
    if "\0" not in text and "\ud800" not in text:
        assert {WORD, MATRIX} <= taken


def test_no_text_of_a_program_stands_in_its_script(tmp_path: Path) -> None:
    def script(study: dict[str, Any]) -> str:
        loaded_study, (place, _) = loaded(tmp_path, study), load_site("local", "--site")
        jobs, _ = plan(expand(loaded_study, place.capacity), loaded_study, place, dry_run=True)
        return render(jobs[0], site=place, study="fuzz", root="/r")

    text = "'; touch pwned; $(touch pwned) `touch pwned` \" # \\"
    study = changed(STUDY, ("program", "command"), f"python {shlex.quote(text)}")
    for keys in (("program", "env", "MINE"), WORD, ("program", "directory")):
        study = changed(study, keys, text)
    assert script(study) == script(STUDY)


SHOWS = """\
import json, os, sys
with open(sys.argv[1], "w") as out:
    json.dump([sys.argv[2:], {name: value for name, value in os.environ.items() if name.startswith("MINE_")}], out)
print("loss 1")
"""


def test_all_hostile_texts_reach_a_real_program_at_once(tmp_path: Path) -> None:
    (tmp_path / "play.py").write_text(SHOWS, encoding="utf-8")
    lines = [text for text in TEXTS if may_stand(text)]
    usable = [text for text in TEXTS if "\0" not in text and "\ud800" not in text]
    assert len(lines) > 20 and len(usable) > len(lines)
    study = changed(STUDY, ("program", "start"), "node")
    names = [f"v{k}" for k in range(len(usable))]
    arguments = [*map(shlex.quote, lines), *(f"{{{name}}}" for name in names)]
    study["program"]["values"] |= dict(zip(names, usable, strict=True))
    study["program"]["command"] = f"python play.py {tmp_path}/seen {' '.join(arguments)}"
    study["program"]["env"] = {**{f"MINE_{k}": text for k, text in enumerate(lines)}, "USES": "{word} {varied}"}
    study["scheme"] = study["baseline"]["scheme"] = "baseline"
    (run,) = expand(loaded(tmp_path, study), Capacity("here", None, 8))
    command = [sys.executable, "-m", "hpcbench.programs", str(written(run, tmp_path)), "env", sys.executable]
    environment = {**os.environ, "PYTHONUTF8": "1"}
    with (tmp_path / "log.txt").open("wb") as log:
        done = subprocess.run(command, cwd=tmp_path, env=environment, stdout=log, stderr=subprocess.PIPE, check=False)
    assert (done.returncode, done.stderr) == (0, b""), (tmp_path / "log.txt").read_text(encoding="utf-8")
    got, variables = json.loads((tmp_path / "seen").read_text(encoding="utf-8"))
    assert got == [*map(filled, lines), *usable]
    assert variables == {f"MINE_{k}": filled(text) for k, text in enumerate(lines)}
    assert not list(tmp_path.rglob("*pwned*"))
