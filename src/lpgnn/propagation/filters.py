"""Filters: what happens between the reports and the first layer.

A linear filter is sum_k theta_k P^k and a factor of each row; it keeps the factored algebra of
``features``.  An own one is a frozen dataclass with ``coefficients``; one that is not linear has
``transform`` and sees blocks of columns of the dense rectified features.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from lpgnn.components import Component
from lpgnn.errors import InputError, error_line
from lpgnn.privacy.reports import FeatureReports
from lpgnn.propagation.conditioning import CONDITIONINGS, row_factors, row_lengths
from lpgnn.propagation.conditioning import Conditioning as Conditioning
from lpgnn.propagation.features import (
    DenseFeatures,
    PropagatedFeatures,
    RowFactors,
    linear_features,
    storing_pays,
)
from lpgnn.propagation.operators import AGGREGATORS, Aggregator
from lpgnn.propagation.prepared import PreparedGraph


@dataclass(frozen=True)
class Filter(Component, ABC):
    """From the reports of R runs on one graph to the input of their first layers."""

    kind: ClassVar[str] = "filter"
    is_linear: ClassVar[bool]

    @abstractmethod
    def features(
        self, reports: Sequence[FeatureReports], graph: PreparedGraph
    ) -> PropagatedFeatures:
        """The filtered features.  reports: R times [N, d], in the order of the prepared graph"""

    @property
    @abstractmethod
    def max_steps(self) -> int:
        """How many products with P an epoch pays for each projected column: its cost."""

    def forms_matrix(self, num_nodes: int, num_features: int, num_entries: int) -> bool:
        """Whether the result is formed, as N x d numbers, even if the reports are sparse."""
        size = (num_nodes, num_features, num_entries)
        return not self.is_linear or storing_pays(*size, self.max_steps)

    def canonical(self, *, reports_are_exact: bool) -> "Filter":
        """The simplest filter that computes the same, so that one computation has one name."""
        return self


@dataclass(frozen=True, kw_only=True)
class LinearFilter(Filter):
    """F = sum_k theta_k P^k over N(v) - {v}, with conditioning of the result.

    conditioning: "scale" and "node" bring F X' to unit variance, by public numbers only
    (``propagation.conditioning``); None leaves the choice open, and an open one counts as "none".
    """

    is_linear: ClassVar[bool] = True

    aggregator: Aggregator = "gcn"
    conditioning: Conditioning | None = None

    def __post_init__(self) -> None:
        if self.aggregator not in AGGREGATORS:
            allowed = f"must be one of {', '.join(AGGREGATORS)}"
            raise InputError("aggregator", self.aggregator, allowed)
        if self.conditioning not in (None, *CONDITIONINGS):
            allowed = f"must be one of {', '.join(CONDITIONINGS)}"
            raise InputError("conditioning", self.conditioning, allowed)

    def canonical(self, *, reports_are_exact: bool) -> "LinearFilter":
        # Exact reports have no noise to measure them by.
        unconditioned = self.conditioning is None or reports_are_exact
        return self.replace(conditioning="none") if unconditioned else self

    @abstractmethod
    def coefficients(self) -> tuple[float, ...]:
        """theta_0 .. theta_K of sum_k theta_k P^k."""

    @property
    def max_steps(self) -> int:
        return len(self._coefficients()) - 1

    def features(
        self, reports: Sequence[FeatureReports], graph: PreparedGraph
    ) -> PropagatedFeatures:
        operator, coefficients = graph.kprop(self.aggregator), self._coefficients()
        factors = self._row_factors(graph)
        return linear_features(reports, operator, coefficients, graph.backend, factors)

    def _coefficients(self) -> tuple[float, ...]:
        """The coefficients up to the highest that is not zero."""
        try:
            given = tuple(float(theta) for theta in self.coefficients())
        except InputError:
            raise
        except Exception as error:  # of a user's own filter, before anything is run
            reason = error_line(error)
            options = ", ".join(f"{name}={value}" for name, value in self.options().items())
            allowed = f"coefficients() failed with {reason} ({options})"
            raise InputError("filter", self.name, allowed) from error
        if not given or not all(math.isfinite(theta) for theta in given):
            raise InputError("filter", self.name, f"must have finite coefficients, not {given}")
        highest = max((k for k, theta in enumerate(given) if theta != 0), default=0)
        return given[: highest + 1]

    def _row_factors(self, graph: PreparedGraph) -> RowFactors | None:
        conditioning = self.conditioning or "none"
        if conditioning == "none":
            return None
        operator, coefficients = graph.kprop(self.aggregator), self._coefficients()
        # They depend on graph and filter only, and take seconds on a large graph.
        lengths = graph.once(
            ("row lengths", self.aggregator, coefficients),
            lambda: row_lengths(operator, coefficients),
        )

        def factors(report: FeatureReports) -> Tensor:
            if report.magnitude is None:
                allowed = "must be none: the reports have no public magnitude"
                raise InputError("filter.conditioning", conditioning, allowed)
            return row_factors(lengths, report.magnitude, conditioning)

        return factors


@dataclass(frozen=True)
class KProp(LinearFilter):
    """P^K: the mean of what the K-hop neighbours sent (paper Algorithm 2).

    steps: K; None leaves it to the table of hyper-parameters.
    """

    name: ClassVar[str] = "kprop"
    open_fields: ClassVar[Mapping[str, str]] = {"steps": "x_steps"}

    steps: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        is_count = isinstance(self.steps, int) and not isinstance(self.steps, bool)
        if self.steps is not None and not (is_count and self.steps >= 0):
            raise InputError("steps", self.steps, "must be a whole number >= 0")

    def coefficients(self) -> tuple[float, ...]:
        if self.steps is None:
            raise InputError("filter.steps", "null", "must be set before the filter is used")
        return (0.0,) * self.steps + (1.0,)


@dataclass(frozen=True)
class NonlinearFilter(Filter):
    """Any function of columns of the rectified features; its result is held as a dense matrix."""

    is_linear: ClassVar[bool] = False

    @abstractmethod
    def transform(self, columns: Tensor, graph: PreparedGraph) -> Tensor:
        """The filtered columns.  [N, b] -> [N, b], b <= 128, in the order of the prepared graph

        Columns come in blocks: what belongs to one column must not depend on another.
        """

    @property
    def max_steps(self) -> int:
        return 0  # the result is formed once, before the first epoch

    def features(
        self, reports: Sequence[FeatureReports], graph: PreparedGraph
    ) -> PropagatedFeatures:
        def checked(report: FeatureReports, columns: Tensor) -> Tensor:
            filtered = self.transform(columns, graph)
            if filtered.shape != columns.shape:
                found, wanted = list(filtered.shape), list(columns.shape)
                allowed = f"transform returned {found} where it must return {wanted}"
                raise InputError("filter", self.name, allowed)
            if not bool(filtered.isfinite().all()):
                raise InputError("filter", self.name, "transform must return finite numbers")
            return filtered

        return DenseFeatures(reports, checked, graph.backend)
