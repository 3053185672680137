"""Docstrings as they are written: sentences, ``code``, and indented formulas, not reStructuredText.

They are full of ``|x|``, ``P^K X'`` and ``[N, d] -> [N, d]``, which are no markup.
"""

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # tested without Sphinx
    from sphinx.application import Sphinx

_CODE = re.compile(r"(``[^`]+``)")


def as_restructured_text(lines: list[str]) -> list[str]:
    """The same lines with everything but ``code`` taken literally, and indented ones as a block.

    Lists of lines that start with "- " stay lists.
    """
    out: list[str] = []
    block = item = False  # inside an indented block, or a list
    for line in lines:
        if not line.strip():
            item = False
            out.append("")
        elif line.startswith((" ", "\t")):
            if not block and not item and (not out or not out[-1]):
                out += ["::", ""]
                block = True
            out.append(line if block else "  " * item + _escaped(line.strip()))
        else:
            starts = line.startswith("- ")
            if out and out[-1] and starts != item:
                out.append("")
            block, item = False, starts
            out.append(_escaped(line))
    return out


def _escaped(line: str) -> str:
    parts = _CODE.split(line)
    return "".join(
        part if part.startswith("``") else re.sub(r"([\\*`|_])", r"\\\1", part) for part in parts
    )


def _process(
    app: "Sphinx", what: str, name: str, obj: object, options: object, lines: list[str]
) -> None:
    lines[:] = as_restructured_text(lines)


def setup(app: "Sphinx") -> dict[str, bool]:
    app.connect("autodoc-process-docstring", _process)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
