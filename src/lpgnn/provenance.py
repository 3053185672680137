"""Where a row comes from: the revision of the source, and the engine that rounded its numbers."""

import hashlib
import subprocess
from functools import lru_cache
from pathlib import Path

import torch

from lpgnn.kernels import Backend

_PACKAGE = Path(__file__).parent

# The stations that all arithmetic of a run passes through, on the server's side.
STATIONS = ("kernels", "propagation", "models", "learners")
# Users draw their noise in integers, and where machine code is kept rounds nothing.
NOT_NUMERICS = ("geometric", "plain_geometric", "machine_code")


def engine_name(backend: Backend) -> str:
    """A hash of everything that decides how a run's sums are rounded.

    Unconditioned training at small budgets amplifies a last bit to several points of accuracy, so
    that only networks of one engine can be compared repeat by repeat.  Libraries choose their loops
    by the model of the CPU: two models with the same vector instructions may round differently.
    """
    device = backend.device
    hardware = torch.cuda.get_device_name(device) if device.type == "cuda" else _cpu()
    loops = f"numba {_numba_version()}" if backend.compiled else "torch"
    text = "\n".join((_sources(), str(torch.__version__), loops, device.type, hardware))
    return hashlib.sha256(text.encode()).hexdigest()[:10]


def numeric_sources() -> list[Path]:
    """The files whose content decides how sums are rounded."""
    paths = (path for name in STATIONS for path in sorted((_PACKAGE / name).glob("*.py")))
    return [path for path in paths if path.stem not in NOT_NUMERICS]


@lru_cache(maxsize=1)
def _sources() -> str:
    digest = hashlib.sha256()
    for path in numeric_sources():
        digest.update(path.relative_to(_PACKAGE).as_posix().encode() + path.read_bytes())
    return digest.hexdigest()


@lru_cache(maxsize=1)
def _cpu() -> str:
    from llvmlite import binding

    features = binding.get_host_cpu_features().flatten()
    return f"{torch.backends.cpu.get_cpu_capability()} {binding.get_host_cpu_name()} {features}"


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
