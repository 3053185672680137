"""Does a folder of pages read without a network?

``python scripts/check_offline.py docs/build/html`` looks for everything that a browser fetches by
itself: scripts, style sheets, images and fonts.  Links that a reader may follow are not meant.
"""

import re
import sys
from html.parser import HTMLParser
from pathlib import Path

# Attributes whose address is fetched when a page is shown; of <link> only some kinds are.
_FETCHED = {
    **dict.fromkeys(("script", "img", "iframe", "audio", "video", "source", "embed"), "src"),
    "object": "data",
    "image": "href",
    "use": "href",
}
_LINKS = {"stylesheet", "icon", "preload", "prefetch", "preconnect", "dns-prefetch", "modulepreload"}
_OUTSIDE = re.compile(r"\s*(?:[a-z][a-z0-9+.-]*:)?//", re.IGNORECASE)
_IN_STYLE = re.compile(r"(?:url\(|@import)\s*['\"]?((?:https?:)?//[^'\")\s]+)", re.IGNORECASE)


class _Page(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.fetched: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        if tag in _FETCHED:
            self.fetched.append(given.get(_FETCHED[tag], ""))
        if tag == "link" and _LINKS & set(given.get("rel", "").lower().split()):
            self.fetched.append(given.get("href", ""))
        self.fetched += [part.split()[0] for part in given.get("srcset", "").split(",") if part]


def outside_addresses(text: str, *, is_style: bool = False) -> list[str]:
    """The addresses outside that a page or a style sheet would fetch."""
    found = _IN_STYLE.findall(text)
    if not is_style:
        page = _Page()
        page.feed(text)
        found += [address for address in page.fetched if _OUTSIDE.match(address)]
    return found


def main() -> int:
    folder = Path(sys.argv[1])
    pages = [path for kind in ("html", "css", "svg") for path in sorted(folder.rglob(f"*.{kind}"))]
    bad = 0
    for path in pages:
        text = path.read_text(encoding="utf-8")
        for address in outside_addresses(text, is_style=path.suffix == ".css"):
            print(f"{path}: fetches {address}")
            bad += 1
    print(f"{len(pages)} pages, style sheets and drawings; {bad} addresses outside are fetched")
    return 1 if bad or not pages else 0


if __name__ == "__main__":
    sys.exit(main())
