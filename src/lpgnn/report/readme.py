"""The results section of the README, between two marks, from the same numbers as the page."""

from collections.abc import Sequence
from pathlib import Path

from lpgnn.config import Settings
from lpgnn.report.beyond import with_controls
from lpgnn.report.cells import TABLES, Cell
from lpgnn.report.comparison import Judged, verdict_counts
from lpgnn.report.evidence import Evidence
from lpgnn.report.findings import BEYOND, COMPUTE_TIME, Findings, compute_hours
from lpgnn.report.tables import Key, fill_controls, lay_out, markdown
from lpgnn.report.value import Worth, pays_grid
from lpgnn.results import write_atomically

BEGIN, END = "<!-- results: written by python -m lpgnn.report -->", "<!-- end of results -->"


def write_readme(
    base: Settings,
    evidence: Evidence,
    judged: Sequence[Judged],
    said: Findings,
    found: Sequence[Worth],
) -> None:
    """Renew the section in the README beside the results folder, if there is one with the marks."""
    path = Path(base.results_dir).resolve().parent / "README.md"
    text = path.read_text(encoding="utf-8") if path.is_file() else ""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if begin and end:
        parts = (
            section(judged, base, evidence),
            beyond(base, said, found),
            compute(base, evidence),
        )
        middle = "\n".join(parts)
        write_atomically(path, f"{before}{BEGIN}\n\n{middle}\n{END}{after}")


def section(judged: Sequence[Judged], base: Settings, evidence: Evidence) -> str:
    """Ours beside the paper's, one table of the paper after another, and the controls."""
    ours = [one for one in judged if one.is_finished and one.ours is not None]
    lines = [
        f"{len(ours)} of the {len(judged)} cells of the paper's tables are computed. "
        f"Ours under the {base.selection} rule: {_counts([one.verdict for one in ours])}; under "
        f"the other rule: {_counts([one.other_verdict for one in ours])}.",
        "",
    ]
    for table in TABLES:
        texts = {_key(one.cell): _beside(one) for one in judged if one.cell.table == table.name}
        controls = fill_controls(table, base, evidence)
        texts |= {key: str(one.summary or "–") for key, one in controls.items()}
        grid = lay_out(with_controls(table), texts, tex=False)
        lines += [f"**{table.caption}**: ours \\| the paper's", "", markdown(grid)]
    return "\n".join(lines)


def beyond(base: Settings, said: Findings, found: Sequence[Worth]) -> str:
    """The conditioned reports and the controls: what they say, MB's row, and the figure."""
    lines = [f"### {BEYOND}", "", " ".join(said.sentences()), ""]
    if said.any_computed:
        folder = Path(base.results_dir).name
        lines += [
            "Mechanisms table, MB (ε_y=∞):",
            "",
            markdown(said.multi_bit),
            "Conditioned reports beat blank ones, with a paired 95 % CI above 0, from there on:",
            "",
            markdown(pays_grid(found)),
            f"![What the private features are worth]({folder}/figures/value_of_features.png)",
            "",
            f"In `{folder}/tables`: `conditioned_*.md`, `learners.md`, `value_of_features.md`.",
            "",
        ]
    return "\n".join(lines)


def compute(base: Settings, evidence: Evidence) -> str:
    """The measured time behind all rows."""
    lines = ["### Compute time", "", f"{COMPUTE_TIME.capitalize()}.", ""]
    return "\n".join([*lines, markdown(compute_hours(base, evidence))])


def _counts(verdicts: Sequence[str]) -> str:
    counts = {name: count for name, count in verdict_counts(verdicts).items() if count}
    return ", ".join(f"{count} {name}" for name, count in counts.items())


def _key(cell: Cell) -> Key:
    return cell.dataset, cell.row, cell.column


def _beside(one: Judged) -> str:
    ours = str(one.ours) if one.is_finished and one.ours is not None else "–"
    return f"{ours} \\| {one.printed}"
