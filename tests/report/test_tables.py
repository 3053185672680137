from dataclasses import dataclass
from pathlib import Path

import pytest

from lpgnn.config import Settings
from lpgnn.errors import InputError
from lpgnn.report import Evidence, record_statistics
from lpgnn.report.cells import TABLES
from lpgnn.report.tables import best_of, fill, write_tables
from lpgnn.results import Summary
from report.rows import add_rows, cell_of


@dataclass(frozen=True)
class Statistics:
    num_classes: int
    num_nodes: int
    num_edges: int
    num_features: int
    average_degree: float


CORA = Statistics(7, 2708, 5278, 1433, 10556 / 2708)
PUBMED = Statistics(3, 19717, 44324, 500, 88648 / 19717)


def write(results_dir: Path) -> Path:
    write_tables(Settings(results_dir=str(results_dir), selection="paper"), Evidence(results_dir))
    return results_dir / "tables"


def test_best_of_a_column_goes_by_unrounded_means(tmp_path: Path) -> None:
    accuracies = {"1b": 50.0, "lp": 82.94, "ag": 82.86, "mb": 60.0}
    for row, accuracy in accuracies.items():
        settings = cell_of("mechanisms", "pubmed", row, "x_eps=1.0").settings
        add_rows(tmp_path, settings, [accuracy] * 2)
    folder = write(tmp_path)
    markdown = (folder / "mechanisms.md").read_text().splitlines()
    assert markdown[0] == "| Dataset | Mech. | ε_x=0.01 | ε_x=0.1 | ε_x=1 | ε_x=2 |"
    assert markdown[8:12] == [
        "| Pubmed | 1B | – | – | 50.0 ± 0.0 | – |",
        "|  | LP | – | – | **82.9 ± 0.0** | – |",
        "|  | AG | – | – | 82.9 ± 0.0 | – |",
        "|  | MB | – | – | 60.0 ± 0.0 | – |",
    ]
    tex = (folder / "mechanisms.tex").read_text()
    assert r" & LP & -- & -- & \textbf{82.9 $\pm$ 0.0} & -- \\" in tex
    assert r" & AG & -- & -- & 82.9 $\pm$ 0.0 & -- \\" in tex
    lines = (folder / "mechanisms.csv").read_text().splitlines()
    assert lines[0] == "dataset,row,column,mean,ci,count,best,id"
    assert len(lines) == 1 + 64 + 32  # with the controls
    (lp,) = (line for line in lines if line.startswith("pubmed,lp,x_eps=1.0,"))
    assert lp.startswith("pubmed,lp,x_eps=1.0,82.9400,0.0000,2,true,")
    (gone,) = (line for line in lines if line.startswith("pubmed,lp,x_eps=2.0,"))
    assert gone.startswith("pubmed,lp,x_eps=2.0,,,0,false,")


def test_best_of_a_row_where_columns_are_compared(tmp_path: Path) -> None:
    for column, accuracy in (("cross_entropy", 30.0), ("forward", 40.0), ("drop", 35.0)):
        settings = cell_of("denoising", "cora", "y_eps=0.5", column).settings
        add_rows(tmp_path, settings, [accuracy])
    lines = (write(tmp_path) / "denoising.md").read_text().splitlines()
    assert lines[0].startswith("| Dataset | ε_y | Cross Entropy | Forward Correction | Drop |")
    assert lines[2].startswith("| Cora | 0.5 | 30.0 ± 0.0 | **40.0 ± 0.0** | 35.0 ± 0.0 |")


def test_an_incomplete_comparison_has_no_best(tmp_path: Path) -> None:
    (table,) = (table for table in TABLES if table.name == "features")
    add_rows(tmp_path, cell_of("features", "lastfm", "ohd", "y_eps=1.0").settings, [66.0])
    filled = fill(table, Settings(results_dir=str(tmp_path), selection="paper"), Evidence(tmp_path))
    assert filled["lastfm", "ohd", "y_eps=1.0"].summary == Summary(66.0, 0.0, 1)
    assert not any(one.best for one in filled.values())


def test_equal_means_are_all_best() -> None:
    (table,) = (table for table in TABLES if table.name == "denoising")
    means = {"cross_entropy": 80.0, "forward": 81.0, "drop": 81.0}
    numbers = {("cora", "y_eps=2.0", c): Summary(mean, 0.0, 1) for c, mean in means.items()}
    best = best_of(table, numbers)
    assert {column for _, _, column in best} == {"forward", "drop"}


def test_features_stand_in_the_papers_layout(tmp_path: Path) -> None:
    folder = write(tmp_path)
    tex = (folder / "features.tex").read_text()
    assert r"Feature & Cora & Pubmed & Facebook & LastFM \\" in tex
    # Two blocks, ad-hoc and multi-bit, as in the paper, and one of controls.
    ad_hoc, multi_bit, controls = tex.split(r"\midrule")[1:]
    assert "Rnd" in ad_hoc
    assert r"MB ($\epsilon_x=0.01$)" in multi_bit
    assert r"Blank ($\epsilon_x=0.01$)" in controls
    assert "Labels only" in controls
    assert tex.count("--") == 24 + 16


def test_dataset_table_from_recorded_statistics(tmp_path: Path) -> None:
    record_statistics({"pubmed": PUBMED}, tmp_path)
    record_statistics({"cora": CORA}, tmp_path)
    assert (tmp_path / "datasets.csv").read_text() == (
        "dataset,num_classes,num_nodes,num_edges,num_features,average_degree\n"
        "cora,7,2708,5278,1433,3.90\n"
        "pubmed,3,19717,44324,500,4.50\n"
    )
    folder = write(tmp_path)
    assert (folder / "datasets.md").read_text().splitlines()[2:] == [
        "| Cora | 7 | 2,708 | 5,278 | 1,433 | 3.90 |",
        "| Pubmed | 3 | 19,717 | 44,324 | 500 | 4.50 |",
    ]
    assert r"Dataset & \#Classes & \#Nodes" in (folder / "datasets.tex").read_text()


def test_no_statistics_no_dataset_table(tmp_path: Path) -> None:
    record_statistics({"cora": CORA}, tmp_path)
    assert (write(tmp_path) / "datasets.csv").is_file()
    (tmp_path / "datasets.csv").unlink()
    folder = write(tmp_path)
    assert not list(folder.glob("datasets.*"))
    assert (folder / "denoising.md").is_file()


def test_statistics_of_another_shape_are_refused(tmp_path: Path) -> None:
    (tmp_path / "datasets.csv").write_text("dataset,num_nodes\ncora,2708\n")
    with pytest.raises(InputError, match="must have the columns dataset, num_classes"):
        write(tmp_path)
