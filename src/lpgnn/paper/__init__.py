"""What is about one paper: its printed numbers, verdicts on ours, its TeX files and documents.

Sajadmanesh and Gatica-Perez, "Locally Private Graph Neural Networks" (CCS 2021).  The CSV files
hold its tables as printed: ``mechanisms`` ("Accuracy of LPGNN with different LDP mechanisms"),
``features`` ("... with different features"), ``denoising`` ("Effect of Drop on the accuracy of
LPGNN"), ``datasets`` ("Descriptive statistics of the used datasets"), and ``learners``, Drop's
column of the third once more as a row; mean and half width of the 95 % interval in per cent.
"""

from collections.abc import Mapping, Sequence

from lpgnn.paper.best import best_accuracies, write_best
from lpgnn.paper.claims import Claims
from lpgnn.paper.comparison import (
    Verdict,
    compare,
    compared_grid,
    counts_text,
    verdict_counts,
    verdict_grid,
    write_comparison,
)
from lpgnn.paper.curves import CONVEXITY, write_convexity, write_curves
from lpgnn.paper.documents import write_documents
from lpgnn.paper.findings import BEYOND, CONTESTS, HOURS, PAPER_EXPERIMENTS, PAPER_TABLES, Findings
from lpgnn.paper.information import WHY, why_blank
from lpgnn.paper.notes import write_notes
from lpgnn.paper.splits import (
    NOTE,
    SPLIT,
    best_splits,
    splits_computed,
    splits_grid,
    splits_sentences,
)
from lpgnn.paper.statistics import statistics_grid, write_statistics
from lpgnn.report.evidence import Source
from lpgnn.report.information import (
    CAPTION,
    FIGURE,
    draw_informative_bits,
    information_grid,
    read_information,
)
from lpgnn.report.page import Built, gaps, render
from lpgnn.rows import write_atomically


def write_paper(built: Sequence[Built], source: Source) -> str:
    """Write the paper's comparison, TeX files, dataset table, notes, documents and page.

    ``built`` are the experiments with rows, the paper's and others.  Returns the verdicts in a
    line.
    """
    folder, findings = source.results_dir, Findings(source)
    judged = compare(findings.tables[name] for name in PAPER_TABLES)
    claims = Claims(findings, judged)
    write_comparison(judged, source.selection, folder, stricter=claims.stricter)
    write_curves(source)
    write_statistics(folder / "tables")
    write_best(best_accuracies(source), folder / "tables")
    information, splits = read_information(folder), best_splits(source)
    write_notes(claims)
    write_documents(claims, information, splits)
    drawn = {
        CONVEXITY: write_convexity(folder / "figures"),
        FIGURE: draw_informative_bits(information, folder / "figures"),
    }
    write_atomically(folder / "report.html", paper_page(built, claims, drawn))
    verdicts = counts_text((one.verdict for one in judged), zeros=True)
    return f"{len(judged)} cells of the paper's tables (selection={source.selection}): {verdicts}"


def paper_page(built: Sequence[Built], claims: Claims, drawn: Mapping[str, bytes | None]) -> str:
    """The page of everything.

    drawn: the SVG of the figures that belong to no experiment, by name
    """
    source, findings, judged = claims.source, claims.findings, claims.judged
    information, splits = read_information(source.results_dir), best_splits(source)
    tables = [findings.tables[name] for name in PAPER_TABLES]
    return render(
        "paper/page.html.j2",
        built,
        source.selection,
        judged=judged,
        counts=verdict_counts(one.verdict for one in judged),
        stricter=claims.stricter,
        num_computed=sum(one.is_computed for one in judged),
        verdicts=verdict_grid(judged, source.selection),
        symbols_of_marks={verdict.mark: verdict.symbol for verdict in Verdict},
        statistics=statistics_grid(with_printed=True),
        compared=[(table, compared_grid(table, judged)) for table in tables],
        own=[one for one in built if one.name in PAPER_EXPERIMENTS],
        others=[one for one in built if one.name not in PAPER_EXPERIMENTS],
        convexity=drawn[CONVEXITY],
        beyond=BEYOND,
        sentences=findings.sentences(),
        contests=(CONTESTS, findings.contests()) if findings.any_computed else None,
        multi_bit=findings.multi_bit() if findings.any_computed else None,
        pays=findings.pays() if findings.any_computed else None,
        why=(WHY, why_blank(information)),
        informative=(FIGURE, CAPTION, drawn[FIGURE]),
        information=information_grid(information) if information else None,
        split=(
            *(SPLIT, [*splits_sentences(splits), splits_computed(source)]),
            *(splits_grid(splits), NOTE),
        ),
        hours=findings.hours(),
        hours_note=HOURS,
        lastfm_gaps=any(gap[1] == "lastfm" for one in built for gap in gaps(one.results)),
    )
