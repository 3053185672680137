"""The README's generated sections, each between two marks, from the same numbers as the page."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from lpgnn.paper.claims import Claims
from lpgnn.paper.comparison import Judged, counts_text, stricter_rules
from lpgnn.paper.findings import BEYOND, HOURS, PAPER_TABLES, Findings
from lpgnn.paper.information import WHY, why_blank
from lpgnn.paper.notes import fill
from lpgnn.paper.splits import (
    EXPERIMENT,
    NOTE,
    SPLIT,
    BestSplits,
    splits_grid,
    splits_sentences,
)
from lpgnn.report.evidence import Source
from lpgnn.report.grid import Shown
from lpgnn.report.information import FIGURE, Information
from lpgnn.report.tables import Number, Table
from lpgnn.rows import write_atomically


def marks(section: str) -> tuple[str, str]:
    """The lines between which the report writes a section."""
    return f"<!-- {section}: written by python -m lpgnn.report -->", f"<!-- end of {section} -->"


BEGIN, END = marks("results")


def write_readme(claims: Claims, information: Sequence[Information], splits: BestSplits) -> None:
    """Renew the sections of the README beside the results folder, those that have their marks."""
    source, findings = claims.source, claims.findings
    path = source.results_dir.resolve().parent / "README.md"
    if not path.is_file():
        return
    old = path.read_text(encoding="utf-8")
    tables = [findings.tables[name] for name in PAPER_TABLES]
    parts = [_tables(tables, claims.judged, source), _beyond(source, findings)]
    parts += [*_why(source, information), *_split(source, splits), _hours(findings)]
    text = renew(old, "results", "\n".join(parts))
    text = renew(text, "controls", fill("controls.md.j2", claims))
    if text != old:
        write_atomically(path, text)


def renew(text: str, section: str, content: str) -> str:
    """Put new content between the marks of a section; without them nothing changes."""
    begin, end = marks(section)
    before, found, rest = text.partition(begin)
    _, closed, after = rest.partition(end)
    return f"{before}{begin}\n\n{content}\n{end}{after}" if found and closed else text


def _tables(tables: Sequence[Table], judged: Sequence[Judged], source: Source) -> str:
    """Ours beside the paper's, one table of the paper after another, and the controls."""
    ours = [one for one in judged if one.is_computed]
    lines = [
        f"{len(ours)} of the {len(judged)} cells of the paper's tables are computed. "
        f"Ours under the {source.selection} rule: {counts_text(one.verdict for one in ours)}; "
        f"under the other rule: {counts_text(one.other_verdict for one in ours)}. "
        f"{stricter_rules(judged)}",
        "",
    ]
    for table in tables:
        caption = f"**{table.spec.caption}**: ours \\| the paper's"
        lines += [caption, "", table.grid(_beside).to_markdown()]
    return "\n".join(lines)


def _beside(number: Number) -> Shown:
    if number.printed is None or number.cell is None:
        return Shown(number.summary_text)
    ours = number.summary if number.cell.is_finished else None
    return Shown(f"{ours or '–'} | {number.printed}")


def _beyond(source: Source, findings: Findings) -> str:
    """The conditioned reports and the controls: what they say, MB's row, and the figure."""
    lines = [f"### {BEYOND}", "", " ".join(findings.sentences()), ""]
    if findings.any_computed:
        folder = Path(source.results_dir).name
        lines += [
            "Mechanisms table, MB (ε_y=∞):",
            "",
            findings.multi_bit().to_markdown(),
            "Conditioned reports beat blank ones, with a paired 95 % CI above 0, from there on:",
            "",
            findings.pays().to_markdown(),
            f"![What the private features are worth]({folder}/figures/value_of_features.png)",
            "",
            f"In `{folder}/tables`: `conditioned_*.md`, `learners.md`, `value_of_features.md`, "
            "`equal_labels.md`.",
            "",
        ]
    return "\n".join(lines)


def _why(source: Source, information: Sequence[Information]) -> Iterator[str]:
    """How few bits depend on the features, if it was measured."""
    if sentences := why_blank(information):
        figure = f"{Path(source.results_dir).name}/figures/{FIGURE}.png"
        yield "\n".join([f"### {WHY}", "", " ".join(sentences), "", f"![{WHY}]({figure})", ""])


def _split(source: Source, splits: BestSplits) -> Iterator[str]:
    """The best split of each total budget, if there are rows."""
    if (grid := splits_grid(splits)) is not None:
        folder, text = Path(source.results_dir).name, " ".join(splits_sentences(splits))
        lines = [f"### {SPLIT}", "", text, "", grid.to_markdown(), f"In each cell: {NOTE}.", ""]
        lines += [f"![{SPLIT}]({folder}/figures/{EXPERIMENT}.png)", ""]
        yield "\n".join([*lines, f"In `{folder}/tables`: `budget_split*.md`, `planted.md`.", ""])


def _hours(findings: Findings) -> str:
    """The measured time behind all rows."""
    lines = ["### Compute time", "", f"{HOURS.capitalize()}.", ""]
    return "\n".join([*lines, findings.hours().to_markdown()])
