import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import lpgnn

PACKAGE = Path(lpgnn.__file__).parent

# The line of stations; a module imports only from stations before its own.
FOUNDATIONS = (
    *(
        "errors",
        "counting",
        "files",
        "unique_keys",
        "processes",
        "children",
        "archive",
        "components",
    ),
    *("randomness", "kernels", "client"),
)
STATIONS = (
    *("data", "privacy", "propagation", "models", "learners", "ablations", "rows", "loggers"),
    *("hyperparameters", "config", "shown", "composition", "finished", "provenance", "engine"),
    *("describe", "sweeps", "report", "paper"),
)
# These wire stations together, and no station knows them.
ENTRY_POINTS = (
    *("__main__", "application", "commands", "run", "predict", "status", "tune", "bench"),
    *("benchmark", "compact", "information", "simulate", "collect", "question", "audit"),
    "report.__main__",
)

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


def packages_of(name: str, *, at_top: bool = False) -> set[str]:
    """The top-level packages that a module imports."""
    return {target.split(".")[0] for target in imports_of(name, at_top=at_top)}


def own_imports(name: str, *, at_top: bool = False) -> set[str]:
    """The modules of lpgnn that a module imports, by their name below lpgnn."""
    targets = {t.removeprefix("lpgnn.") for t in imports_of(name, at_top=at_top) if t != "lpgnn"}
    return {target for target in targets if target in MODULES}


def station_of(name: str) -> str:
    return name.split(".")[0]


def is_entry_point(name: str) -> bool:
    return name in ENTRY_POINTS or station_of(name) in ENTRY_POINTS


def misplaced(name: str, imports: set[str]) -> set[str]:
    """The imports of a station's module that do not come from before it."""
    allowed = {*FOUNDATIONS, *STATIONS[: STATIONS.index(station_of(name)) + 1]}
    return {t for t in imports if station_of(t) not in allowed or is_entry_point(t)}


def test_every_module_has_a_place() -> None:
    known = {*FOUNDATIONS, *STATIONS, *(name.split(".")[0] for name in ENTRY_POINTS), ""}
    assert {station_of(name) for name in MODULES} <= known
    assert {*FOUNDATIONS, *STATIONS} <= {station_of(name) for name in MODULES}
    assert set(ENTRY_POINTS) <= set(MODULES)


IN_STATIONS = [n for n in MODULES if station_of(n) in STATIONS and not is_entry_point(n)]


@pytest.mark.parametrize("name", IN_STATIONS)
def test_a_module_imports_only_from_stations_before_its_own(name: str) -> None:
    assert misplaced(name, own_imports(name)) == set()


@pytest.mark.parametrize("name", [n for n in MODULES if station_of(n) in FOUNDATIONS])
def test_foundations_import_nothing_of_the_package(name: str) -> None:
    assert {station_of(target) for target in own_imports(name)} <= set(FOUNDATIONS)


def test_a_wrong_import_would_be_found() -> None:
    assert misplaced("data.graph", {"errors", "data.sparse", "components"}) == set()
    assert misplaced("data.graph", {"privacy.reports"}) == {"privacy.reports"}
    assert misplaced("models.gcn", {"learners.drop", "propagation"}) == {"learners.drop"}
    assert misplaced("learners.drop", {"rows"}) == {"rows"}
    assert misplaced("rows.store", {"config", "components"}) == {"config"}
    assert misplaced("report.tables", {"run", "composition"}) == {"run"}
    assert misplaced("paper.page", {"report.__main__", "report.page"}) == {"report.__main__"}


def test_only_composition_and_entry_points_know_hydra() -> None:
    knowing = {name for name in MODULES if packages_of(name) & HYDRA}
    assert {name for name in knowing if not is_entry_point(name)} == {"composition"}


def test_nothing_but_the_report_command_knows_the_paper() -> None:
    knowing = {n for n in MODULES if "paper" in {station_of(t) for t in own_imports(n)}}
    assert {name for name in knowing if station_of(name) != "paper"} == {"report.__main__"}


def test_rows_are_read_and_described_without_torch() -> None:
    for name in MODULES:
        if station_of(name) in ("rows", "errors", "components", "config", "finished"):
            assert "torch" not in packages_of(name, at_top=True), name


def with_packages(name: str) -> set[str]:
    """A module and the packages that importing it runs first."""
    parts = name.split(".")
    return {"", *(".".join(parts[: i + 1]) for i in range(len(parts)))}


def needed_by_a_run() -> set[str]:
    """The modules that a training run imports."""
    waiting, found = {"run", "application", "sweeps.session", "sweeps.jobs"}, set[str]()
    while waiting:
        name = waiting.pop()
        for one in with_packages(name) - found:
            found.add(one)
            waiting |= own_imports(one, at_top=True) - found
    return found


def test_a_training_run_imports_nothing_heavy_at_the_top() -> None:
    needed = needed_by_a_run()
    assert {"config", "engine", "learners.network", "rows.store", "sweeps.pool"} <= needed
    assert not {"report", "paper", "bench"} & {station_of(name) for name in needed}
    for name in needed:
        assert not packages_of(name, at_top=True) & (HEAVY | HYDRA), name


def modules_after(script: str) -> set[str]:
    """The modules that a fresh process holds after a script."""
    done = subprocess.run(
        [sys.executable, "-c", f"import sys\n{script}\nprint('\\nMODULES', *sys.modules)"],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return set(done.stdout.rpartition("MODULES ")[2].split())


@pytest.mark.slow
def test_a_training_run_starts_without_heavy_packages_and_needs_no_hydra() -> None:
    """The same for what other packages import, as it is, in a fresh process."""
    modules = modules_after(
        "from pathlib import Path\n"
        "import lpgnn.run, lpgnn.tune\n"
        "from lpgnn.config import Settings\n"
        "from lpgnn.data import BlockModel\n"
        "BlockModel().load(Path('absent'))\n"
        "Settings(dataset='cora').resolve()"
    )
    loaded = {name.split(".")[0] for name in modules}
    assert "torch" in loaded
    # numba asks scipy for its version; what takes time are its parts.
    assert not {f"scipy.{part}" for part in ("sparse", "linalg", "special", "optimize")} & modules
    assert not loaded & (HEAVY - {"scipy"} | HYDRA | {"requests"})


def test_the_privacy_boundary_is_kept_by_imports() -> None:
    """Filters, models and learners never see a clean graph: only its topology's type."""
    allowed = {"data", "data.graph", "data.graph.Topology", "data.Topology", "data.sparse"}
    allowed |= {"data.sparse.CsrMatrix", "data.CsrMatrix"}
    behind = [n for n in IN_STATIONS if station_of(n) in ("propagation", "models", "learners")]
    assert len(behind) > 15
    for name in behind:
        targets = {t.removeprefix("lpgnn.") for t in imports_of(name) if t.startswith("lpgnn.")}
        assert {t for t in targets if station_of(t) == "data"} <= allowed, name
        assert not {t for t in targets if t.endswith((".Graph", ".load_graph", ".collect"))}, name
