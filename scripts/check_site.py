"""Does a folder of pages hold together, and does it read without a network?

``python scripts/check_site.py docs/build/html`` follows every link between the pages, down to the
heading that it names, and looks for what a browser fetches by itself from elsewhere: scripts, style
sheets, images and fonts.  A paragraph that begins with "|" is a table that was not recognised as
one.  Links that lead out are left alone: to try them takes a network.
"""

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

# Attributes whose address is fetched when a page is shown; of <link> only some kinds are.
_FETCHED = {
    **dict.fromkeys(("script", "img", "iframe", "audio", "video", "source", "embed"), "src"),
    "object": "data",
    "image": "href",
    "use": "href",
}
_FETCHED_LINKS = {"stylesheet", "icon", "preload", "prefetch", "preconnect", "modulepreload"}
_OUTSIDE = re.compile(r"\s*(?:[a-z][a-z0-9+.-]*:|//)", re.IGNORECASE)
_IN_STYLE = re.compile(r"(?:url\(|@import)\s*['\"]?((?:https?:)?//[^'\")\s]+)", re.IGNORECASE)


@dataclass
class Page(HTMLParser):
    """What a page fetches and links to, and the places in it that others may link to."""

    fetched: list[str] = field(default_factory=list)
    links: list[str] = field(default_factory=list)
    places: set[str] = field(default_factory=set)
    raw_tables: list[str] = field(default_factory=list)
    begins_paragraph: bool = False

    def __post_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.begins_paragraph = tag == "p"
        given = {name: value or "" for name, value in attrs}
        self.places |= {given[name] for name in ("id", "name") if name in given}
        if tag in _FETCHED and _FETCHED[tag] in given:
            self.fetched.append(given[_FETCHED[tag]])
        elif tag == "link" and _FETCHED_LINKS & set(given.get("rel", "").lower().split()):
            self.fetched.append(given.get("href", ""))
        elif tag in ("a", "link") and "href" in given:
            self.links.append(given["href"])
        self.fetched += [part.split()[0] for part in given.get("srcset", "").split(",") if part]

    def handle_data(self, data: str) -> None:
        if self.begins_paragraph and data.lstrip().startswith("|"):
            self.raw_tables.append(data.strip().splitlines()[0])
        self.begins_paragraph = self.begins_paragraph and not data.strip()


def complaints(folder: Path) -> Iterator[str]:
    """One line for each address fetched from outside, raw table and broken link."""
    pages: dict[Path, Page] = {}
    for path in sorted(folder.rglob("*.html")):
        text = path.read_text(encoding="utf-8")
        pages[path.resolve()] = page = Page()
        page.feed(text)
        outside = [one for one in page.fetched if _leads_out(one)]
        yield from (f"{path}: fetches {one}" for one in [*outside, *_IN_STYLE.findall(text)])
        yield from (f"{path}: a table as raw text: {line}" for line in page.raw_tables)
    for path in (path for kind in ("css", "svg") for path in sorted(folder.rglob(f"*.{kind}"))):
        fetched = _IN_STYLE.findall(path.read_text(encoding="utf-8"))
        yield from (f"{path}: fetches {one}" for one in fetched)
    for path, page in pages.items():
        for link in [*page.links, *(one for one in page.fetched if one)]:
            if not _OUTSIDE.match(link) and not _leads_somewhere(path, link, pages):
                yield f"{path}: broken link {link}"


def _leads_out(address: str) -> bool:
    return bool(_OUTSIDE.match(address)) and not address.lstrip().startswith("data:")


def _leads_somewhere(path: Path, link: str, pages: dict[Path, Page]) -> bool:
    address, _, place = link.partition("#")
    address = unquote(address.partition("?")[0])
    target = (path.parent / address).resolve() if address else path
    if target.is_dir():
        target = target / "index.html"
    if not target.is_file():
        return False
    return not place or target not in pages or unquote(place) in pages[target].places


def main() -> int:
    folder = Path(sys.argv[1])
    found = list(complaints(folder))
    for line in found:
        print(line)
    pages = len(list(folder.rglob("*.html")))
    print(f"{pages} pages: {len(found)} broken links, raw tables or addresses fetched from outside")
    return 1 if found or not pages else 0


if __name__ == "__main__":
    sys.exit(main())
