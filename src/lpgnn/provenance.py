"""Where a row comes from: the revision of the source, and the engine that rounded its numbers."""

import hashlib
import subprocess
from functools import lru_cache
from pathlib import Path

import torch

from lpgnn.kernels import Backend

_PACKAGE = Path(__file__).parent

# The sources that all arithmetic of a run passes through.
NUMERICS: dict[str, tuple[str, ...]] = {
    "kernels": (
        *("attention", "backend", "dropout", "panels", "products", "registers", "selu", "signs"),
    ),
    "propagation": (
        *("attention_pattern", "compiled", "conditioning", "features", "filters", "matrices"),
        *("operators", "prepared", "reorder"),
    ),
    "models": ("activation", "attention", "compiled", "dropout", "gat", "gcn", "linear", "sage"),
    "learners": (
        *("adam", "batch", "cross_entropy", "drop", "forward_correction", "label_propagation"),
        *("network", "residual", "selection"),
    ),
}


def engine_name(backend: Backend) -> str:
    """A hash of everything that decides how a run's sums are rounded.

    Unconditioned training at small budgets amplifies a last bit to several points of accuracy, so
    that only rows of one engine can be compared repeat by repeat.
    """
    device = backend.device
    if device.type == "cuda":
        hardware = torch.cuda.get_device_name(device)
    else:
        hardware = str(torch.backends.cpu.get_cpu_capability())
    loops = f"numba {_numba_version()}" if backend.compiled else "torch"
    text = "\n".join((_sources(), str(torch.__version__), loops, device.type, hardware))
    return hashlib.sha256(text.encode()).hexdigest()[:10]


@lru_cache(maxsize=1)
def _sources() -> str:
    digest = hashlib.sha256()
    for station, modules in NUMERICS.items():
        for module in modules:
            digest.update((_PACKAGE / station / f"{module}.py").read_bytes())
    return digest.hexdigest()


def _numba_version() -> str:
    import numba

    return str(numba.__version__)


@lru_cache(maxsize=1)
def git_revision() -> tuple[str, bool]:
    """The revision of the running source and whether it was changed since; empty outside git."""

    def git(*words: str) -> str | None:
        try:
            done = subprocess.run(["git", *words], cwd=_PACKAGE, capture_output=True, text=True)
        except OSError:
            return None
        return done.stdout.strip() if done.returncode == 0 else None

    top = git("rev-parse", "--show-toplevel")
    if top is None or not (Path(top) / "src" / "lpgnn").is_dir():
        return "", False  # installed, perhaps inside somebody else's repository
    changed = git("status", "--porcelain", "--", str(_PACKAGE), str(Path(top) / "conf"))
    return git("rev-parse", "--short=10", "HEAD") or "", bool(changed)
