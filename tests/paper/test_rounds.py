from pathlib import Path

import pytest

from lpgnn.paper.rounds import Ablations, Diagnosis, Shifts, TwoRounds
from lpgnn.report.evidence import Source
from lpgnn.report.tables import Number
from report.rows import add_rows

BUDGETS = ("0.5", "1", "2", "3", "4", "8", "16")
BLANK = "two rounds on blank features"


@pytest.fixture(scope="module")
def rounds(tmp_path_factory: pytest.TempPathFactory) -> TwoRounds:
    folder = tmp_path_factory.mktemp("results")
    tables = TwoRounds(Source(folder, "paper")).tables  # without a row: what would stand where

    def add(
        table: str, place: tuple[str, str, str], values: list[float], engine: str = "one"
    ) -> None:
        number: Number = tables[table].numbers[place]
        assert number.cell is not None
        metrics = {"roc_auc": values, "balanced_acc": values}
        add_rows(folder, number.cell.point.settings, values, metrics=metrics, engine=engine)

    noise = [0.0, 0.1, -0.1, 0.05]
    for x_eps in BUDGETS:
        gain = 2.0 if float(x_eps) >= 2 else 0.0
        # Pubmed: sure from 2 on; at 2 itself not after Holm's correction.
        wide = 12.0 if x_eps == "2" else 1.0
        ours = [80 + gain + wide * one for one in noise]
        add("features_that_pay", ("pubmed, y_eps=1", x_eps, "two rounds"), ours)
        add("features_that_pay", ("pubmed, y_eps=1", x_eps, BLANK), [80.0] * 4)
        # Cora: below its control at 8.
        lost = 1.0 if x_eps == "8" else 0.0
        ours = [70 - lost + one for one in noise]
        add("features_that_pay", ("cora, y_eps=1", x_eps, "two rounds"), ours)
        add("features_that_pay", ("cora, y_eps=1", x_eps, BLANK), [70.0] * 4)
    add("features_that_pay", ("cora, y_eps=1", "1", "labels only"), [75.0] * 4)
    # Two rounds of another engine may be of an earlier source: no pair.
    add("features_that_pay", ("citeseer, y_eps=1", "1", "two rounds"), [60.0, 61.0, 60.0, 61.0])
    add("features_that_pay", ("citeseer, y_eps=1", "1", BLANK), [50.0] * 4, engine="two")
    # Another engine's network is a pair: two rounds train nothing.
    add("features_that_pay", ("pubmed, y_eps=1", "3", "Residual"), [81.0] * 4, engine="two")
    ranked = "features_that_pay_ranking"
    add(ranked, ("tolokers, y_eps=inf", "2", "two rounds"), [71 + one for one in noise])
    add(ranked, ("tolokers, y_eps=inf", "2", "MB"), [69.0] * 4)
    return TwoRounds(Source(folder, "paper"))


def test_from_where_on_they_pay(rounds: TwoRounds) -> None:
    lines = {row[0].text: [one.text for one in row] for row in rounds.pays().blocks[0]}
    assert lines["Pubmed"][1:] == [
        "accuracy",
        "undecided (7 of 7 budgets missing)",
        "2 (Holm: 3)",
        *["undecided (7 of 7 budgets missing)"] * 2,
    ]
    assert lines["Cora"][3] == "nowhere up to 16"
    assert lines["Tolokers"][1] == "ROC AUC"
    (paying,) = rounds.paying()
    assert paying.startswith("Pubmed (up to +")
    assert rounds.not_paying() == ["Cora"]
    assert "CiteSeer" in rounds.unknown_graphs()


def test_what_is_below_is_told(rounds: TwoRounds) -> None:
    (text,) = rounds.below_blank()
    assert text.startswith("Cora at (8, 1) -0.99 [")
    assert text.endswith("after Holm's correction")
    # Labels only knows no ε_x: one run of it stands beside all of them.
    below = rounds.below_labels()
    assert [text.split(" -")[0] for text in below] == [f"Cora at ({x}, 1)" for x in BUDGETS]


def test_against_other_methods_by_the_metric_that_says_something(rounds: TwoRounds) -> None:
    grid = rounds.rivals(["Residual"], ["pubmed"], ["1", "3"])
    texts = [[one.text for one in row] for row in grid.blocks[0]]
    assert texts[0][:4] == ["Pubmed", "1", "Residual", "–"]
    assert texts[0][4].startswith("+1.0 [")
    assert [d.mean for d in rounds.over("MB").differences if d] == pytest.approx([2.0125])
    # Of four pairs at two label budgets one is there; others are missing whole.
    assert rounds.missing("Residual").startswith(
        "Cora (8 of 8), CiteSeer (8 of 8), Pubmed (7 of 8)"
    )
    assert "Tolokers (7 of 8)" in rounds.missing("MB")
    balanced = rounds.over("MB", "tolokers", table="features_that_pay_balanced")
    assert [d.mean for d in balanced.differences if d] == pytest.approx([2.0125])


ABLATED = """\
dataset,y_eps,x_eps,feature,seed,repeat,present,own answer only,shuffled directions,\
answers of other nodes
pubmed,inf,3,raw,500,0,85.0,84.5,83.1,83.0
pubmed,inf,3,raw,500,1,85.4,84.7,83.2,83.4
pubmed,inf,3,blank,500,0,83.0,83.2,,
pubmed,inf,3,blank,500,1,83.2,83.2,,
"""


def test_variants_are_compared_with_the_present_learner_and_with_blank(tmp_path: Path) -> None:
    path = tmp_path / "ablations.csv"
    path.write_text(ABLATED)
    found, at = Ablations(path), ("inf", "3")
    assert found.variants == ["own answer only", *Ablations.NULLS]
    gain, change = (
        found.gain("pubmed", at, "present"),
        found.change("pubmed", at, "own answer only"),
    )
    null = found.gain("pubmed", at, "answers of other nodes")
    assert gain is not None
    assert change is not None
    assert null is not None
    assert gain.mean == pytest.approx(2.1)
    assert change.mean == pytest.approx(-0.6)
    assert null.mean == pytest.approx(0.1)  # over the blank control of the present learner
    rows = [[one.text for one in row] for block in found.grid("pubmed").blocks for row in block]
    assert [row[0] for row in rows] == [
        "present − its blank control",
        "present − answers of other nodes",
        "own answer only − present",
        "shuffled directions − blank control",
        "answers of other nodes − blank control",
    ]
    assert rows[1][1] == "+2.00 ± 0.00"
    assert rows[2][1] == "-0.60 ± 1.27"  # t with one degree of freedom: 12.706 * 0.1


DIAGNOSED = """\
dataset,y_eps,x_eps,feature,seed,repeat,majority,labels,classifier,right_where_labels_wrong,\
wrong_where_labels_right,private,honest,clean_classifier,clean
cora,inf,8,raw,500,0,30,87,50,40,50,87.5,88.5,70,89
cora,inf,8,raw,500,1,30,85,48,36,52,85.5,87.5,70,89
"""


def test_the_diagnosis_says_where_the_gain_is_lost(tmp_path: Path) -> None:
    path = tmp_path / "diagnosis.csv"
    path.write_text(DIAGNOSED)
    (text,) = Diagnosis(path).sentences(["cora", "pubmed"])
    assert text == (
        "Cora, ε_y=∞: at ε_x=8 the classifier of round one alone is right on 49.0 % (the largest "
        "class has 30.0 %) and on 38.0 % of what labels get wrong; free of noise its scores would "
        "add +2.0 points, the answers add +0.5; a classifier from clean features and labels would "
        "add +3.0."
    )


def test_shifts_between_engines_are_told(tmp_path: Path) -> None:
    """10 and 30 repeats, of which 33 have not moved at all."""
    path = tmp_path / "two_round_rounding.csv"
    path.write_text(
        "dataset,metric,x_eps,y_eps,repeats,unchanged,mean_shift,max_shift\n"
        "citeseer,acc,8,inf,10,4,0.200,0.604\n"
        "tolokers,roc_auc,2,1,30,29,0.240,0.350\n"
    )
    found = Shifts(path)
    assert (found.total, found.unchanged) == (40, 33)
    assert found.largest("mean_shift") == "0.24 (Tolokers at (2, 1))"
    assert found.largest("max_shift") == "0.60 (CiteSeer at (8, ∞))"
    assert found.graphs == ["CiteSeer", "Tolokers"]


def test_without_files_there_is_nothing(tmp_path: Path) -> None:
    assert not Shifts(tmp_path / "none.csv")
    assert not Ablations(tmp_path / "none.csv")
    assert not Diagnosis(tmp_path / "none.csv")
    assert not TwoRounds(Source(tmp_path, "paper")).computed


def test_graphs_that_a_table_lacks_take_the_values_of_a_similar_one(rounds: TwoRounds) -> None:
    """Average degrees: CiteSeer 2.7 and Cora 3.9, Tolokers 88 and Facebook 15."""
    text = rounds.borrowed("value_of_features")
    assert "CiteSeer those of Cora, Tolokers those of Facebook" in text
    assert "Pubmed those" not in text
