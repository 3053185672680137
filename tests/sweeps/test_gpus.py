"""One worker per GPU, as far as that can be tested without one."""

import os
from pathlib import Path

import pytest
import torch

from lpgnn.sweeps import Execution
from lpgnn.sweeps.gpus import gpus_for, least_used, see_only, visible_names


@pytest.fixture
def four_gpus(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return monkeypatch


@pytest.mark.parametrize(
    ("listed", "count", "names"),
    [
        (None, 3, ("0", "1", "2")),
        ("", 0, ()),
        ("4,7", 2, ("4", "7")),
        ("GPU-5f, MIG-9", 2, ("GPU-5f", "MIG-9")),
        ("0,1,99,2", 2, ("0", "1")),  # CUDA stops at the first that is not there
    ],
)
def test_names_are_those_that_a_scheduler_lists(
    listed: str | None, count: int, names: tuple[str, ...]
) -> None:
    assert visible_names(listed, count) == names


@pytest.mark.parametrize(
    ("device", "kernels", "expected"),
    [
        ("cuda", "auto", ("0", "1", "2", "3")),
        ("auto", "auto", ("0", "1", "2", "3")),
        ("auto", "numba", ()),
        ("cpu", "auto", ()),
        ("cuda:2", "auto", ("2",)),
        ("cuda:9", "auto", ()),
    ],
)
def test_what_workers_share_out(
    four_gpus: pytest.MonkeyPatch, device: str, kernels: str, expected: tuple[str, ...]
) -> None:
    assert gpus_for(device, kernels) == expected


def test_a_number_counts_among_the_listed(four_gpus: pytest.MonkeyPatch) -> None:
    four_gpus.setenv("CUDA_VISIBLE_DEVICES", "6,4,5,7")
    assert gpus_for("cuda:1", "auto") == ("4",)


def test_without_a_gpu_there_is_none() -> None:
    if not torch.cuda.is_available():
        assert gpus_for("cuda", "auto") == ()


def test_one_worker_per_gpu_is_the_default(four_gpus: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert Execution(tmp_path, tmp_path, "cuda").worker_count() == 4
    assert Execution(tmp_path, tmp_path, "cuda:3").worker_count() == 1
    assert Execution(tmp_path, tmp_path, "cuda", workers=6).worker_count() == 6


def test_the_least_used_gpu_comes_next() -> None:
    assert least_used((), ()) is None
    assert least_used(("a", "b"), ()) == "a"
    assert least_used(("a", "b"), ("a",)) == "b"
    assert least_used(("a", "b"), ("a", "b", "b", None)) == "a"


def test_a_worker_sees_its_own_gpu_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    see_only("GPU-5f")
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "GPU-5f"
