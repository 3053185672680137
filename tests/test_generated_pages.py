"""The reference pages name every group, choice, option and public class."""

import dataclasses
import re
from pathlib import Path

import pytest
import yaml
from generated_pages import package_page, pages_of, write_pages
from plain_docstrings import as_restructured_text

from lpgnn.__main__ import VERBS
from lpgnn.composition import GROUPS
from lpgnn.config import KINDS, WATCHERS, Settings
from lpgnn.hyperparameters import conf_dir

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def pages() -> dict[str, str]:
    return dict(pages_of(conf_dir()))


@pytest.mark.parametrize("group", [*KINDS, *WATCHERS])
def test_a_group_has_all_its_choices_and_their_options(group: str, pages: dict[str, str]) -> None:
    text = pages[f"{group}.md"]
    for path in (conf_dir() / group).glob("*.yaml"):
        _, found, rest = text.partition(f"\n## {group}={path.stem}\n")
        assert found, path.stem
        own = rest.partition("\n## ")[0]
        content = yaml.safe_load(path.read_text())
        target = content.pop("_target_", None)
        if target is None:  # it takes a component out
            continue
        for option in content:
            assert f"| `{option}` | `" in own, (path.stem, option)
        assert ("Your own class" if target == "???" else f"{{py:class}}`{target}`: ") in own


def test_the_reference_lists_every_page(pages: dict[str, str]) -> None:
    index = (Path(__file__).parents[1] / "docs" / "reference" / "index.md").read_text()
    listed = [line for line in index.splitlines() if line.startswith("generated/")]
    assert sorted(listed) == sorted(f"generated/{name.rpartition('.')[0]}" for name in pages)


def test_what_yaml_and_docstrings_say_is_there(pages: dict[str, str]) -> None:
    assert "| `delta` | `1.0e-10` |" in pages["mechanism.md"]
    assert "| `num_samples` | `null` | m; null = by sample_rule |" in pages["mechanism.md"]
    assert (
        "The multi-bit mechanism (paper Algorithm 1 and Eq. est): epsilon-LDP."
        in (pages["mechanism.md"])
    )
    assert (
        "| `walk` | `plain` | plain: powers and sums of powers of P \\| lazy:"
        in (pages["learner.md"])
    )
    # What no YAML lists has its default in code.
    assert (
        "| `alpha` | `0.0` | default in code; +mechanism.alpha=... sets it |"
        in (pages["mechanism.md"])
    )


def test_every_setting_says_what_it_means(pages: dict[str, str]) -> None:
    cells = [line.split(" | ") for line in pages["settings.md"].splitlines()]
    keys = [line for line in cells if line[0].startswith("| `") and "." not in line[0]]
    assert len(keys) > 20
    assert [key for key, *_, meaning in keys if meaning.strip(" |") == ""] == []


def test_every_setting_has_its_default(pages: dict[str, str]) -> None:
    text = pages["settings.md"]
    for field in dataclasses.fields(Settings):
        start = f"| [{field.name}](" if field.name in GROUPS else f"| `{field.name}` | "
        assert start in text, field.name
    assert "| `metrics.acc` | `lpgnn.rows.metrics.accuracy` |" in text
    assert "one split per repeat \\| fixed = repeat 0's split for all \\| collection" in text
    assert "repeats differ in initial weights and dropout only |" in text


def test_every_experiment_shows_its_grid_and_what_it_makes(pages: dict[str, str]) -> None:
    text = pages["experiment.md"]
    for path in (conf_dir() / "experiment").glob("*.yaml"):
        _, found, rest = text.partition(f"\n## experiment={path.stem}\n")
        assert found, path.stem
        own = rest.partition("\n## ")[0]
        assert re.search(r"```yaml\ngrid:\n(  #.*\n)*  - (&\w+ )?\{", own)
        for kind in ("tables", "figures"):
            for name in yaml.safe_load(path.read_text()).get(kind) or ():
                assert f"- {kind[:-1]} `{name}`" in own


def test_every_command_has_its_help(pages: dict[str, str]) -> None:
    for verb in VERBS:
        assert f"## lpgnn {verb}\n\n```text\nusage: " in pages["commands.md"]


def test_a_package_shows_what_it_exports(pages: dict[str, str]) -> None:
    text = pages["lpgnn.privacy.rst"]
    assert ".. autoclass:: lpgnn.privacy.MultiBit\n   :members:" in text
    assert ".. autofunction:: lpgnn.privacy.collect\n" in text
    assert "``lpgnn.Graph``\n   is :py:class:`lpgnn.data.Graph`." in package_page("lpgnn", "Top")


def test_pages_are_written_and_old_ones_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("generated_pages.pages_of", lambda conf: [("a.md", "A"), ("b.md", "B")])
    write_pages(tmp_path)
    (tmp_path / "old.md").write_text("x")
    before = (tmp_path / "a.md").stat().st_mtime_ns
    write_pages(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"a.md", "b.md"}
    assert (tmp_path / "a.md").stat().st_mtime_ns == before


def test_docstrings_are_taken_literally() -> None:
    lines = ["``code_`` and |x| * y_ of `z`", "", "    x_1 = |y|", "    more", "", "after_"]
    assert as_restructured_text(lines) == [
        r"``code_`` and \|x\| \* y\_ of \`z\`",
        "",
        "::",
        "",
        "    x_1 = |y|",
        "    more",
        "",
        r"after\_",
    ]


def test_lists_in_docstrings_stay_lists() -> None:
    lines = ["Two things:", "- one that", "  goes on", "- another", "and after"]
    wanted = ["Two things:", "", "- one that", "  goes on", "- another", "", "and after"]
    assert as_restructured_text(lines) == wanted
