"""A picture of the benchmark: what entries reach against what a node spends in total."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lpgnn.benchmark.entries import FAMILIES
from lpgnn.benchmark.plan import LABELS_ONLY
from lpgnn.benchmark.standings import Standing
from lpgnn.report.drawing import (
    CONTROL_STYLES,
    GREY,
    STYLES,
    add_legend,
    new_figure,
    our_style,
    save,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_COLUMNS = 3
_METRICS = {"acc": "accuracy", "roc_auc": "ROC AUC", "balanced_acc": "balanced accuracy"}


def front(points: Sequence[tuple[float, float, str]]) -> list[tuple[float, float, str]]:
    """Of (budget, value, name) those that no point with at most their budget reaches."""
    found: list[tuple[float, float, str]] = []
    for budget, value, name in sorted(points, key=lambda one: (one[0], -one[1])):
        if not found or value > found[-1][1]:
            found.append((budget, value, name))
    return found


def draw_pareto(found: Sequence[Standing], datasets: Sequence[str], folder: Path) -> bytes:
    """A panel per graph that has features and numbers of private labels: clean ones have no total.

    Blank reports have a budget and hold nothing: they have no place here.
    """
    private = [one for one in found if math.isfinite(one.y_eps) and not one.is_on_blank]
    known = {one.dataset for one in private}
    datasets = [name for name in datasets if name in known] or datasets
    columns = min(_COLUMNS, len(datasets))
    rows = math.ceil(len(datasets) / columns)
    with our_style():
        figure = new_figure(max(3.2 * columns, 6.4), 2.7 * rows + 0.6)
        axes = figure.subplots(rows, columns, squeeze=False)
        for axis in axes.flat[len(datasets) :]:
            axis.remove()
        handles: dict[str, Any] = {}
        for axis, dataset in zip(axes.flat, datasets, strict=False):
            here = [one for one in private if one.dataset == dataset]
            _draw_panel(axis, here)
            axis.set_title(dataset)
            axis.set_xlabel("total budget of a node")
            if here:
                axis.set_ylabel(_METRICS.get(here[0].metric, here[0].metric))
            for handle, label in zip(*axis.get_legend_handles_labels(), strict=True):
                handles.setdefault(label, handle)
        add_legend(figure, list(handles.values()))
        return save(figure, folder, "pareto")


def _draw_panel(axis: "Axes", here: Sequence[Standing]) -> None:
    """Complete entries by family, the front of the best, and both ends: no features, bare ones.

    Totals stand side by side: most of them are close to the label budget.
    """
    own = [one for one in here if one.rank is not None]
    only = [one for one in here if one.entry.name == LABELS_ONLY]
    totals = sorted({one.total_eps for one in (*only, *own)})
    place = {eps: x for x, eps in enumerate(totals)}
    families = FAMILIES[1:]
    for i, ((colour, marker), family) in enumerate(zip(STYLES, families, strict=False)):
        group = [one for one in own if one.entry.family == family]
        if group:
            aside = 0.1 * (i - (len(families) - 1) / 2)
            axis.plot(
                [place[one.total_eps] + aside for one in group],
                [one.summary.mean for one in group],
                ls="none",
                marker=marker,
                color=colour,
                alpha=0.6,
                mec="none",
                label=family,
            )
    line = front([(one.total_eps, one.summary.mean, one.entry.name) for one in (*only, *own)])
    if line:
        axis.plot(
            [*(place[eps] - 0.5 for eps, _, _ in line), len(totals) - 0.5],
            [*(value for _, value, _ in line), line[-1][1]],
            color=GREY,
            lw=1.2,
            ds="steps-post",
            label="best so far",
        )
        for eps, value, name in line:
            if name != LABELS_ONLY:  # in the legend
                axis.annotate(
                    name,
                    (place[eps] - 0.5, value),
                    xytext=(2, 2),
                    textcoords="offset points",
                    fontsize="xx-small",
                    color=GREY,
                )
        axis.set_xticks(range(len(totals)), [f"{eps:g}" for eps in totals])
    for one in here:
        if one.entry.is_control:
            is_only = one.entry.name == LABELS_ONLY
            line_style, name = ("--", "labels only") if is_only else (":", "features without noise")
            axis.axhline(
                one.summary.mean, ls=line_style, color=CONTROL_STYLES[0][0], lw=1.0, label=name
            )
