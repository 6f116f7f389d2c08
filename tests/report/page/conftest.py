"""A page with every kind of block, and a browser that opens it."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import planted_results
import pytest
from planted_results import Planted
from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from tools import explain_missing

from hpcbench.collect.submission import Submission, load
from hpcbench.contract.state import JobSummary, State
from hpcbench.contract.submission import read_submission
from hpcbench.present.document import Chapter, Column, Document, Entry, Figure, Sentences, Table
from hpcbench.report.page import write


class Browser:
    """A headless Chromium, with methods that query its page."""

    def __init__(self, driver: webdriver.Chrome) -> None:
        self.driver = driver

    def open(
        self, path: Path, *, scheme: str = "light", media: str = "", width: int = 1280, scripts: bool = True
    ) -> None:
        """Load a page for a medium, such as print."""
        self._say("Emulation.setScriptExecutionDisabled", value=not scripts)
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self._say("Emulation.setEmulatedMedia", media=media, features=features)
        self._say("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
        self.driver.get("about:blank")
        for kind in ("browser", "performance"):
            self.driver.get_log(kind)  # what other pages left
        self.driver.get(path.as_uri())

    def run(self, script: str, *arguments: Any) -> Any:
        """Run a script in the page, and return its result."""
        return self.driver.execute_script(script, *arguments)

    def column(self, table: str, name: str) -> list[str]:
        """Return the text of one column, row by row in displayed order, without hidden rows."""
        script = """
            const table = document.querySelector(`table[data-name="${arguments[0]}"]`);
            const column = [...table.tHead.rows[0].cells].findIndex((head) => head.dataset.name === arguments[1]);
            const rows = [...table.tBodies[0].rows].filter((row) => row.getClientRects().length);
            return rows.map((row) => row.cells[column].textContent);
        """
        return list(self.run(script, table, name))

    def accessible(self) -> list[dict[str, Any]]:
        """Return the nodes of the accessibility tree, which a screen reader reads."""
        nodes = self.driver.execute_cdp_cmd("Accessibility.getFullAXTree", {})["nodes"]
        return [
            {
                "role": node["role"]["value"],
                "name": node.get("name", {}).get("value", ""),
                **{result["name"]: result["value"].get("value") for result in node.get("properties", ())},
            }
            for node in nodes
            if not node["ignored"]
        ]

    def _say(self, command: str, **parameters: Any) -> None:
        self.driver.execute_cdp_cmd(command, parameters)


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory, need: Callable[[str | None], None]) -> Iterator[Browser]:
    """Start one browser for all tests, without network access."""
    need(explain_missing("chromium", "chromedriver"))
    options = webdriver.ChromeOptions()
    options.binary_location = str(shutil.which("chromium"))
    profile = tmp_path_factory.mktemp("profile")
    for argument in ("headless=new", "no-sandbox", "disable-gpu", "disable-dev-shm-usage", f"user-data-dir={profile}"):
        options.add_argument(f"--{argument}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(executable_path=shutil.which("chromedriver")))
    try:
        yield Browser(driver)
    finally:
        driver.quit()


def _draw(figure: Any) -> None:
    axes = figure.subplots()
    axes.plot([1, 2, 3], [3.0, 2.5, 2.25], label="baseline")
    axes.set_xlabel("step")
    axes.legend()


FIGURE = Figure("loss_over_steps", "Loss against steps", "Loss falls from 3.0 to 2.25.", _draw)
SPEEDS = {"baseline": 9.5, "naive-mpc": None, "naive-zfp8": 100.0, "identity": float("nan"), "mzhybrid": 10.25}
"""Samples/s. The values sort differently as text than as numbers, and two of them are unknown."""


@pytest.fixture(scope="session")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Submission:
    """Write a submission of three completed runs and a failed run."""
    runs = [Planted(scheme, repeat, 0.1, 2.5) for repeat in (1, 2) for scheme in ("baseline", "mzhybrid")]
    root = planted_results.write(tmp_path_factory.mktemp("planted"), runs)
    (root / "runs/r2-mzhybrid/err.txt").write_text("one\nRuntimeError: the link is down\n")
    log = root / "runs/r2-mzhybrid/log.txt"
    log.write_text("".join(line for line in log.read_text().splitlines(True) if '"end"' not in line))
    planted_results.write_marker(root / "runs/r2-mzhybrid", "j0002-r2", 1)
    (root / "study.yaml").write_text("study: demo\nmatrix: {scheme: [baseline, mzhybrid]}\n")
    (root / "jobs/j0001-r1/provenance").mkdir()
    (root / "jobs/j0001-r1/provenance/modules.txt").write_text("gcc/12.2\nmpich/5.0\n")
    (root / "jobs/j0001-r1/provenance/environment.txt").write_text("MY_DEPLOY_CODE=hunter2\n")
    return load(root, {job.id: JobSummary(job.id, State.COMPLETED, 0) for job in read_submission(root).jobs})


@pytest.fixture(scope="session")
def document(planted: Submission) -> Document:
    """Build a report of the submission that contains every kind of block."""
    comparison = Table(
        "comparison",
        "",
        (
            Column("scheme", "scheme", text=True, help="Its name in the study."),
            Column("samples_per_s", "samples/s", help="Samples over the time of the steps."),
            Column("verdict", "verdict", text=True, group=1),
        ),
        tuple(
            (
                Entry(scheme, scheme, "strong"),
                Entry("-" if speed is None else f"{speed:.2f}", speed),
                Entry("faster, loss no worse", "faster, loss no worse", "good") if scheme == "mzhybrid" else Entry(),
            )
            for scheme, speed in SPEEDS.items()
        ),
        notes=("Medians of steps 3 to 12.",),
    )
    rows = []
    for run in planted.runs:
        assert run.log is not None and run.log.last_step is not None
        last = run.log.last_step
        tone: Any = "good" if run.state == "completed" else "bad"
        loss = Entry(f"{last.loss:.4f}", last.loss, source=run.log.where(last.line))
        rows.append((Entry(run.id, run.id), Entry(run.scheme, run.scheme), Entry(run.state, run.state, tone), loss))
    columns = (
        Column("run", "run", text=True),
        Column("scheme", "scheme", text=True),
        Column("state", "state", text=True),
        Column("loss", "loss"),
    )
    failed = next(run for run in planted.runs if run.state == "failed")
    blocks = (
        comparison,
        Sentences(("Yes. On this machine compression pays. Best: mzhybrid.", "Each scheme is compared over 2 pairs.")),
        Sentences((f"{failed.id}: failed: {failed.verdict.reason} ({failed.verdict.where})",), "bad"),
        Sentences(("Ranks share cores.",), "warning"),
        Table("runs", "Runs", columns, tuple(rows)),
        FIGURE,
    )
    return Document("demo on local", (Chapter("gpt-tiny, 8 ranks", "baseline: uncompressed", blocks),))


@pytest.fixture(scope="session")
def page(planted: Submission, document: Document) -> Path:
    """Write the page of the report next to the submission."""
    assert planted.root is not None
    path = planted.root / "report.html"
    path.write_text(write(document, [planted], planted.root), encoding="utf-8")
    return path
