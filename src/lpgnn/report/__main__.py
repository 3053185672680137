"""``python -m lpgnn.report``: rebuild tables, figures, comparison and page from the rows."""

import argparse
import sys
from collections.abc import Sequence

from lpgnn.config import Settings
from lpgnn.errors import InputError, exit_code
from lpgnn.report.comparison import verdict_counts
from lpgnn.report.rebuild import rebuild

_SETTINGS = ("results_dir", "selection")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m lpgnn.report",
        description="Rebuild tables, figures and report.html from the rows of a results folder.",
        epilog="Settings: results_dir=results, selection=paper|released.  "
        "Exit codes: 0 done, 2 bad input.",
    )
    parser.add_argument("overrides", nargs="*", metavar="KEY=VALUE")
    overrides = parser.parse_args(arguments).overrides
    return exit_code(lambda: _rebuild(overrides))


def _rebuild(overrides: Sequence[str]) -> int:
    settings = parse(overrides)
    judged = rebuild(settings)
    counts = verdict_counts([one.verdict for one in judged])
    told = ", ".join(f"{count} {verdict}" for verdict, count in counts.items())
    print(f"{len(judged)} cells of the paper's tables (selection={settings.selection}): {told}")
    print(f"report: {settings.results_dir}/report.html")
    return 0


def parse(overrides: Sequence[str]) -> Settings:
    """The settings of a report from KEY=VALUE words."""
    values: dict[str, str] = {}
    for word in overrides:
        key, equals, value = word.partition("=")
        if key not in _SETTINGS or not equals:
            raise InputError(key, value, f"is no setting; known: {', '.join(_SETTINGS)}")
        values[key] = value
    usual = Settings()
    return Settings(
        results_dir=values.get("results_dir", usual.results_dir),
        selection=values.get("selection", usual.selection),
    )


if __name__ == "__main__":
    sys.exit(main())
