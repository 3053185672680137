import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import lpgnn

PACKAGE = Path(lpgnn.__file__).parent

# The line of stations; a module imports only from stations before its own.
FOUNDATIONS = ("errors", "randomness", "kernels")
STATIONS = (
    *("hyperparameters", "config", "data", "privacy", "propagation"),
    *("models", "training", "results", "report"),
)
# These wire stations together, and no station knows them.
WIRES = ("experiment", "sweep", "plan")
ENTRY_POINTS = ("run", "tune", "bench", "report.__main__")

HEAVY = {"torch_geometric", "scipy", "pandas", "matplotlib", "sklearn", "pooch"}
HYDRA = {"hydra", "omegaconf"}


def module_name(path: Path) -> str:
    """The name below lpgnn: ``data.graph`` for lpgnn/data/graph.py, ``data`` for its __init__."""
    return (
        ".".join(path.relative_to(PACKAGE).with_suffix("").parts)
        .removesuffix("__init__")
        .rstrip(".")
    )


MODULES = {module_name(path): path for path in sorted(PACKAGE.rglob("*.py"))}


def imported(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        assert node.level == 0, "imports are absolute"
        # What is imported from a package may be a module of it.
        return [node.module or "", *(f"{node.module}.{alias.name}" for alias in node.names)]
    return []


def top_level(node: ast.AST) -> Iterator[ast.AST]:
    """The statements that run at import: none in functions, none for type checkers only."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.dump(child.test):
            continue
        yield child
        yield from top_level(child)


def imports_of(name: str, *, at_top: bool = False) -> set[str]:
    tree = ast.parse(MODULES[name].read_text())
    nodes = top_level(tree) if at_top else ast.walk(tree)
    return {target for node in nodes for target in imported(node)}


def own_imports(name: str, *, at_top: bool = False) -> set[str]:
    """The modules of lpgnn that a module imports, by their name below lpgnn."""
    targets = {t.removeprefix("lpgnn.") for t in imports_of(name, at_top=at_top) if t != "lpgnn"}
    return {target for target in targets if target in MODULES}


def station_of(name: str) -> str:
    return name.split(".")[0]


def misplaced(name: str, imports: set[str]) -> set[str]:
    """The imports of a station's module that do not come from before it."""
    allowed = {*FOUNDATIONS, *STATIONS[: STATIONS.index(station_of(name)) + 1]}
    return {target for target in imports if station_of(target) not in allowed}


def test_every_module_has_a_place() -> None:
    known = {*FOUNDATIONS, *STATIONS, *WIRES, *(name.split(".")[0] for name in ENTRY_POINTS), ""}
    assert {station_of(name) for name in MODULES} <= known
    assert {*FOUNDATIONS, *STATIONS, *WIRES} <= {station_of(name) for name in MODULES}
    assert set(ENTRY_POINTS) <= set(MODULES)


IN_STATIONS = [name for name in MODULES if station_of(name) in STATIONS]


@pytest.mark.parametrize("name", IN_STATIONS)
def test_a_module_imports_only_from_stations_before_its_own(name: str) -> None:
    if name not in ENTRY_POINTS:
        assert misplaced(name, own_imports(name)) == set()


@pytest.mark.parametrize("name", FOUNDATIONS)
def test_foundations_import_nothing_of_the_package(name: str) -> None:
    assert own_imports(name) - set(FOUNDATIONS) == set()


def test_a_wrong_import_would_be_found() -> None:
    assert misplaced("data.graph", {"errors", "data.sparse"}) == set()
    assert misplaced("data.graph", {"privacy.reports"}) == {"privacy.reports"}
    assert misplaced("models.backbones", {"training.train", "propagation"}) == {"training.train"}
    assert misplaced("training.train", {"results"}) == {"results"}
    assert misplaced("report.cells", {"experiment"}) == {"experiment"}


def test_stations_before_results_take_plain_values_not_settings() -> None:
    """Behind config everything takes dataclasses and tensors of its own stations."""
    behind = ("data", "privacy", "propagation", "models", "training", "results")
    for name in IN_STATIONS:
        if station_of(name) in behind:
            assert not own_imports(name) & {"config", "hyperparameters"}, name


def test_only_config_and_entry_points_know_hydra() -> None:
    knowing = {n for n in MODULES if {t.split(".")[0] for t in imports_of(n)} & HYDRA}
    assert knowing <= {"config", *ENTRY_POINTS}
    assert "config" in knowing


def with_packages(name: str) -> set[str]:
    """A module and the packages that importing it runs first."""
    parts = name.split(".")
    return {"", *(".".join(parts[: i + 1]) for i in range(len(parts)))}


def needed_by_a_run() -> set[str]:
    """The modules that a training run imports."""
    waiting, found = {"run", *WIRES}, set[str]()
    while waiting:
        name = waiting.pop()
        for one in with_packages(name) - found:
            found.add(one)
            waiting |= own_imports(one, at_top=True) - found
    return found


def test_a_training_run_imports_nothing_heavy_at_the_top() -> None:
    needed = needed_by_a_run()
    assert {"config", "training.train", "results.store", "data.registry"} <= needed
    for name in needed:
        found = {target.split(".")[0] for target in imports_of(name, at_top=True)}
        assert not found & (HEAVY | HYDRA), name


def test_a_training_run_starts_without_heavy_packages_and_needs_no_hydra() -> None:
    """The same for what other packages import, as it is, in a fresh process."""
    script = (
        "import sys, lpgnn.run, lpgnn.experiment, lpgnn.plan, lpgnn.sweep\n"
        "from lpgnn.config import Settings\n"
        "Settings(dataset='cora').resolve()\n"
        "print(*sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    modules = set(done.stdout.split())
    loaded = {name.split(".")[0] for name in modules}
    assert "torch" in loaded
    # numba asks scipy for its version; what takes time are its parts.
    assert not {f"scipy.{part}" for part in ("sparse", "linalg", "special", "optimize")} & modules
    assert not loaded & (HEAVY - {"scipy"} | HYDRA)


def test_the_privacy_boundary_is_kept_by_imports() -> None:
    """Model, propagation and training never see a clean graph: only its topology's type."""
    for name in IN_STATIONS:
        if station_of(name) in ("propagation", "models", "training"):
            assert not {t for t in imports_of(name) if t.endswith((".Graph", ".load_graph"))}, name
