import logging
import shutil
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from lpgnn.data import PAPER_STATISTICS, BlockModel, load_graph, registry, statistics
from lpgnn.data.karateclub import FACEBOOK
from lpgnn.errors import InputError

SHARED = Path(__file__).parents[2] / ".." / "shared" / "data"


def linked(name: str, tmp_path: Path) -> Path:
    """A data folder of our own with links to the raw files: nothing is written beside those."""
    if not (SHARED / name / "raw").is_dir():
        pytest.skip(f"the real files of {name} are not at ../shared/data")
    raw_dir = tmp_path / name / "raw"
    raw_dir.mkdir(parents=True)
    for path in (SHARED / name / "raw").iterdir():
        (raw_dir / path.name).symlink_to(path.resolve())
    return tmp_path


@pytest.mark.parametrize("name", PAPER_STATISTICS)
def test_real_graphs_have_the_papers_statistics(
    name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    data_dir = linked(name, tmp_path)
    graph = load_graph(name, data_dir, download=False)
    found, expected = statistics(graph), PAPER_STATISTICS[name]
    assert replace(found, average_degree=round(found.average_degree, 2)) == expected
    warned = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    if graph.features is None:
        assert name == "lastfm"
        assert len(warned) == 1
        assert "features.csv is missing" in warned[0]
    else:
        assert warned == []
        assert float(graph.features.values.min()) > 0
        assert float(graph.features.values.max()) == 1

    start = time.perf_counter()
    again = load_graph(name, data_dir, download=False)
    assert time.perf_counter() - start < 1
    assert again.fingerprint == graph.fingerprint
    assert (tmp_path / name / "processed" / "graph.npz").exists()


def test_facebook_counts_loops_as_the_paper_does(tmp_path: Path) -> None:
    graph = load_graph("facebook", linked("facebook", tmp_path), download=False)
    assert (graph.topology.num_entries, graph.topology.num_self_loops()) == (341825, 179)


def test_facebook_content_check_knows_the_real_table_in_any_order(tmp_path: Path) -> None:
    raw_dir = linked("facebook", tmp_path) / "facebook" / "raw"
    header, *rows = (raw_dir / "features.csv").read_text().splitlines()
    path = tmp_path / "features.csv"
    path.write_text("\n".join([header, *reversed(rows)]) + "\n")
    registry._check_facebook_features(path)
    node, feature, value = rows[0].split(",")
    assert int(feature) + 1 < FACEBOOK.num_features
    rows[0] = f"{node},{int(feature) + 1},{value}"
    path.write_text("\n".join([header, *rows]) + "\n")
    with pytest.raises(InputError, match="is not that of upstream's file"):
        registry._check_facebook_features(path)


def test_digests_are_those_of_the_real_files(tmp_path: Path) -> None:
    import hashlib

    checked = 0
    for name in PAPER_STATISTICS:
        raw_dir = linked(name, tmp_path) / name / "raw"
        for file in registry._DATASETS[name].source.files:
            if file.sha256 is not None:
                content = (raw_dir / file.name).read_bytes()
                assert hashlib.sha256(content).hexdigest() == file.sha256
                checked += 1
    assert checked == 20


def test_differences_from_the_paper_are_one_warning_each(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    cites = "1\t2\n2\t3\n3\t4\n"
    content = "".join(
        f"{paper}\t{paper % 2}\t{paper // 3}\tc{paper % 2}\n" for paper in (1, 2, 3, 4)
    )
    raw_dir = tmp_path / "cora" / "raw"
    raw_dir.mkdir(parents=True)
    (raw_dir / "cora.content").write_text(content)
    (raw_dir / "cora.cites").write_text(cites)
    graph = load_graph("cora", tmp_path, download=False)
    assert graph.num_nodes == 4
    lines = [record.getMessage() for record in caplog.records]
    assert lines == [
        "cora: num_classes is 2, the paper has 7",
        "cora: num_nodes is 4, the paper has 2708",
        "cora: num_edges is 3, the paper has 5278",
        "cora: num_features is 2, the paper has 1433",
        "cora: average_degree is 1.5, the paper has 3.9",
    ]
    assert {record.name for record in caplog.records} == {"lpgnn"}


def test_pickles_go_before_the_text_files(tmp_path: Path) -> None:
    data_dir = linked("cora", tmp_path)
    expected = load_graph("cora", data_dir, download=False).fingerprint
    (data_dir / "cora" / "raw" / "cora.content").write_text("damaged")
    (data_dir / "cora" / "raw" / "cora.cites").write_text("damaged")
    assert load_graph("cora", data_dir, download=False).fingerprint == expected


def test_block_model_needs_no_files(tmp_path: Path) -> None:
    model = BlockModel(num_nodes=100, num_classes=3, num_features=50)
    graph = load_graph("sbm", tmp_path / "absent", model)
    assert (graph.name, graph.num_nodes) == ("sbm", 100)
    assert not (tmp_path / "absent").exists()
    assert load_graph("sbm", tmp_path).num_nodes == 2708


def test_unknown_names_are_refused(tmp_path: Path) -> None:
    allowed = "dataset=citeseer: must be one of cora, pubmed, facebook, lastfm, sbm"
    with pytest.raises(InputError, match=allowed):
        load_graph("citeseer", tmp_path)


@pytest.mark.parametrize("name", PAPER_STATISTICS)
def test_missing_files_without_download_tell_what_to_do(name: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=rf"data_dir=.*put .* in .*{name}/raw.*dataset=sbm"):
        load_graph(name, tmp_path, download=False)
    assert list(tmp_path.iterdir()) == []


def test_optional_file_is_tried_for_once_until_the_graph_is_cached(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data_dir = linked("lastfm", tmp_path)
    if (data_dir / "lastfm" / "raw" / "features.csv").exists():
        (data_dir / "lastfm" / "raw" / "features.csv").unlink()
    tried: list[Path] = []
    monkeypatch.setattr(
        "lpgnn.data.download.RawSource.fetch", lambda self, raw_dir: tried.append(raw_dir)
    )
    for _ in range(2):
        assert load_graph("lastfm", data_dir).features is None
    assert tried == [data_dir / "lastfm" / "raw"]
    shutil.rmtree(data_dir / "lastfm" / "processed")
    (data_dir / "lastfm" / "raw").chmod(0o555)
    load_graph("lastfm", data_dir)
    (data_dir / "lastfm" / "raw").chmod(0o755)
    assert len(tried) == 1


def test_importing_and_loading_stay_light() -> None:
    code = (
        "import sys; from pathlib import Path; from lpgnn.data import load_graph;"
        "load_graph('sbm', Path('absent'));"
        # Not scipy itself: numba asks it for its version.
        "heavy = {'scipy.sparse', 'scipy.linalg', 'pandas', 'torch_geometric', 'pooch'};"
        "heavy |= {'requests', 'sklearn'};"
        "print(sorted(heavy & set(sys.modules)))"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert result.stdout.strip() == "[]"


def test_loading_leaves_the_global_random_stream_alone(tmp_path: Path) -> None:
    torch.manual_seed(0)
    before = torch.get_rng_state()
    load_graph("sbm", tmp_path)
    assert torch.equal(torch.get_rng_state(), before)


def test_log_channel_has_no_handler_of_its_own() -> None:
    assert logging.getLogger("lpgnn").handlers == []
