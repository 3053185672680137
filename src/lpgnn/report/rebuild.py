"""All artefacts of a results folder from its rows."""

from pathlib import Path

from lpgnn.config import Settings
from lpgnn.errors import InputError
from lpgnn.report.comparison import Judged, compare, write_comparison
from lpgnn.report.evidence import Evidence
from lpgnn.report.figures import draw_figures, write_curves
from lpgnn.report.findings import findings
from lpgnn.report.page import write_page
from lpgnn.report.readme import write_readme
from lpgnn.report.tables import write_tables
from lpgnn.report.value import worth, write_worth


def rebuild(base: Settings) -> list[Judged]:
    """Write tables, figures, comparison and page of ``base.results_dir``; return the verdicts.

    ``base`` also says which selection rule's accuracy is shown and which edition of the tables:
    the cells' settings are put over it.  The files depend on the rows only: same rows, same bytes.
    """
    folder = Path(base.results_dir)
    if not any((folder / "rows").glob("*.csv")):
        allowed = "must be a folder written by lpgnn.run, with rows/*.csv in it"
        raise InputError("results_dir", base.results_dir, allowed)
    try:
        evidence = Evidence(folder)
        judged = compare(base, evidence)
        write_comparison(judged, base)
        write_tables(base, evidence)
        write_curves(base, evidence)
        said, found = findings(base, evidence), worth(base, evidence)
        write_worth(found, base)
        write_readme(base, evidence, judged, said, found)
        drawn = draw_figures(base, evidence, judged, found)
        write_page(base, evidence, judged, said, found, drawn)
    except OSError as error:
        reason = error.strerror or type(error).__name__
        allowed = f"must be a readable and writable folder ({reason})"
        raise InputError("results_dir", base.results_dir, allowed) from None
    return judged
