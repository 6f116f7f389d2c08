"""Tests of bundles: the report is unchanged, names are replaced on request, and hostile archives cause no harm."""

import io
import json
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from planted_results import Planted, write
from planted_traces import plant as plant_trace
from typer.testing import CliRunner

from hpcbench.cli import app
from hpcbench.errors import UserError
from hpcbench.report.bundle import load_bundle, unpack
from hpcbench.report.bundle.names import Names

USER, LOGIN = "alice", "login7.cluster.example.org"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Write a submission with its usual files, and with files that a bundle excludes."""
    runs = [Planted(name, r, s, loss=2.0, hosts={"nid01": 1.0, "nid02": 1.1}) for name, s in SECONDS for r in (1, 2, 3)]
    submission_root = write(tmp_path / f"home/{USER}" / "results" / "001", runs)
    plant_trace(submission_root / "runs" / "r1-baseline", ranks=2)
    (submission_root / "provenance").mkdir()
    about = {"user": USER, "host": LOGIN, "command": [f"/home/{USER}/bin/hpcbench", "submit"]}
    environment = {"USER": USER, "HOME": f"/home/{USER}", "SECRET_OF_MINE": "xyzzy"}
    (submission_root / "provenance" / "submit.json").write_text(json.dumps({**about, "environment": environment}))
    (submission_root / "study.yaml").write_text(f"study: demo  # by {USER}, not malice\n")
    checkpoint = submission_root / "runs" / "r1-baseline" / "checkpoint"
    checkpoint.mkdir()
    (checkpoint / "big").write_bytes(b"\0" * 1000)
    (submission_root / "link").symlink_to("/etc/passwd")
    (submission_root / "core").write_bytes(b"\xff\xfe\0alice")
    return submission_root


SECONDS = (("baseline", 0.5), ("naive-zfp8", 0.4))


def hpcbench(*message: object) -> Any:
    return CliRunner().invoke(app, [str(word) for word in message])


def packed(path: Path) -> dict[str, bytes]:
    """Return the name and content of each file."""
    with tarfile.open(path) as tar:
        owners = {(member.uid, member.gid, member.uname, member.gname) for member in tar.getmembers()}
        assert owners == {(0, 0, "", "")}, "nobody's"
        return {member.name: tar.extractfile(member).read() for member in tar.getmembers()}  # type: ignore[union-attr]


def figures(source: Path) -> Any:
    """Return the report of a submission or a bundle, without paths and names."""
    output = json.loads(hpcbench("report", source, "--format", "json").stdout)
    for submission in output["submissions"]:
        del submission["root"]
        for cell in submission["cells"]:
            for run in cell["runs"]:
                for key in ("log", "host", "hosts", "environment", "where"):
                    del run[key]
    return output


@pytest.mark.parametrize("suffix", [".tar.gz", ".tar.xz", ".tar"])
def test_the_report_of_a_bundle_is_that_of_what_was_packed(root: Path, tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"paper{suffix}"
    done = hpcbench("report", root, "--bundle", path)
    assert done.exit_code == 0, done.output
    assert figures(path) == figures(root)
    files = packed(path)
    names = {name.removeprefix("demo-001/") for name in files}
    assert all(name.startswith("demo-001/") for name in files)
    kept_files = {
        "submission.json",
        "study.yaml",
        "runs/r1-baseline/run.json",
        "runs/r1-baseline/log.txt",
        "BUNDLE.json",
    }
    assert kept_files | {"runs/r1-baseline/trace/rank-0.json"} <= names
    assert not {name for name in names if "checkpoint" in name or name == "link"}
    assert "left out: demo-001/runs/r1-baseline/checkpoint: checkpoints" in done.output
    assert b"xyzzy" not in b"".join(files.values()), "the environment is the user's alone"


def test_an_old_bundle_is_compared_with(root: Path, tmp_path: Path) -> None:
    hpcbench("report", root, "--bundle", tmp_path / "old.tar.gz")
    slow = [Planted(name, r, 1.5 * s, loss=2.0) for name, s in SECONDS for r in (1, 2, 3)]
    new = write(tmp_path / "new" / "001", slow)
    done = hpcbench("report", new, "--against", tmp_path / "old.tar.gz")
    assert done.exit_code == 1 and "slower" in done.output
    done = hpcbench("report", tmp_path / "old.tar.gz", "--against", new)
    assert done.exit_code == 0 and "faster" in done.output


def test_names_of_hosts_and_users_are_replaced_everywhere(root: Path, tmp_path: Path) -> None:
    path = tmp_path / "paper.tar.gz"
    done = hpcbench("report", root, "--bundle", path, "--anonymous", "--replace", "gpt-tiny")
    assert done.exit_code == 0, done.output
    files = packed(path)
    for name, content in files.items():
        for gone in (b"nid0", b"login7", b"cluster.example", b"gpt-tiny"):
            assert gone not in content, name
        assert USER.encode() not in content.replace(b"malice", b""), name
    assert "demo-001/core" not in files and "left out: demo-001/core: not text" in done.output
    assert "names remain as parts of longer words: demo-001/study.yaml:1" in done.output
    log = files["demo-001/runs/r1-baseline/log.txt"].decode()
    assert '"host": "host-1"' in log and '"host": "host-2"' in log and "name-1" in log
    stated = figures(path)
    assert json.dumps(stated).replace("name-1", "gpt-tiny") == json.dumps(figures(root)), "the numbers are the same"


def test_a_user_named_like_a_key_of_the_files_does_not_break_them(root: Path, tmp_path: Path) -> None:
    about = {"user": "scheme", "command": ["/home/scheme/bin/hpcbench"]}
    (root / "provenance" / "submit.json").write_text(json.dumps(about))
    done = hpcbench("report", root, "--bundle", tmp_path / "paper.tar.gz", "--anonymous")
    assert (
        "scheme: also occur as ordinary words, so they are replaced only in paths below /home and in addresses"
        in done.output
    )
    assert figures(tmp_path / "paper.tar.gz") == figures(root)
    assert b"/home/user-1/bin" in packed(tmp_path / "paper.tar.gz")["demo-001/provenance/submit.json"]


def test_names_that_are_words_of_the_files_stay_where_they_are_words() -> None:
    names = Names({"data": "user-1", "n1": "host-1", "n1.x.org": "host-1"}, frozenset({"data"}))
    assert names.replace('{"data": "/home/data/x", "to": "data@n1.x.org", "on": "n1-ib0 an1 n12"}') == (
        '{"data": "/home/user-1/x", "to": "user-1@host-1", "on": "host-1-ib0 an1 n12"}'
    )
    assert names.lines_with_parts(b"x\nAN1.X.ORG\n") == [2]


def test_no_scheduler_is_asked_of_a_bundle(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The job IDs in a bundle were assigned on another machine."""
    plan = json.loads((root / "submission.json").read_text())
    (root / "submission.json").write_text(json.dumps({**plan, "scheduler": "slurm"}))
    (root / "runs" / "r1-baseline" / "status.json").unlink()
    hpcbench("report", root, "--bundle", tmp_path / "b.tar.gz")

    def asked(*_: object) -> None:
        raise AssertionError("a scheduler was asked")

    monkeypatch.setattr("hpcbench.batch.tracking.track.open_scheduler", asked)
    assert len(load_bundle(tmp_path / "b.tar.gz")[0].runs) == 6


def tar_of(path: Path, *members: tuple[tarfile.TarInfo, bytes]) -> Path:
    with tarfile.open(path, "w:gz") as tar:
        for member, content in members:
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return path


def plain(name: str) -> tarfile.TarInfo:
    return tarfile.TarInfo(name)


def link(name: str, to: str) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.type, member.linkname = tarfile.SYMTYPE, to
    return member


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ([(plain("../evil"), b"x")], "is not a regular file"),
        ([(plain("/tmp/evil"), b"x")], "is not a regular file"),
        ([(link("demo/x", "/etc"), b"")], "is not a regular file"),
        ([(plain("demo/x"), b"x"), (plain("demo/x"), b"y")], "cannot be unpacked"),
        ([(plain("demo/other"), b"x")], "contains no submission"),
        ([(plain("demo/submission.json"), b"{}")], r"BUNDLE\.json is missing"),
    ],
)
def test_what_no_bundle_holds_is_refused(tmp_path: Path, members: Any, message: str) -> None:
    path = tar_of(tmp_path / "b.tar.gz", *members)
    with pytest.raises(UserError, match=message):
        load_bundle(path)
    assert not list(tmp_path.rglob("evil")) and not (tmp_path.parent / "evil").exists()


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda root: (root / "runs/r1-baseline/log.txt").write_text("x"), "was changed after packing"),
        (lambda root: (root / "runs/r1-baseline/err.txt").unlink(), "is missing"),
        (lambda root: (root / "runs/more.txt").write_text("x"), "was added"),
    ],
)
def test_changed_files_are_told(root: Path, tmp_path: Path, damage: Callable[[Path], object], message: str) -> None:
    hpcbench("report", root, "--bundle", tmp_path / "b.tar.gz")
    unpack(tmp_path / "b.tar.gz", tmp_path / "open")
    damage(tmp_path / "open" / "demo-001")
    with tarfile.open(tmp_path / "again.tar.gz", "w:gz") as tar:
        for file in sorted(item for item in (tmp_path / "open").rglob("*") if item.is_file()):
            tar.add(file, file.relative_to(tmp_path / "open").as_posix())
    with pytest.raises(UserError, match=message):
        load_bundle(tmp_path / "again.tar.gz")


@pytest.mark.parametrize("suffix", [".tar.gz", ".tar.xz", ".tar"])
def test_a_cut_bundle_is_one_line(root: Path, tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"b{suffix}"
    hpcbench("report", root, "--bundle", path)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with pytest.raises(UserError, match=r"the archive is damaged|cannot be unpacked"):
        load_bundle(path)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--bundle", "x.zip"], "--bundle x.zip: not the name of a bundle: use a name that ends with .tar.gz"),
        (["--anonymous"], "--anonymous: applies only to bundles: add --bundle FILE"),
        (["--bundle", "x.tar.gz", "--replace", "a="], "--replace a=: give OLD=NEW"),
    ],
)
def test_wrong_options_are_one_line(root: Path, options: list[str], message: str) -> None:
    done = hpcbench("report", root, *options)
    assert isinstance(done.exception, UserError) and message in str(done.exception)


def test_logs_alone_are_not_packed(root: Path, tmp_path: Path) -> None:
    done = hpcbench("report", root / "runs/r1-baseline/log.txt", "--bundle", tmp_path / "b.tar.gz")
    assert "--bundle: single logs cannot be packed" in str(done.exception)
