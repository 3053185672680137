"""What goes beyond the paper, as data: controls, and its tables with conditioned reports.

Two controls stand beside every number that private features are credited with: blank reports, which
hold nothing but go through the same mechanism, conditioning and training, and the labels alone,
propagated over the graph without features, network or training.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from lpgnn.config import Settings
from lpgnn.report.cells import DATASETS, TABLES, Cell, Entry, Table, budget, budget_entries

GRAPHS = {name: DATASETS[name] for name in ("cora", "pubmed", "facebook")}
X_BUDGETS = (0.01, 0.1, 1.0, 3.0, 8.0, 16.0, 32.0, 64.0, 128.0)
Y_BUDGETS = (math.inf, 1.0)

_CONDITIONED = {"conditioning": "node", "hparams": "conditioned"}
# The network starts from a good answer: the epoch that is kept comes early.
_RESIDUAL = {
    "learner": "residual",
    "conditioning": "node",
    "hparams": "residual",
    "max_epochs": 200,
}
# It has nothing to tune: the paper's table serves, for it is always there.
_LABELS_ONLY: dict[str, Any] = {"learner": "propagation", "hparams": "paper"}


def _edition(
    table: Table,
    rows: tuple[Entry, ...],
    columns: tuple[Entry, ...] = (),
    rule: tuple[str, ...] = (),
) -> Table:
    """A table of the paper with conditioned reports and the controls after its own entries."""
    return replace(
        table,
        name=f"conditioned_{table.name}",
        caption=f"{table.caption}: conditioned reports, and the controls",
        tex_caption=f"{table.tex_caption}: conditioned reports, and the controls",
        rows=(*table.rows, *rows),
        columns=(*table.columns, *columns),
        rule_before=(*table.rule_before, *rule),
        datasets=GRAPHS,
        changes=_CONDITIONED,
        edition_of=table.name,
    )


def _blank(eps: float) -> Entry:
    return Entry(
        f"blank x_eps={budget(eps)}",
        f"Blank (ε_x={eps:g})",
        rf"Blank ($\epsilon_x={eps:g}$)",
        {"feature": "blank", "mechanism": "mb", "x_eps": eps},
    )


def _labels_only(**changes: Any) -> Entry:
    return Entry("labels_only", "Labels only", "Labels only", {**_LABELS_ONLY, **changes})


_MECHANISMS, _FEATURES, _DENOISING = TABLES
MECHANISMS = _edition(
    _MECHANISMS,
    (
        Entry(
            "blank",
            "Blank (MB)",
            "Blank (MB)",
            {"feature": "blank", "mechanism": "mb", "y_eps": math.inf},
        ),
        _labels_only(y_eps=math.inf),
    ),
)
FEATURES = _edition(
    _FEATURES,
    (*(_blank(eps) for eps in (0.01, 0.1, 1.0)), _labels_only()),
    rule=("blank x_eps=0.01",),
)
DENOISING = _edition(
    _DENOISING,
    (),
    (Entry("residual", "Residual", "Residual", {**_RESIDUAL, "x_eps": 1.0}), _labels_only()),
)
EDITIONS = (MECHANISMS, FEATURES, DENOISING)


def _controls(table: Table, rows: tuple[Entry, ...], columns: tuple[Entry, ...]) -> Table:
    """The controls beside a table of the paper, on all graphs and in the paper's protocol."""
    return replace(table, name=f"{table.name}_controls", rows=rows, columns=columns)


# By the name of the paper's table.  They stand beside what is compared and are not compared.
CONTROLS = {
    table.name: _controls(table, rows, columns)
    for table, rows, columns in (
        (_MECHANISMS, MECHANISMS.rows[len(_MECHANISMS.rows) :], _MECHANISMS.columns),
        (_FEATURES, FEATURES.rows[len(_FEATURES.rows) :], _FEATURES.columns),
        (
            _DENOISING,
            _DENOISING.rows,
            (
                Entry(
                    "drop blank",
                    "Drop on blank reports",
                    "Drop on blank reports",
                    {"learner": "drop", "feature": "blank", "x_eps": 1.0},
                ),
                _labels_only(),
            ),
        ),
    )
}


# Whose place blank reports take.
STANDS_FOR = {"blank": "mb", "drop blank": "drop"} | {
    blank.key: own.key
    for blank, own in zip(CONTROLS["features"].rows, _FEATURES.rows[3:], strict=False)
}


def with_controls(table: Table) -> Table:
    """A table of the paper with the controls after its own entries, to be laid out."""
    controls = CONTROLS[table.name]
    rows, columns = (
        (*own, *(one for one in beside if one not in own))
        for own, beside in ((table.rows, controls.rows), (table.columns, controls.columns))
    )
    rule = (controls.rows[0].key,) if table.datasets_side_by_side else ()
    return replace(table, rows=rows, columns=columns, rule_before=(*table.rule_before, *rule))


LABEL_BUDGETS = (0.5, 1.0, 2.0, 3.0, math.inf)


def labels_only_cell(base: Settings, dataset: str, y_eps: float) -> Cell:
    """The labels alone at a budget: a level in the figures."""
    settings = replace(base, dataset=dataset, y_eps=y_eps, **_LABELS_ONLY)
    return Cell("labels_only", dataset, "labels_only", f"y_eps={budget(y_eps)}", settings)


def _variants(learner: str, label: str, changes: Mapping[str, Any], **own: Any) -> Iterator[Entry]:
    for walk in ("plain", "lazy"):
        for combine in ("one", "stack"):
            text = f"{label} ({walk}, {combine})"
            options = {"name": learner, "walk": walk, "combine": combine, **own}
            key = f"{learner} {walk} {combine}"
            yield Entry(key, text, text, {**changes, "learner": options})


RESIDUAL, BLANK_RESIDUAL = "residual", "residual blank"
LEARNERS = Table(
    "learners",
    "Learners for private labels, part by part (ε_x=1)",
    r"Learners for private labels, part by part ($\epsilon_x=1$)",
    Entry("row", "Learner", "Learner"),
    (
        Entry("forward", "Forward correction", "Forward correction", {"learner": "forward"}),
        *_variants("propagation", "Labels only", _LABELS_ONLY),
        *_variants("residual", "Residual, not smoothed", {}, smooth=0),
        Entry(RESIDUAL, "Residual", "Residual", {"learner": "residual"}),
        Entry(
            BLANK_RESIDUAL,
            "Residual on blank reports",
            "Residual on blank reports",
            {"learner": "residual", "feature": "blank"},
        ),
    ),
    budget_entries("y_eps", (0.5, 1.0, 2.0), "y"),
    compared="rows",
    datasets=GRAPHS,
    changes={**_RESIDUAL, "x_eps": 1.0},
)


def label_cells(base: Settings) -> Iterator[Cell]:
    for dataset in DATASETS:
        for y_eps in LABEL_BUDGETS:
            yield labels_only_cell(base, dataset, y_eps)


# The series of "what the private features are worth"; the last two know no eps_x.
SERIES = {
    "paper_protocol": Entry("paper_protocol", "paper protocol", "paper protocol"),
    "conditioned": Entry("conditioned", "conditioned", "conditioned", _CONDITIONED),
    "blank": Entry("blank", "blank", "blank", {**_CONDITIONED, "feature": "blank"}),
    "non_private": Entry("non_private", "non-private", "non-private", {"x_eps": math.inf}),
    "labels_only": Entry("labels_only", "labels only", "labels only", _LABELS_ONLY),
}


def place(y_eps: float, x_eps: float | None = None) -> str:
    """Where a number stands in "what the private features are worth"."""
    text = f"y_eps={budget(y_eps)}"
    return text if x_eps is None else f"{text} x_eps={budget(x_eps)}"


def value_cells(base: Settings) -> Iterator[Cell]:
    """The numbers of "what the private features are worth": rows are the series."""
    for dataset in GRAPHS:
        for y_eps in Y_BUDGETS:
            for series in SERIES.values():
                settings = replace(base, dataset=dataset, **{**series.changes, "y_eps": y_eps})
                if series.key in ("non_private", "labels_only"):
                    yield Cell("value_of_features", dataset, series.key, place(y_eps), settings)
                    continue
                for eps in X_BUDGETS:
                    column = place(y_eps, eps)
                    one = replace(settings, x_eps=eps)
                    yield Cell("value_of_features", dataset, series.key, column, one)


def beyond_cells(base: Settings) -> Iterator[Cell]:
    """Every number that goes beyond the paper, tables first."""
    for table in (*CONTROLS.values(), *EDITIONS, LEARNERS):
        yield from table.cells(base)
    yield from label_cells(base)
    yield from value_cells(base)
