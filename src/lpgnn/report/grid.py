"""A table laid out as text, in Markdown and LaTeX; the page's template renders it in HTML."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from lpgnn.report.notation import markdown, tex


@dataclass(frozen=True)
class Shown:
    """A cell of a grid: its text, whether it is bold, and what stands below it or in brackets.

    ``mark``, ``title`` and ``link`` are for the page: the class of a verdict, what it says, and the
    identity of the computation behind a number.
    """

    text: str
    bold: bool = False
    below: str = ""
    mark: str = ""
    title: str = ""
    link: str = ""

    def to_markdown(self) -> str:
        text = f"**{self.text}**" if self.bold else self.text
        return markdown(f"{text} ({self.below})" if self.below else text)

    def to_latex(self) -> str:
        return rf"\textbf{{{tex(self.text)}}}" if self.bold else tex(self.text)


@dataclass(frozen=True)
class Grid:
    """Headings, and blocks of rows between rules."""

    headings: list[str]
    blocks: list[list[list[Shown]]]
    labels: int = 1  # leading columns that hold labels, not numbers

    @classmethod
    def of_text(
        cls, headings: list[str], *blocks: Iterable[Sequence[str]], labels: int = 1
    ) -> "Grid":
        return cls(headings, [[[*map(Shown, row)] for row in block] for block in blocks], labels)

    def to_markdown(self) -> str:
        rows = [[one.to_markdown() for one in row] for block in self.blocks for row in block]
        lines = ["| " + " | ".join(row) + " |" for row in ([*map(markdown, self.headings)], *rows)]
        return "\n".join([lines[0], "|" + "---|" * len(self.headings), *lines[1:]]) + "\n"

    def to_latex(self, caption: str, label: str) -> str:
        r"""A table environment; needs the package booktabs."""
        columns = "l" * self.labels + "c" * (len(self.headings) - self.labels)
        lines = [
            r"\begin{table}[t]",
            r"  \centering",
            rf"  \caption{{{tex(caption)}}}",
            rf"  \label{{{label}}}",
            r"  \small",
            rf"  \begin{{tabular}}{{{columns}}}",
            r"    \toprule",
            f"    {' & '.join(map(tex, self.headings))} \\\\",
        ]
        for block in self.blocks:
            lines.append(r"    \midrule")
            lines += [f"    {' & '.join(one.to_latex() for one in row)} \\\\" for row in block]
        return "\n".join([*lines, r"    \bottomrule", r"  \end{tabular}", r"\end{table}", ""])
