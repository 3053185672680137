import pytest

from lpgnn.report.notation import canonical, html_text, markdown, mathtext, symbol, tex


@pytest.mark.parametrize(
    ("value", "key"),
    [
        *((1, "1"), (1.0, "1"), ("1.0", "1"), ("1e-3", "0.001"), (0.01, "0.01"), (2048, "2048")),
        *(("inf", "inf"), (".inf", ".inf"), ("1b", "1b"), ("nan", "nan"), (1000000, "1000000")),
    ],
)
def test_one_spelling_of_a_value(value: object, key: str) -> None:
    assert canonical(value) == key


def test_tex_of_formulas_and_special_characters() -> None:
    assert tex("MB (ε_x=0.01)") == r"MB ($\epsilon_x=0.01$)"
    assert tex("clean (ε_y=∞), 84.2 ± 0.8") == r"clean ($\epsilon_y=\infty$), 84.2 $\pm$ 0.8"
    assert tex("K_x and ε_y") == "$K_x$ and $\\epsilon_y$"
    assert tex("50 % of a_b & #1 {~^\\}") == (
        r"50 \% of a\_b \& \#1 \{\textasciitilde{}\textasciicircum{}\textbackslash{}\}"
    )
    assert tex("–") == "--"


def test_signs_that_tex_does_not_know_become_formulas() -> None:
    assert tex("δ − 1 † ‡") == r"$\delta$ $-$ 1 $\dagger$ $\ddagger$"


def test_other_notations() -> None:
    assert mathtext("$5 at ε_x=2") == r"\$5 at $\epsilon_x=2$"
    assert html_text("<b> ε_x & K_y") == "&lt;b&gt; ε<sub>x</sub> &amp; K<sub>y</sub>"
    assert markdown("a | b") == r"a \| b"


def test_symbols_of_keys() -> None:
    assert [symbol(key) for key in ("x_eps", "filter.steps", "label_mechanism", "dataset")] == [
        *("ε_x", "K_x", "Label mechanism", "Dataset")
    ]
