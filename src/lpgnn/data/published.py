"""Published datasets: found in a data folder or downloaded, cached, and checked by fingerprint."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import ClassVar

from lpgnn.data.cache import is_writable, load_or_build
from lpgnn.data.dataset import Dataset, GraphFacts
from lpgnn.data.download import NO_DOWNLOAD_HINT, DownloadError, RawSource
from lpgnn.data.graph import Graph
from lpgnn.errors import InputError


@dataclass(frozen=True)
class RawForm:
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
class PublishedDataset(Dataset):
    """Files in ``<data_dir>/<name>/raw`` that everyone has alike; any other content is refused.

    ``download`` decides whether missing files are fetched, not what the graph is, and is therefore
    no part of the identity.
    """

    download: bool = True

    bound_fields: ClassVar[tuple[str, ...]] = ("download",)
    shown_as: ClassVar[str]  # in tables and figures
    published: ClassVar[GraphFacts]
    raw_source: ClassVar[RawSource]
    forms: ClassVar[tuple[RawForm, ...]] = ()
    is_fixed: ClassVar[bool] = True
    cached: ClassVar[bool] = True  # whether reading takes long enough to keep the result

    def __post_init__(self) -> None:
        if not isinstance(self.download, bool):
            raise InputError("dataset.download", self.download, "must be true or false")

    @property
    def title(self) -> str:
        return self.shown_as

    @property
    def facts(self) -> GraphFacts:
        """The facts of the published graph."""
        return self.published

    def raw_forms(self) -> tuple[RawForm, ...]:
        """What the graph can be read from; the first complete form is."""
        return self.forms

    def load(self, data_dir: Path) -> Graph:
        """Load the graph, downloading what is missing; refuse any but the published one."""
        raw_dir = self.raw_dir(data_dir)
        if Path(data_dir).exists() and not Path(data_dir).is_dir():
            raise InputError("data_dir", data_dir, "must be a folder")
        if self.will_fetch(data_dir):
            try:
                self.raw_source.fetch(raw_dir)
            except DownloadError as error:
                raise InputError("data_dir", data_dir, str(error)) from error
        for form in self.raw_forms():
            files = form.present_files(raw_dir)
            if files is not None:
                read = partial(form.read, raw_dir)
                cache = self._cache_path(data_dir)
                graph = load_or_build(cache, files, read) if self.cached else read()
                if not self.is_published(graph):
                    allowed = (
                        f"{raw_dir} does not hold the published {self.title}: fingerprint "
                        f"{graph.fingerprint}, expected {self.facts.fingerprint}; "
                        "delete its files to download them again"
                    )
                    raise InputError("data_dir", data_dir, allowed)
                return graph
        missing = ", ".join(f.name for f in self.raw_source.missing(raw_dir) if f.required)
        raise InputError("data_dir", data_dir, f"put {missing} in {raw_dir}, {NO_DOWNLOAD_HINT}")

    def is_published(self, graph: Graph) -> bool:
        return graph.fingerprint == self.facts.fingerprint

    def raw_dir(self, data_dir: Path) -> Path:
        return Path(data_dir) / self.name / "raw"

    def _cache_path(self, data_dir: Path) -> Path:
        return Path(data_dir) / self.name / "processed" / "graph.npz"

    def will_fetch(self, data_dir: Path) -> bool:
        """Whether ``load`` tries to download something."""
        raw_dir = self.raw_dir(data_dir)
        if not self.download:
            return False
        if not self.raw_source.is_complete(raw_dir):
            return True
        # Of a complete dataset only an optional file can be missing.  A cached graph shows that it
        # was tried for before: a run without network must not wait for it each time.
        optional_missing = any(not file.required for file in self.raw_source.missing(raw_dir))
        return optional_missing and is_writable(raw_dir) and not self._cache_path(data_dir).exists()
