"""Matplotlib's SVG, made small: the same picture in about a third of the bytes.

Matplotlib names every element, repeats every style and writes coordinates to a millionth of a
point.  Names that nothing refers to go, styles become classes, and hundredths are kept.
"""

import re
from collections import Counter
from collections.abc import Iterator
from xml.etree import ElementTree

_SVG, _LINK = "{http://www.w3.org/2000/svg}", "{http://www.w3.org/1999/xlink}href"
_LONG_NUMBER = re.compile(r"-?\d+\.\d{3,}")
_REFERENCE = re.compile(r"url\(#([^)]+)\)")
_TRANSLATION = re.compile(r"translate\([^)]*\)")
_GEOMETRY = ("d", "x", "y", "width", "height")


def compact(drawing: bytes) -> bytes:
    """The same drawing, smaller; comments stay, because they spell the texts that are drawn."""
    builder = ElementTree.TreeBuilder(insert_comments=True)
    root = ElementTree.fromstring(drawing, ElementTree.XMLParser(target=builder))
    for metadata in root.findall(f"{_SVG}metadata"):
        root.remove(metadata)
    _shorten_names(root)
    _unwrap_groups(root)
    for parent in root.iter():
        _join_lines(parent)
    _share_styles(root)
    for element in root.iter():
        element.text = element.text if _is_text(element) else None
        element.tail = None
        for name in _GEOMETRY:
            if name in element.attrib:
                element.set(name, _short_path(_rounded(element.attrib[name])))
        if "transform" in element.attrib:  # hundredths are too coarse for a scale
            moved = _TRANSLATION.sub(lambda one: _rounded(one[0]), element.attrib["transform"])
            element.set("transform", moved)
    ElementTree.register_namespace("", _SVG[1:-1])
    written: bytes = ElementTree.tostring(root, encoding="utf-8")
    return written.replace(b" />", b"/>")


def _is_text(element: ElementTree.Element) -> bool:
    """Whether an element holds text that counts: a comment, or the style sheet."""
    return not isinstance(element.tag, str) or element.tag == f"{_SVG}style"


def _shorten_names(root: ElementTree.Element) -> None:
    """Names that are referred to become letters and digits, in their order; the others go."""
    wanted = set()
    for element in root.iter():
        wanted.add(element.attrib.get(_LINK, "").removeprefix("#"))
        wanted.update(name for v in element.attrib.values() for name in _REFERENCE.findall(v))
    wanted.discard("")
    names = dict(zip(_names_in(root, wanted), _short(), strict=False))
    for element in root.iter():
        if (name := element.attrib.pop("id", None)) in names:
            element.set("id", names[name])
        if link := element.attrib.pop(_LINK, ""):  # to a name, or a picture inside the picture
            element.set("href", f"#{names[link[1:]]}" if link.startswith("#") else link)
        for key, value in element.attrib.items():
            element.set(key, _REFERENCE.sub(lambda found: f"url(#{names[found[1]]})", value))


def _names_in(root: ElementTree.Element, wanted: set[str]) -> Iterator[str]:
    return (name for one in root.iter() if (name := one.attrib.get("id", "")) in wanted)


def _short() -> Iterator[str]:
    """a, b, ..., z, a1, b1, ..."""
    for turn in range(10**6):
        for letter in "abcdefghijklmnopqrstuvwxyz":
            yield f"{letter}{turn or ''}"


def _share_styles(root: ElementTree.Element) -> None:
    """A style that occurs more than once becomes a class of the style sheet."""
    counts = Counter(
        element.attrib["style"] for element in root.iter() if "style" in element.attrib
    )
    shared = [style for style, count in counts.items() if count > 1]
    classes = dict(zip(shared, _short(), strict=False))
    for element in root.iter():
        if element.attrib.get("style") in classes:
            element.set("class", classes[element.attrib.pop("style")])
    sheet = root.find(f"{_SVG}defs/{_SVG}style")
    if sheet is not None:
        rules = "".join(f".{name}{{{style}}}" for style, name in classes.items())
        sheet.text = f"{sheet.text or ''}{rules}".replace("; ", ";").replace(": ", ":")


def _rounded(text: str) -> str:
    return _LONG_NUMBER.sub(lambda found: f"{float(found[0]):.2f}".rstrip("0").rstrip("."), text)


def _short_path(text: str) -> str:
    """A letter needs no space before or behind it, a line no end."""
    return re.sub(r"\s*([A-Za-z])\s*", r"\1", " ".join(text.split()))


def _unwrap_groups(parent: ElementTree.Element) -> None:
    """Put the content of groups without attributes in their place."""
    for child in list(parent):
        _unwrap_groups(child)
        if child.tag == f"{_SVG}g" and not child.attrib:
            place = list(parent).index(child)
            parent.remove(child)
            for offset, inner in enumerate(child):
                parent.insert(place + offset, inner)


def _join_lines(parent: ElementTree.Element) -> None:
    """Neighbours that are lines of one style become one element."""
    last: ElementTree.Element | None = None
    for child in list(parent):
        is_line = child.tag == f"{_SVG}path" and "fill: none" in child.attrib.get("style", "")
        if is_line and last is not None and _but_for_its_way(last) == _but_for_its_way(child):
            last.set("d", last.attrib["d"] + child.attrib["d"])
            parent.remove(child)
        else:
            last = child if is_line else None


def _but_for_its_way(path: ElementTree.Element) -> dict[str, str]:
    return {name: value for name, value in path.attrib.items() if name != "d"}
