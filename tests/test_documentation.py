"""The commands and the code of README and documentation, run as they stand there.

The commands of a page run one after another in one folder, which has the files that its reader is
told to write.  They are made small by overrides after each command, and graphs that come with lpgnn
stand in for the published ones.
"""

import csv
import re
import shlex
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from benchmark.small_protocol import PROTOCOL
from conftest import Imports
from data.own_graph import own_graph, write_folder
from lpgnn.__main__ import VERBS, main
from lpgnn.benchmark.entries import known_entries

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
WORKBENCH = Path(__file__).parent / "extending" / "workbench"
WRITTEN = [path for path in DOCS.rglob("*.md") if not {"build", "generated"} & {*path.parts}]
PAGES = {str(path.relative_to(ROOT)): path for path in sorted([ROOT / "README.md", *WRITTEN])}

ENTRIES = ("labels_only", "mb", "pm", "focal")
STAND_INS = {"cora": "sbm", "pubmed": "planted"}
SMALL = {
    **dict.fromkeys(("run", "predict", "tune"), ("max_epochs=2", "repeats=2")),
    "audit": ("draws=4000",),
}
# What no test can do, and where it is done instead.
NOT_RUN = {
    "hydra/launcher=": "make cluster-test runs every launcher",
    "--watch": "never ends",
    "lpgnn.report experiment=mechanisms": "rewrites the tables of the repository",
}


def blocks(page: str) -> list[tuple[str, str]]:
    return re.findall(r"```(\w+)\n(.*?)```", PAGES[page].read_text("utf-8"), flags=re.DOTALL)


NAMED = re.compile(r"\A((?:# @.*\n)?)# (\S+\.(?:py|yaml))\n")  # Hydra's header comes first


def files(page: str) -> dict[str, str]:
    """The files that a page shows, each under its name: a reader would save them as they stand."""
    named = [(NAMED.match(text), text) for _, text in blocks(page)]
    return {found[2]: found[1] + text[found.end() :] for found, text in named if found}


def commands(page: str) -> list[str]:
    """The lines that call lpgnn, as the words after it."""
    lines = [line for kind, text in blocks(page) if kind == "bash" for line in text.splitlines()]
    stripped = (re.sub(r"^python -m lpgnn\.", "lpgnn ", line.split(" #")[0]) for line in lines)
    return [line.strip() for line in stripped if line.startswith("lpgnn ")]


def code(page: str) -> list[str]:
    return [text for kind, text in blocks(page) if kind == "python" and "import lpgnn" in text]


WITH_COMMANDS = [page for page in PAGES if commands(page)]
WITH_CODE = [page for page in PAGES if code(page)]


@pytest.fixture
def folder(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, import_anew: Imports
) -> Path:
    """What the reader of a page has: the examples of the how-to pages, and the page's own files."""
    for path in WORKBENCH.glob("*.*"):
        shutil.copy(path, tmp_path)
    shutil.copytree(WORKBENCH / "conf", tmp_path / "my_conf")
    for name, text in files(page).items():
        (tmp_path / name).write_text(text)
    write_folder(own_graph(), tmp_path / "my_graph")
    (tmp_path / "features.json").write_text('{"3": 1, "8": 0.5}')  # a user's own
    monkeypatch.chdir(tmp_path)
    import_anew(tmp_path)
    monkeypatch.setenv("PYTHONPATH", "")  # the benchmark adds folders
    small = replace(PROTOCOL, x_eps=(1.0,), y_eps=(1.0,), repeats=2, trials=2)
    monkeypatch.setattr("lpgnn.benchmark.protocol.load_protocol", lambda: small)
    # Of our entries those that the page names: another test plans all of them.
    monkeypatch.setattr(
        "lpgnn.benchmark.entries.known_entries",
        lambda results: {k: v for k, v in known_entries(results).items() if k in ENTRIES},
    )
    return tmp_path


def test_every_kind_of_page_has_commands() -> None:
    called = {shlex.split(line)[1] for page in WITH_COMMANDS for line in commands(page)}
    assert called <= set(VERBS)
    assert {"run", "report", "predict", "tune", "audit", "simulate", "collect"} <= called
    assert {"client", "question"} <= called
    assert {f"docs/howto/{path.name}" for path in (DOCS / "howto").glob("*.md")} - set(
        WITH_COMMANDS
    ) == {"docs/howto/index.md", "docs/howto/notebook.md"}


@pytest.mark.parametrize("example", sorted(p for p in WORKBENCH.rglob("*.*") if p.is_file()))
def test_pages_show_the_examples_as_they_are_tested(example: Path) -> None:
    """A host of the repository shows the pages as they are, so they hold the code themselves."""
    name = str(example.relative_to(WORKBENCH)).replace("conf/", "my_conf/")
    shown = {page: files(page).get(name) for page in PAGES if page != "README.md"}
    assert {text for text in shown.values() if text is not None} == {example.read_text()}


def run_commands(page: str, capsys: pytest.CaptureFixture[str]) -> None:
    for line in commands(page):
        if any(words.replace("lpgnn.", "lpgnn ") in line for words in NOT_RUN):
            continue
        for published, stand_in in STAND_INS.items():
            line = re.sub(rf"\b{published}\b", stand_in, line)
        _, verb, *words = shlex.split(line)
        asks = "--cfg" in words
        more = [] if asks else list(SMALL.get(verb, ()))
        computes = verb == "run" or (verb == "benchmark" and "page" not in words)
        if computes and "--dry-run" not in words and not asks:
            more += ["workers=0"]
        try:
            done = main([verb, *words, *more])
        except SystemExit as end:  # Hydra's --cfg
            done = int(end.code or 0)
        shown = capsys.readouterr()
        assert done == 0, f"{line}\n{shown.err}"
        expected = {"run": "test ", "audit": "verdict  ", "benchmark": "page: "}.get(verb, "")
        if "--dry-run" in words:
            expected = "configurations"
        if asks:
            expected = "x_eps: "
        assert expected in shown.out, line


@pytest.mark.parametrize("page", WITH_COMMANDS)
def test_the_commands_of_a_page_work(
    page: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run_commands(page, capsys)
    if page == "docs/howto/benchmark.md":
        with (folder / "results" / "benchmark" / "standings.csv").open() as file:
            lines = {line["entry"]: line for line in csv.DictReader(file)}
        assert lines.keys() == set(ENTRIES)
        assert lines["focal"]["beats_both"] in ("true", "false")
        assert "learner._target_=focal_loss.FocalLoss" in lines["focal"]["command"]
        assert "+learner.gamma=" in lines["focal"]["command"]


@pytest.mark.parametrize("page", WITH_CODE)
def test_the_code_of_a_page_runs(
    page: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for text in code(page):
        exec(compile(text, page, "exec"), {"__name__": "__main__"})
        assert capsys.readouterr().out


def test_what_is_not_run_is_there() -> None:
    text = "\n".join(line for page in WITH_COMMANDS for line in commands(page))
    for words in NOT_RUN:
        assert words.replace("lpgnn.", "lpgnn ") in text


def test_the_readme_names_what_a_newcomer_looks_for() -> None:
    readme = PAGES["README.md"].read_text("utf-8")
    for words in ("make run", "make test", "make reproduce-paper", "lpgnn.run dataset=cora"):
        assert words in readme
    for name in ("mechanism", "own_graph", "backbone", "learner", "experiment"):
        assert f"(docs/howto/{name}.md)" in readme


LINK = re.compile(r"\]\(((?!https?:|#)[^)\s]+)\)")


@pytest.mark.parametrize("page", PAGES)
def test_links_between_files_lead_somewhere(page: str) -> None:
    """As a host of the repository shows them, without a built site."""
    for link in LINK.findall(re.sub(r"```.*?```", "", PAGES[page].read_text("utf-8"), flags=re.S)):
        target = (PAGES[page].parent / link.partition("#")[0]).resolve()
        generated = DOCS / "reference" / "generated"
        assert target.exists() or generated in target.parents, link
