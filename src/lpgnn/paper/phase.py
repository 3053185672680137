"""Where private features pay on block models: the experiment ``phase_diagram``, summed up."""

from lpgnn.paper.rounds import pays_from, surely_above
from lpgnn.paper.wording import Family, listed, span
from lpgnn.report.build import tables_of
from lpgnn.report.evidence import Source
from lpgnn.report.grid import Grid
from lpgnn.report.notation import canonical, value_text
from lpgnn.report.tables import Number, Table

EXPERIMENT = "phase_diagram"
PHASES = "Where private features pay on block models"
FROM_NOTE = (
    "In the table: the interval is above 0 at that ε_x and all larger ones; in brackets, where it "
    "differs, the same for what Holm's rule keeps at 5 %. Where blank reports are near 100 nothing "
    "is left to gain."
)
# What is varied, in the order of the experiment's tables.
_VARIED = {
    "phase_homophily": "homophily",
    "phase_degree": "degree",
    "phase_features": "number of features",
    "phase_signal": "signal δ",
}

# The controls of the table by homophily, by the ends of their rows.
_CONTROLS = {
    "mean of blank reports": "feature=blank",
    "mean of labels only": "Labels only",
    "mean of features without noise": "Features without noise",
}


class Phases:
    """The gains over both controls by what a block model is made of."""

    def __init__(self, source: Source) -> None:
        self.results = source.results(EXPERIMENT)
        self.tables: dict[str, Table] = tables_of(self.results) if self.results.has_rows else {}

    @property
    def minutes(self) -> float:
        """What the experiment's runs took on one core, added up; lines of the grid share some."""
        cells = {cell.identity: cell for cell in self.results.cells}
        seconds = (float(row["duration"]) for cell in cells.values() for row in cell.rows)
        return sum(seconds) / 60

    def setting(self) -> str:
        """The labels, label budget and number of classes that all runs share."""
        found = set()
        for cell in self.results.cells:
            if (known := cell.configuration) is not None:
                options = known.learner.options()
                y_eps = value_text(canonical(known.y_eps))
                classes = known.dataset.options()["num_classes"]
                found.add(f"labels of {options['labels']} nodes at ε_y={y_eps}, {classes} classes")
        return listed(sorted(found))

    def gains(self, table: str, name: str) -> dict[str, dict[float, Number]]:
        """The differences of one name, by block and ε_x."""
        found: dict[str, dict[float, Number]] = {}
        for (block, row, x_eps), number in self.tables[table].numbers.items():
            if row == name:
                key = self.tables[table].entries["block"][block].values[0]
                found.setdefault(key, {})[float(x_eps)] = number
        return found

    def sentences(self) -> list[str]:
        """How often each mechanism's reports are above the controls by table; and the cost."""
        if not self.tables:
            return []
        told = []
        for table, varied in _VARIED.items():
            families = []
            for name in self.tables[table].spec.differences:
                numbers = (n for row in self.gains(table, name).values() for n in row.values())
                families.append(f"{name} {Family(tuple(n.difference for n in numbers))}")
            told.append(f"By {varied}: {'; '.join(families)}.")
        count = len({cell.identity for cell in self.results.cells})
        return [
            f"`+experiment={EXPERIMENT}`: labels are propagated and corrected by a node's own "
            f"report, with {self.setting()}. Differences in accuracy to blank reports and to "
            "labels only, paired. Each point is one generated graph: an interval is about its "
            "splits and noise, not about other graphs of the kind.",
            *told,
            f"The runs of its {count} configurations took {self.minutes:.0f} minutes, added up, on "
            "a machine with other work.",
        ]

    def grid(self) -> Grid | None:
        """From which ε_x on each mechanism's reports are above the controls, by homophily."""
        if not self.tables:
            return None
        (table, varied), *_ = _VARIED.items()
        by_name = {name: self.gains(table, name) for name in self.tables[table].spec.differences}
        keys = list(next(iter(by_name.values())))
        rows = [[name, *(pays_from(gains[key]) for key in keys)] for name, gains in by_name.items()]
        for title, row in _CONTROLS.items():
            rows.append([title, *(self._means(key, row) for key in keys)])
        return Grid.of_text(["Above 0 from ε_x =", *(f"{varied} {key}" for key in keys)], rows)

    def in_short(self) -> str:
        """At which homophily MB's reports gain anything after Holm's rule; empty without rows."""
        if not self.tables:
            return ""
        gains = self.gains("phase_homophily", "MB − blank")
        paying = {key: any(map(surely_above, row.values())) for key, row in gains.items()}
        yes = [key for key, pays in paying.items() if pays]
        blank = _CONTROLS["mean of blank reports"]
        no = [f"{key} ({self._means(key, blank)})" for key, pays in paying.items() if not pays]
        return (
            f"on block models MB's reports do at homophily {listed(yes) or '–'} for some ε_x up to "
            f"{canonical(max(next(iter(gains.values()))))}, but not at {listed(no) or '–'} (in "
            "brackets: accuracy without features)"
        )

    def _means(self, homophily: str, ending: str) -> str:
        """Lowest and highest mean of a control: near 100 there is nothing to gain."""
        table = self.tables["phase_homophily"]
        return span(
            number.summary
            for (block, row, _), number in table.numbers.items()
            if table.entries["block"][block].values[0] == homophily
            and row.endswith(ending)
            and number.summary is not None
        )
