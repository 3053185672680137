import csv
import math
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from lpgnn.audit import main
from lpgnn.config import component_names
from lpgnn.errors import InputError
from lpgnn.privacy import (
    FeatureMechanism,
    MultiBit,
    OneBit,
    RandomizedResponse,
    SubsetSelection,
    distinguish,
)
from lpgnn.privacy.audit import audit_callable, audit_features, audit_labels, exact_epsilon
from lpgnn.privacy.distinguish import (
    Pair,
    _bound,
    _confidence_of_each,
    _lowest_place,
    least_leak,
    lower_bound,
)

from .broken_mechanisms import (
    FloatGrid,
    Noise,
    PerFeature,
    PerFeatureInSecret,
    RangeOfData,
    RangeOfUser,
    RectifierOfData,
    WrongSensitivity,
)
from .own_mechanisms import Skewed
from .pvalues import seeded

pytestmark = pytest.mark.slow

TEST: dict[str, Any] = {"draws": 20_000, "confidence": 0.9999}


@pytest.mark.parametrize(
    ("mechanism", "at_least"),
    [
        (WrongSensitivity(1.0, 4), 1.2),  # spends sqrt(d) = 2
        (PerFeature(1.0, 3), 1.5),  # spends d = 3
        (PerFeatureInSecret(1.0, 3), 1.5),
        (RangeOfData(1.0, 1), 1.2),  # half the range beside another node: spends 2
        (RangeOfUser(1.0, 4), 3.0),  # every other pair has a range of 1 or none
        (RectifierOfData(1.0, 2), 5.0),
        (FloatGrid(1.0, 1), 3.0),
    ],
    ids=lambda value: type(value).__name__,
)
def test_broken_mechanisms_are_refuted(mechanism: FeatureMechanism, at_least: float) -> None:
    audit = audit_features(mechanism, **TEST, generator=seeded())
    assert audit.finding.epsilon > at_least  # refuted by what it draws, whatever it states
    assert audit.refuted
    assert audit.verdict == "refuted"


@pytest.mark.parametrize("seed", range(2))
def test_honest_mechanisms_are_not_refuted(seed: int) -> None:
    for mechanism in (MultiBit(1.0, 4), OneBit(1.0, 2), Noise(1.0, 1)):
        audit = audit_features(mechanism, **TEST, generator=seeded(seed))
        assert not audit.refuted
        assert 0.5 < audit.finding.epsilon <= 1.0  # and the test is not blind
        assert audit.verdict == ("not refuted" if isinstance(mechanism, Noise) else "holds")


def test_label_mechanisms() -> None:
    honest = audit_labels(RandomizedResponse(1.0, 5), **TEST, generator=seeded())
    assert honest.exact == pytest.approx(1.0)
    assert 0.85 < honest.finding.epsilon <= 1.0
    subsets = audit_labels(SubsetSelection(1.0, 4, subset_size=2), **TEST, generator=seeded())
    assert subsets.exact == pytest.approx(1.0)
    assert 0.85 < subsets.finding.epsilon <= 1.0
    skewed = audit_labels(Skewed(1.0, 3), **TEST, generator=seeded())
    assert skewed.exact == math.inf
    assert skewed.refuted


def test_many_features_have_a_closed_form() -> None:
    for m in (1, 3):
        few, many = (MultiBit(2.0, d, num_samples=m) for d in (5, 1432))
        assert exact_epsilon(many) == pytest.approx(exact_epsilon(few), rel=1e-9)
    assert exact_epsilon(PerFeature(1.0, 50)) == pytest.approx(50.0)


def keeps_the_sign(x: list[float]) -> str:
    """Text, not numbers: keeps its input with 3/4, so eps = log 3."""
    kept = random.random() < 0.75
    return "high" if (x[0] > 0.5) == kept else "low"


def honest_answer(label: int) -> Any:
    return label if random.random() < 0.5 else random.randrange(2)  # eps = log 3


def test_callables() -> None:
    random.seed(0)
    small: dict[str, Any] = {"draws": 8000, "confidence": 0.9999}
    honest = audit_callable("f", keeps_the_sign, epsilon=1.1, num_features=1, **small)
    assert not honest.refuted
    assert 0.9 < honest.finding.epsilon < math.log(3)
    assert audit_callable("f", keeps_the_sign, epsilon=0.8, num_features=1, **small).refuted
    assert audit_callable("f", honest_answer, epsilon=0.8, num_classes=2, **small).refuted


def coin(p: float, generator: np.random.Generator) -> Any:
    return lambda n: (generator.random((n, 1)) < p).astype(np.float64)


def failing(x: list[float]) -> float:
    raise RuntimeError("no\nnumber")


def uneven(x: list[float]) -> list[float]:
    return [0.0] if x[0] < 1 else [0.0, 0.0]


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (failing, r"^callable=mine: fails on \[0\.0\] \(RuntimeError: no number\)$"),
        (uneven, "^callable=mine: must return as many numbers for every input$"),
    ],
)
def test_a_callable_that_fails_is_bad_input_and_not_refuted(function: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        audit_callable("mine", function, epsilon=1.0, num_features=1, draws=400, confidence=0.9)


def test_the_bound_holds_as_often_as_it_says() -> None:
    """At the exact budget, one audit in (1 - confidence)^-1 may err: here about 5 of 100."""
    generator = np.random.default_rng(0)
    pair = Pair("coins", (0.0,), (1.0,), coin(0.75, generator), coin(0.25, generator))
    wrong = sum(
        lower_bound([pair], draws=400, confidence=0.95).epsilon > math.log(3) for _ in range(100)
    )
    assert wrong <= 14  # more than that has a chance of 1e-4 at a rate of 5 %


def laplace(
    x: float, generator: np.random.Generator, leak: Any = None, width: int = 1
) -> Callable[[int], Any]:
    """Laplace noise of scale ``width`` on x in every entry: eps = 1; once in a thousand, a leak."""

    def draw(n: int) -> Any:
        sent = x + generator.laplace(scale=width, size=(n, width))
        if leak is not None:
            hit = generator.random(n) < 0.001
            sent[hit] = leak(sent[hit], x)
        return np.round(sent * 2**30) / 2**30  # one grid for every x: float64's would tell them

    return draw


def in_one_entry(sent: Any, x: float) -> Any:
    sent[:, 0] = x
    return sent


LEAKS: dict[str, Callable[[Any, float], Any]] = {
    "the input": lambda sent, x: np.full_like(sent, x),
    "the input, nearly": lambda sent, x: x + 1e-6 * sent,
    "one entry": in_one_entry,
    "a code amid the noise": lambda sent, x: 0.3 + 0.1 * x + 1e-7 * sent,
    "a value far away": lambda sent, x: 1000 * (2 * x - 1) + sent,
}


@pytest.mark.parametrize("name", LEAKS)
def test_a_leak_of_one_in_a_thousand_is_refuted(name: str) -> None:
    generator = np.random.default_rng(0)
    low, high = (laplace(x, generator, LEAKS[name], width=2) for x in (0.0, 1.0))
    pair = Pair("leaky", (0.0, 0.0), (1.0, 1.0), low, high)
    assert lower_bound([pair], draws=200_000, confidence=0.9999).epsilon > 1.5


def test_a_label_that_leaks_once_in_a_thousand_is_refuted() -> None:
    generator = np.random.default_rng(0)

    def answer(p: float, leak: float) -> Callable[[int], Any]:
        honest = coin(p, generator)
        return lambda n: np.where(generator.random((n, 1)) < 0.001, leak, honest(n))

    e = math.e / (1 + math.e)
    pair = Pair("leaky", (0.0,), (1.0,), answer(1 - e, 10.0), answer(e, 11.0))
    assert lower_bound([pair], draws=200_000, confidence=0.9999).epsilon > 1.5
    honest = Pair("honest", (0.0,), (1.0,), coin(1 - e, generator), coin(e, generator))
    assert 0.95 < lower_bound([honest], draws=200_000, confidence=0.9999).epsilon <= 1


def test_searching_for_rare_events_refutes_nothing_that_is_true(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Small samples and a low confidence, where a search without a correction would err often."""
    monkeypatch.setattr(distinguish, "_MOST_OUTPUTS", 50)  # all statistics of continuous outputs
    generator = np.random.default_rng(0)
    pair = Pair("noise", (0.0,), (1.0,), laplace(0.0, generator), laplace(1.0, generator))
    found = [lower_bound([pair], draws=600, confidence=0.9).epsilon for _ in range(100)]
    assert sum(epsilon > 1 for epsilon in found) <= 22  # more: a chance of 2e-4 at a rate of 10 %
    assert _confidence_of_each(0.9) == pytest.approx(0.98)  # five events share the error


def test_the_least_leak_that_can_be_seen() -> None:
    """k of n against none of n: the least k whose bound exceeds epsilon."""
    each = _confidence_of_each(0.9999)
    least = least_leak(1.0, draws=200_000, confidence=0.9999)
    k = round(least * 200_000)
    for count, exceeds in ((k, True), (k - 1, False)):
        bound = _bound(np.array(count), np.array(0), 200_000, each, 0.0)
        assert (float(bound) > 1.0) == exceeds
    assert least < 0.0005
    assert least_leak(4.0, draws=200_000, confidence=0.9999) > 0.001
    assert least_leak(20.0, draws=200, confidence=0.9999) == 1


def test_bounds_by_hand() -> None:
    # All of 100 against none of 100, 2.5 % on each side: p = 0.025^(1/100), q = 1 - p
    p = 0.025 ** (1 / 100)
    found = float(_bound(np.array(100), np.array(0), 100, 0.95, 0.0))
    assert found == pytest.approx(math.log(p / (1 - p)))
    with_delta = float(_bound(np.array(100), np.array(0), 100, 0.95, 0.1))
    assert with_delta == pytest.approx(math.log((p - 0.1) / (1 - p)))


def test_the_lowest_binary_place() -> None:
    values = np.array([[1.0], [0.75], [3.0], [2.0**-40], [0.0], [-0.5]])
    assert _lowest_place(values).tolist() == [0, -2, 0, -40, 2000, -1]
    assert _lowest_place(np.array([[1.0, 0.75]])).tolist() == [-2]


def test_delta_is_part_of_the_claim() -> None:
    """An event of probability delta may tell the inputs apart."""
    generator = np.random.default_rng(0)
    pair = Pair("rare", (0.0,), (1.0,), coin(0.01, generator), coin(0.0, generator))
    assert lower_bound([pair], draws=20_000, confidence=0.99).epsilon > 2
    assert lower_bound([pair], draws=20_000, confidence=0.99, delta=0.02).epsilon == 0


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    threads = torch.get_num_threads()
    quick = ["draws=4000", f"results_dir={tmp_path}"]
    assert main(["mechanism=mb", "x_eps=1", "num_features=2", *quick]) == 0
    shown = capsys.readouterr().out
    assert "claimed  eps = 1" in shown
    assert "exact  eps = 1," in shown
    assert "can see  what one input alone leads to, from a probability of 0.01" in shown
    assert "verdict  holds" in shown
    assert (tmp_path / "audit" / "mb-eps-1.png").stat().st_size > 5000
    broken = "mechanism._target_=privacy.broken_mechanisms.PerFeature"
    assert main(["mechanism=custom", broken, "x_eps=1", *quick]) == 1
    assert "verdict  refuted" in capsys.readouterr().out
    target = "callable=privacy.test_audit_command.honest_answer"
    assert main([target, "eps=0.5", "num_classes=2", *quick]) == 1
    assert main(["label_mechanism=rr", "y_eps=0.5", *quick]) == 0
    capsys.readouterr()
    for words, message in (
        (["mechanism=mb", "x_eps=inf"], "claims nothing"),
        ([target], "eps=nan: must be the budget"),
        (["callable=nowhere.f", "eps=1"], "must be an importable"),
        (["draws=many"], "draws=many: must be a whole number"),
        (["draws=10"], "draws=10: must be a whole number >= 200"),
        (["confidence=1"], "confidence=1.0: must lie strictly"),
        (["num_classes=1"], "num_classes=1"),
    ):
        assert main([*words, f"results_dir={tmp_path}"]) == 2
        error = capsys.readouterr().err
        assert message in error
        assert error.count("\n") == 1
    torch.set_num_threads(threads)


def test_too_few_draws_are_refused() -> None:
    with pytest.raises(InputError, match="draws=10"):
        lower_bound([], draws=10, confidence=0.9)


def test_the_published_audit_covers_all_mechanisms_and_refutes_none() -> None:
    path = Path(__file__).parents[2] / "results" / "audit.csv"
    with path.open() as file:
        rows = list(csv.DictReader(file))
    kinds = ("mechanism", "label_mechanism")
    names = {name for kind in kinds for name in component_names(kind)} - {"custom"}
    of_client = {f"client {name}" for name in ("mb", "rr", "vector", "score")}
    assert {row["mechanism"] for row in rows} == names | of_client
    assert {row["verdict"] for row in rows} == {"holds", "not refuted"}
    for row in rows:
        assert float(row["empirical_eps"]) <= float(row["claimed_eps"])
        if row["exact_eps"]:
            assert float(row["exact_eps"]) <= float(row["claimed_eps"]) * (1 + 1e-8)


def test_a_protocol_is_not_taken_for_its_mechanism(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["protocol=two_round"]) == 2
    error = capsys.readouterr().err
    assert "protocol=two_round: an audit takes mechanism= or label_mechanism=" in error
