"""The generated sections of README and documentation, from the same numbers as the page.

A section stands between two marks in a document that is otherwise written by hand.
"""

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from lpgnn.paper.claims import Claims
from lpgnn.paper.comparison import counts_text
from lpgnn.paper.findings import BEYOND, CONTESTS, HOURS, PAPER_TABLES, Findings
from lpgnn.paper.hops import EXPERIMENT as HOP_REGRESSION
from lpgnn.paper.hops import GRID_NOTE, HOPS, NETWORKS_NOTE, Hops
from lpgnn.paper.information import WHY, few_bits, why_blank
from lpgnn.paper.notes import benchmark_section, fill
from lpgnn.paper.phase import FROM_NOTE, PHASES, Phases
from lpgnn.paper.planted import planted_sentences
from lpgnn.paper.rounds import TwoRounds
from lpgnn.paper.splits import (
    EXPERIMENT,
    NOTE,
    SPLIT,
    BestSplits,
    splits_computed,
    splits_grid,
    splits_sentences,
    splits_steps,
)
from lpgnn.paper.wording import listed
from lpgnn.report.grid import Shown
from lpgnn.report.information import CAPTION, FIGURE, Information
from lpgnn.report.tables import Number
from lpgnn.rows import write_atomically


@dataclass(frozen=True)
class Numbers:
    """What sections are made of, and the address of the results folder in their document."""

    claims: Claims
    information: Sequence[Information]
    splits: BestSplits
    results: str

    @property
    def findings(self) -> Findings:
        return self.claims.findings


def marks(section: str) -> tuple[str, str]:
    """The lines between which the report writes a section."""
    return f"<!-- {section}: written by python -m lpgnn.report -->", f"<!-- end of {section} -->"


def write_documents(claims: Claims, information: Sequence[Information], splits: BestSplits) -> None:
    """Renew the documents beside the results folder: those that are there, between their marks."""
    folder = claims.source.results_dir.resolve()
    for name, sections in DOCUMENTS.items():
        path = folder.parent / name
        if not path.is_file():
            continue
        address = Path(os.path.relpath(folder, path.parent)).as_posix()
        numbers = Numbers(claims, information, splits, address)
        old = text = path.read_text(encoding="utf-8")
        for section, written in sections.items():
            text = renew(text, section, written(numbers))
        if text != old:
            write_atomically(path, text)


def renew(text: str, section: str, content: str) -> str:
    """Put new content between the marks of a section; without them nothing changes."""
    begin, end = marks(section)
    before, found, rest = text.partition(begin)
    _, closed, after = rest.partition(end)
    return f"{before}{begin}\n\n{_typeset(content)}\n{end}{after}" if found and closed else text


def _typeset(content: str) -> str:
    """Markdown for a page: no line breaks inside a number, and indices set low."""
    return re.sub(r"([εK])_([xy])", r"\1<sub>\2</sub>", content.replace(" ± ", "\u00a0±\u00a0"))


def _headline(numbers: Numbers) -> str:
    """The main numbers beside the paper's and the controls, and how many more there are."""
    judged, findings = numbers.claims.judged, numbers.findings
    ours = [one for one in judged if one.is_computed]
    text = (
        f"{len(ours)} of the {len(judged)} cells of the paper's tables are computed: "
        f"{counts_text(one.verdict for one in ours)}. Blank reports are within both CIs of "
        f"what the paper prints for MB and Drop in {findings.blank_as_printed()} cells. "
        "LastFM without its features, with every mechanism and learner on blank reports "
        "(`+experiment=lastfm_blank`), beside what the paper prints with features: "
        f"{numbers.claims.without_features()}\n"
    )
    return "\n".join([findings.headline().to_markdown(), text])


def _benchmark(numbers: Numbers) -> str:
    """What the benchmark comes to, as its own command has written it."""
    return benchmark_section(numbers.claims.source.results_dir, "summary") + "\n"


def _tables(numbers: Numbers) -> str:
    """Ours beside the paper's, one table of the paper after another, and the controls."""
    judged, selection = numbers.claims.judged, numbers.claims.source.selection
    ours = [one for one in judged if one.is_computed]
    lines = [
        f"{len(ours)} of the {len(judged)} cells of the paper's tables are computed. "
        f"Ours under the {selection} rule: {counts_text(one.verdict for one in ours)}; "
        f"under the other rule: {counts_text(one.other_verdict for one in ours)}. "
        f"{numbers.claims.stricter}",
        "",
    ]
    for name in PAPER_TABLES:
        table = numbers.findings.tables[name]
        lines += [f"## {table.spec.caption}", "", "Above ours, below the paper's:", ""]
        lines.append(table.grid(_beside).to_markdown())
        lines += [f"{note}\n" for note in table.notes()]
    return "\n".join(lines)


def _beside(number: Number) -> Shown:
    if number.printed is None or number.cell is None:
        return Shown(number.summary_text)
    ours = number.summary if number.cell.is_finished else None
    return Shown(f"{ours or '–'}<br>{number.printed}")


def _hours(numbers: Numbers) -> str:
    """The measured time behind all rows."""
    return "\n".join([f"{HOURS.capitalize()}.", "", numbers.findings.hours().to_markdown()])


def _controls(numbers: Numbers) -> str:
    return fill("controls.md.j2", numbers.claims)


def _beyond(numbers: Numbers) -> str:
    parts = (_conditioned(numbers), *_why(numbers), *_split(numbers))
    return "\n".join(parts)


def _conditioned(numbers: Numbers) -> str:
    """The conditioned reports and the controls: what they say, MB's row, and the figure."""
    findings, folder = numbers.findings, numbers.results
    lines = [f"## {BEYOND}", "", " ".join(findings.sentences()), ""]
    if findings.any_computed:
        lines += [
            CONTESTS,
            "",
            findings.contests().to_markdown(),
            "Mechanisms table, MB (ε_y=∞):",
            "",
            findings.multi_bit().to_markdown(),
            "Conditioned reports beat blank ones, with a paired 95 % CI above 0, from there on:",
            "",
            findings.pays().to_markdown(),
            _figure("What the private features are worth", f"{folder}/figures/value_of_features"),
            "In `results/tables`: `conditioned_*.md`, `learners.md`, `value_of_features.md`, "
            "`equal_labels.md`.",
            "",
        ]
    return "\n".join(lines)


def _why(numbers: Numbers) -> Iterator[str]:
    """How few bits depend on the features, if it was measured."""
    if sentences := why_blank(numbers.information):
        figure = _figure(WHY, f"{numbers.results}/figures/{FIGURE}")
        yield "\n".join([f"## {WHY}", "", " ".join(sentences), "", figure, f"{CAPTION}\n"])


def _why_in_short(numbers: Numbers) -> str:
    """One paragraph, where it was measured."""
    source = numbers.claims.source
    sentences = [few_bits(numbers.information, numbers.claims.protocol_pairs())]
    rounds, phases = TwoRounds(source), Phases(source).in_short()
    if rounds.computed and phases:
        graphs = listed(rounds.paying()) or "no graph"
        sentences.append(
            "Where features pay, after Holm's correction: two rounds of questions gain something "
            f"on {graphs} at some pair of budgets with ε_x up to 8, in points of accuracy or ROC "
            "AUC; "
            f"{phases}."
        )
        if reached := rounds.labels_reach(("cora", "pubmed", "facebook"), "1"):
            sentences.append(
                "Labels only, above, is its plain edition. The stronger one that two rounds build "
                f"upon (`learner.walk=coded`) has {reached} with private labels."
            )
    return "\n\n".join(filter(None, sentences)) + "\n" if any(sentences) else ""


def _split(numbers: Numbers) -> Iterator[str]:
    """The best split of each total budget, if there are rows."""
    if (grid := splits_grid(numbers.splits)) is not None:
        source = numbers.claims.source
        scope = [splits_steps(source), splits_computed(source)]
        text = " ".join([*splits_sentences(numbers.splits), *scope])
        lines = [f"## {SPLIT}", "", text, "", grid.to_markdown(), f"In each cell: {NOTE}.", ""]
        lines.append(_figure(SPLIT, f"{numbers.results}/figures/{EXPERIMENT}"))
        yield "\n".join([*lines, "In `results/tables`: `budget_split*.md`, `planted.md`.", ""])


def _planted(numbers: Numbers) -> str:
    return " ".join(planted_sentences(numbers.claims.source)) + "\n"


def _phases(numbers: Numbers) -> str:
    """Where features pay on block models, with the picture."""
    phases = Phases(numbers.claims.source)
    if (grid := phases.grid()) is None:
        return ""
    figure = _figure(PHASES, f"{numbers.results}/figures/phase_homophily")
    text = f"{' '.join(phases.sentences())} {FROM_NOTE}"
    return "\n".join([text, "", grid.to_markdown(), figure])


def _hops(numbers: Numbers) -> str:
    """What reports add to logistic regression, with the picture."""
    hops = Hops(numbers.claims.source)
    if (verdicts := hops.verdicts()) is None:
        return ""
    parts = [*hops.sentences(), "", verdicts.to_markdown(), f"{GRID_NOTE}\n"]
    parts += [grid.to_markdown() for y_eps in ("inf", "1") if (grid := hops.grid(y_eps))]
    if networks := hops.networks():
        parts += [f"{NETWORKS_NOTE} {hops.late()}\n", networks.to_markdown()]
    figure = _figure(HOPS, f"{numbers.results}/figures/{HOP_REGRESSION}")
    return "\n".join([*parts, figure])


def _hops_in_short(numbers: Numbers) -> str:
    """The same with clean labels only, without intervals."""
    hops = Hops(numbers.claims.source)
    verdicts, gains = hops.verdicts(), hops.grid("inf", intervals=False)
    if verdicts is None or gains is None:
        return ""
    return "\n".join(
        [*hops.sentences(), "", verdicts.to_markdown(), f"{GRID_NOTE}\n", gains.to_markdown()]
    )


def _two_rounds(numbers: Numbers) -> str:
    """What two rounds gain, and where they gain nothing."""
    figure = _figure("Where private features pay", f"{numbers.results}/figures/features_that_pay")
    return "\n".join([fill("two_rounds_gain.md.j2", numbers.claims), figure])


def _figure(title: str, path: str) -> str:
    return f"![{title}]({path}.png)\n"


Section = Callable[[Numbers], str]

DOCUMENTS: Mapping[str, Mapping[str, Section]] = {
    "README.md": {
        "headline": _headline,
        "why": _why_in_short,
        "hops": _hops_in_short,
        "benchmark": _benchmark,
    },
    "docs/concepts/two_rounds.md": {"two_rounds": _two_rounds},
    "docs/science/results.md": {"results": _tables, "hours": _hours},
    "docs/science/private_features.md": {
        "controls": _controls,
        "beyond": _beyond,
        "planted": _planted,
        "phases": _phases,
        "hops": _hops,
    },
}
