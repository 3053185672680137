import csv
import io
import json
import os
import random
import re
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from lpgnn import client
from lpgnn.client import ClientError, Report, Task
from lpgnn.collect import main
from lpgnn.errors import InputError
from lpgnn.privacy import MultiBit, RandomizedResponse
from lpgnn.privacy import collector as collector_module
from lpgnn.privacy.collection import Collection, ReceivedReports
from lpgnn.privacy.collector import Collector, Refusal
from lpgnn.privacy.payloads import crc32_of_rows, intact, read_payloads, split_rows

from .tasks import small_graph, small_task, task_source
from .test_client import BAD_TASKS

TASK, GRAPH = small_task(), small_graph()
ASKED = GRAPH.asked.tolist()


def report_of(node: int, draws: random.Random) -> Report:
    label = draws.randrange(3) if ASKED[node] else None
    indices = tuple(sorted(draws.sample(range(5), 2)))
    return Report(node, indices, (draws.choice((-1, 1)), draws.choice((-1, 1))), label)


REPORTS = [report_of(node, random.Random(node)) for node in range(12)]
WIRES = [client.encode(TASK, report) for report in REPORTS]


def sealed(body: bytes) -> bytes:
    """A body with the checksum that belongs to it."""
    return body + zlib.crc32(body).to_bytes(4, "big")


def with_payload(node: int, payload: int) -> bytes:
    return sealed(WIRES[node][:15] + payload.to_bytes(2, "big"))


def packed(first: int, second: int, bits: int, label: int, padding: int = 0) -> int:
    """The payload of 3 + 3 + 2 + 2 bits and 6 bits of padding."""
    return first << 13 | second << 10 | bits << 8 | label << 6 | padding


def json_with(**changes: Any) -> bytes:
    members = json.loads(client.to_json(TASK, REPORTS[3])) | changes
    return json.dumps(members).encode() + b"\n"


W3 = WIRES[3]
# A report that is not one, and the reason that the collector gives.
MALFORMED: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "empty: no report in it"),
    "noise": (b"hello, this is not a report", "not a report"),
    "version": (sealed(b"LP\x02" + W3[3:-4]), "version 2: must be 1"),
    "another task": (
        client.encode(small_task(salt="other"), REPORTS[3]),
        f"task {small_task(salt='other').hash.hex()}: must be {TASK.hash.hex()}",
    ),
    "too short": (W3[:-1], "length 20: must be 21 bytes"),
    "too long": (W3 + b"\x00", "not a report"),  # a report, and a byte
    "cut in the header": (W3[:7], "length 7: must be 21 bytes"),
    "damaged": (W3[:16] + bytes([W3[16] ^ 64]) + W3[17:], "damaged: the checksum"),
    "damaged checksum": (W3[:-1] + bytes([W3[-1] ^ 1]), "damaged: the checksum"),
    "unknown node": (sealed(W3[:11] + (12).to_bytes(4, "big") + W3[15:17]), "node 12: unknown"),
    "huge node": (sealed(W3[:11] + b"\xff" * 4 + W3[15:17]), "node 4294967295: unknown"),
    "index out of range": (with_payload(3, packed(1, 5, 0, 0)), "index 5: must"),
    "index twice": (with_payload(3, packed(2, 2, 0, 0)), r"indices (2, 2): must be ascending"),
    "indices descending": (with_payload(3, packed(3, 1, 0, 0)), "indices (3, 1): must be"),
    "padding": (with_payload(3, packed(1, 3, 0, 0, 1)), "padding: must be zeros"),
    "label missing": (with_payload(3, packed(1, 3, 0, 3)), "label of node 3: is missing"),
    "label not asked for": (with_payload(10, packed(1, 3, 0, 1)), "label of node 10: was not"),
    "JSON cut": (b'{"lpgnn_report": 1,\n', "report: not JSON"),
    "JSON version": (json_with(lpgnn_report=7), "version 7: must be 1"),
    "true for a JSON version": (json_with(lpgnn_report=True), "version True: must be 1"),
    "1.0 for a JSON version": (json_with(lpgnn_report=1.0), "version 1.0: must be 1"),
    "JSON task": (json_with(task="00"), "task '00': must be"),
    "JSON member": (json_with(extra=1), "report: 'extra' is unknown"),
    "JSON bits": (json_with(bits=[0, 1]), "bit 0: must be -1 or 1"),
    "JSON bool": (json_with(bits=[True, 1]), "bit True: must be -1 or 1"),
    "JSON too many": (json_with(indices=[0, 1, 2]), "3 indices and 2 bits: must be 2"),
    "JSON label": (json_with(label=3), "label 3: must be a whole number in 0..2"),
    "JSON node": (json_with(node="3"), "node '3': unknown"),
    "JSON list": (json_with(indices=5), "indices 5: must be a list"),
}


def collected(feed: Callable[[Collector], None]) -> tuple[Collection, list[Refusal], Collector]:
    refusals: list[Refusal] = []
    collector = Collector(TASK, GRAPH.asked.numpy(), refusals.append)
    feed(collector)
    return Collection(TASK, GRAPH, *collector.received()), refusals, collector


def stream(data: bytes) -> tuple[Collection, list[Refusal], Collector]:
    return collected(lambda collector: collector.add_stream(io.BytesIO(data), "s"))


def reports_in(collection: Collection) -> list[Report]:
    """The reports of a collection, decoded by the client."""
    head = client.MAGIC + b"\x01" + TASK.hash
    return [
        client.decode(TASK, sealed(head + node.to_bytes(4, "big") + payload.tobytes()))
        for node, payload in enumerate(collection.payloads)
        if collection.received[node]
    ]


def test_a_stream_of_reports_comes_out_as_it_was_sent() -> None:
    collection, refusals, collector = stream(b"".join(WIRES))
    assert reports_in(collection) == REPORTS
    assert refusals == []
    assert collector.num_accepted == 12


def test_json_comes_out_the_same() -> None:
    lines = "\n".join(client.to_json(TASK, report) for report in REPORTS)
    collection, refusals, _ = stream(lines.encode())
    assert reports_in(collection) == REPORTS
    assert refusals == []


@pytest.mark.parametrize(
    "changes",
    [{"salt": "other"}, {"salt": "other", "num_features": 40, "num_samples": 9}],
    ids=["of the same length", "longer"],
)
@pytest.mark.parametrize("size", [150, 2000])
def test_a_file_of_another_task_is_as_many_refusals_as_it_has_reports(
    changes: dict[str, Any], size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Read whole, or in chunks that end anywhere within a report."""
    monkeypatch.setattr(collector_module, "_CHUNK_BYTES", 4096)
    monkeypatch.setattr(collector_module, "_LONGEST_PIECE", 3000)
    other = small_task(**changes)
    bits = range(other.num_samples)
    one = client.encode(other, Report(3, tuple(bits), (1,) * len(bits), None))
    collection, refusals, collector = stream(one * size + b"".join(WIRES))
    assert collector.refused == {"task": size}
    assert [r.offset for r in refusals] == list(range(0, size * len(one), len(one)))
    assert {r.reason for r in refusals} == {f"task {other.hash.hex()}: must be {TASK.hash.hex()}"}
    assert reports_in(collection) == REPORTS


def test_reports_of_several_tasks_and_damaged_ones_are_told_apart() -> None:
    a, b = (client.encode(small_task(salt=salt), REPORTS[3]) for salt in "ab")
    broken = b[:17] + bytes([b[17] ^ 1]) + b[18:]
    _, refusals, collector = stream(WIRES[0] + a + b + broken + b + a[:-2])
    assert collector.refused == {"task": 5}
    assert [r.offset for r in refusals] == [21, 42, 63, 84, 105]
    assert collector.num_accepted == 1


def test_where_reports_cannot_be_counted_the_reason_says_so(tmp_path: Path) -> None:
    (tmp_path / "packed").write_bytes(b"\x1f\x8b" + b"".join(WIRES)[5:12] * 4)
    (tmp_path / "pipe").symlink_to(tmp_path / "nowhere")
    _, refusals, _ = collected(lambda collector: collector.add_folder(tmp_path))
    assert {r.source: r.reason for r in refusals} == {
        "packed": "not a report: it does not start with LP; "
        "how many reports these 30 bytes were is unknown",
        "pipe": "unreadable: not a file; how many reports it has is unknown",
    }


@pytest.mark.parametrize("name", MALFORMED)
def test_a_malformed_report_is_refused_in_one_line_and_nothing_else_is_lost(
    name: str, tmp_path: Path
) -> None:
    """In a folder, a file for each report: the malformed one comes first and takes no place."""
    wrong, reason = MALFORMED[name]
    (tmp_path / "00").write_bytes(wrong)
    for node, wire in enumerate(WIRES):
        (tmp_path / f"{node + 1:02}").write_bytes(wire)
    collection, refusals, _ = collected(lambda collector: collector.add_folder(tmp_path))
    wanted = [r for r in refusals if not r.reason.startswith("replay")]
    assert len(wanted) == 1
    assert wanted[0].source == "00"
    assert reason in wanted[0].reason
    assert "\n" not in wanted[0].reason
    assert reports_in(collection) == REPORTS


def test_malformed_reports_and_tasks_of_twenty_kinds_each(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command: whatever else lies in the folder, no valid report is lost."""
    assert len(MALFORMED) >= 20
    assert len(BAD_TASKS) >= 20
    GRAPH.save(tmp_path / "graph.npz")
    (tmp_path / "task.json").write_bytes(TASK.source)
    reports = tmp_path / "reports"
    reports.mkdir()
    for number, (wrong, _) in enumerate(MALFORMED.values()):
        (reports / f"{number:02}").write_bytes(wrong)
    for node, wire in enumerate(WIRES):
        (reports / f"valid{node:02}").write_bytes(wire)
    words = [f"graph={tmp_path / 'graph.npz'}", f"reports={reports}", f"out={tmp_path / 'c.npz'}"]
    assert main([f"task={tmp_path / 'task.json'}", *words]) == 0
    assert "12 of 12 nodes" in capsys.readouterr().out
    assert reports_in(Collection.load("reports", tmp_path / "c.npz")) == REPORTS
    with (tmp_path / "c.refused.csv").open(newline="") as file:
        refused = list(csv.DictReader(file))
    wanted = [row for row in refused if not row["reason"].startswith("replay")]
    assert [row["source"] for row in wanted] == [f"{n:02}" for n in range(len(MALFORMED))]
    for row, (_, reason) in zip(wanted, MALFORMED.values(), strict=True):
        assert reason in row["reason"]
    for source, message in BAD_TASKS.values():
        (tmp_path / "bad.json").write_bytes(source)
        assert main([f"task={tmp_path / 'bad.json'}", *words]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert re.search(message, line)


JSON_LINES = [client.to_json(TASK, report).encode() for report in REPORTS]


@pytest.mark.parametrize(
    "data",
    [
        b'{"is this JSON?' + b"".join(WIRES),
        b'{"lpgnn_report": 1}\n' + b"".join(WIRES),
        b"noise\n" + b"\n".join(JSON_LINES),
        b"LP\x01" + TASK.hash + b"\n" + b"\n".join(JSON_LINES),
        b"".join(WIRES[:6]) + b"\n".join(JSON_LINES[6:]),
        b"\r\n".join(JSON_LINES[:6]) + b"\r\n" + b"".join(WIRES[6:]),
    ],
    ids=["brace", "JSON first", "text first", "header first", "JSON last", "lines then bytes"],
)
def test_what_a_stream_starts_with_does_not_decide_what_is_read(data: bytes) -> None:
    """One sender's bytes must not hide those of all others behind them."""
    collection, refusals, _ = stream(data)
    assert reports_in(collection) == REPORTS
    assert len(refusals) <= 1


def test_a_byte_order_mark_is_no_damage() -> None:
    collection, refusals, _ = stream(b"\xef\xbb\xbf" + b"\n".join(JSON_LINES))
    assert reports_in(collection) == REPORTS
    assert refusals == []


def test_of_two_forms_the_first_counts() -> None:
    other = Report(3, (0, 1), (1, 1), 2)
    assert other != REPORTS[3]
    line = client.to_json(TASK, other).encode() + b"\n"
    for data, kept in ((line + W3, other), (W3 + line, REPORTS[3])):
        collection, refusals, _ = stream(WIRES[2] + data + WIRES[4])
        assert reports_in(collection) == [REPORTS[2], kept, REPORTS[4]]
        assert [refusal.kind for refusal in refusals] == ["replay"]


@pytest.mark.parametrize("seed", range(40))
def test_intact_reports_survive_any_neighbours(seed: int) -> None:
    draws, data = random.Random(seed), b""
    for wire, line in zip(WIRES, JSON_LINES, strict=True):
        cut = draws.choice((wire, line))
        flipped = bytearray(cut)
        flipped[draws.randrange(len(cut))] ^= 1 << draws.randrange(8)
        noise = draws.randbytes(draws.randrange(50))
        data += draws.choice((b"", cut[: draws.randrange(len(cut))], noise, bytes(flipped)))
        data += draws.choice((wire, b"\n" + line + b"\n"))
    collection, refusals, _ = stream(data)
    received = {report.node: report for report in reports_in(collection)}
    # A flipped bit of a JSON report may make another valid one, which has no checksum.
    changed = {node for node, report in received.items() if report != REPORTS[node]}
    assert set(received) == set(range(12))
    assert changed <= {int(r.reason.split()[3].rstrip(":")) for r in refusals if "replay" in r.kind}


def test_pipes_and_links_that_go_round_keep_nobody_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "0-pipe")
    (tmp_path / "1-round").symlink_to(tmp_path)
    (tmp_path / "2-nowhere").symlink_to(tmp_path / "none")
    (tmp_path / "3").write_bytes(W3)
    collection, refusals, _ = collected(lambda collector: collector.add_folder(tmp_path))
    assert reports_in(collection) == [REPORTS[3]]
    assert [r.source for r in refusals] == ["0-pipe", "1-round", "2-nowhere"]
    assert all(r.reason.startswith("unreadable: not a file") for r in refusals)


def test_names_that_are_no_text_can_be_listed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    GRAPH.save(tmp_path / "graph.npz")
    (tmp_path / "task.json").write_bytes(TASK.source)
    reports = tmp_path / "reports"
    reports.mkdir()
    (reports / os.fsdecode(b"\xff\xfe")).write_bytes(b"noise")
    words = [f"{name}={tmp_path / name}" for name in ("reports", "out")]
    words += [f"task={tmp_path / 'task.json'}", f"graph={tmp_path / 'graph.npz'}"]
    assert main(words) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "holds no valid report: 1 of 1 x not a report" in line
    assert "noise" not in (tmp_path / "out.refused.csv").read_text()
    assert "udcff" in (tmp_path / "out.refused.csv").read_text()


def test_what_cannot_be_written_is_said_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    GRAPH.save(tmp_path / "graph.npz")
    (tmp_path / "task.json").write_bytes(TASK.source)
    (tmp_path / "r").write_bytes(b"".join(WIRES))
    words = [f"task={tmp_path / 'task.json'}", f"graph={tmp_path / 'graph.npz'}"]
    out = tmp_path / "r" / "collected.npz"  # in a file, not a folder
    assert main([*words, f"reports={tmp_path / 'r'}", f"out={out}"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert f"out={out}: cannot be written" in line


BINARY = [name for name, (wrong, _) in MALFORMED.items() if wrong and not name.startswith("JSON")]


@pytest.mark.parametrize("name", BINARY)
def test_a_stream_goes_on_after_damage(name: str) -> None:
    wrong, reason = MALFORMED[name]
    collection, refusals, _ = stream(b"".join(WIRES[:6]) + wrong + b"".join(WIRES[6:]))
    assert reports_in(collection) == REPORTS
    reasons = [r.reason for r in refusals if not r.reason.startswith("replay")]
    assert len(reasons) == 1
    if name not in ("too short", "cut in the header", "noise"):  # where it ends cannot be seen
        assert reason in reasons[0]
    # Of "too long" the byte behind a report is refused before the report, which is a replay.
    assert refusals[0].offset == (7 if name == "too long" else 6) * 21


@pytest.mark.parametrize("lost", [1, 5, 20])
def test_lost_bytes_cost_one_report(lost: int) -> None:
    data = b"".join(WIRES)
    collection, refusals, _ = stream(data[: 3 * 21 + 8] + data[3 * 21 + 8 + lost :])
    kept = {report.node for report in reports_in(collection)}
    assert kept >= set(range(12)) - ({3} if lost < 13 else {3, 4})
    assert len(refusals) == 1


def test_a_stream_longer_than_a_block_with_damage_everywhere(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("lpgnn.privacy.collector._CHUNK_BYTES", 50)
    monkeypatch.setattr("lpgnn.privacy.collector._LARGEST_BLOCK", 3)
    monkeypatch.setattr("lpgnn.privacy.collector._BLOCK_BYTES", 50)
    monkeypatch.setattr("lpgnn.privacy.collector._LONGEST_PIECE", 64)
    draws = random.Random(0)
    for _ in range(50):
        pieces = []
        for wire in WIRES:
            pieces += [draws.randbytes(draws.randrange(90)) if draws.random() < 0.5 else b"", wire]
        data = b"".join(pieces)
        if data[:1] != b"{":
            collection, _, _ = stream(data)
            assert reports_in(collection) == REPORTS


def one_by_one(data: bytes) -> dict[int, Report]:
    """The plain way to read a stream of bytes."""
    at = 0
    reports: dict[int, Report] = {}
    while at < len(data):
        try:
            report = client.decode(TASK, data[at : at + 21])
        except ClientError:
            at += 1
            continue
        reports.setdefault(report.node, report)
        at += 21
    return reports


@pytest.mark.parametrize("seed", range(6))
def test_headers_of_nothing_and_shreds_are_read_as_one_by_one(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whole in one part, and in many that end anywhere."""
    draws, head, data = random.Random(seed), WIRES[0][:11], b""
    for wire in WIRES * 3:
        shreds = (b"", b"\n", head, head * 3, head[:7], wire[:20], b"LP", wire[:13] + wire)
        data += draws.choice(shreds) + wire
    expected = one_by_one(data)
    for chunk in (2**22, 64):
        monkeypatch.setattr(collector_module, "_CHUNK_BYTES", chunk)
        monkeypatch.setattr(collector_module, "_LONGEST_PIECE", chunk // 4 + 32)
        collection, refusals, collector = stream(data)
        assert {report.node: report for report in reports_in(collection)} == expected
        assert collector.num_accepted == len(expected)
        assert all(0 <= refusal.offset < len(data) for refusal in refusals)


def counting(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sizes of the blocks whose checksums are computed, as they are."""
    sizes: list[int] = []

    def counted(task: Task, block: Any) -> Any:
        sizes.append(len(block))
        return intact(task, block)

    monkeypatch.setattr(collector_module, "intact", counted)
    return sizes


@pytest.mark.parametrize(
    ("unit", "rows"),
    [
        (W3 + b"\n", 1),
        (W3 + JSON_LINES[4] + b"\n", 1),
        (W3[:11], 1),
        (b"{" + W3[:11], 1),
        (b"LP", 0),
    ],
    ids=["line ends", "two forms", "headers", "headers and braces", "magic"],
)
def test_a_stream_in_shreds_is_looked_at_once(
    unit: bytes, rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However short the pieces are, a header is checked once, and many of them together."""
    sizes = counting(monkeypatch)
    stream(unit * 500)
    assert sum(sizes) <= 500 * rows
    assert len(sizes) <= 1


def test_of_reports_that_overlap_the_first_counts() -> None:
    """Contrived: the payload of one is the header of the next, and both checksums are right."""
    task = small_task(num_features=200, num_samples=200)  # a payload of 26 bytes
    head, last = b"LP\x01" + task.hash, bytes([1 << 6])  # the label 1, and zeros
    first = sealed(head + (3).to_bytes(4, "big") + head + (4).to_bytes(4, "big") + bytes(10) + last)
    second = sealed(first[15:] + bytes(10) + last)
    assert client.decode(task, first).node == 3
    assert client.decode(task, second).node == 4
    refusals: list[Refusal] = []
    collector = Collector(task, GRAPH.asked.numpy(), refusals.append)
    collector.add_stream(io.BytesIO(first + second[30:] + first), "s")
    assert np.flatnonzero(collector.received()[0]).tolist() == [3]
    assert [(r.offset, r.kind) for r in refusals] == [(45, "not"), (60, "replay")]


def test_lines_that_are_no_json_take_time_in_proportion() -> None:
    """Behind one brace, half a million short lines: a copy for each would take minutes."""
    data = b"{\n" + b"x\n" * 500_000 + W3
    collection, refusals, _ = stream(data)
    assert reports_in(collection) == [REPORTS[3]]
    assert [refusal.offset for refusal in refusals] == [0, 2]


def test_the_first_report_of_a_node_counts() -> None:
    other = client.encode(TASK, Report(3, (0, 1), (1, 1), 0 if REPORTS[3].label else 1))
    for size in (1, 12):
        data = b"".join(WIRES[:size]) if size > 3 else WIRES[3]
        collection, refusals, collector = stream(data + other + WIRES[3])
        assert collection.received[3]
        assert REPORTS[3] in reports_in(collection)
        texts = [r.reason for r in refusals]
        assert texts == [
            "replay of node 3: another report is here already",
            "replay of node 3: the same report again",
        ]
        assert collector.refused == {"replay": 2}


def test_arrays_accept_what_the_client_accepts() -> None:
    """Random payloads, mostly wrong: the two readers agree on every one."""
    draws = random.Random(1)
    wires = [
        sealed(WIRES[0][:11] + draws.randrange(14).to_bytes(4, "big") + draws.randbytes(2))
        for _ in range(3000)
    ]
    block = np.frombuffer(b"".join(wires), np.uint8).reshape(-1, 21)
    assert intact(TASK, block).all()
    nodes, payloads = split_rows(block)
    read = read_payloads(TASK, payloads)
    valid = read.valid & (nodes < 12)
    assert 0 < valid.sum() < 3000
    for i, wire in enumerate(wires):
        try:
            report = client.decode(TASK, wire)
        except ClientError:
            assert not valid[i]
            continue
        assert valid[i]
        assert report.node == nodes[i]
        assert report.indices == tuple(read.indices[i].tolist())
        assert report.bits == tuple(read.signs[i].tolist())
        assert report.label == (None if read.labels[i] < 0 else read.labels[i])


def test_checksums_of_rows_are_zlibs() -> None:
    rows = np.random.default_rng(0).integers(0, 256, (50, 33)).astype(np.uint8)
    assert crc32_of_rows(rows).tolist() == [zlib.crc32(row.tobytes()) for row in rows]


@pytest.mark.parametrize("m", [1, 5])
def test_payloads_in_parts_are_the_same(m: int, monkeypatch: pytest.MonkeyPatch) -> None:
    task = small_task(num_samples=m)
    wires = [
        client.encode(task, client.perturb(task, node=i, features=[0.5] * 5, asked=False))
        for i in range(12)
    ]
    block = np.frombuffer(b"".join(wires), np.uint8).reshape(12, -1)
    _, payloads = split_rows(block)
    whole = read_payloads(task, payloads)
    monkeypatch.setattr("lpgnn.privacy.payloads._BLOCK_BITS", 100)
    parts = read_payloads(task, payloads)
    for name in ("indices", "signs", "labels", "valid"):
        assert np.array_equal(getattr(whole, name), getattr(parts, name))
    assert whole.indices.shape == (12, m)


def test_what_training_sees_is_what_was_sent() -> None:
    collection, _, _ = stream(b"".join(WIRES[:5] + WIRES[6:11]))  # nodes 5 and 11 are silent
    server = collection.collected()
    sent = torch.zeros(12, 5)
    for report in REPORTS:
        if report.node not in (5, 11):
            sent[report.node, list(report.indices)] = torch.tensor(report.bits).float()
    mechanism = MultiBit(1.0, 5, num_samples=2)
    assert server.features is not None
    expected = sent * mechanism.scale() + mechanism.offset()
    assert torch.allclose(server.features.rectified(), expected)
    assert server.features.magnitude == mechanism.magnitude()
    labels = [-1 if r.label is None or r.node in (5, 11) else r.label for r in REPORTS]
    assert server.labels.classes.tolist() == labels
    assert server.train_mask.tolist() == [True] * 5 + [False] * 7
    assert server.val_mask.tolist() == [False] * 6 + [True] * 3 + [False] * 3
    response = RandomizedResponse(1.0, 3)
    assert torch.equal(server.labels.transition, response.transition())
    assert server.labels.likelihood[:, 0].tolist() == pytest.approx(
        response.transition()[:, labels[0]].tolist()
    )
    assert (server.x_eps, server.y_eps) == (1.0, 1.0)


def test_a_file_gives_the_collection_back(tmp_path: Path) -> None:
    collection, _, _ = stream(b"".join(WIRES[:-1]))
    collection.save(tmp_path / "c.npz")
    again = Collection.load("reports", tmp_path / "c.npz")
    assert again.digest == collection.digest
    assert again.task == collection.task
    assert reports_in(again) == REPORTS[:-1]
    other, _, _ = stream(b"".join(WIRES))
    assert other.digest != collection.digest


def save_with(path: Path, **changes: Any) -> None:
    collection, _, _ = stream(b"".join(WIRES))
    collection.save(path)
    with np.load(path) as archive:
        arrays = dict(archive)
    arrays |= {name: value for name, value in changes.items() if value is not None}
    for name in [name for name, value in changes.items() if value is None]:
        del arrays[name]
    np.savez(path, **arrays)


PAYLOADS = stream(b"".join(WIRES))[0].payloads
BAD_FILES: dict[str, tuple[dict[str, Any], str]] = {
    "missing array": ({"payloads": None}, "with the array payloads"),
    "objects": (
        {"payloads": np.array([{}] * 12)},
        "payloads must be a plain array, not Python objects",
    ),
    "type": ({"received": np.ones(12)}, "received must not be of type float64"),
    "task": ({"task": np.frombuffer(b"{", np.uint8)}, "task: not JSON"),
    "another task": (
        {"task": np.frombuffer(task_source(graph="other"), np.uint8)},
        "but the task is for graph other",
    ),
    "another graph": ({"train": np.zeros(12, dtype=bool)}, "has digest"),
    "shape": ({"payloads": PAYLOADS[:, :1]}, "payloads must be"),
    "nodes": ({"received": np.ones(11, dtype=bool)}, "must be a mask of 12 nodes"),
    "range": ({"payloads": np.full_like(PAYLOADS, 255)}, "the payload of node 0 is out of range"),
    "labels": ({"payloads": PAYLOADS[::-1].copy()}, "labels must come from"),
    "silent": ({"received": np.arange(12) < 6}, "of nodes that sent nothing must be zeros"),
    "indptr": ({"indptr": np.arange(13)[::-1].copy()}, "indptr must rise"),
    "edge": ({"indices": np.full(24, 99)}, r"indices must lie in 0\.\.11"),
    "one way": ({"indices": np.tile([0, 1], 12)}, "in both directions"),
    "overlap": ({"val": np.ones(12, dtype=bool)}, "train and val must be disjoint"),
}


@pytest.mark.parametrize("name", BAD_FILES)
def test_a_bad_file_is_refused_in_one_line(name: str, tmp_path: Path) -> None:
    changes, message = BAD_FILES[name]
    save_with(tmp_path / "c.npz", **changes)
    with pytest.raises(InputError, match=message) as caught:
        Collection.load("reports", tmp_path / "c.npz")
    assert "\n" not in str(caught.value)


def test_other_bad_files(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        ReceivedReports(str(tmp_path / "none.npz"))
    (tmp_path / "text.npz").write_text("no archive")
    np.save(tmp_path / "array.npy", np.zeros(3))
    for name in ("text.npz", "array.npy"):
        message = "not a readable npz of plain arrays: it is no zip archive$"
        with pytest.raises(InputError, match=message):
            ReceivedReports(str(tmp_path / name))
    only_val, _, _ = stream(b"".join(WIRES[6:]))
    only_val.save(tmp_path / "val.npz")
    with pytest.raises(InputError, match="has no label of a train node"):
        ReceivedReports(str(tmp_path / "val.npz"))


LABELS = {
    "header": ("a,b\n9,0\n", "whose first line is node,label"),
    "node": ("node,label\n12,0\n", "line 2 has an unknown node"),
    "label": ("node,label\n9,0\n10,x\n", "line 3 has an unknown label"),
    "columns": ("node,label\n9\n", "line 2 must be node,label"),
    "asked": ("node,label\n0,1\n", "nothing to test"),
}


@pytest.mark.parametrize("name", LABELS)
def test_bad_labels_are_refused(name: str, tmp_path: Path) -> None:
    content, message = LABELS[name]
    stream(b"".join(WIRES))[0].save(tmp_path / "c.npz")
    (tmp_path / "labels.csv").write_text(content)
    with pytest.raises(InputError, match=message):
        ReceivedReports(str(tmp_path / "c.npz"), str(tmp_path / "labels.csv"))


def published(folder: Path) -> list[str]:
    (folder / "task.json").write_bytes(task_source())
    GRAPH.save(folder / "graph.npz")
    return [
        *(f"task={folder / 'task.json'}", f"graph={folder / 'graph.npz'}"),
        *(f"reports={folder / 'inbox'}", f"out={folder / 'out.npz'}"),
    ]


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = published(tmp_path)
    inbox = tmp_path / "inbox"
    inbox.mkdir()
    assert main(words) == 2  # nothing to collect
    for number, (wrong, _) in enumerate(MALFORMED.values()):
        (inbox / f"wrong-{number:02}").write_bytes(wrong)
    (inbox / "all").write_bytes(b"".join(WIRES))
    capsys.readouterr()
    assert main(words) == 0
    shown = capsys.readouterr().out
    assert "12 of 12 nodes, 9 of 9 labels" in shown
    # "too long" is two: a report again, and a byte.
    assert f"refused  {len(MALFORMED) + 1}\n" in shown
    refused = (tmp_path / "out.refused.csv").read_text().splitlines()
    assert refused[0] == "source,offset,reason"
    assert len(refused) == 1 + len(MALFORMED) + 1
    assert reports_in(Collection.load("reports", tmp_path / "out.npz")) == REPORTS
    assert main([*words[:2], f"reports={tmp_path / 'nowhere'}"]) == 2
    assert main(["reprots=x"]) == 2
    errors = capsys.readouterr().err.splitlines()
    assert len(errors) == 2
    assert "must be a folder, a file or -" in errors[0]
    assert not list(tmp_path.glob(".*tmp"))


def test_a_task_for_another_graph_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = published(tmp_path)
    (tmp_path / "task.json").write_bytes(task_source(graph="other"))
    assert main(words) == 2
    assert "but the task is for graph other" in capsys.readouterr().err


def test_hashes_depend_on_every_byte() -> None:
    assert Task.parse(task_source()).hash != Task.parse(task_source() + b" ").hash
