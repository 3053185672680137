import pytest

from lpgnn.config import Configuration
from recorded_numbers import measured, recorded, runs

# Two CPUs round differently; what another formula does is far more than this.
RELATIVE = 0.005
ABSOLUTE = {"paper/test/acc": 2.0}


@pytest.fixture(scope="module")
def resolved() -> dict[str, Configuration]:
    return runs()


def test_every_choice_is_recorded(resolved: dict[str, Configuration]) -> None:
    assert list(recorded()) == list(resolved)


@pytest.mark.slow
@pytest.mark.parametrize("text", list(recorded()))
def test_the_same_identity_gives_the_same_numbers(
    text: str, resolved: dict[str, Configuration]
) -> None:
    line, configuration = recorded()[text], resolved[text]
    assert configuration.identity == line["id"], (
        "other rows: is recorded_numbers.csv to be written again?"
    )
    for name, value in measured(configuration).items():
        expected = pytest.approx(float(line[name]), rel=RELATIVE, abs=ABSOLUTE.get(name, 0.0))
        assert value == expected, f"{name} under an identity that rows already have"
