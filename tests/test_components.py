"""Components: options, identity, and what users get to read if they get one wrong."""

import dataclasses
import functools
import importlib
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

import pytest

from lpgnn.components import Component, before, construct, import_target, source_digest
from lpgnn.errors import InputError
from lpgnn.learners import Drop
from lpgnn.models import GCN
from lpgnn.privacy import AnalyticGaussian, MultiBit, RandomizedResponse
from lpgnn.propagation import KProp


@dataclass(frozen=True)
class Kettle(Component):
    kind: ClassVar[str] = "kettle"
    bound_fields: ClassVar[tuple[str, ...]] = ("water",)

    litres: float = 1.5
    cups: int = 6
    whistles: bool = True
    colour: str | None = None
    water: float = 0.0

    def __post_init__(self) -> None:
        if not self.litres > 0:
            raise InputError("litres", self.litres, "must be above 0")


@dataclass(frozen=True)
class BlueKettle(Kettle):
    colour: str | None = "blue"


@dataclass(frozen=True)
class NamedKettle(Kettle):
    name: ClassVar[str] = "kettle2"


@dataclass(frozen=True)
class Descendant(NamedKettle):
    pass


def test_options_are_the_fields_but_those_bound_by_the_run() -> None:
    kettle = Kettle(water=0.7)
    expected = {"litres": 1.5, "cups": 6, "whistles": True, "colour": None}
    assert kettle.options() == expected
    assert list(kettle.options()) == list(expected)  # in the order of the fields
    bounds = {"alpha": 0.0, "beta": 1.0}
    assert MultiBit(1.0, 7).options() == {**bounds, "num_samples": None, "sample_rule": "paper"}
    assert RandomizedResponse(1.0, 3).options() == {}


def test_whole_numbers_for_floats_are_floats() -> None:
    """One computation has one identity, whether YAML has 1 or 1.0."""
    whole = Kettle(litres=2).options()
    assert isinstance(whole["litres"], float)
    assert isinstance(whole["cups"], int)
    assert whole["whistles"] is True  # a bool is an int to Python
    assert Kettle(litres=2).identity == Kettle(litres=2.0).identity
    # As text, which is what is hashed.
    assert repr(Kettle(litres=2).identity) == repr(Kettle(litres=2.0).identity)


def test_a_name_is_the_class_name_unless_given() -> None:
    assert Kettle().name == "Kettle"
    assert BlueKettle().name == "BlueKettle"
    assert NamedKettle().name == "kettle2"
    assert Descendant().name == "Descendant"  # another class is another thing
    assert (MultiBit.name, Drop.name, KProp.name, GCN.name) == ("mb", "drop", "kprop", "gcn")


def test_the_identity_covers_every_option() -> None:
    kettle = Kettle()
    for change in ({"litres": 2.0}, {"cups": 5}, {"whistles": False}, {"colour": "red"}):
        assert kettle.replace(**change).identity != kettle.identity
    assert kettle.replace(water=1.0).identity == kettle.identity  # the run's, not the component's
    assert BlueKettle().identity != Kettle(colour="blue").identity
    gaussian = AnalyticGaussian()
    for field in dataclasses.fields(gaussian):
        if field.name not in gaussian.bound_fields:
            value = getattr(gaussian, field.name)
            other = gaussian.replace(**{field.name: value + 0.01})
            assert other.identity != gaussian.identity


def test_own_classes_are_told_apart_by_their_source() -> None:
    """The package's own are known by name and options: its version stands for their source."""
    assert Drop(steps=2).identity == {"name": "drop", "options": {"steps": 2, "aggregator": "gcn"}}
    assert Drop().source == ""
    identity = Kettle().identity
    assert set(identity) == {"name", "options", "target", "source"}
    assert identity["target"] == f"{__name__}.Kettle"
    assert identity["source"] == source_digest(Kettle) != ""


def test_components_are_values() -> None:
    assert Kettle() == Kettle()
    assert Kettle() != BlueKettle(colour=None)
    assert Kettle().replace(cups=2) == Kettle(cups=2)
    with pytest.raises(dataclasses.FrozenInstanceError):
        Kettle().cups = 3  # type: ignore[misc]
    with pytest.raises(InputError, match="litres=0: must be above 0"):
        Kettle().replace(litres=0)


SOURCE = """
from dataclasses import dataclass
from lpgnn.components import Component

@dataclass(frozen=True)
class Mine(Component):
    kind = "kettle"
    litres: float = 1.0

    def boil(self):
        return {degrees}

def load(data_dir, size=1):
    return size

number = 5
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The name of a module of a user's own, importable from a folder of their own."""
    (tmp_path / "users_own_module.py").write_text(SOURCE.format(degrees=100))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # a rewrite within a second counts
    importlib.invalidate_caches()
    yield "users_own_module"
    sys.modules.pop("users_own_module", None)


def imported_anew(name: str) -> ModuleType:
    """As another process would import it."""
    sys.modules.pop(name, None)
    return importlib.import_module(name)


def test_a_changed_source_is_another_identity(module: str, tmp_path: Path) -> None:
    first = imported_anew(module)
    before, function_before = first.Mine().identity, source_digest(first.load)
    again = imported_anew(module)
    assert again.Mine().identity == before  # the same source, another class object
    assert source_digest(again.load) == function_before
    (tmp_path / f"{module}.py").write_text(SOURCE.format(degrees=80))
    changed = imported_anew(module)
    assert changed.Mine().boil() == 80
    after = changed.Mine().identity
    assert after != before
    assert after["source"] != before["source"]
    del after["source"], before["source"]
    assert after == before  # nothing else tells
    assert source_digest(changed.load) != function_before


def test_the_identity_is_the_sources_whatever_its_folder(
    module: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = imported_anew(module).Mine().identity
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (tmp_path / f"{module}.py").rename(elsewhere / f"{module}.py")
    monkeypatch.syspath_prepend(elsewhere)
    assert imported_anew(module).Mine().identity == before


def test_a_class_without_a_file_is_known_by_what_there_is() -> None:
    """Typed into a prompt: no file and no source to read."""
    namespace: dict[str, Any] = {"Component": Component, "dataclass": dataclass}
    code = (
        "@dataclass(frozen=True)\nclass Typed(Component):\n    kind = 'kettle'\n    x: float = 1.0"
    )
    for name in ("prompt_one", "prompt_two"):
        sys.modules[name] = ModuleType(name)
        namespace["__name__"] = name
        exec(code, namespace)
        sys.modules[name].Typed = namespace["Typed"]  # type: ignore[attr-defined]
    try:
        one, two = (sys.modules[name].Typed() for name in ("prompt_one", "prompt_two"))
        assert one.source == two.source != ""  # the same code
        assert one.identity != two.identity  # in different places
    finally:
        for name in ("prompt_one", "prompt_two"):
            del sys.modules[name]


def test_targets_are_imported(module: str) -> None:
    assert import_target("mechanism", "lpgnn.privacy.MultiBit") is MultiBit
    mine = import_target("learner", f"{module}.Mine")
    assert mine().target == f"{module}.Mine"
    assert import_target("dataset", f"{module}.load")(None, size=3) == 3


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("nowhere.Thing", "No module named 'nowhere'"),
        ("lpgnn.privacy.Nothing", "module 'lpgnn.privacy' has no attribute 'Nothing'"),
        ("Thing", "Empty module name"),
        ("", "Empty module name"),
        (5, "Empty module name"),
    ],
)
def test_a_target_that_cannot_be_imported_is_one_line(target: Any, message: str) -> None:
    with pytest.raises(InputError) as caught:
        import_target("mechanism", target)
    expected = f"mechanism={target}: must be an importable module.name ({message})"
    assert str(caught.value) == expected
    assert caught.value.__cause__ is None


def test_a_target_must_be_callable(module: str) -> None:
    with pytest.raises(InputError, match="must be an importable class or function"):
        import_target("learner", f"{module}.number")


def test_construction() -> None:
    assert construct("kettle", Kettle, {"cups": 3, "colour": "red"}) == Kettle(cups=3, colour="red")


def refused(build: Any, options: dict[str, Any]) -> str:
    with pytest.raises(InputError) as caught:
        construct("kettle", build, options)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def failing(error: Exception) -> Any:
    def build(**_: Any) -> None:
        raise error

    return build


def test_what_a_constructor_does_not_accept_is_bad_input() -> None:
    # An option's own complaint names the option within its component.
    assert refused(Kettle, {"litres": 0}) == "kettle.litres=0: must be above 0"
    assert refused(Kettle, {"spout": 1}) == (
        "kettle={'spout': 1}: not accepted: Kettle.__init__() got an unexpected keyword argument "
        "'spout'"
    )
    assert refused(failing(ValueError("too\n  hot")), {}) == "kettle={}: not accepted: too hot"
    # A complaint that is placed already stays as it is.
    for setting in ("filter.steps", "kettle"):
        found = refused(failing(InputError(setting, 3, "no")), {"cups": 1})
        assert found == f"{setting}=3: no"


def test_other_errors_of_a_constructor_are_not_hidden() -> None:
    with pytest.raises(ZeroDivisionError):
        construct("kettle", failing(ZeroDivisionError()), {})


@dataclass(frozen=True)
class _Grown(Component):
    kind: ClassVar[str] = "thing"

    first: int = 1
    second: str = dataclasses.field(default="new", metadata=before("old"))


def test_an_option_that_was_added_later_leaves_earlier_identities_alone() -> None:
    @dataclass(frozen=True)
    class _Young(Component):
        kind: ClassVar[str] = "thing"
        name: ClassVar[str] = "_Grown"

        first: int = 1

    assert _Grown(second="old").identity["options"] == _Young().identity["options"]
    assert _Grown().identity["options"] == {"first": 1, "second": "new"}
    assert _Grown(second="old").options() == {"first": 1, "second": "old"}


def write_and_import(folder: Path, name: str, text: str) -> ModuleType:
    (folder / f"{name}.py").write_text(text)
    importlib.invalidate_caches()
    sys.modules.pop(name, None)
    return importlib.import_module(name)


def test_the_source_covers_bases_and_helpers_of_the_users_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    names = ("own_constant", "own_base", "own_class")
    text = "from own_base import Base\nclass Own(Base):\n    pass\n"

    def digest(constant: int, bonus: int) -> str:
        write_and_import(tmp_path, "own_constant", f"K = {constant}\n")
        base = f"from own_constant import K\nclass Base:\n    k = K + {bonus}\n"
        write_and_import(tmp_path, "own_base", base)
        return source_digest(write_and_import(tmp_path, "own_class", text).Own)

    try:
        found = [digest(1, 0), digest(2, 0), digest(2, 1), digest(1, 0)]
    finally:
        for name in names:
            sys.modules.pop(name, None)
    assert len(set(found)) == 3
    assert found[0] == found[3]


@pytest.mark.parametrize("folder", ["site-packages", "dist-packages"])
def test_libraries_are_installed_wherever_they_lie(
    folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In ~/.local, in another interpreter's folder, in a cluster's: what they are is not read."""
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    library = tmp_path / "lib" / "python3" / folder
    library.mkdir(parents=True)
    for place in (tmp_path, library):
        monkeypatch.syspath_prepend(str(place))
    text = "import some_library\nclass Own(some_library.Base):\n    pass\n"

    def digest(helper: str) -> str:
        write_and_import(library, "some_helper", helper)
        base = "import some_helper\nclass Base:\n    pass\n"
        write_and_import(library, "some_library", base)
        return source_digest(write_and_import(tmp_path, "own_class", text).Own)

    try:
        assert digest("K = 1\n") == digest("K = 2\n")
    finally:
        for name in ("some_helper", "some_library", "own_class"):
            sys.modules.pop(name, None)


def test_a_file_with_the_name_of_a_standard_module_is_the_users(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    earlier = sys.modules.pop("graphlib", None)
    try:
        assert source_digest(write_and_import(tmp_path, "graphlib", "class Own:\n    pass\n").Own)
    finally:
        sys.modules.pop("graphlib", None)
        if earlier is not None:
            sys.modules["graphlib"] = earlier


def test_a_class_of_a_notebook_is_known_by_its_code() -> None:
    def typed(factor: float) -> type:
        notebook = ModuleType("__notebook__")
        sys.modules["__notebook__"] = notebook
        text = f"class Own:\n    def loss(self, x):\n        return {factor} * x\n"
        exec(compile(text, "<cell>", "exec"), notebook.__dict__)
        own: type = notebook.Own
        return own

    try:
        first, second, again = (source_digest(typed(factor)) for factor in (1.0, 2.0, 1.0))
    finally:
        del sys.modules["__notebook__"]
    assert first == again
    assert first != second


def test_a_partial_is_known_by_its_arguments() -> None:
    both = [source_digest(functools.partial(write_and_import, name="x", text=t)) for t in "ab"]
    assert both[0] != both[1]


def test_a_module_that_exits_while_it_is_imported_is_bad_input(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "exits_at_import.py").write_text("import sys\nsys.exit(0)\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(InputError, match=r"importable module\.name \(sys\.exit\(0\) was called\)"):
        import_target("mechanism._target_", "exits_at_import.Mechanism")


@pytest.mark.parametrize("code", ["import os\nos._exit(0)\n", "from os import _exit\n_exit(0)\n"])
def test_a_module_that_ends_the_process_is_bad_input(
    code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would end it with code 0 and without a word."""
    (tmp_path / "leaves_at_import.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(
        InputError, match=r"importable module\.name \(SystemExit: os\._exit\(0\) was called\)"
    ):
        import_target("mechanism._target_", "leaves_at_import.Mechanism")


def test_a_constructor_that_ends_the_process_is_bad_input() -> None:
    def build() -> None:
        os._exit(0)

    leave = os._exit
    with pytest.raises(InputError, match=r"mechanism=\{\}: not accepted: os\._exit\(0\)"):
        construct("mechanism", build, {})
    assert os._exit is leave


def test_children_may_leave_while_a_module_is_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "import os\nchild = os.fork()\nif child == 0:\n    os._exit(7)\n"
    text += "CODE = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])\ndef f(): pass\n"
    (tmp_path / "forks_at_import.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    import_target("dataset._target_", "forks_at_import.f")
    assert sys.modules["forks_at_import"].CODE == 7
