from pathlib import Path
from typing import Any

import pytest
import yaml

from lpgnn.benchmark.entries import add_entry, known_entries, load_submission, read_entry
from lpgnn.errors import InputError


def entry_file(folder: Path, name: str = "mine", **content: Any) -> Path:
    path = folder / f"{name}.yaml"
    path.write_text(yaml.safe_dump({"title": "Mine", "family": "learner", **content}))
    return path


def test_every_entry_of_ours_can_be_read_and_controls_come_first(tmp_path: Path) -> None:
    found = known_entries(tmp_path)
    assert {"labels_only", "clean_features", "mb", "lpgnn"} <= found.keys()
    roles = [entry.is_control for entry in found.values()]
    assert roles == sorted(roles, reverse=True)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"family": "cake"}, "entry mine: family=cake: must be one of whole method, feature"),
        ({"labels": "some"}, "entry mine: labels=some: must be all or private"),
        ({"trials": 3}, "entry mine: trials=3: must be 0, or left out: all have as many"),
        ({"counts": "bits"}, "entry mine: counts=bits: must be total or feature, or left out"),
        ({"settings": 3}, "entry mine: settings=3: must map settings to values"),
        ({"search": {"dropout": 0.5}}, "search.dropout=0.5: must be a list of at least one value"),
        ({"search": {"dropout": []}}, "search.dropout=[]: must be a list of at least one value"),
        ({"module": "../mine.py"}, "module=../mine.py: must be a Python file beside mine.yaml"),
        ({"module": "mine.py"}, "module=mine.py: must be a Python file beside mine.yaml"),
        ({"colour": "red"}, "entry mine: colour=red: unknown key; known: title, family"),
        ({"settings": {"x_eps": 3}}, "entry mine: settings.x_eps=3: the protocol decides it"),
        ({"search": {"seed": [1]}}, "entry mine: search.seed=[1]: the protocol decides it"),
        ({"private_labels": {"split": "fixed"}}, "private_labels.split=fixed: the protocol"),
        ({"settings": {"++x_eps": 8}}, "settings.++x_eps=8: must be the name of a setting, with +"),
        ({"settings": {"~dropout": 8}}, "settings.~dropout=8: must be the name of a setting"),
        ({"settings": {3: 4}}, "settings.3=4: must be the name of a setting"),
        ({"exact_labels": {"+repeats": 2}}, "exact_labels.+repeats=2: the protocol decides it"),
        ({"settings": {"total_eps": 3}}, "settings.total_eps=3: the protocol decides it"),
        ({"settings": {"learner": "gce,sce"}}, "settings.learner=gce,sce: must be one value"),
        ({"settings": {"dropout": [0.1]}}, "settings.dropout=[0.1]: must be one value"),
        ({"search": {"dropout": [{"a": 1}]}}, "search.dropout={'a': 1}: must be one value"),
        (
            {"settings": {"dropout": 0.1}, "search": {"+dropout": [0.2]}},
            "search.+dropout=[0.2]: is set as well",
        ),
        ({"search": {"dropout": [0.2]}, "trials": 0}, "nothing is searched with trials: 0"),
        ({"trials": False}, "trials=False: must be 0, or left out"),
        ({"title": ""}, "title=: must not be empty"),
        ({"title": "two\nlines"}, "title=two\\nlines: must be text in one line"),
        ({"module": ["mine.py"]}, "must be text in one line"),
        ({"printed": {"file": "a.csv"}}, "must be a list of {file, x_eps, y_eps"),
    ],
)
def test_a_wrong_entry_is_refused(tmp_path: Path, content: dict[str, Any], message: str) -> None:
    tmp_path.with_name("mine.py").write_text("")  # there, but not beside it
    with pytest.raises(InputError) as error:
        read_entry(entry_file(tmp_path, **content))
    assert message in str(error.value)


def test_an_entry_without_a_title_is_told_so(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("family: learner\n")
    with pytest.raises(InputError, match="entry mine: title: is missing: every entry has one"):
        read_entry(tmp_path / "mine.yaml")


def test_a_file_that_is_no_entry_is_refused(tmp_path: Path) -> None:
    (tmp_path / "broken.yaml").write_text("title: [")
    (tmp_path / "twice.yaml").write_text("title: Mine\nsettings: {dropout: 0, dropout: 0.5}\n")
    for name, message in (
        ("none", "no such file"),
        ("broken", "cannot be read as YAML ("),
        ("twice", "cannot be read as YAML (the key 'dropout' is repeated"),
    ):
        with pytest.raises(InputError) as error:
            read_entry(tmp_path / f"{name}.yaml")
        assert message in str(error.value)


def test_an_added_entry_is_kept_with_its_module(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.path", ["before"])
    monkeypatch.setenv("PYTHONPATH", "before")
    results = tmp_path / "results"
    (tmp_path / "mine.py").write_text("ONE = 1\n")
    path = entry_file(tmp_path, module="mine.py")
    assert add_entry(path, results).name == "mine"
    path.unlink()
    (tmp_path / "mine.py").unlink()
    assert known_entries(results)["mine"].title == "Mine"
    assert (results / "benchmark" / "entries" / "mine.py").read_text() == "ONE = 1\n"


def test_an_entry_cannot_take_the_name_of_ours(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is the name of an entry of lpgnn"):
        add_entry(entry_file(tmp_path, "mb"), tmp_path / "results")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({}, "family=learner: needs learner in its settings: without, it is of another family"),
        ({"family": "feature mechanism", "settings": {"learner": "gce"}}, "needs mechanism in"),
        ({"family": "label mechanism", "settings": {"mechanism": "lp"}}, "needs label_mechanism"),
        ({"family": "control"}, "family=control: is lpgnn's own; may be whole method, feature"),
    ],
)
def test_a_family_is_what_a_method_sets(
    tmp_path: Path, content: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError) as caught:
        load_submission(entry_file(tmp_path, **content), tmp_path / "results")
    assert message in str(caught.value)
    for family, setting in (
        ("whole method", "dropout"),
        ("learner", "learner"),
        ("feature mechanism", "mechanism.sample_rule"),
        ("label mechanism", "label_mechanism"),
        ("filter", "+filter.steps"),
    ):
        path = entry_file(tmp_path, family=family, settings={setting: "any"})
        assert load_submission(path, tmp_path / "results").family == family


PRINTED = {"file": "mine.csv", "row": "mine", "x_eps": "column", "y_eps": 1}


@pytest.mark.parametrize(
    ("changes", "content", "message"),
    [
        ({"rwo": "mine"}, "", "printed.rwo=mine: unknown key; known: file, row, column, x_eps"),
        ({"y_eps": "foo"}, "", "printed.y_eps=foo: must be row, column or a number"),
        ({"row": "yours"}, "", "printed=FILE: has no line with row=yours"),
        ({}, "dataset,row,mean\ncora,mine,1\n", "printed=FILE: "),
        ({}, "dataset,row,column,mean,ci\ncora,mine,1,fifty,1\n", "printed=FILE: "),
        (
            {"x_eps": "row"},
            "",
            "printed=FILE: x_eps and y_eps must be numbers, not mine and 1",
        ),
    ],
)
def test_wrong_printed_numbers_are_refused_when_an_entry_is_read(
    changes: dict[str, Any], content: str, message: str, tmp_path: Path
) -> None:
    file = tmp_path / "mine.csv"
    file.write_text("dataset,row,column,mean,ci\ncora,mine,1,81.5,0.5\n")
    path = entry_file(tmp_path, printed=[PRINTED])
    numbers = read_entry(path).printed_numbers
    assert {at: number.mean for at, number in numbers.items()} == {("cora", 1.0, 1.0): 81.5}
    if content:
        file.write_text(content)
    with pytest.raises(InputError) as caught:
        read_entry(entry_file(tmp_path, printed=[PRINTED | changes]))
    assert str(caught.value).startswith(f"entry mine: {message.replace('FILE', str(file))}")


def test_two_added_entries_have_two_titles(tmp_path: Path) -> None:
    results, settings = tmp_path / "results", {"learner": "gce"}
    add_entry(entry_file(tmp_path, settings=settings), results)
    load_submission(entry_file(tmp_path, settings=settings), results)  # again
    with pytest.raises(InputError, match="entry other: title=Mine: is the title of the entry mine"):
        load_submission(entry_file(tmp_path, "other", settings=settings), results)


def test_an_entry_cannot_take_a_title_of_ours(tmp_path: Path) -> None:
    path = entry_file(tmp_path, title="Labels only")
    with pytest.raises(InputError, match=r"entry mine: title=Labels only: is the title of an en"):
        add_entry(path, tmp_path / "results")
    assert not (tmp_path / "results").exists()
