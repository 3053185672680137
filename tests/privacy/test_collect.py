import dataclasses
import math
from typing import ClassVar

import pytest
import torch
from torch import Tensor

from lpgnn.data.splits import Split
from lpgnn.errors import InputError
from lpgnn.privacy import (
    AdditiveNoise,
    ClassMechanism,
    Feature,
    LabelMechanism,
    RandomizedResponse,
    SubsetSelection,
    collect,
)

from .path_graph import CHOICES, RAW, RESPONSE, collected, path_graph, path_split, tensors_of
from .pvalues import seeded


@pytest.mark.parametrize(("feature", "name"), CHOICES)
def test_later_changes_of_clean_tensors_do_not_reach_the_server(
    feature: Feature | None, name: str | None
) -> None:
    graph, split = path_graph(), path_split()
    server = collected(graph, split, feature, name, y_eps=math.inf)
    before = [tensor.clone() for tensor in tensors_of(server)]
    clean = [*tensors_of(graph), *tensors_of(split)]
    assert len(clean) == 9
    for tensor in clean:
        tensor.fill_(1)
    assert len(before) >= 8
    for old, new in zip(before, tensors_of(server), strict=True):
        assert torch.equal(old, new)


@pytest.mark.parametrize(("feature", "name"), CHOICES)
def test_clean_test_labels_never_enter(feature: Feature | None, name: str | None) -> None:
    graph, split = path_graph(), path_split()
    other = torch.where(split.test, (graph.labels + 1) % 3, graph.labels)
    one = collected(graph, split, feature, name)
    two = collected(dataclasses.replace(graph, labels=other), split, feature, name)
    for a, b in zip(tensors_of(one), tensors_of(two), strict=True):
        assert torch.equal(a, b)


def test_labels_are_perturbed_where_labelled_and_absent_elsewhere() -> None:
    graph, split = path_graph(), path_split()
    server = collected(graph, split)
    labelled = split.train | split.val
    assert bool((server.labels.classes[~labelled] == -1).all())
    expected = RandomizedResponse(1.0, 3).perturb(graph.labels[labelled], generator=seeded(1))
    assert torch.equal(server.labels.classes[labelled], expected)
    assert not torch.equal(server.labels.classes[labelled], graph.labels[labelled])
    exact = collected(graph, split, y_eps=math.inf)
    assert torch.equal(exact.labels.classes[labelled], graph.labels[labelled])
    assert torch.equal(server.train_mask, split.train)
    assert torch.equal(server.val_mask, split.val)


def test_public_parameters_are_recorded() -> None:
    server = collected(path_graph(), path_split(), name="ag")
    assert (server.x_eps, server.y_eps) == (3.0, 1.0)
    assert server.parameters["delta"] == 1e-10
    assert server.num_classes == 3
    assert collected(path_graph(), path_split()).parameters == {"m": 1.0}


@pytest.mark.parametrize("labels", [RESPONSE, SubsetSelection(subset_size=2)], ids=repr)
def test_labels_that_are_not_asked_for_never_enter(labels: LabelMechanism) -> None:
    """Whatever the label mechanism, and unlike those of labelled nodes."""
    graph, split = path_graph(), path_split()
    usual = collected(graph, split, labels=labels)
    for part, same in ((split.test, True), (split.train, False)):
        changed = torch.where(part, (graph.labels + 1) % 3, graph.labels)
        other = collected(dataclasses.replace(graph, labels=changed), split, labels=labels)
        for field in dataclasses.fields(usual.labels):
            if field.name != "transition":  # public
                a, b = getattr(usual.labels, field.name), getattr(other.labels, field.name)
                assert torch.equal(a, b) == same


def test_feature_and_label_streams_are_separate() -> None:
    graph, split = path_graph(), path_split()
    labels = collected(graph, split, name="mb").labels
    for name in ("1b", "lp", None):
        other = collected(graph, split, name=name).labels
        for a, b in zip(tensors_of(labels), tensors_of(other), strict=True):
            assert torch.equal(a, b)


def test_bad_input_is_named() -> None:
    graph, split = path_graph(), path_split()
    with pytest.raises(InputError, match="y_eps=nan"):
        collected(graph, split, y_eps=math.nan)
    with pytest.raises(InputError, match="val_mask"):
        collected(graph, Split(train=split.train, val=split.train, test=split.test))


@dataclasses.dataclass(frozen=True)
class Spoilt(AdditiveNoise):
    """Not a mechanism yet: its noise is not a number, or does not fit."""

    name: ClassVar[str] = "spoilt"

    value: float = math.nan
    columns: int | None = None

    def noise(self, shape: torch.Size, *, generator: torch.Generator) -> Tensor:
        if self.columns == 0:
            return None  # type: ignore[return-value]
        drawn = torch.rand(shape[0], self.columns or shape[1], generator=generator)
        return drawn.double() + self.value

    def variance(self, x: Tensor) -> Tensor:
        return torch.zeros_like(x)

    def parameters(self) -> dict[str, float]:
        return {}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "mechanism=spoilt: must report finite numbers"),
        ({"value": math.inf}, "mechanism=spoilt: must report finite numbers"),
        ({"value": 0.0, "columns": 1}, "mechanism=spoilt: must draw noise of shape "),
        ({"columns": 0}, "mechanism=spoilt: must draw noise of shape .*, not None"),
    ],
)
def test_reports_that_are_no_numbers_name_the_mechanism(
    options: dict[str, float], message: str
) -> None:
    graph = path_graph()
    mechanism = Spoilt(1.0, graph.feature_dim, **options)  # type: ignore[arg-type]
    with pytest.raises(InputError, match=message):
        collect(
            graph,
            path_split(),
            feature=RAW,
            mechanism=mechanism,
            label_mechanism=None,
            features_generator=seeded(),
            labels_generator=seeded(1),
        )


@dataclasses.dataclass(frozen=True)
class Uneven(Spoilt):
    """Its variance is not one number >= 0."""

    spread: float | None = None

    def variance(self, x: Tensor) -> Tensor:
        return torch.zeros(3) if self.spread is None else torch.full_like(x, self.spread)


@pytest.mark.parametrize("spread", [None, math.nan, math.inf, -1.0])
def test_a_variance_that_is_no_number_names_the_mechanism(spread: float | None) -> None:
    message = "mechanism=Uneven: must have a variance >= 0 for each number, not "
    with pytest.raises(InputError, match=message):
        Uneven(1.0, 4, spread=spread).magnitude()
    assert Uneven(1.0, 4, spread=4.0).magnitude() == 2.0


@dataclasses.dataclass(frozen=True)
class Table(ClassMechanism):
    """Any transition."""

    name: ClassVar[str] = "table"

    rows: tuple[tuple[float, ...], ...] = ()

    def transition(self) -> Tensor:
        return torch.tensor(self.rows, dtype=torch.float64)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (((0.6, 0.4),) * 2, r"must have a transition of shape \(3, 3\), not \(2, 2\)"),
        (((0.5, 0.3, 0.3),) * 3, "each line of its transition must be >= 0 and sum to 1"),
        (((1.2, -0.1, -0.1),) * 3, "each line of its transition must be >= 0 and sum to 1"),
        (((math.nan, 0.5, 0.5),) * 3, "each line of its transition must be >= 0 and sum to 1"),
    ],
)
def test_a_transition_that_is_none_names_the_mechanism(
    rows: tuple[tuple[float, ...], ...], message: str
) -> None:
    with pytest.raises(InputError, match=f"label_mechanism=table: {message}"):
        Table(1.0, 3, rows=rows).check_budget()
    Table(1.0, 3, rows=((0.4, 0.3, 0.3),) * 3).check_budget()
