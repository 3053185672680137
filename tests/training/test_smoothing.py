import dataclasses
import math

import pytest
import torch
from torch import Tensor

from lpgnn.privacy import Collected, RandomizedResponse
from lpgnn.propagation import kprop_operator
from lpgnn.training import smoothed
from lpgnn.training.smoothing import with_reports
from propagation.graphs import CPU, dense_kprop, seeded

from .block_graph import C, N, collected


def some_logits(seed: int = 0) -> Tensor:
    return torch.randn(C, N, generator=seeded(seed))


def test_a_report_updates_the_probabilities_by_bayes_rule() -> None:
    # eps = ln 4 with three classes keeps with 2/3 and sends each of the others with 1/6.
    own = collected(y_eps=math.log(4))
    response = RandomizedResponse(own.y_eps, C)
    assert (response.keep_probability(), response.flip_probability()) == pytest.approx(
        (2 / 3, 1 / 6)
    )
    p = torch.tensor([0.5, 0.3, 0.2])[:, None].expand(C, N)
    updated = with_reports(p, own)
    node = int((own.labels == 1).nonzero()[0, 0])
    # 0.5 / 6, 0.3 * 2 / 3, 0.2 / 6 in proportion: 5, 12, 2.
    torch.testing.assert_close(updated[:, node], torch.tensor([5.0, 12.0, 2.0]) / 19)
    unlabelled = own.labels < 0
    assert bool(unlabelled.any())
    assert torch.equal(updated[:, unlabelled], p[:, unlabelled])


def test_a_clean_label_is_taken_as_it_is_unless_the_model_excludes_it() -> None:
    own = collected(y_eps=math.inf)
    p = some_logits().softmax(0)
    known = own.labels >= 0
    assert torch.equal(with_reports(p, own)[:, known].argmax(0), own.labels[known])
    node = int(known.nonzero()[0, 0])
    impossible = p.clone()
    impossible[:, node] = torch.tensor([0.5, 0.3, 0.2]).roll(1)
    impossible[own.labels[node], node] = 0.0
    updated = with_reports(impossible, own)
    assert torch.equal(updated[:, node], impossible[:, node])
    assert bool(updated.isfinite().all())


@pytest.mark.parametrize("steps", [0, 1, 4])
def test_smoothing_equals_the_dense_formula(steps: int) -> None:
    own = collected()
    operator = kprop_operator(own.topology, "gcn", CPU)
    out = smoothed(some_logits(), own, operator, steps)
    p = with_reports(some_logits().softmax(0), own).double().t()  # [N, c]
    lazy = (torch.eye(N, dtype=torch.float64) + dense_kprop(own.topology)) / 2
    expected = torch.linalg.matrix_power(lazy, steps) @ p
    torch.testing.assert_close(out.double().t(), expected, rtol=1e-5, atol=1e-6)
    if steps:
        assert not torch.allclose(out.double().t(), p, atol=1e-2)


def test_nothing_but_what_the_server_has_is_read() -> None:
    """Masks and reports of features play no part, the private labels do."""
    own = collected()
    operator = kprop_operator(own.topology, "gcn", CPU)
    usual = smoothed(some_logits(), own, operator, 4)
    other_features = collected(x_eps=0.1)
    assert torch.equal(smoothed(some_logits(), other_features, operator, 4), usual)
    changed = with_label_changed(own)
    assert not torch.equal(smoothed(some_logits(), changed, operator, 4), usual)


def with_label_changed(own: Collected) -> Collected:
    labels = own.labels.clone()
    node = int((labels >= 0).nonzero()[0, 0])
    labels[node] = (labels[node] + 1) % C
    return dataclasses.replace(own, labels=labels)
