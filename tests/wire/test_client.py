import itertools
import json
import math
import re
import sqlite3
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from lpgnn import client
from lpgnn.client import ClientError, Ledger, Report, Task
from lpgnn.privacy import MultiBit, RandomizedResponse
from lpgnn.privacy.audit import bit_outputs, label_outputs

from .tasks import small_task, task_source

GOLDEN = Path(__file__).parent / "golden"


def outcomes(
    experiment: Callable[[client.RandomBits], Any], *, deepest: int = 6
) -> Iterator[tuple[Fraction, Any]]:
    """Every outcome of an experiment with its exact probability, over all random bits.

    Draws are tried one after another; paths of more than ``deepest`` draws (rejections without
    end) are left out.
    """
    paths: list[list[tuple[int, int]]] = [[]]  # the draws made so far: value and bits
    while paths:
        path = paths.pop()
        calls = 0

        class Open(Exception):
            pass

        def draw(bits: int, path: list[tuple[int, int]] = path) -> int:
            nonlocal calls
            calls += 1
            if calls <= len(path):
                return path[calls - 1][0]
            raise Open(bits)

        try:
            result = experiment(draw)
        except Open as question:
            (bits,) = question.args
            if len(path) < deepest:
                paths += [[*path, (value, bits)] for value in range(2**bits)]
            continue
        yield Fraction(1, 2 ** sum(bits for _, bits in path)), result


def exp_bounds(x: Fraction) -> tuple[Fraction, Fraction]:
    """Rational bounds of e^x by Taylor's series and its remainder, for 0 <= x < 20."""
    terms = [Fraction(1)]
    for n in range(1, 120):
        terms.append(terms[-1] * x / n)
    below = sum(terms, Fraction(0))
    return below, below + 2 * terms[-1]


EPSILONS = [Fraction(1, 100), Fraction(1, 3), Fraction(1), Fraction(5, 2), Fraction(8)]


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("m", [1, 3])
def test_a_bit_spends_at_most_its_share_and_almost_all_of_it(epsilon: Fraction, m: int) -> None:
    task = small_task(x_eps=float(epsilon), num_samples=m)
    lowest = task.lowest_weight()
    assert task.bit_weight(Fraction(0)) == lowest
    assert task.bit_weight(Fraction(1)) == 2**64 - lowest
    below, above = exp_bounds(task.x_eps / m)
    ratio = Fraction(2**64 - lowest, lowest)
    assert ratio <= below  # never more than e^(eps/m), in exact arithmetic
    assert Fraction(2**64 - (lowest - 1), lowest - 1) > above * (1 - Fraction(1, 2**60))


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("c", [2, 7, 70])
def test_a_label_spends_at_most_its_budget(epsilon: Fraction, c: int) -> None:
    task = small_task(y_eps=float(epsilon), num_classes=c)
    below, above = exp_bounds(task.y_eps)
    flip = task.flip_weight()
    assert Fraction(task.keep_weight(), flip) <= below
    assert Fraction(2**64 - (c - 1) * (flip - 1), flip - 1) > above  # one less would be too few


@pytest.mark.parametrize("m", [1, 2, 4])
def test_probabilities_are_those_of_the_simulation(m: int) -> None:
    """Every output of the enumerated mechanism, from the client's whole weights."""
    task = small_task(num_features=4, num_samples=m, x_eps=1.5)
    mechanism = MultiBit(1.5, 4, num_samples=m)
    x = (0.0, 0.25, 1.0, 0.8)
    table = bit_outputs(mechanism, x)
    for output, log_probability in table.items():
        exact = Fraction(1, math.comb(4, m))
        for value, bit in zip(x, output, strict=True):
            weight = Fraction(task.bit_weight(task.position(0, value)), 2**64)
            exact *= {1: weight, -1: 1 - weight, 0: Fraction(1)}[bit]
        assert float(exact) == pytest.approx(math.exp(log_probability), rel=1e-12)


def test_label_probabilities_are_those_of_the_simulation() -> None:
    task = small_task(y_eps=0.7, num_classes=5)
    table = label_outputs(RandomizedResponse(0.7, 5), 2)
    assert task.keep_weight() / 2**64 == pytest.approx(math.exp(table[2]), rel=1e-12)
    assert task.flip_weight() / 2**64 == pytest.approx(math.exp(table[0]), rel=1e-12)


@pytest.fixture
def coarse(monkeypatch: pytest.MonkeyPatch) -> None:
    """Probabilities of five bits, so that all draws can be tried."""
    monkeypatch.setattr(client, "PRECISION", 5)


@pytest.mark.usefixtures("coarse")
def test_draws_have_exactly_the_stated_probabilities() -> None:
    """All random bits are tried: reports come out as often as the weights say, to the last bit."""
    task = small_task(num_features=4, num_samples=1, y_eps=1.2)
    draw = partial(client.perturb, task, node=0, features=[0.0, 1.0, 0.5, 0.0], asked=True, label=1)
    found: Counter[Report] = Counter()
    for probability, report in outcomes(lambda bits: draw(random_bits=bits)):
        found[report] += probability  # type: ignore[assignment]
    assert sum(found.values()) == 1
    keep, flip = task.keep_weight(), task.flip_weight()
    for i, bit, label in itertools.product(range(4), (-1, 1), range(3)):
        one = task.bit_weight(task.position(i, [0.0, 1.0, 0.5, 0.0][i]))
        expected = Fraction(1, 4) * Fraction(one if bit == 1 else 32 - one, 32)
        expected *= Fraction(keep if label == 1 else flip, 32)
        assert found[Report(0, (i,), (bit,), label)] == expected


@pytest.mark.usefixtures("coarse")
def test_coarse_probabilities_are_rounded_towards_privacy() -> None:
    """Over all inputs, no report is more than e^eps times likelier under one than another."""
    task = small_task(num_features=2, num_samples=1)
    tables = []
    for x in itertools.product((0.0, 0.4, 1.0), repeat=2):
        table: Counter[Report] = Counter()
        for probability, report in outcomes(
            lambda bits, x=x: client.perturb(  # type: ignore[misc]
                task, node=0, features=x, asked=False, random_bits=bits
            )
        ):
            table[report] += probability  # type: ignore[assignment]
        tables.append(table)
    for a, b in itertools.permutations(tables, 2):
        for report in a | b:
            assert a[report] <= b[report] * exp_bounds(Fraction(1))[0]


@pytest.mark.parametrize(("d", "m"), [(4, 2), (4, 3), (2, 1), (4, 4)])
def test_subsets_are_uniform(d: int, m: int) -> None:
    counts: Counter[tuple[int, ...]] = Counter()
    total = Fraction(0)
    for probability, subset in outcomes(lambda bits: tuple(client._sample(d, m, bits)), deepest=7):
        counts[subset] += probability  # type: ignore[assignment]
        total += probability
    assert set(counts) == set(itertools.combinations(range(d), m))
    assert len(set(counts.values())) == 1  # the same for every subset, whatever is still rejected
    assert total > Fraction(99, 100)


def test_numbers_below_n_are_uniform() -> None:
    counts: Counter[int] = Counter()
    for probability, value in outcomes(lambda bits: client._below(5, bits), deepest=4):
        counts[value] += probability  # type: ignore[assignment]
    assert set(counts) == set(range(5))
    assert len(set(counts.values())) == 1


@pytest.mark.usefixtures("coarse")
def test_a_missing_label_is_any_class() -> None:
    task = small_task(num_classes=4, num_features=1, num_samples=1)
    counts: Counter[int | None] = Counter()
    for probability, report in outcomes(
        lambda bits: client.perturb(task, node=0, features=[0.0], asked=True, random_bits=bits)
    ):
        counts[report.label] += probability  # type: ignore[assignment]
    assert counts == dict.fromkeys(range(4), Fraction(1, 4))


def test_values_are_clamped_and_nan_has_a_public_place() -> None:
    ranges = [(-3, 7), (0, 1), (10, 20), (0, 1), (0, 1)]
    task = small_task(ranges=ranges, missing=0.25)
    assert task.position(0, -3) == 0
    assert task.position(0, 2) == Fraction(1, 2)
    assert task.position(0, 100) == 1
    assert task.position(2, -math.inf) == 0
    assert task.position(2, math.inf) == 1
    assert task.position(2, math.nan) == task.position(1, None) == Fraction(1, 4)


def test_whole_numbers_beyond_all_floats_are_clamped() -> None:
    task = small_task()
    assert task.position(0, 10**400) == 1
    assert task.position(0, -(10**400)) == 0


def test_absent_features_of_a_mapping_are_zeros() -> None:
    task = small_task(num_samples=5)
    by_list = client.perturb(
        task, node=0, features=[0, 0, 1, 0, 0], asked=False, random_bits=lambda k: 2 ** (k - 1)
    )
    by_mapping = client.perturb(
        task, node=0, features={2: 1.0}, asked=False, random_bits=lambda k: 2 ** (k - 1)
    )
    assert by_list == by_mapping == Report(0, (0, 1, 2, 3, 4), (-1, -1, 1, -1, -1), None)


REPORT = Report(7, (1, 4), (1, -1), 2)


def test_the_byte_layout_by_hand() -> None:
    task = small_task()
    wire = client.encode(task, REPORT)
    # 3 bits an index, a bit each, 2 bits of label: 001 100 1 0 10, and 6 zeros
    assert wire[:3] == b"LP\x01"
    assert wire[3:11] == task.hash
    assert wire[11:15] == b"\x00\x00\x00\x07"
    assert wire[15:17] == bytes([0b00110010, 0b10000000])
    assert len(wire) == task.report_bytes == 21
    assert client.decode(task, wire) == REPORT


def test_cora_sends_two_bytes() -> None:
    task = small_task(num_nodes=2708, num_features=1432, num_samples=1, num_classes=7)
    assert task.payload_bits == 15  # 11 for the index, 1 bit, 3 for seven classes or none
    assert (task.payload_bytes, task.report_bytes) == (2, 21)


@pytest.mark.parametrize("m", [1, 2, 4, 5])
@pytest.mark.parametrize("c", [2, 3, 4, 300])
def test_bytes_and_json_give_reports_back(m: int, c: int) -> None:
    task = small_task(num_samples=m, num_classes=c)
    for node in range(12):
        asked = node % 2 == 0
        report = client.perturb(task, node=node, features=[0.5] * 5, asked=asked)
        assert client.decode(task, client.encode(task, report)) == report
        assert client.from_json(task, client.to_json(task, report)) == report


def test_golden_files() -> None:
    """What was published once can be read for good: a change here is a new version."""
    task = Task.parse((GOLDEN / "task.json").read_bytes())
    assert task.hash.hex() == (GOLDEN / "task.hash").read_text().strip()
    expected = json.loads((GOLDEN / "reports.json").read_text())
    wires = (GOLDEN / "reports.bin").read_bytes()
    size = task.report_bytes
    assert len(wires) == size * len(expected)
    for i, line in enumerate(expected):
        wire = wires[i * size : (i + 1) * size]
        report = client.decode(task, wire)
        assert client.encode(task, report) == wire
        assert json.loads(client.to_json(task, report)) == line
        assert client.from_json(task, json.dumps(line)) == report


def answer(ledger: Ledger, task: Task, **given: Any) -> bytes:
    inputs: dict[str, Any] = {"node": 3, "features": [0.5] * 5, "asked": True, "label": 1}
    return ledger.report(task, **(inputs | given))


def test_a_report_is_drawn_once_and_repeated(tmp_path: Path) -> None:
    task = small_task(x_eps=0.1)
    with Ledger(tmp_path / "ledger", limit=5) as ledger:
        first = answer(ledger, task)
        again = {answer(ledger, task, features=[1.0] * 5, label=2) for _ in range(20)}
        assert again == {first}
        assert ledger.spent() == Fraction(11, 10)
    with Ledger(tmp_path / "ledger", limit=5) as ledger:  # the device was switched off
        assert answer(ledger, task) == first


def test_a_budget_is_not_spent_twice(tmp_path: Path) -> None:
    with Ledger(tmp_path / "ledger", limit=2.5) as ledger:
        answer(ledger, small_task())
        with pytest.raises(ClientError, match=r"costs 2, and 2 of 2\.5 is spent"):
            answer(ledger, small_task(salt="t"))
        assert ledger.spent() == 2
        assert answer(ledger, small_task())  # what was paid for is still sent


def test_a_ledger_counts_what_was_asked(tmp_path: Path) -> None:
    with Ledger(tmp_path / "ledger", limit=1) as ledger:
        answer(ledger, small_task(), asked=False, label=None)
        assert ledger.spent() == 1


def test_one_device_is_one_node(tmp_path: Path) -> None:
    with Ledger(tmp_path / "ledger", limit=5) as ledger:
        answer(ledger, small_task())
        with pytest.raises(ClientError, match="drawn for node 3"):
            answer(ledger, small_task(), node=4)


def test_a_failed_draw_spends_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any, **__: Any) -> Report:
        raise KeyboardInterrupt

    with Ledger(tmp_path / "ledger", limit=5) as ledger:
        with monkeypatch.context() as patch:
            patch.setattr(client, "perturb", broken)
            with pytest.raises(KeyboardInterrupt):
                answer(ledger, small_task())
        assert ledger.spent() == 0
        assert answer(ledger, small_task())


def test_a_killed_draw_spends_nothing(tmp_path: Path) -> None:
    """Killed with the report written and not yet committed, and as early as it can be sent."""
    script = (
        "import os, sys; sys.path.insert(0, sys.argv[1])\n"
        "from lpgnn import client\n"
        "ledger = client.Ledger(sys.argv[2], limit=5)\n"
        "draw = ledger._drawn\n"
        "def killed(*given, **options):\n"
        "    draw(*given, **options)\n"
        "    os.kill(os.getpid(), 9)\n"
        "ledger._drawn = killed\n"
        "task = client.Task.parse(open(sys.argv[3], 'rb').read())\n"
        "ledger.report(task, node=3, features=[0.5] * 5, asked=True, label=1)\n"
    )
    (tmp_path / "task.json").write_bytes(task_source())
    source, path = str(Path(client.__file__).parents[1]), str(tmp_path / "ledger")
    words = [sys.executable, "-c", script, source, path, str(tmp_path / "task.json")]
    assert subprocess.run(words).returncode == -9
    with Ledger(path, limit=5) as ledger:
        assert ledger.spent() == 0
        assert answer(ledger, small_task()) == answer(ledger, small_task())


def test_processes_that_ask_at_once_send_one_report(tmp_path: Path) -> None:
    (tmp_path / "task.json").write_bytes(task_source(x_eps=0.1))
    (tmp_path / "features.json").write_text("{}")
    words = [
        *(sys.executable, client.__file__, str(tmp_path / "task.json"), "--node", "3"),
        *("--features", str(tmp_path / "features.json"), "--label", "1"),
        *("--ledger", str(tmp_path / "ledger"), "--limit", "5"),
    ]
    asked = [subprocess.Popen(words, stdout=subprocess.PIPE) for _ in range(6)]
    answers = [process.communicate()[0] for process in asked]
    assert [process.returncode for process in asked] == [0] * 6
    assert len(set(answers)) == 1
    with Ledger(tmp_path / "ledger", limit=5) as ledger:
        assert ledger.spent() == Fraction(11, 10)


def test_a_limit_of_exactly_the_tasks_cost_is_enough(tmp_path: Path) -> None:
    """The sum of two budgets may have more digits than a float."""
    source = task_source().replace(b'"x_eps": 1.0', b'"x_eps": 0.12345678901234574')
    task = Task.parse(source)
    cost = task.cost(asked=True)
    assert Fraction(str(float(cost))) < cost
    with Ledger(tmp_path / "ledger", limit=cost) as ledger:
        answer(ledger, task)
        assert ledger.spent() == cost


def test_the_limit_is_the_users_and_is_kept(tmp_path: Path) -> None:
    path, cheap, dear = tmp_path / "ledger", small_task(), small_task(salt="t", x_eps=9.0)
    with pytest.raises(ClientError, match=r"ledger: has no limit yet: set what .* \(--limit\)$"):
        Ledger(path)
    with Ledger(path, limit=2.5) as ledger:
        first = answer(ledger, cheap)
    with Ledger(path) as ledger:  # a later use takes it from the file
        assert ledger.limit == Fraction(5, 2)
        with pytest.raises(ClientError, match=r"costs 10, and 2 of 2\.5 is spent"):
            answer(ledger, dear)
    with pytest.raises(ClientError, match=r"limit=12\.0: the limit of ledger .* is 2\.5; --"):
        Ledger(path, limit=12)
    with Ledger(path, limit=2.5) as ledger:
        ledger.change_limit(12)
        assert answer(ledger, dear) != first
    with Ledger(path, limit=12) as ledger:
        ledger.change_limit(math.inf)
        assert ledger.limit is None
    with pytest.raises(ClientError, match=r"limit=3\.0: the limit of ledger .* is inf"):
        Ledger(path, limit=3)


@pytest.mark.parametrize("limit", [0, -1, math.nan, True, "5", [5]])
def test_a_limit_is_a_number_above_0(limit: Any, tmp_path: Path) -> None:
    with pytest.raises(ClientError, match=r"limit=.*: must be a number above 0"):
        Ledger(tmp_path / "ledger", limit=limit)
    with Ledger(tmp_path / "ledger", limit=5) as ledger:
        with pytest.raises(ClientError, match=r"limit=.*: must be a number above 0"):
            ledger.change_limit(limit)
        assert ledger.limit == 5


def test_no_task_sets_the_limit_of_the_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A server that publishes one task after another spends no more than the user allows."""
    (tmp_path / "features.json").write_text("{}")

    def sent(x_eps: float, *words: str) -> str:
        (tmp_path / "task.json").write_bytes(task_source(x_eps=x_eps))
        places = ["--features", str(tmp_path / "features.json"), "--out", str(tmp_path / "out")]
        places += [str(tmp_path / "task.json"), "--ledger", str(tmp_path / "ledger")]
        code = client.main([*places, "--node", "3", *words])
        error = capsys.readouterr().err
        assert (code, error.count("\n")) in ((0, 0), (2, 1))
        return error

    assert "has no limit yet" in sent(1.0)
    assert not sent(1.0, "--limit", "3")
    assert not sent(1.0)  # remembered
    assert "costs 40, and 1 of 3 is spent" in sent(40.0)
    assert "limit=50.0: the limit of" in sent(40.0, "--limit", "50")
    assert not sent(2.0)
    assert "costs 0.1, and 3 of 3 is spent" in sent(0.1)
    assert not sent(40.0, "--change-limit", "50")
    with Ledger(tmp_path / "ledger") as ledger:
        assert ledger.limit == 50
        assert ledger.spent() == 43


def test_a_report_that_cannot_be_written_names_the_place(tmp_path: Path) -> None:
    (tmp_path / "task.json").write_bytes(task_source())
    (tmp_path / "features.json").write_text("{}")
    words = [
        *(sys.executable, client.__file__, str(tmp_path / "task.json"), "--node", "3"),
        *("--features", str(tmp_path / "features.json")),
        *("--ledger", str(tmp_path / "ledger"), "--limit", "5"),
    ]
    with open("/dev/full", "wb") as full:
        done = subprocess.run(words, stdout=full, stderr=subprocess.PIPE)
    assert done.returncode == 2
    assert done.stderr == b"error: standard output: No space left on device\n"
    done = subprocess.run([*words, "--out", str(tmp_path)], stderr=subprocess.PIPE)
    assert done.returncode == 2
    assert done.stderr == f"error: {tmp_path}: Is a directory\n".encode()


DAMAGED = r"^damaged ledger .*; nothing is drawn from it$"


@pytest.fixture(scope="module")
def spent_ledger(tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, bytes]:
    """A ledger whose limit of 2 is spent, and the report in it."""
    path = tmp_path_factory.mktemp("spent") / "ledger"
    with Ledger(path, limit=2) as ledger:
        wire = answer(ledger, small_task())
    return path.read_bytes(), wire


@pytest.mark.parametrize(
    "content", [b"", b"SQLite format 3\0", b"this is no database, but long enough" * 40]
)
def test_a_file_that_is_no_ledger_is_refused_and_left_alone(content: bytes, tmp_path: Path) -> None:
    """An empty file among them: it may have been a ledger in which all is spent."""
    path = tmp_path / "ledger"
    path.write_bytes(content)
    with pytest.raises(ClientError, match=DAMAGED):
        Ledger(path, limit=5)
    assert path.read_bytes() == content


def test_no_flipped_bit_of_a_ledger_leads_to_a_draw(
    spent_ledger: tuple[bytes, bytes], tmp_path: Path
) -> None:
    """A bit of every byte that is not 0, and all bits of the costs: a refusal or what is kept."""
    content, wire = spent_ledger
    path, other = tmp_path / "ledger", small_task(salt="t")
    flips = [(i, 1 << i % 8) for i, byte in enumerate(content) if byte]
    cost = content.index(small_task().hash.hex().encode()) + 16
    flips += [(i, 1 << bit) for i in (cost, cost + 1, cost + 2) for bit in range(8)]
    refusals = []
    for i, bit in flips:
        flipped = bytearray(content)
        flipped[i] ^= bit
        path.write_bytes(flipped)
        try:
            with Ledger(path) as ledger:
                assert answer(ledger, small_task()) == wire
                with pytest.raises(ClientError, match="and 2 of 2 is spent"):
                    answer(ledger, other)
        except ClientError as error:
            refusals.append(str(error))
    assert not any("\n" in line for line in refusals)
    damaged = [line for line in refusals if re.match(DAMAGED, line)]
    assert len(damaged) > len(flips) / 2


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE account SET total = '9'",
        "UPDATE account SET total = x'32'",
        "UPDATE account SET total = NULL",
        "UPDATE reports SET spent = '0'",
        "UPDATE reports SET spent = x'32'",
        "UPDATE reports SET node = 4",
        "UPDATE reports SET task = 'another'",
        "UPDATE reports SET wire = zeroblob(21)",
        "DELETE FROM reports",
        "DELETE FROM account",
        "INSERT INTO account SELECT * FROM account",
        "INSERT INTO reports SELECT * FROM reports",
        "DROP TABLE reports",
        "ALTER TABLE reports RENAME COLUMN spent TO spend",
    ],
)
def test_a_ledger_that_does_not_match_its_seal_draws_nothing(
    change: str,
    spent_ledger: tuple[bytes, bytes],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = tmp_path / "ledger"
    path.write_bytes(spent_ledger[0])
    database = sqlite3.connect(path)
    database.execute(change)
    database.commit()
    database.close()
    (tmp_path / "task.json").write_bytes(task_source(salt="t"))
    (tmp_path / "features.json").write_text("{}")
    words = [str(tmp_path / "task.json"), "--node", "3", "--out", str(tmp_path / "out")]
    words += ["--ledger", str(path), "--features", str(tmp_path / "features.json")]
    for limit in ([], ["--limit", "2"], ["--change-limit", "9"]):
        assert client.main([*words, *limit]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert line.startswith(f"error: damaged ledger {path}: ")
    assert not (tmp_path / "out").exists()


def test_damage_behind_the_back_of_an_open_ledger_is_seen(tmp_path: Path) -> None:
    with Ledger(tmp_path / "ledger", limit=5) as ledger:
        answer(ledger, small_task())
        other = sqlite3.connect(tmp_path / "ledger")
        other.execute("UPDATE reports SET spent = 'x'")
        other.commit()
        other.close()
        for look in (ledger.spent, lambda: ledger.limit, lambda: ledger.change_limit(9)):
            with pytest.raises(ClientError, match=DAMAGED):
                look()


def test_a_ledger_that_does_not_keep_a_report_sends_none(tmp_path: Path) -> None:
    with Ledger(tmp_path / "ledger", limit=5) as ledger:
        ledger._database.execute(
            "CREATE TRIGGER losing AFTER INSERT ON reports BEGIN DELETE FROM reports; END"
        )
        with pytest.raises(ClientError, match=DAMAGED):
            answer(ledger, small_task())
        assert ledger.spent() == 0


def test_whoever_is_killed_while_making_a_ledger_leaves_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*_: Any) -> None:
        raise KeyboardInterrupt

    path = tmp_path / "ledger"
    with monkeypatch.context() as patch:
        patch.setattr("os.link", killed)
        with pytest.raises(KeyboardInterrupt):
            Ledger(path, limit=5)
    assert not path.exists()
    with Ledger(path, limit=5) as ledger:
        assert answer(ledger, small_task())
    assert [entry.name for entry in tmp_path.iterdir()] == ["ledger"]


def test_of_two_that_make_a_ledger_the_first_ones_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "ledger"
    with Ledger(path, limit=2) as ledger:
        answer(ledger, small_task())
    with monkeypatch.context() as patch:
        patch.setattr("os.path.lexists", lambda path: False)  # it was not there yet
        with pytest.raises(ClientError, match=r"limit=9\.0: the limit of ledger .* is 2"):
            Ledger(path, limit=9)
        with Ledger(path, limit=2) as ledger:
            assert ledger.spent() == 2
    assert [entry.name for entry in tmp_path.iterdir()] == ["ledger"]


def test_a_ledger_in_no_folder_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(ClientError, match=r"^ledger .*: cannot be used \(unable to open"):
        Ledger(tmp_path / "none" / "ledger", limit=5)


def test_a_ledger_waits_for_the_disk_and_keeps_others_out(tmp_path: Path) -> None:
    with Ledger(tmp_path / "ledger", limit=5) as ledger:
        assert ledger._database.execute("PRAGMA synchronous").fetchone() == (2,)  # FULL
        other = sqlite3.connect(tmp_path / "ledger", timeout=0, isolation_level=None)
        with ledger._alone(), pytest.raises(sqlite3.OperationalError, match="locked"):
            other.execute("BEGIN IMMEDIATE")  # before anything was read, not only once it is
        other.execute("BEGIN IMMEDIATE")
        other.close()


def test_a_report_is_on_disk_before_it_is_sent(tmp_path: Path) -> None:
    with Ledger(tmp_path / "ledger", limit=5) as ledger:
        wire = answer(ledger, small_task())
        other = sqlite3.connect(tmp_path / "ledger")
        assert other.execute("SELECT wire FROM reports").fetchall() == [(wire,)]
        other.close()


def test_bad_inputs_are_named() -> None:
    task = small_task()
    for given, message in (
        ({"node": 12}, r"node=12: must be a whole number in 0\.\.11"),
        ({"features": [0.0] * 4}, "features: 4 of them: must be 5"),
        ({"features": [0.0, "x", 0, 0, 0]}, "features: 'x': must be numbers"),
        ({"features": 5}, "features: 5: must be 5 numbers"),
        ({"features": None}, "features: None: must be 5 numbers"),
        ({"features": b"abcde"}, "features: b'abcde': must be 5 numbers"),
        ({"node": 10**5000}, "node=a huge number: must be a whole number"),
        ({"features": {5: 1.0}}, r"features: 5: must be a number in 0\.\.4"),
        ({"label": 3}, r"label=3: must be a whole number in 0\.\.2"),
        ({"asked": False}, "label=1: this node is not asked"),
    ):
        inputs: dict[str, Any] = {"node": 3, "features": [0.5] * 5, "asked": True, "label": 1}
        with pytest.raises(ClientError, match=message):
            client.perturb(task, **(inputs | given))


def changed(**changes: Any) -> bytes:
    members = json.loads(task_source())
    for name, value in changes.items():
        members[name] = value
    return json.dumps(members).encode()


def without(name: str) -> bytes:
    members = json.loads(task_source())
    del members[name]
    return json.dumps(members).encode()


BAD_TASKS = {
    "not JSON": (b"{", "task: not JSON"),
    "not text": (b"\xff\xfe\x00", "task: not JSON"),
    "no object": (b"[1]", "task: must be a JSON object"),
    "a member twice": (task_source()[:-2] + b', "x_eps": 9}', "a member is there twice"),
    "deep": (b"[" * 100_000, "task: not JSON"),
    "version": (changed(lpgnn_task=2), "lpgnn_task=2: must be 1"),
    "true for a version": (changed(lpgnn_task=True), "lpgnn_task=True: must be 1"),
    "1.0 for a version": (changed(lpgnn_task=1.0), r"lpgnn_task=1\.0: must be 1"),
    "missing member": (without("y_eps"), "y_eps is missing"),
    "unknown member": (changed(noise=1), "'noise' is unknown"),
    "Laplace": (changed(mechanism="lp"), "mechanism=lp: is for simulation only"),
    "Gaussian": (changed(mechanism="ag"), "mechanism=ag: is for simulation only"),
    "mechanism": (changed(mechanism="none"), "mechanism='none': must be mb or questions"),
    "label mechanism": (changed(label_mechanism="exact"), "must be rr"),
    "NaN": (task_source().replace(b'"x_eps": 1.0', b'"x_eps": NaN'), "NaN is no JSON number"),
    "infinite budget": (task_source().replace(b'"x_eps": 1.0', b'"x_eps": 1e999'), "1e999"),
    "budget 0": (changed(x_eps=0), "x_eps=0: must be a number above 0"),
    "huge exponent": (
        task_source().replace(b'"x_eps": 1.0', b'"x_eps": 1e-999999999'),
        r"x_eps=0\.0: must be a number above 0",
    ),
    "budget too small": (changed(x_eps=1e-25), "x_eps=1e-25: is too small"),
    "negative budget": (changed(y_eps=-1), "y_eps=-1"),
    "text for a budget": (changed(y_eps="1"), "y_eps='1'"),
    "true for a number": (changed(num_samples=True), "num_samples=True"),
    "m above d": (changed(num_samples=6), r"num_samples=6: must be a whole number in 1\.\.5"),
    "one class": (changed(num_classes=1), "num_classes=1"),
    "no nodes": (changed(num_nodes=0), "num_nodes=0"),
    "empty range": (changed(ranges=[[1, 1]]), "must be \\[low, high\\] with low < high"),
    "two ranges": (changed(ranges=[[0, 1], [0, 1]]), "must be one pair"),
    "missing": (changed(missing=2), "missing=2: must be a number in \\[0, 1\\]"),
    "salt": (changed(salt=5), "salt=5: must be text"),
}


@pytest.mark.parametrize("name", BAD_TASKS)
def test_bad_tasks_are_refused_in_one_line(name: str) -> None:
    source, message = BAD_TASKS[name]
    with pytest.raises(ClientError, match=message) as caught:
        Task.parse(source)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 400


def test_the_client_needs_the_standard_library_only(tmp_path: Path) -> None:
    """In a fresh process without site-packages, and as a file on its own."""
    script = (
        "import sys, lpgnn.client\n"
        "outside = {name.split('.')[0] for name in sys.modules} - sys.stdlib_module_names\n"
        "print(sorted(outside - {'lpgnn', '__main__', '__mp_main__', 'sitecustomize'}))"
    )
    source = Path(client.__file__).parents[1]
    done = subprocess.run(
        [sys.executable, "-S", "-c", f"import sys; sys.path.insert(0, {str(source)!r})\n{script}"],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"5", "features: 5: must be 5 numbers"),
        (b"", "not understood"),
        (b"[" * 100_000, "not understood"),
        (b"[" + b"1" * 5000 + b", 0, 0, 0, 0]", "not understood"),
        (b"\xff", "not understood"),
        (b'{"1": 2, "01": 3}', "numbers of features, none twice"),
        (b'{"1": 2, "1": 3}', "numbers of features, none twice"),
        (b'{"a": 1}', "not understood"),
        (b'{"9": 1}', r"features: 9: must be a number in 0\.\.4"),
    ],
)
def test_bad_files_of_features_cost_one_line_and_no_budget(
    content: bytes, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "task.json").write_bytes(task_source())
    (tmp_path / "features.json").write_bytes(content)
    words = [str(tmp_path / "task.json"), "--node", "3", "--ledger", str(tmp_path / "ledger")]
    words += ["--limit", "5"]
    assert client.main([*words, "--features", str(tmp_path / "features.json")]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert re.search(message, line)
    with Ledger(tmp_path / "ledger", limit=5) as ledger:
        assert ledger.spent() == 0


def test_features_on_the_command_line_itself_are_told_to_be_a_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "task.json").write_bytes(task_source())
    words = [str(tmp_path / "task.json"), "--node", "3", "--ledger", str(tmp_path / "ledger")]
    assert client.main([*words, "--limit", "5", "--features", "[1, 1]"]) == 2
    assert capsys.readouterr().err == "error: features [1, 1]: no such file; must be a JSON file\n"


def test_a_wrong_command_line_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        client.main(["task.json", "--node", "x", "--features", "f", "--ledger", "l"])
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: argument --node: invalid int value")


def test_the_command(tmp_path: Path) -> None:
    (tmp_path / "task.json").write_bytes(task_source())
    (tmp_path / "features.json").write_text("[0, 1, null, 0.5, 0]")
    words = [
        *(sys.executable, client.__file__, str(tmp_path / "task.json"), "--node", "3"),
        *("--features", str(tmp_path / "features.json"), "--label", "1"),
        *("--ledger", str(tmp_path / "ledger"), "--limit", "2"),
    ]
    done = subprocess.run(words, capture_output=True)
    assert done.returncode == 0, done.stderr
    report = client.decode(small_task(), done.stdout)
    assert report.node == 3
    as_json = subprocess.run([*words, "--json"], capture_output=True)
    assert client.from_json(small_task(), as_json.stdout) == report  # remembered
    (tmp_path / "task.json").write_bytes(task_source(salt="another"))
    refused = subprocess.run(words, capture_output=True, text=True)
    assert refused.returncode == 2
    assert refused.stderr == "error: budget: this task costs 2, and 2 of 2 is spent\n"
