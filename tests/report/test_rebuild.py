import base64
import hashlib
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from lpgnn.config import Settings
from lpgnn.report.__main__ import main
from lpgnn.report.cells import table_cells
from lpgnn.report.readme import BEGIN, END
from report.rows import add_rows, cell_of, point_of


def digests(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A results folder with Cora's tables, one point of a figure, and the report of them."""
    folder = tmp_path_factory.mktemp("results")
    done: set[str] = set()
    for index, cell in enumerate(table_cells(Settings())):
        if cell.dataset == "cora" and cell.settings.resolve().identity not in done:
            values = [40 + index % 40 + repeat / 4 for repeat in range(3)]
            done.add(add_rows(folder, cell.settings, values))
    add_rows(folder, point_of("model=gcn,dataset=cora,y_eps=2.0", "0.1").settings, [75.0] * 10)
    add_rows(folder, Settings(dataset="cora", learner="propagation"), [71.0, 72.0, 73.0])
    ohd = cell_of("features", "lastfm", "ohd", "y_eps=1.0")
    add_rows(folder, ohd.settings, [66.0] * 10, failed=[2])
    assert main([f"results_dir={folder}", "selection=paper"]) == 0
    return folder


def test_a_second_run_changes_no_byte(results: Path) -> None:
    before = digests(results)
    assert main([f"results_dir={results}", "selection=paper"]) == 0
    assert digests(results) == before
    names = set(before)
    pictures = ("budgets", "kprop", "mechanisms", "features", "denoising", "convexity")
    for figure in (*pictures, "value_of_features"):
        assert {f"figures/{figure}.png", f"figures/{figure}.svg"} <= names
    for table in ("mechanisms", "features", "denoising"):
        for edition in (table, f"conditioned_{table}"):
            assert {f"tables/{edition}.{kind}" for kind in ("csv", "md", "tex")} <= names
    for table in ("learners", "value_of_features"):
        assert {f"tables/{table}.{kind}" for kind in ("csv", "md")} <= names
    assert {"comparison.csv", "comparison.md", "report.html"} <= names


class Page(HTMLParser):
    """Collects addresses, and checks that elements close in order."""

    VOID = ("meta", "img", "br", "link")

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
    images = [a for a in page.addresses if a.startswith("data:image/svg+xml;base64,")]
    links = [a for a in page.addresses if a not in images]
    assert len(images) == 7
    assert links
    assert all(link.startswith("#") and link[1:] in page.ids for link in links)
    assert "url(" not in text
    drawn = (results / "figures" / "budgets.svg").read_bytes()
    assert base64.b64decode(images[0].partition(",")[2]) == drawn


def test_the_page_tells_what_is_missing_and_how_numbers_were_made(results: Path) -> None:
    text = (results / "report.html").read_text(encoding="utf-8")
    assert "16 of 16 cells have no rows" in text
    # Complete on Cora but for repeats: three of ten.
    assert re.search(r"mb, at x_eps=0.01: 3 of 10 repeats", text)
    assert "ohd, at y_eps=1.0: 10 of 10 repeats, 1 of them failed" in text
    assert "5 of 6 cells have no rows: ones, y_eps=1.0; rnd, y_eps=1.0;" in text
    cell = cell_of("denoising", "cora", "y_eps=0.5", "drop").settings.resolve()
    assert f"<code>{cell.identity}</code>" in text
    assert "0123456789" in text
    assert "0–2" in text
    assert "paper rule" in text
    assert "released rule" in text


def test_figures_hold_neither_date_nor_version(results: Path) -> None:
    for path in (results / "figures").glob("*.svg"):
        text = path.read_text(encoding="utf-8")
        assert "<dc:date>" not in text
        assert "Matplotlib v" not in text
    for path in (results / "figures").glob("*.png"):
        assert b"Software" not in path.read_bytes()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["selection=best"], "error: selection=best: must be one of paper, released"),
        (["result=x"], "error: result=x: is no setting; known: results_dir, selection"),
        (["results_dir"], "error: results_dir=: is no setting; known: results_dir, selection"),
        (["results_dir=nowhere"], "error: results_dir=nowhere: must be a folder written by"),
    ],
)
def test_bad_input_is_told_in_one_line(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    told = capsys.readouterr().err
    assert told.startswith(message)
    assert told.count("\n") == 1


def test_a_folder_without_rows_is_refused_and_stays_as_it_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([f"results_dir={tmp_path}"]) == 2
    assert "with rows/*.csv in it" in capsys.readouterr().err
    assert not any(tmp_path.iterdir())


def test_verdict_counts_are_printed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Pictures are slow and not what is tested here.
    monkeypatch.setattr("lpgnn.report.figures.FIGURES", ())
    cell = cell_of("mechanisms", "cora", "1b", "x_eps=0.01")
    add_rows(tmp_path, cell.settings, [45.0] * 10, [80.0] * 10)
    assert main([f"results_dir={tmp_path}", "selection=paper"]) == 0
    told = capsys.readouterr().out
    assert "124 cells of the paper's tables (selection=paper): 1 within both CIs, 0 within" in told
    assert "0 above, 0 below, 0 unfinished, 123 missing" in told
    assert main([f"results_dir={tmp_path}", "selection=released"]) == 0
    assert "0 within both CIs, 0 within 2 points, 1 above" in capsys.readouterr().out


def test_the_readme_beside_the_results_is_renewed_between_its_marks(tmp_path: Path) -> None:
    results_dir = tmp_path / "results"
    add_rows(results_dir, Settings(dataset="cora", y_eps=1.0), [69.0] * 10)
    readme = tmp_path / "README.md"
    readme.write_text(f"above\n{BEGIN}\nold numbers\n{END}\nbelow\n")
    assert main([f"results_dir={results_dir}", "selection=paper"]) == 0
    text = readme.read_text()
    assert text.startswith(f"above\n{BEGIN}\n")
    assert text.endswith(f"{END}\nbelow\n")
    assert "old numbers" not in text
    # Cora's Drop at both budgets 1 stands in two tables, beside the paper's 69.3 ± 1.2.
    assert text.count("69.0 ± 0.0 \\| 69.3 ± 1.2") == 2
    assert "2 of the 124 cells" in text
    assert main([f"results_dir={results_dir}", "selection=paper"]) == 0
    assert readme.read_text() == text


def test_a_readme_without_the_marks_is_left_alone(tmp_path: Path) -> None:
    results_dir = tmp_path / "results"
    add_rows(results_dir, Settings(dataset="cora", y_eps=1.0), [68.0])
    readme = tmp_path / "README.md"
    readme.write_text(f"mine, with {BEGIN} only\n")
    assert main([f"results_dir={results_dir}"]) == 0
    assert readme.read_text() == f"mine, with {BEGIN} only\n"
