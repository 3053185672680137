"""How keys and values are written: as text, in TeX, in matplotlib's mathtext and in HTML.

Text is the source: "ε_x=0.01", "K_y", "∞".  The other notations are made from it.
"""

import html
import math
import re
from collections.abc import Callable

_SYMBOLS = {
    **{"x_eps": "ε_x", "y_eps": "ε_y", "total_eps": "ε_x + ε_y"},
    **{"filter.steps": "K_x", "learner.steps": "K_y"},
}
_FORMULA = re.compile(r"([εK])_([xy])(?:=(∞|[-+.\deE]+))?|[∞±−δ†‡]")
_SIGNS = {"∞": r"$\infty$", "±": r"$\pm$", "−": "$-$", "δ": r"$\delta$", "†": r"$\dagger$"}
_SIGNS |= {"‡": r"$\ddagger$"}
_TEX_SPECIAL = {
    **{character: f"\\{character}" for character in "&%$#_{}"},
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "\\": r"\textbackslash{}",
    "–": "--",
}


def canonical(value: object) -> str:
    """A value as keys spell it: 1, 1.0 and "1" are all "1"; anything but a number is kept."""
    text = str(value)
    number = as_number(text)
    if number is None or math.isnan(number):
        return text
    if math.isinf(number):
        return str(number)
    return str(int(number)) if number.is_integer() else repr(number)


def as_number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def symbol(key: str) -> str:
    """The heading of a key: ε_x for x_eps, "Label mechanism" for label_mechanism."""
    words = key.replace("_", " ").replace(".", " ")
    return _SYMBOLS.get(key, words[:1].upper() + words[1:])


def value_text(value: str) -> str:
    return {"inf": "∞", "-inf": "−∞"}.get(value, value)


def _formula(match: re.Match[str]) -> str:
    letter, index, value = match.groups()
    if letter is None:
        return _SIGNS[match[0]]
    text = {"ε": r"\epsilon", "K": "K"}[letter] + f"_{index}"
    if value is not None:
        text += "=" + value.replace("∞", r"\infty")
    return f"${text}$"


def _translate(text: str, plain: Callable[[str], str]) -> str:
    """Formulas become mathematics; ``plain`` escapes what stands between them."""
    parts, end = [], 0
    for match in _FORMULA.finditer(text):
        parts += [plain(text[end : match.start()]), _formula(match)]
        end = match.end()
    return "".join([*parts, plain(text[end:])])


def tex(text: str) -> str:
    return _translate(text, lambda part: "".join(_TEX_SPECIAL.get(c, c) for c in part))


def mathtext(text: str) -> str:
    return _translate(text, lambda part: part.replace("$", r"\$"))


def markdown(text: str) -> str:
    return text.replace("|", r"\|").replace("\n", " ")


def html_text(text: str) -> str:
    """Escaped, with the indices of ε and K set low."""
    return re.sub(r"([εK])_([xy])", r"\1<sub>\2</sub>", html.escape(text))
