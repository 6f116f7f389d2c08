"""Tests of programs in studies: valid settings, errors for invalid settings, and the resulting runs."""

import json
import re
from pathlib import Path

import pytest

from hpcbench.batch.plan_jobs import plan
from hpcbench.batch.scripts.render import render
from hpcbench.batch.sites.load_site import load_site
from hpcbench.collect.dialects.table import DIALECTS
from hpcbench.contract.program import Framework, Program, fill_braces
from hpcbench.contract.run import RankShape
from hpcbench.errors import UserError
from hpcbench.study.expand import ExpandedRun, expand
from hpcbench.study.load import Loaded, load_study
from hpcbench.study.run import program_file, run_file
from hpcbench.study.schema import json_schema
from hpcbench.study.size import Capacity

GOOD = """\
study: mine
program:
  command: python train.py --seed {seed} --batch {batch}
  values: {batch: 8}
  log: torchtitan
  steps: 20
  env: {MY_PORT: "{port}"}
nodes: 2
ranks_per_node: 4
matrix:
  scheme: [baseline, naive-int8]
  program.values.batch: [8, 16]
repeats: 2
"""
ROOM = Capacity("here", None, 8)


def loaded(tmp_path: Path, text: str = GOOD) -> Loaded:
    path = tmp_path / "s.yaml"
    path.write_text(text, encoding="utf-8")
    return load_study(path)


def runs(tmp_path: Path, text: str = GOOD) -> list[ExpandedRun]:
    return expand(loaded(tmp_path, text), ROOM)


def content(run: ExpandedRun, base: Path) -> dict[str, object]:
    shape = RankShape(nodes=2, ranks_per_node=4, cores_per_rank=1, gpus_per_rank="0", visibility="one")
    return program_file(
        run, site="here", threads=1, oversubscribe=False, device="cpu", base=base, shape=shape, peak_tflops={}
    )


def test_frameworks_and_dialects_correspond() -> None:
    assert set(Framework.__args__) == {dialect.name.lower() for dialect in DIALECTS}  # type: ignore[attr-defined]


def test_schemes_rotate_and_seeds_count_up_with_the_repeats(tmp_path: Path) -> None:
    planned = runs(tmp_path)
    assert [run.id for run in planned][:3] == ["r1-batch8-baseline", "r1-batch8-naive-int8", "r1-batch16-baseline"]
    assert [run.scheme_name for run in planned if run.repeat == 2][:2] == ["naive-int8", "baseline"]
    files = {run.id: content(run, tmp_path) for run in planned}
    first, last = files["r1-batch8-baseline"], files["r2-batch16-naive-int8"]
    assert (first["ranks"], first["directory"]) == (8, str(tmp_path))
    seeds = [Program.model_validate(file["program"]).seed for file in (first, last)]
    assert seeds == [1234, 1235]
    arguments = Program.model_validate(last["program"]).fill_command({"seed": seeds[1]})
    assert arguments == ["python", "train.py", "--seed", "1235", "--batch", "16"]


def test_braces_that_are_not_names_stay() -> None:
    assert fill_braces('{"a": {seed}, "b": {c}}', {"seed": 3}) == '{"a": 3, "b": {c}}'


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("--batch {batch}", "--batch {bach}", "command has the unknown name {bach}: use seed, ranks"),
        ("  log: torchtitan\n", "  log: torchtitam\n", "torchtitam"),
        ("  log: torchtitan\n", "  log: {line: 'loss ('}\n", "not a regular expression"),
        (
            "  log: torchtitan\n",
            "  log: {line: 'loss (?P<los>.*)'}\n",
            "has an unknown group los: use groups from step",
        ),
        ("  log: torchtitan\n", "  log: {line: 'loss'}\n", "line has no group"),
        ("values: {batch: 8}", "values: {batch: 8, seed: 3}", "values.seed is a name that hpcbench sets"),
        ("--seed {seed}", "--seed '{seed}", "close the quote"),
        (
            "nodes: 2\n",
            "nodes: 2\nmodel: gpt-tiny\n",
            "s.yaml:9: model: the program of the study has its own training",
        ),
        ("nodes: 2\n", "nodes: 2\nlayout: {dp: 2}\n", "layout: the program of the study"),
        ("program.values.batch", "program.values.bach", "did you mean 'program.values.batch'?"),
        ("program.values.batch", "train.lr", "'train.lr' cannot vary"),
        ("naive-int8", "onebit-adam", "sets an optimizer"),
        ("  steps: 20\n", "", "program.steps: is missing"),
    ],
)
def test_errors_are_one_line(tmp_path: Path, old: str, new: str, message: str) -> None:
    assert old in GOOD
    with pytest.raises(UserError) as caught:
        runs(tmp_path, GOOD.replace(old, new))
    assert message in str(caught.value) and "\n" not in str(caught.value)
    assert str(caught.value).startswith(str(tmp_path / "s.yaml"))


START = """\
study: mine
program: {{command: "{command}", log: nanogpt, steps: 20, start: {start}, env: {env}}}
nodes: {nodes}
ranks_per_node: 4
matrix: {{scheme: [baseline, naive-int8]}}
"""


@pytest.mark.parametrize(
    ("command", "start", "nodes", "env", "fault"),
    [
        ("torchrun --nnodes {nodes} train.py", "node", 2, "{}", ""),
        ("torchrun --standalone train.py", "node", 1, "{}", ""),
        ("torchrun train.py", "node", 2, "{PET_NNODES: '2'}", ""),
        ("python train.py", "rank", 2, "{}", ""),
        ("python -m train torchrun", "rank", 2, "{}", ""),
        ("bash start.sh torchrun", "rank", 2, "{}", ""),
        ("srun python train.py", "node", 2, "{}", ""),
        ("torchrun --standalone train.py", "node", 2, "{}", "a separate world on each of the 2 nodes: use --nnodes {n"),
        ("torchrun --nproc-per-node 4 train.py", "node", 2, "{}", "without --nnodes, torchrun starts a separate world"),
        ("torchrun --nnodes 2 train.py", "rank", 2, "{}", "set program.start: node, or give the command of one rank"),
        ("accelerate launch train.py", "rank", 1, "{}", "accelerate starts ranks"),
        ("A=1 python3.12 -m torch.distributed.launch t.py", "rank", 1, "{}", "torch.distributed.launch starts ranks"),
        ("/opt/bin/mpiexec -n 4 python t.py", "rank", 1, "{}", "mpiexec starts ranks, but the site's launcher"),
    ],
)
def test_a_command_that_starts_a_wrong_number_of_ranks_is_refused(
    tmp_path: Path, command: str, start: str, nodes: int, env: str, fault: str
) -> None:
    text = START.format(command=command, start=start, nodes=nodes, env=env)
    if not fault:
        assert runs(tmp_path, text)
        return
    with pytest.raises(UserError) as caught:
        runs(tmp_path, text)
    assert str(caught.value).startswith(f"{tmp_path}/s.yaml:2: program.command: ") and fault in str(caught.value)


def test_a_section_that_only_an_option_made_is_named_by_the_option(tmp_path: Path) -> None:
    loaded(tmp_path)
    with pytest.raises(UserError, match=r"^--set train.steps=50: train: the program .* has its own training") as caught:
        load_study(tmp_path / "s.yaml", ["train.steps=50"])
    assert "steps, warmup_steps and seed are fields of program" in str(caught.value)


def test_a_program_is_not_predicted(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="hpcbench cannot model this program"):
        run_file(runs(tmp_path)[0], site="here", threads=1, oversubscribe=False, device="cpu", base=tmp_path)


def test_the_json_schema_takes_a_model_or_a_program() -> None:
    schema = json_schema()
    assert schema["oneOf"] == [{"required": ["model", "train"]}, {"required": ["program"]}]
    assert "Program" in json.dumps(schema["properties"]["program"]) and "Program" in schema["$defs"]


def script(tmp_path: Path, site: str, text: str = GOOD) -> str:
    study, (place, _) = loaded(tmp_path, text), load_site(site, "--site")
    jobs, _ = plan(expand(study, place.capacity), study, place, dry_run=True)
    return render(jobs[0], site=place, study="mine", root="/r")


WALLTIME = GOOD + "walltime: 10m\n"


def test_ranks_are_started_by_the_sites_launcher_within_our_process(tmp_path: Path) -> None:
    text = script(tmp_path, "local", GOOD.replace("nodes: 2", "nodes: 1"))
    assert re.search(r'^run \S+ \S+ -u -m hpcbench\.programs runs/\S+/run\.json "\$\{launch\[@\]\}" \S+$', text, re.M)
    assert "hpcbench.train" not in text
    (launch,) = (line for line in text.splitlines() if line.startswith("launch=("))
    assert "mpiexec -n 4" in launch


NODE = WALLTIME.replace("  steps: 20", "  start: node\n  steps: 20")


@pytest.mark.parametrize(
    ("site", "nodes", "message"),
    [
        ("local", 1, "launch=(env)"),
        ("lassen", 1, "launch=(lrun -N1 -T1 "),  # its job scripts run outside of the job's nodes
        ("lassen", 2, "launch=(lrun -N2 -T1 "),
    ],
)
def test_a_command_that_starts_its_own_ranks_is_started_once_on_each_node(
    tmp_path: Path, site: str, nodes: int, message: str
) -> None:
    assert message in script(tmp_path, site, NODE.replace("nodes: 2", f"nodes: {nodes}"))


def test_a_launcher_that_cannot_start_fewer_ranks_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"ibrun always starts all ranks of the job: set program\.start to rank"):
        script(tmp_path, "longhorn", NODE)


def test_the_programs_in_the_examples_are_there() -> None:
    studies = Path(__file__).parents[2] / "studies"
    for path in studies.glob("program-*.yaml"):
        for run in expand(load_study(path), ROOM):
            arguments = Program.model_validate(content(run, studies)["program"]).command.split()
            script_ = next(word for word in arguments if word.endswith(".py"))
            assert (studies / script_).is_file()
