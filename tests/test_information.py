from pathlib import Path

import pytest

from lpgnn.config import Settings
from lpgnn.data import CsrMatrix, Graph, Planted
from lpgnn.engine import collect_repeat, split_of
from lpgnn.information import main
from lpgnn.report.information import read_information

SMALL = ("dataset=planted", "dataset.num_nodes=200", "dataset.average_degree=4")


def differing_bits(graph: Graph, x_eps: float, repeat: int) -> int:
    """Between what the server gets in two runs, one with and one without features."""
    sent = []
    for feature in ("raw", "blank"):
        run = Settings(dataset=graph, feature=feature, x_eps=x_eps).resolve()
        collected = collect_repeat(run, graph, split_of(run, graph, repeat), repeat)
        assert collected.features is not None
        assert isinstance(collected.features.sent, CsrMatrix)
        sent.append(collected.features.sent.to_dense())
    return int((sent[0] != sent[1]).sum())


def test_it_measures_and_writes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = [*SMALL, "x_eps=0.1,8", "repeats=5", f"results_dir={tmp_path}"]
    assert main(words) == 0
    first, second = read_information(tmp_path)
    assert (first.x_eps, first.m, second.x_eps, second.m) == (0.1, 1, 8.0, 3)
    assert (first.dataset, first.title, first.num_bits) == ("planted", "Planted", 200)
    graph = Planted(num_nodes=200, average_degree=4.0).generate()
    assert first.fingerprint == graph.fingerprint
    counts = [differing_bits(graph, 8.0, repeat) for repeat in range(5)]
    assert (second.mean, second.low, second.high) == (sum(counts) / 5, min(counts), max(counts))
    assert second.unchanged == 0
    text = capsys.readouterr().out
    assert "| Planted | 8 | 600 |" in text
    assert f"written to {tmp_path / 'information.csv'}" in text
    before = (tmp_path / "information.csv").read_bytes()
    assert main(words) == 0
    assert (tmp_path / "information.csv").read_bytes() == before


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["feature=blank"], "error: feature=blank: must be raw: others have no private bits"),
        (["mechanism=lp"], "error: mechanism=lp: must send bits: mb or 1b"),
        (["x_eps=inf"], "error: x_eps=inf: must be finite"),
        (["x_eps=0"], "error: x_eps=0: must be a positive number"),
        (["what=1"], "error: what=1: unknown setting"),
    ],
)
def test_bad_input_is_one_line(
    tmp_path: Path, words: list[str], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*SMALL, f"results_dir={tmp_path / 'out'}", *words]) == 2
    errors = capsys.readouterr().err
    assert errors.startswith(text)
    assert errors.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_a_folder_that_cannot_be_written_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    words = [*SMALL, "x_eps=1", "repeats=1", f"results_dir={tmp_path / 'file' / 'out'}"]
    assert main(words) == 2
    assert "must be a readable and writable folder" in capsys.readouterr().err
