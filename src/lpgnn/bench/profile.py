"""Where an epoch's time goes: what stands between it and its own sparse products."""

import dataclasses
import time
from collections.abc import Mapping
from pathlib import Path

import torch
from torch.profiler import ProfilerActivity, profile

from lpgnn.bench.speed import CASES, Case
from lpgnn.engine import run_repeats
from lpgnn.rows import write_atomically

# Operations by what they are for; names as torch's profiler has them, without "aten::".
_KINDS = {
    "sparse products": ("_Power", "_ClassPower", "_ProjectAndPropagate"),
    "attention: scores, weights and sums over edges": ("_CompiledAttend", "exp_"),
    "dense reports": ("_PanelProduct",),
    "dense products of the second layer and of scores": ("bmm", "_Project"),
    "dropout": ("_Drop", "random_"),
    "SELU and bias": ("_Selu",),
    "softmax and logarithms": (
        *("_softmax", "_log_softmax", "log", "_softmax_backward_data"),
        "_log_softmax_backward_data",
    ),
}
_OTHER, _PYTHON = "other operations of torch (losses, metrics, Adam, copies)", "Python between them"


class EpochProfiler:
    """An ``on_epoch`` of ``run_repeats`` that profiles some epochs after the first two."""

    def __init__(self, epochs: int) -> None:
        self.epochs, self.runs = epochs, 0
        self.milliseconds: dict[str, float] = {}  # of one epoch of all runs
        self.calls = 0.0
        self._seen, self._started = 0, 0.0
        self._profile = profile(activities=[ProfilerActivity.CPU])

    def __call__(self, runs: int) -> None:
        self._seen += 1
        if self._seen == 2:
            self.runs = runs
            self._profile.__enter__()
            self._started = time.perf_counter()
        elif self._seen == 2 + self.epochs:
            total = 1e3 * (time.perf_counter() - self._started) / self.epochs
            self._profile.__exit__(None, None, None)
            self._account(total)

    def _account(self, total: float) -> None:
        found = dict.fromkeys((*_KINDS, _OTHER), 0.0)
        for event in self._profile.key_averages():
            found[kind_of(event.key)] += event.self_cpu_time_total / 1e3 / self.epochs
            self.calls += event.count / self.epochs
        found[_PYTHON] = max(0.0, total - sum(found.values()))
        self.milliseconds = found


def kind_of(operation: str) -> str:
    """What an operation is for, forward and backward alike."""
    name = operation.removeprefix("aten::").removesuffix("Backward")
    return next((kind for kind, names in _KINDS.items() if name in names), _OTHER)


def measure_profile(options: Mapping[str, str]) -> None:
    """Print shares of an epoch for the sparse cases and write results/bench/profile.md."""
    data_dir = Path(options.get("data_dir", "data"))
    runs, epochs = int(options.get("runs", 10)), int(options.get("epochs", 20))
    torch.set_num_threads(1)
    lines = [
        "# Where an epoch's time goes",
        "",
        f"Shares of the time of an epoch of {runs} runs, on one thread, by torch's profiler, which"
        " itself makes many small operations look slower than they are.",
        "",
    ]
    profiles = {name: _profiled(case, data_dir, runs, epochs) for name, case in CASES.items()}
    lines += ["| | " + " | ".join(profiles) + " |", "|---|" + "---:|" * len(profiles)]
    for kind in (*_KINDS, _OTHER, _PYTHON):
        shares = [p.milliseconds[kind] / sum(p.milliseconds.values()) for p in profiles.values()]
        cells = [f"{100 * share:.0f} %" if share >= 0.005 else "-" for share in shares]
        lines.append(f"| {kind} | " + " | ".join(cells) + " |")
    calls = [f"{p.calls:.0f}" for p in profiles.values()]
    lines.append("| operations of torch in an epoch | " + " | ".join(calls) + " |")
    lines.append("| runs in it | " + " | ".join(str(p.runs) for p in profiles.values()) + " |")
    text = "\n".join(lines) + "\n"
    print(text, end="")
    write_atomically(Path(options.get("results_dir", "results")) / "bench" / "profile.md", text)


def _profiled(case: Case, data_dir: Path, runs: int, epochs: int) -> EpochProfiler:
    configuration = case.configuration()
    profiler = EpochProfiler(epochs)
    longer = dataclasses.replace(configuration, max_epochs=epochs + 2)
    graph = configuration.dataset.load(data_dir)
    # A profile of the first batch is enough.
    run_repeats(longer, graph, range(runs), device="cpu", on_epoch=profiler)
    return profiler
