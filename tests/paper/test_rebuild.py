import hashlib
import re
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import pytest

from lpgnn.config import Settings
from lpgnn.paper.documents import DOCUMENTS, marks
from lpgnn.report.__main__ import main
from lpgnn.report.information import renew_information
from lpgnn.report.page import data_uri
from lpgnn.rows import RowStore, summarise
from paper.conftest import Paper
from report.rows import add_rows
from report.test_information import AT_ONE, CORA


def digests(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A results folder with Cora's tables, one point of a figure, and the report of them."""
    top = tmp_path_factory.mktemp("checkout")
    folder = top / "results"
    paper = Paper(folder)
    done: set[str] = set()
    for name in ("mechanisms", "features", "denoising"):
        for index, cell in enumerate(paper.source.results(name).cells):
            is_own = cell.dataset == "cora" and not cell.point.control
            if is_own and cell.identity not in done:
                values = [40 + index % 40 + repeat / 4 for repeat in range(3)]
                done.add(add_rows(folder, cell.point.settings, values))
    point = paper.point("budgets", backbone="gcn", dataset="cora", y_eps="2", x_eps="0.1")
    add_rows(folder, point.point.settings, [75.0] * 10)
    labels = paper.cell("denoising", "cora", "1", "Labels only")
    add_rows(folder, labels.point.settings, [71.0, 72.0, 73.0])
    ohd = paper.cell("features", "ohd", "lastfm")
    add_rows(folder, ohd.point.settings, [66.0] * 10, failed=[2])
    renew_information([CORA, AT_ONE], folder)
    for name, sections in DOCUMENTS.items():
        parts = [f"{begin}\nold numbers\n{end}" for begin, end in map(marks, sections)]
        (top / name).parent.mkdir(parents=True, exist_ok=True)
        (top / name).write_text("\n".join(["above", *parts, "below", ""]))
    assert main([f"results_dir={folder}", "selection=paper"]) == 0
    return folder


def test_a_second_run_changes_no_byte(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = digests(results.parent)
    assert main([f"results_dir={results}", "selection=paper"]) == 0
    assert digests(results.parent) == before
    names = set(before)
    for figure in ("budgets", "mechanisms", "features", "denoising", "convexity"):
        assert {f"results/figures/{figure}.{kind}" for kind in ("png", "svg")} <= names
    for table in ("mechanisms", "features", "denoising", "datasets"):
        assert {f"results/tables/{table}.{kind}" for kind in ("csv", "md", "tex")} <= names
    assert {
        f"results/{name}" for name in ("comparison.csv", "comparison.md", "report.html")
    } <= names
    text = capsys.readouterr().out
    assert "124 cells of the paper's tables (selection=paper): 1 within both CIs, 0 within" in text
    assert "0 above, 0 below, 31 unfinished, 92 missing" in text


@pytest.fixture(scope="module")
def sparse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of one number of the paper, beside runs and a search on graphs of the user's own,
    what earlier rows left, and a README without both marks."""
    top = tmp_path_factory.mktemp("sparse")
    folder = top / "results"
    (folder / "tables").mkdir(parents=True)
    (folder / "tables" / "learners.md").write_text("old numbers")
    (top / "README.md").write_text(f"mine, with {marks('headline')[0]} only\n")
    ohd = Paper(folder).cell("features", "ohd", "lastfm")
    add_rows(folder, ohd.point.settings, [66.0] * 10)
    add_rows(folder, Settings(dataset="sbm"), [61.0])
    search = {"id": "a", "repeat": 0, "dataset": "my_graph", "seed": 0, "split": "random"}
    search |= {"status": "ok", "paper/test/acc": 60.0}
    RowStore(folder / "tuning").append("my_graph", [search])
    assert main([f"results_dir={folder}"]) == 0
    return folder


def test_what_no_row_supports_any_more_is_removed(sparse: Path) -> None:
    assert not (sparse / "tables" / "learners.md").exists()
    assert (sparse / "tables" / "features.md").is_file()


def test_own_runs_and_searches_are_beside_the_paper(sparse: Path) -> None:
    assert "| sbm | 61.0 (1 repeat) | 1 |" in (sparse / "tables" / "runs.md").read_text()
    assert "my_graph" not in (sparse / "NOTES.md").read_text()
    assert (sparse / "report.html").is_file()


class Page(HTMLParser):
    """Collects addresses, and checks that elements close in order."""

    VOID = ("meta", "img", "br", "link", "input")

    def __init__(self) -> None:
        super().__init__()
        self.addresses: list[str] = []
        self.open: list[str] = []
        self.ids: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.addresses += [given[name] for name in ("src", "href") if name in given]
        self.ids += [given["id"]] if "id" in given else []
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_page_needs_nothing_but_itself(results: Path) -> None:
    page = Page()
    text = (results / "report.html").read_text(encoding="utf-8")
    page.feed(text)
    assert page.open == []
    images = [a for a in page.addresses if a.startswith("data:image/svg+xml,")]
    links = [a for a in page.addresses if a not in images]
    inside = [link for link in links if link.startswith("#")]
    assert inside
    assert all(link[1:] in page.ids for link in inside)
    rows = set(links) - set(inside)  # the files beside the page that numbers were made from
    assert rows
    assert all((results / link).is_file() for link in rows)
    assert len(page.ids) == len(set(page.ids))
    drawn = (results / "figures" / "budgets.svg").read_text(encoding="utf-8")
    assert unquote(images[0].partition(",")[2]) == drawn.replace('"', "'")


def test_the_page_shows_what_is_missing_and_how_numbers_were_made(results: Path) -> None:
    text = (results / "report.html").read_text(encoding="utf-8")
    assert "21 of 21 have no rows" in text  # LastFM's mechanisms
    assert "features.csv was not available" in text
    # Complete on Cora but for repeats: three of ten.
    assert re.search(r"mechanism=mb, x_eps=0.01, y_eps=inf: 3 of 10 repeats", text)
    assert "feature=ohd, y_eps=1: 10 of 10 repeats, 1 of them failed" in text
    cell = Paper(results).cell("denoising", "cora", "0.5", "drop")
    (entry,) = re.findall(rf'<li id="n-{cell.identity}">(.*?)</li>', text, flags=re.DOTALL)
    values = list(cell.values("paper").values())
    assert entry.startswith(f"<b>{summarise(values)}</b> ({summarise(values)})")
    command = "python -m lpgnn.run dataset=cora learner=drop x_eps=1 y_eps=0.5"
    assert f"<code>{command}</code>" in entry
    assert f"<small>{' '.join(f'{value:.1f}' for value in values)}</small>" in entry
    assert f"repeats 0–2; revision 0123456789; id {cell.identity}" in entry
    # The number in the table leads there.
    shown = f"{summarise(values)}, 3 of 10 repeats"
    assert f'<a href="#n-{cell.identity}"><b>{shown}</b></a>' in text
    assert "label_mechanism=rr" in text


def document(results: Path, name: str) -> str:
    return (results.parent / name).read_text(encoding="utf-8")


@pytest.mark.parametrize("name", DOCUMENTS)
def test_a_document_beside_the_results_is_renewed_between_its_marks(
    name: str, results: Path
) -> None:
    text = document(results, name)
    sections = [*DOCUMENTS[name]]
    assert text.startswith(f"above\n{marks(sections[0])[0]}\n")
    assert text.endswith(f"{marks(sections[-1])[1]}\nbelow\n")
    assert "old numbers" not in text


def test_documents_show_what_is_finished(results: Path) -> None:
    tables = document(results, "docs/science/results.md")
    assert "1 of the 124 cells" in tables
    # Of LastFM's Ohd all repeats are done; Cora's three of ten are not shown as ours.
    assert "66.0\u00a0±\u00a00.0<br>66.4\u00a0±\u00a01.6" in tables
    assert "| Cora | 1B | –<br>45.8\u00a0±\u00a03.3 |" in tables
    headline = document(results, "README.md")
    assert "1 of the 124 cells" in headline
    assert "| private | Cora | 69.3\u00a0±\u00a01.2 | – | – | – |" in headline
    beyond = document(results, "docs/science/private_features.md")
    assert re.search(r"of \d{3} numbers beyond the paper are computed\.", beyond)
    assert "| Cora | MB, as the paper prints it | 68.0\u00a0±\u00a02.9 |" in beyond
    assert "(../../results/figures/value_of_features.png)" in beyond


def test_page_and_documentation_say_why_blank_reports_do_as_well(results: Path) -> None:
    beyond = document(results, "docs/science/private_features.md")
    page = (results / "report.html").read_text(encoding="utf-8")
    for text in (beyond, page):
        assert "Why blank reports do as well" in text
        assert "16 (15) of 2,708 on Cora" in text
    assert "(../../results/figures/informative_bits.png)" in beyond
    assert data_uri((results / "figures" / "informative_bits.svg").read_bytes()) in page
    # No total budget has all its splits yet.
    assert "What a total budget is best spent on" not in beyond


def test_a_readme_without_the_marks_is_left_alone(sparse: Path) -> None:
    readme = sparse.parent / "README.md"
    assert readme.read_text() == f"mine, with {marks('headline')[0]} only\n"
    # Nothing beyond the paper: the page says so and shows no empty tables for it.
    page = (sparse / "report.html").read_text(encoding="utf-8")
    assert re.search(r"\b0 of \d{3} numbers beyond the paper are computed\.", page)
    assert "MB, as the paper prints it" not in page
    assert "Why blank reports do as well" not in page
