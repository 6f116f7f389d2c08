"""Tests of the command line: exit statuses, one-line errors for all arguments, and modules not imported."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import hpcbench
from hpcbench import cli
from hpcbench.report import tables
from hpcbench.resources import data_dir

DEMO = data_dir("studies") / "demo.yaml"
CHECKOUT = Path(hpcbench.__file__).resolve().parent.parent
HEAVY = {"torch", "mpi4py", "numpy", "cupy"}


def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *arguments: str) -> tuple[int, str, str]:
    """Run a command in this process. Return its exit status, stdout and stderr."""
    monkeypatch.setattr(sys, "argv", ["hpcbench", *arguments])
    with pytest.raises(SystemExit) as caught:
        cli.main()
    out, err = capsys.readouterr()
    code = caught.value.code
    assert isinstance(code, int)
    return code, out, err


def spawn(*command: str, cwd: Path, **options: object) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(CHECKOUT)}
    return subprocess.run(
        [sys.executable, *command], cwd=cwd, env=environment, capture_output=True, text=True, check=False, **options
    )  # type: ignore[call-overload,no-any-return]


IMPORTS = """
import sys
from hpcbench import cli
sys.argv = ["hpcbench", *sys.argv[1:]]
try:
    cli.main()
finally:
    print("\\nMODULES", *sorted({name.partition(".")[0] for name in sys.modules}))
"""


def test_no_description_of_a_command_is_cut(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    code, out, _ = run(capsys, monkeypatch, "--help")
    assert code == 0 and "doctor" in out and "..." not in out.replace("COMMAND [ARGS]...", "")


def test_the_help_of_report_names_every_table(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    code, out, _ = run(capsys, monkeypatch, "report", "--help")
    text = " ".join(out.split()).replace("- ", "-")  # words are wrapped at hyphens
    named = text.partition("Further tables: ")[2].partition(".")[0].split(", ")
    assert code == 0
    assert named == [*tables.OF_CELL, *tables.OF_SUBMISSION, tables.METHOD]


def test_report_takes_the_newest_submission_as_other_commands_do(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    code, _, err = run(capsys, monkeypatch, "report")
    assert code == 2 and "no submission found here" in err
    root = tmp_path / "results" / "demo" / "001"
    assert run(capsys, monkeypatch, "submit", str(DEMO), "--dry-run")[0] == 0
    (tmp_path / "results" / "demo" / "dry-run" / "001").rename(root)
    code, out, _ = run(capsys, monkeypatch, "report")
    assert "demo on local" in out


@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"],
        ["--version"],
        ["sites"],
        ["schema", "study"],
        ["submit", "--help"],
        ["bench", "--help"],
        ["bench", "codecs", "--help"],
        ["bench", "network", "--help"],
        ["bench", "collectives", "--help"],
        ["submit", str(DEMO), "--dry-run", "--out", "out"],
        ["submit", str(data_dir("studies") / "neox-hybrid.yaml"), "--dry-run", "--out", "out"],
    ],
    ids=lambda arguments: " ".join(arguments[:1]),
)
def test_a_login_node_needs_none_of_the_heavy_modules(tmp_path: Path, arguments: list[str]) -> None:
    done = spawn("-c", IMPORTS, *arguments, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    modules = set(done.stdout.rpartition("MODULES ")[2].split())
    assert "hpcbench" in modules and not modules & HEAVY
    if arguments == ["--help"]:
        assert not modules & {"pydantic", "jinja2", "ruamel", "rich"}


def test_a_thousand_runs_in_one_dry_run(tmp_path: Path) -> None:
    study = {
        "study": "thousand",
        "model": "gpt-tiny",
        "train": {"steps": 20, "global_batch": 64},
        "layout": {"dp": 2},
        "matrix": {
            "train.micro_batch": [1, 2, 4, 8, 16],
            "train.seed": list(range(10)),
            "scheme": ["baseline", "identity", "naive-mpc", "mzhybrid", "zhybrid-16-8"],
        },
        "repeats": 4,
    }
    (tmp_path / "s.yaml").write_text(json.dumps(study), encoding="utf-8")
    done = spawn(
        "-m",
        "hpcbench",
        "submit",
        "s.yaml",
        "--site",
        "local",
        "--dry-run",
        cwd=tmp_path,
    )
    assert (done.returncode, done.stderr) == (0, "")
    root = tmp_path / "results" / "thousand" / "dry-run" / "001"
    assert done.stdout.splitlines()[0].startswith("200 jobs, 1000 runs on local")
    assert done.stdout.splitlines()[-1] == str(root)
    assert len(list(root.glob("runs/*/run.json"))) == 1000
    assert len(list(root.glob("jobs/*/job.sh"))) == 200


GOOD = """\
study: demo
site: local
model: gpt-tiny
train:
  steps: 120
  global_batch: 8
layout: {dp: 2, tp: 2, pp: 2}
matrix:
  scheme: [baseline, mzhybrid]
repeats: 2
"""
HOSTILE_STUDIES: dict[str, bytes] = {
    "empty": b"",
    "binary": bytes(range(256)),
    "nul": b"study: a\x00b\n",
    "list": b"- a\n",
    "unknown key": GOOD.replace("repeats:", "repaets:").encode(),
    "wrong type": GOOD.replace("steps: 120", "steps: many").encode(),
    "does not divide": GOOD.replace("tp: 2", "tp: 3").encode(),
    "empty matrix": GOOD.replace("scheme: [baseline, mzhybrid]", "scheme: []").encode(),
    "unknown model": GOOD.replace("gpt-tiny", "gpt-huge").encode(),
    "unknown scheme": GOOD.replace("mzhybrid", "mzhybrd").encode(),
    "unknown site": GOOD.replace("site: local", "site: locale").encode(),
    "site of a shell": GOOD.replace("site: local", "site: $(touch pwned)").encode(),
    "site in a path": GOOD.replace("site: local", "site: ../../etc/passwd.yaml").encode(),
    "name with blanks": GOOD.replace("study: demo", "study: my demo").encode(),
    "name with quotes": GOOD.replace("study: demo", "study: \"a'; touch pwned; '\"").encode(),
    "name of a shell": GOOD.replace("study: demo", "study: $(touch pwned)").encode(),
    "name with backticks": GOOD.replace("study: demo", "study: '`touch pwned`'").encode(),
    "name with newlines": GOOD.replace("study: demo", 'study: "a\\n#BSUB -q x"').encode(),
    "two keys": (GOOD + "study: again\n").encode(),
    "tabs": GOOD.replace("  steps", "\tsteps").encode(),
}


def test_the_base_of_the_hostile_studies_is_valid(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "s.yaml").write_text(GOOD, encoding="utf-8")
    assert all(text != GOOD.encode() for text in HOSTILE_STUDIES.values())
    code, _, err = run(capsys, monkeypatch, "submit", "s.yaml", "--dry-run")
    assert (code, err) == (0, "")


@pytest.mark.parametrize("name", HOSTILE_STUDIES)
def test_hostile_studies_end_in_one_line_and_nothing_on_disk(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "s.yaml").write_bytes(HOSTILE_STUDIES[name])
    code, out, err = run(capsys, monkeypatch, "submit", "s.yaml")
    assert (code, out) == (2, "")
    assert err.startswith("hpcbench: s.yaml"), err
    assert err.count("\n") == 1 and err.endswith("\n") and "Traceback" not in err
    assert err.strip().isprintable()
    assert [path.name for path in tmp_path.iterdir()] == ["s.yaml"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["submit"], "Missing argument 'study': see `hpcbench submit --help`"),
        (["bench", "codecs", "--frobnicate"], "see `hpcbench bench codecs --help`"),
        (["run", "--scheme", "nope", "--", "true"], "or a file that ends in .yaml"),
        (["submit", "none.yaml"], "none.yaml: no such file"),
        (["submit", "."], "is a directory"),
        (["submit", "/proc/self/mem"], "cannot be read"),
        (["submit", str(DEMO), "--site", "nowhere"], "unknown site 'nowhere'"),
        (["submit", str(DEMO), "--site", "lasen"], "did you mean 'lassen'?"),
        (["submit", str(DEMO), "--site", "./none.yaml"], "site file none.yaml does not exist"),
        (["submit", str(DEMO), "--set", "nodes=2"], "nodes: 2: local is a single machine"),
        (["submit", str(DEMO), "--site", "/"], "is a directory"),
        (["submit", str(DEMO), "--site", str(DEMO)], "unknown key"),
        (["submit", str(DEMO), "--set", "a"], "expected KEY=VALUE"),
        (["submit", str(DEMO), "--set", "study=a b"], "is not a name"),
        (["submit", str(DEMO), "--only", "x=1"], "unknown key"),
        (["submit", str(DEMO), "--only", "nothing"], "matches no run"),
        (["submit", str(DEMO), "--out", "/dev/null/x"], "is not a directory"),
        (["submit", str(DEMO), "--out", "/proc/x"], "/proc/x"),
        (["submit", str(DEMO), "--dry-run", "--out", "a\nb"], "line break"),
        (["submit", str(DEMO), "--frobnicate"], "No such option"),
        (["submit", str(DEMO), "two"], "unexpected extra argument"),
        (["status"], "no submission found here"),
        (["status", "none"], "none: no such directory"),
        (["status", str(DEMO)], "is not a directory"),
        (["status", "."], "no submission.json"),
        (["status", "$(touch pwned)"], "no such directory"),
        (["cancel"], "no submission found here"),
        (["cancel", "none"], "no such directory"),
        (["cancel", "."], "no submission.json"),
        (["sites", "nowhere"], "unknown site"),
        (["sites", str(DEMO)], "unknown key"),
        (["sites", "none.yaml"], "site file none.yaml does not exist"),
        (["schema", "nonsense"], "use study or site"),
        (["doctor", "--json", "gone/x.json"], "--json gone/x.json: the directory gone does not exist: create it"),
        (["sbumit"], "No such command"),
        (["a\nb"], "No such command"),
    ],
    ids=lambda value: " ".join(value).replace("/", "_")[:60] if isinstance(value, list) else "",
)
def test_wrong_arguments_end_in_one_line(
    arguments: list[str], says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    code, out, err = run(capsys, monkeypatch, *arguments)
    assert (code, out) == (2, "")
    assert err.startswith("hpcbench: ") and says in err, err
    assert err.count("\n") == 1 and "Traceback" not in err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"site": "a b"}, "site: 'a b' is not a name"),
        ({"scheduler": {"kind": "pbs"}}, "scheduler.kind: must be"),
        ({"scheduler": {"kind": "slurm", "directives": {"--comment": "a\nb"}}}, "one line"),
        ({"scheduler": {"kind": "slurm", "directives": {"-x y": "1"}}}, "is not an option"),
        ({"launcher": {"kind": "mpirum"}}, "launcher.kind: must be"),
        ({"environment": {"A B": "1"}}, "is not a variable name"),
        ({"environment": {"A": "1\n2"}}, "several lines: write one line per entry"),
        ({"environment": {"A": 1}}, "environment.A: must be text, not 1"),
        ({"modules": ["a\nb"]}, "several lines"),
        ({"setup": ["#SBATCH -q free"]}, "move it to scheduler.directives"),
        ({"walltime": "12:00"}, "12 hours 00 minutes (LSF)"),
        ({"queues": {"q": {"max_walltime": "90"}}}, "has no unit"),
        ({"device": "cuda"}, "needs node.gpus"),
        ({"scheduler": {"kind": "lsf"}}, "auto refers to the machine that runs hpcbench"),
        ({"node": {"coers": 4}}, "did you mean 'cores'?"),
        ({"python": "a\0b"}, "has a control character"),
    ],
)
def test_faults_of_a_site_file_are_reported_with_their_line(
    change: dict[str, object],
    says: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    site = {"site": "x", "scheduler": {"kind": "local"}, "launcher": {"kind": "mpich"}, "checked": "never", **change}
    (tmp_path / "x.yaml").write_text("".join(f"{key}: {json.dumps(value)}\n" for key, value in site.items()))
    line = list(site).index(next(iter(change))) + 1
    for arguments in (["sites", "x.yaml"], ["submit", str(DEMO), "--site", "x.yaml"]):
        code, out, err = run(capsys, monkeypatch, *arguments)
        assert (code, out) == (2, "")
        assert says in err, err
        assert err.count("\n") == 1
        # The excluded errors concern two keys.
        if says not in ("needs node.gpus", "auto refers to the machine that runs hpcbench"):
            assert err.startswith(f"hpcbench: x.yaml:{line}: "), err


def test_files_that_may_not_be_read_are_one_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path, *_: object) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "open", refuse)  # root can read every file, so the error is simulated
    code, out, err = run(capsys, monkeypatch, "submit", "secret.yaml")
    assert (code, out, err) == (2, "", "hpcbench: secret.yaml: cannot be read: check its permissions\n")


def test_an_interrupt_is_quiet(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("hpcbench.batch.submit.submit", interrupted)
    code, out, err = run(capsys, monkeypatch, "submit", str(DEMO))
    assert (code, out) == (130, "")
    assert "Traceback" not in err


@pytest.mark.parametrize(
    ("command", "option"),
    [
        ("report gone", "--output"),
        ("report gone", "--export"),
        ("report gone", "--bundle"),
        ("history gone", "--output"),
        ("predict gone", "--output"),
        ("diagnose gone", "--output"),
        ("tune gone --loss-budget 1%", "--output"),
    ],
)
def test_an_output_in_a_missing_directory_is_refused_before_the_work(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, command: str, option: str
) -> None:
    """The input does not exist either, so any work would be refused for that reason."""
    file = {"--output": "missing/a.html", "--export": "missing/a.csv", "--bundle": "missing/a.tar.gz"}[option]
    code, _, err = run(capsys, monkeypatch, *command.split(), option, file)
    assert (code, err) == (2, f"hpcbench: {option} {file}: the directory missing does not exist: create it\n")


@pytest.mark.parametrize("command", ["diagnose gone", "tune gone --loss-budget 1%", "report gone"])
def test_only_commands_with_a_format_recommend_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    code, _, err = run(capsys, monkeypatch, *command.split(), "--output", "a.pdf")
    assert code == 2 and "--output a.pdf: .pdf is not the suffix of a format: use .txt, " in err
    assert ("or add --format" in err) == command.startswith("report")


def test_a_full_disk_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path, data: object) -> None:
        raise OSError(28, "No space left on device", str(path))

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("hpcbench.batch.write_submission.write_json", full)
    code, out, err = run(capsys, monkeypatch, "submit", str(DEMO), "--dry-run")
    assert (code, out) == (2, "")
    assert err.startswith("hpcbench: ") and err.endswith("json: No space left on device\n")
    assert list(tmp_path.iterdir()) == []


def test_a_closed_pipe_is_quiet(tmp_path: Path) -> None:
    read, write = os.pipe()
    os.close(read)
    command = [sys.executable, "-m", "hpcbench", "schema", "study"]
    environment = {**os.environ, "PYTHONPATH": str(CHECKOUT)}
    done = subprocess.run(command, cwd=tmp_path, env=environment, stdout=write, stderr=subprocess.PIPE, check=False)
    os.close(write)
    assert done.returncode != 0
    assert done.stderr == b""


def test_the_dry_run_says_what_it_would_do(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    study = str(data_dir("studies") / "neox-hybrid.yaml")
    code, out, err = run(capsys, monkeypatch, "submit", study, "--dry-run", "--out", str(tmp_path / "o"))
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[0] == "9 jobs, 63 runs on lassen (lsf), at most 504.0 node-hours: a dry run"
    assert lines[1] == (
        "  j0001-r1 ... j0007-r3 (3 jobs): 12 nodes x 4 ranks, 10 threads per rank, walltime 2h, queue pbatch"
    )
    assert lines[2] == "    lrun -N12 -T4 -M -gpu python3 -u -m hpcbench.train runs/RUN/run.json"
    schemes = "baseline, identity, naive-mpc, naive-zfp8, naive-zfp16, mzhybrid, zhybrid-16-8"
    assert lines[7] == "  messages leave the node in all runs"
    assert lines[8:11] == [f"  nodes {nodes}: 21 runs: {schemes} (repeats 1 to 3)" for nodes in (12, 24, 48)]
    assert lines[-1] == str(tmp_path / "o" / "001")
    code, out, _ = run(capsys, monkeypatch, "status", str(tmp_path / "o"))
    assert code == 0 and out.count("pending") == 9 + 63


@pytest.mark.parametrize(
    ("site", "sets", "says"),
    [
        ("slurm-cluster", ["nodes=2", "ranks_per_node=1"], "messages leave the node in all runs"),
        ("slurm-cluster", [], "no message leaves the node, so the runs do not measure the network: use two nodes"),
        ("local", [], "no message leaves the node, so the runs do not measure the network: try --site virtual-hosts"),
        ("virtual-hosts", [], "messages leave the node in all runs"),
        (
            "slurm-cluster",
            [
                "layout={}",
                "train.global_batch=16",
                "ranks_per_node=1",
                "matrix={nodes: [1, 2, 4], scheme: [baseline, identity]}",
            ],
            "messages leave the node in 12 of 18 runs: the others use only one node",
        ),
    ],
)
def test_the_dry_run_says_whether_messages_leave_a_node(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    site: str,
    sets: list[str],
    says: str,
) -> None:
    study = str(data_dir("studies") / "demo.yaml")
    settings = [word for setting in sets for word in ("--set", setting)]
    code, out, err = run(
        capsys, monkeypatch, "submit", study, "--site", site, *settings, "--dry-run", "--out", str(tmp_path / "o")
    )
    assert (code, err) == (0, "")
    (line,) = [line for line in out.splitlines() if "the node" in line]
    assert line.startswith(f"  {says}")


def test_the_study_that_the_readme_submits_to_a_cluster_uses_its_network(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    text = (CHECKOUT / "README.md").read_text(encoding="utf-8")
    commands = [line.split("#")[0].split() for line in text.splitlines() if line.startswith("hpcbench submit")]
    dry, real = commands
    assert [word for word in dry if word != "--dry-run"] == real
    command = [
        word.replace("./mysite.yaml", "slurm-cluster").replace("studies", str(CHECKOUT / "studies")) for word in dry
    ]
    code, out, _ = run(capsys, monkeypatch, *command[1:], "--out", str(tmp_path / "o"))
    assert code == 0 and "  messages leave the node in all runs" in out.splitlines()


def test_the_name_of_a_site_file_is_explained(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mycluster.yaml").touch()
    code, _, err = run(capsys, monkeypatch, "submit", str(DEMO), "--site", "mycluster")
    assert (code, err) == (
        2,
        "hpcbench: --site: unknown site 'mycluster': for the file mycluster.yaml, write ./mycluster.yaml\n",
    )


def test_the_dry_run_names_a_submission_that_does_not_exist(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    code, out, _ = run(capsys, monkeypatch, "submit", str(DEMO), "--dry-run", "--after", "first")
    assert code == 0 and "  submit would refuse this study here: --after: results/first: no such directory" in out


def test_the_dry_run_lists_the_cells_and_runs_that_are_chosen(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    study, some = str(data_dir("studies") / "neox-hybrid.yaml"), "nodes=24,scheme=baseline|mzhybrid,repeat=1|3"
    code, out, _ = run(capsys, monkeypatch, "submit", study, "--dry-run", "--only", some, "--out", str(tmp_path / "o"))
    assert code == 0
    cells = [line for line in out.splitlines() if line.startswith("  nodes ")]
    assert cells == ["  nodes 24: 4 runs: baseline, mzhybrid (repeats 1, 3)"]


def test_sites_and_schemas_are_shown(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    code, out, _ = run(capsys, monkeypatch, "sites")
    listed = dict(line.split()[:2] for line in out.splitlines())
    assert code == 0 and set(listed.values()) == {"local", "slurm", "lsf", "flux"}
    assert {"lassen": "lsf", "local": "local", "longhorn": "slurm", "tuolumne": "flux"}.items() <= listed.items()
    code, out, _ = run(capsys, monkeypatch, "sites", "lassen")
    assert code == 0 and re.search("^checked +never", out, re.MULTILINE)
    for what in ("study", "site"):
        code, out, _ = run(capsys, monkeypatch, "schema", what)
        assert code == 0 and what in json.loads(out)["properties"]


def test_site_files_are_checked_with_every_fault(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "x.yaml"
    path.write_text("site: x\nscheduler: {kind: pbs}\nlauncher: {kind: mpich}\nthreads: 0\n", encoding="utf-8")
    code, out, err = run(capsys, monkeypatch, "sites", "check", str(path), "lassen")
    assert (code, err) == (2, "")
    assert [line.split(": ")[1] for line in out.splitlines()] == ["checked", "scheduler.kind", "threads", "valid"]
    assert run(capsys, monkeypatch, "sites", "check", "lassen")[0] == 0
    for wrong, says in ((["check"], "name the site files"), (["lassen", "local"], "name only one site to show")):
        code, out, err = run(capsys, monkeypatch, "sites", *wrong)
        assert (code, out) == (2, "") and says in err
