"""The commands and the code of README and documentation, run as they stand there.

The commands of a page run one after another in one folder, which has the files that its reader is
told to write.  They are made small by overrides after each command, and graphs that come with lpgnn
stand in for the published ones.
"""

import re
import shlex
import shutil
from pathlib import Path

import pytest

from conftest import Imports
from data.own_graph import own_graph, write_folder
from lpgnn.__main__ import VERBS, main

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
WORKBENCH = Path(__file__).parent / "extending" / "workbench"
WRITTEN = [path for path in DOCS.rglob("*.md") if not {"build", "generated"} & {*path.parts}]
PAGES = {str(path.relative_to(ROOT)): path for path in sorted([ROOT / "README.md", *WRITTEN])}

STAND_INS = {"cora": "sbm", "pubmed": "planted"}
SMALL = {
    **dict.fromkeys(("run", "predict", "tune"), ("max_epochs=2", "repeats=2")),
    "audit": ("draws=4000",),
}
# What no test can do, and where it is done instead.
NOT_RUN = {
    "hydra/launcher=": "make cluster-test runs every launcher",
    "--watch": "never ends",
    "lpgnn benchmark": "tests/benchmark runs it, under a small protocol",
    "lpgnn.report experiment=mechanisms": "rewrites the tables of the repository",
}


def blocks(page: str) -> list[tuple[str, str]]:
    return re.findall(r"```(\w+)\n(.*?)```", PAGES[page].read_text("utf-8"), flags=re.DOTALL)


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
    for path in WORKBENCH.glob("*.py"):
        shutil.copy(path, tmp_path)
    shutil.copytree(WORKBENCH / "conf", tmp_path / "my_conf")
    for kind, text in blocks(page):
        if kind == "python" and (found := re.match(r"# (\S+\.py)\n", text)):
            (tmp_path / found[1]).write_text(text)
    write_folder(own_graph(), tmp_path / "my_graph")
    monkeypatch.chdir(tmp_path)
    import_anew(tmp_path)
    return tmp_path


def test_every_kind_of_page_has_commands() -> None:
    called = {shlex.split(line)[1] for page in WITH_COMMANDS for line in commands(page)}
    assert called <= set(VERBS)
    assert {"run", "report", "predict", "tune", "audit", "simulate", "collect"} <= called
    assert {f"docs/howto/{path.name}" for path in (DOCS / "howto").glob("*.md")} - set(
        WITH_COMMANDS
    ) == {"docs/howto/index.md", "docs/howto/notebook.md"}


@pytest.mark.parametrize("page", WITH_COMMANDS)
def test_the_commands_of_a_page_work(
    page: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for line in commands(page):
        if any(words.replace("lpgnn.", "lpgnn ") in line for words in NOT_RUN):
            continue
        for published, stand_in in STAND_INS.items():
            line = re.sub(rf"\b{published}\b", stand_in, line)
        _, verb, *words = shlex.split(line)
        asks = "--cfg" in words
        more = [] if asks else list(SMALL.get(verb, ()))
        if verb == "run" and "--dry-run" not in words and not asks:
            more += ["--workers", "0"]
        try:
            done = main([verb, *words, *more])
        except SystemExit as end:  # Hydra's --cfg
            done = int(end.code or 0)
        shown = capsys.readouterr()
        assert done == 0, f"{line}\n{shown.err}"
        expected = {"run": "test ", "audit": "verdict  "}.get(verb, "")
        if "--dry-run" in words:
            expected = "configurations"
        assert asks or expected in shown.out, line


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
