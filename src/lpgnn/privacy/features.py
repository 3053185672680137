"""What nodes report in place of, or as, their features: private ones, blank ones, stand-ins.

The stand-ins have the same width d and are made of public things only, so they cost no privacy and
pass through no mechanism (paper Table "features").
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import torch

from lpgnn.components import Component
from lpgnn.data.graph import Graph
from lpgnn.data.sparse import CsrMatrix
from lpgnn.errors import InputError
from lpgnn.privacy.mechanism import FeatureMechanism
from lpgnn.privacy.reports import FeatureReports, Form


@dataclass(frozen=True)
class Feature(Component, ABC):
    """A source of feature reports.

    ``spends_budget``: the reports go through the mechanism at x_eps.  ``reads_features``: the
    graph must have private features.  ``needs_mechanism``: x_eps must be finite.
    """

    kind: ClassVar[str] = "feature"
    spends_budget: ClassVar[bool] = False
    reads_features: ClassVar[bool] = False
    needs_mechanism: ClassVar[bool] = False
    form: ClassVar[Form] = "sparse"  # of reports that pass through no mechanism

    @abstractmethod
    def reports(
        self, graph: Graph, mechanism: FeatureMechanism | None, *, generator: torch.Generator
    ) -> FeatureReports:
        """What the server receives.  -> [N, d]"""

    def vectors(self, graph: Graph) -> CsrMatrix:
        """What nodes hold that can be asked about.  -> [N, d]"""
        allowed = "has nothing that nodes could be asked about; allowed: raw, blank"
        raise InputError("feature", self.name, allowed)

    def describe(self) -> str:
        """The feature in the plan of a run, where it is not the private ones."""
        return f"{self.name} instead of private features: no budget spent on features"


@dataclass(frozen=True)
class RawFeatures(Feature):
    """The private features: perturbed by the mechanism, or as they are at x_eps = inf."""

    name: ClassVar[str] = "raw"
    spends_budget: ClassVar[bool] = True
    reads_features: ClassVar[bool] = True

    def reports(
        self, graph: Graph, mechanism: FeatureMechanism | None, *, generator: torch.Generator
    ) -> FeatureReports:
        x = self.vectors(graph)
        if mechanism is not None:
            return _perturbed(x, mechanism, generator=generator)
        # A copy: a later change of a clean tensor must not reach the server.
        copy = CsrMatrix(x.indptr.clone(), x.indices.clone(), x.values.clone(), x.shape)
        return FeatureReports(copy, scale=1.0, offset=0.0)

    def vectors(self, graph: Graph) -> CsrMatrix:
        if graph.features is None:
            allowed = f"needs private features, which {graph.name} does not have here; "
            raise InputError("feature", self.name, allowed + "allowed: blank, ones, ohd, rnd")
        return graph.features

    def describe(self) -> str:
        return "sent as they are (x_eps = inf)"


@dataclass(frozen=True)
class BlankFeatures(Feature):
    """What users would send if all had the same features: it costs the budget and holds nothing."""

    name: ClassVar[str] = "blank"
    spends_budget: ClassVar[bool] = True
    needs_mechanism: ClassVar[bool] = True

    def reports(
        self, graph: Graph, mechanism: FeatureMechanism | None, *, generator: torch.Generator
    ) -> FeatureReports:
        if mechanism is None:
            raise InputError("feature", self.name, "needs a mechanism: a finite x_eps")
        return _perturbed(self.vectors(graph), mechanism, generator=generator)

    def vectors(self, graph: Graph) -> CsrMatrix:
        return _zeros(graph.num_nodes, graph.feature_dim)


@dataclass(frozen=True)
class Ones(Feature):
    """All-one vectors."""

    name: ClassVar[str] = "ones"

    def reports(
        self, graph: Graph, mechanism: FeatureMechanism | None, *, generator: torch.Generator
    ) -> FeatureReports:
        # 1 * 0 + 1, without N x d entries
        blank = _zeros(graph.num_nodes, graph.feature_dim)
        return FeatureReports(blank, scale=1.0, offset=1.0, magnitude=1.0)


@dataclass(frozen=True)
class OneHotDegree(Feature):
    """The degree as a one-hot vector; degrees above d - 1 count as d - 1."""

    name: ClassVar[str] = "ohd"

    def reports(
        self, graph: Graph, mechanism: FeatureMechanism | None, *, generator: torch.Generator
    ) -> FeatureReports:
        n, d = graph.num_nodes, graph.feature_dim
        degree = graph.topology.without_self_loops().indptr.diff().clamp_(max=d - 1)
        one_hot = CsrMatrix(torch.arange(n + 1), degree, torch.ones(n), (n, d))
        return FeatureReports(one_hot, scale=1.0, offset=0.0, magnitude=math.sqrt(1 / d))


@dataclass(frozen=True)
class RandomFeatures(Feature):
    """Uniform random numbers in [0, 1]."""

    name: ClassVar[str] = "rnd"
    form: ClassVar[Form] = "dense"

    def reports(
        self, graph: Graph, mechanism: FeatureMechanism | None, *, generator: torch.Generator
    ) -> FeatureReports:
        drawn = torch.rand(graph.num_nodes, graph.feature_dim, generator=generator)
        # The root mean square of a uniform number.
        return FeatureReports(drawn, scale=1.0, offset=0.0, magnitude=math.sqrt(1 / 3))


def _perturbed(
    features: CsrMatrix, mechanism: FeatureMechanism, *, generator: torch.Generator
) -> FeatureReports:
    """What the server makes of every node's report."""
    return mechanism.received(mechanism.perturb(features, generator=generator))


def _zeros(n: int, d: int) -> CsrMatrix:
    none = torch.zeros(0, dtype=torch.int64)
    return CsrMatrix(torch.zeros(n + 1, dtype=torch.int64), none, torch.zeros(0), (n, d))
