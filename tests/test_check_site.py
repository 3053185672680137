import runpy
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / "scripts" / "check_site.py"
complaints = runpy.run_path(str(SCRIPT))["complaints"]


def about(folder: Path, **pages: str) -> list[str]:
    for name, text in pages.items():
        (folder / f"{name}.html").write_text(text)
    return [line.partition(": ")[2] for line in complaints(folder)]


def test_a_site_that_holds_together(tmp_path: Path) -> None:
    (tmp_path / "style.css").write_text("a { background: url(dot.png) }")
    index = """<link rel="stylesheet" href="style.css?v=1"><h1 id="top">x</h1><a href="#top">x</a>
        <a href="other.html#%C3%BC">x</a><a href="https://example.org/nowhere">out</a>
        <img src="data:image/png;base64,AAAA">"""
    index += "<p>A <code>a</code>| b</p>"
    assert about(tmp_path, index=index, other='<p id="ü"></p><a href="./">x</a>') == []


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ('<a href="gone.html">x</a>', "broken link gone.html"),
        ('<a href="#gone">x</a>', "broken link #gone"),
        ('<a href="index.html#gone">x</a>', "broken link index.html#gone"),
        ('<img src="gone.png">', "broken link gone.png"),
        ('<script src="https://cdn.example/x.js"></script>', "fetches https://cdn.example/x.js"),
        ('<link rel="stylesheet" href="//cdn.example/x.css">', "fetches //cdn.example/x.css"),
        ("<style>@import 'https://fonts.example/f';</style>", "fetches https://fonts.example/f"),
        ('<img srcset="https://cdn.example/x.png 2x">', "fetches https://cdn.example/x.png"),
        ("<p>\n| a | b |\n|---|---|</p>", "a table as raw text: | a | b |"),
    ],
)
def test_what_is_broken_or_fetched_is_named(text: str, complaint: str, tmp_path: Path) -> None:
    assert about(tmp_path, index=text) == [complaint]


def test_style_sheets_may_fetch_nothing_from_outside(tmp_path: Path) -> None:
    (tmp_path / "x.css").write_text("@font-face { src: url('https://fonts.example/f.woff') }")
    assert about(tmp_path, index="") == ["fetches https://fonts.example/f.woff"]
