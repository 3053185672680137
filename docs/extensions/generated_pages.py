"""Reference pages that are written from the program: commands, conf/ and the public classes.

They go to ``docs/reference/generated/``, which git ignores, whenever the documentation is built.
"""

import contextlib
import dataclasses
import inspect
import io
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from lpgnn.__main__ import VERBS, main
from lpgnn.components import Component
from lpgnn.config import KINDS, WATCHERS
from lpgnn.hyperparameters import conf_dir

if TYPE_CHECKING:  # the pages are tested without Sphinx
    from sphinx.application import Sphinx

# What the public packages hold, in the order of a run.
PACKAGES = {
    "lpgnn": "The top level, for notebooks",
    "lpgnn.data": "Clean graphs",
    "lpgnn.privacy": "Mechanisms, reports and collection",
    "lpgnn.privacy.audit": "Does a mechanism keep its budget?",
    "lpgnn.client": "What runs on a user's device",
    "lpgnn.propagation": "Filters and sparse operators",
    "lpgnn.models": "Backbones",
    "lpgnn.learners": "Learners, the epoch loop and selection rules",
    "lpgnn.loggers": "Loggers",
    "lpgnn.rows": "Rows, metrics and summaries",
    "lpgnn.report": "Tables, figures and pages",
    "lpgnn.components": "The base of everything exchangeable",
}
GROUPS = {
    "dataset": "Where the graph comes from.",
    "feature": "What a node reports about itself.",
    "mechanism": "How a node perturbs its features.",
    "label_mechanism": "How a labelled node perturbs its label.",
    "filter": "What happens to the reports before the first layer.",
    "backbone": "The network.",
    "learner": "How it learns from private labels.",
    "protocol": "Who is asked for what, and when.",
    "logger": "Who else is told of a run.",
}
_OPTION = re.compile(r"(\w+):\s*(.*?)\s*(?:#\s*(.*))?$")


def write_pages(folder: Path) -> None:
    """Write all pages; those that nothing asks for any more are removed."""
    pages = dict(pages_of(conf_dir()))
    if folder.is_dir():
        for path in folder.iterdir():
            if path.name not in pages:
                path.unlink() if path.is_file() else shutil.rmtree(path)
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in pages.items():
        path = folder / name
        # An unchanged file keeps its time, so that Sphinx does not read it again.
        if not path.is_file() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")


def pages_of(conf: Path) -> Iterator[tuple[str, str]]:
    yield "commands.md", commands_page()
    yield "settings.md", settings_page(conf / "config.yaml")
    for group in (*KINDS, *WATCHERS):
        yield f"{group}.md", group_page(group, conf / group)
    yield "experiment.md", experiments_page(conf / "experiment")
    yield "hyperparameters.md", files_page(conf / "hyperparameters")
    for package, purpose in PACKAGES.items():
        yield f"{package}.rst", package_page(package, purpose)


def commands_page() -> str:
    lines = ["# Commands", ""]
    lines += ["`lpgnn VERB ...` and `python -m lpgnn.VERB ...` are the same.", ""]
    lines += [f"- [`lpgnn {verb}`](#lpgnn-{verb}): {what}" for verb, (_, what) in VERBS.items()]
    for verb in VERBS:
        lines += ["", f"## lpgnn {verb}", "", "```text", help_of(verb), "```"]
    return "\n".join(lines) + "\n"


def help_of(verb: str) -> str:
    """What ``lpgnn VERB --help`` prints."""
    text = io.StringIO()
    with contextlib.redirect_stdout(text), contextlib.suppress(SystemExit):
        main([verb, "--help"])
    # The settings of run and tune have a page of their own.
    return text.getvalue().partition("\nGroups (group=choice)")[0].strip()


def settings_page(path: Path) -> str:
    """The keys of config.yaml; their comments say what they mean."""
    text = path.read_text(encoding="utf-8")
    body = text[text.index("\n\n") :].partition("\n# Rows are the only output")[0]
    lines = [
        "# Settings",
        "",
        "The keys of `conf/config.yaml`, with their defaults. `null` leaves a",
    ]
    lines += ["value open: the learner's suggestion applies, or the table named by `hparams`.", ""]
    lines += ["The groups and their default choices:", "", *_defaults(text), ""]
    for block in re.split(r"\n\s*\n", body.strip()):
        comment, options = _block(block)
        lines += [*([comment, ""] if comment else []), *_table(options), ""]
    return "\n".join(lines)


def _defaults(text: str) -> list[str]:
    chosen = [one for one in yaml.safe_load(text)["defaults"] if isinstance(one, dict)]
    pairs = [pair for one in chosen for pair in one.items() if " " not in pair[0]]
    rows = [f"| [{group}]({group}.md) | `{choice or 'null'}` |" for group, choice in pairs]
    return ["| group | default |", "|---|---|", *rows]


def _block(block: str) -> tuple[str, list[tuple[str, str, str]]]:
    """The comment above a block of keys, and (key, value, comment) of each."""
    above: list[str] = []
    options: list[tuple[str, str, str]] = []
    parent = ""
    for line in block.splitlines():
        if line.startswith("#"):
            above.append(line.lstrip("# "))
        elif line.strip().startswith("#"):  # a comment that goes on
            key, value, comment = options[-1]
            options[-1] = (key, value, f"{comment} {line.strip().lstrip('# ')}")
        elif found := _OPTION.match(line.strip()):
            nested = line.startswith(" ")
            key = f"{parent}.{found[1]}" if nested else found[1]
            parent = parent if nested else found[1]
            options.append((key, found[2], found[3] or ""))
    return " ".join(above), options


def _table(options: Iterable[tuple[str, str, str]]) -> list[str]:
    rows = [
        f"| `{key}` | {f'`{value}`' if value else ''} | {_cell(comment)} |"
        for key, value, comment in options
    ]
    return ["| key | default | meaning |", "|---|---|---|", *rows]


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("*", "\\*").replace("<", "&lt;")


def group_page(group: str, folder: Path) -> str:
    lines = [f"# {group}", "", f"{GROUPS[group]} `{group}=CHOICE` takes one of:", ""]
    choices = sorted(folder.glob("*.yaml"), key=lambda path: (path.stem == "custom", path.stem))
    for path in choices:
        lines += [f"## {group}={path.stem}", "", *_choice(group, path), ""]
    return "\n".join(lines)


def _choice(group: str, path: Path) -> Iterator[str]:
    text = path.read_text(encoding="utf-8")
    target = yaml.safe_load(text).get("_target_")
    lines = [line.lstrip("# ") for line in text.splitlines() if line.startswith("#")]
    comment = [line for line in lines if not line.startswith("@package")]
    if comment:
        yield from ["```text", *comment, "```", ""]
    if target is None:
        return
    if target == "???":
        yield f"Your own class: [how to write one](../../howto/{_HOWTO[group]}.md)."
        return
    found = _imported(target)
    purpose = (inspect.getdoc(found) or "").partition("\n\n")[0]
    yield from [f"{{py:class}}`{target}`: {_sentence(purpose)}"]
    given = {key: (value, note) for key, value, note in _block(text)[1] if key != "_target_"}
    options = list(_options(found, given))
    if options:
        yield from ["", *_table(options)]


_HOWTO = {
    **{"dataset": "own_graph", "mechanism": "mechanism", "label_mechanism": "label_mechanism"},
    **{"filter": "filter", "backbone": "backbone", "learner": "learner"},
    **{"protocol": "learner", "logger": "cluster"},
}


def _imported(target: str) -> type[Component]:
    module, _, name = target.rpartition(".")
    found: type[Component] = getattr(import_module(module), name)
    return found


def _sentence(docstring: str) -> str:
    """The first paragraph of a docstring as Markdown: all but its code is taken literally."""
    parts = re.split(r"``([^`]+)``", " ".join(docstring.split()))
    escaped = [re.sub(r"([\\*_<|`$])", r"\\\1", part) for part in parts]
    return "".join(f"`{parts[i]}`" if i % 2 else escaped[i] for i in range(len(parts)))


def _options(
    found: type[Component], given: Mapping[str, tuple[str, str]]
) -> Iterator[tuple[str, str, str]]:
    """The fields of a component: the YAML's values, and defaults in code where it has none."""
    for field in dataclasses.fields(found):
        name = field.name.removesuffix("_")
        if field.name in found.bound_fields or not field.init:
            continue
        if name in given:
            yield name, *given[name]
        elif field.default is not dataclasses.MISSING:
            value = "null" if field.default is None else str(field.default)
            yield name, value, f"default in code; +{found.kind}.{name}=... sets it"


def experiments_page(folder: Path) -> str:
    lines = ["# experiment", "", "`experiment=NAME` runs its grid; `lpgnn report experiment=NAME`"]
    lines += ["makes its tables and figures. [How to write one](../../howto/experiment.md).", ""]
    for path in sorted(folder.glob("*.yaml")):
        text = path.read_text(encoding="utf-8")
        content = yaml.safe_load(text)
        above = text.partition("\ntitle:")[0].splitlines()[1:]
        lines += [f"## experiment={path.stem}", "", f"**{content['title']}**", ""]
        lines += [" ".join(line.lstrip("# ") for line in above).replace("*", "\\*"), ""]
        for kind in ("tables", "figures"):
            for name, shown in (content.get(kind) or {}).items():
                caption = shown.get("caption", "")
                lines.append(f"- {kind[:-1]} `{name}`{f': {caption}' if caption else ''}")
        lines += ["", "```yaml", _grid(text), "```", ""]
    return "\n".join(lines)


def _grid(text: str) -> str:
    """The grid of an experiment's file, as it stands there."""
    found = re.search(r"^grid:\n(?:[ #].*\n|\n)+", text, flags=re.MULTILINE)
    return found[0].strip() if found else ""


def files_page(folder: Path) -> str:
    lines = ["# hyperparameters", "", "`hparams=NAME` names the table that open values come from."]
    for path in sorted(folder.glob("*.yaml")):
        text = path.read_text(encoding="utf-8").strip()
        lines += ["", f"## hparams={path.stem}", "", "```yaml", text, "```"]
    return "\n".join(lines) + "\n"


def package_page(package: str, purpose: str) -> str:
    """The public names of a package, in the order in which it exports them."""
    lines = [package, "=" * len(package), "", purpose + ".", "", f".. automodule:: {package}"]
    lines += ["   :no-members:", ""]
    for name, value in public_names(package):
        path, home = f"{package}.{name}", _home(package, name, value)
        role = "class" if inspect.isclass(value) else "func"
        if home:
            lines += [f"``{path}``", f"   is :py:{role}:`{home}.{name}`.", ""]
        elif inspect.isclass(value):
            lines += [f".. autoclass:: {path}", "   :members:", "   :show-inheritance:", ""]
        elif inspect.isfunction(value):
            lines += [f".. autofunction:: {path}", ""]
    return "\n".join(lines)


def _home(package: str, name: str, value: Any) -> str:
    """The other page that describes a name of the top level, or ''."""
    if package != "lpgnn":
        return ""
    others = (other for other in PACKAGES if other != package)
    return next((o for o in others if dict(public_names(o)).get(name) is value), "")


def public_names(package: str) -> Iterator[tuple[str, Any]]:
    """What a package re-exports, or a module defines, in order."""
    module = import_module(package)
    source = inspect.getsource(module)
    exported = re.findall(r"\b(\w+) as \1\b", source)
    defined = re.findall(r"^(?:class|def) ([A-Za-z]\w*)", source, flags=re.MULTILINE)
    for name in dict.fromkeys([*exported, *defined]):
        yield name, getattr(module, name)


def setup(app: "Sphinx") -> dict[str, bool]:
    folder = Path(app.srcdir) / "reference" / "generated"
    app.connect("builder-inited", lambda app: write_pages(folder))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
