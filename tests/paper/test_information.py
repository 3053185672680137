from dataclasses import replace

from lpgnn.paper.information import why_blank
from report.test_information import AT_ONE, CORA, MINE


def test_the_paragraph_holds_the_measured_numbers() -> None:
    at_eight = replace(CORA, x_eps=8.0, m=3, expected=90.0, signal_to_noise=0.0068, unchanged=0)
    text = " ".join(why_blank([CORA, AT_ONE, at_eight, MINE]))
    assert "0.17 (0.2) of 2,708 on Cora and 0.17 (0) of 2,708 on Mine at ε_x=0.01" in text
    assert "16 (15) of 2,708 on Cora at ε_x=1" in text
    assert "mean count of 100 draws" in text
    assert "84 of 100 draws on Cora at ε_x=0.01 and 100 of 100 draws on Mine at ε_x=0.01." in text
    assert "0.0068 on Cora at ε_x=8." in text


def test_nothing_is_said_without_measurements() -> None:
    assert why_blank([]) == []
    assert why_blank([replace(CORA, mechanism="1b")]) == []
