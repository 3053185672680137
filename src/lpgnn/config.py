"""Settings of a run: typed, validated, resolved, and identified.

``Settings`` is what a user asks for, ``Configuration`` what will be computed: every open value
filled in, everything that is not applied spelt as such, so that two ways to ask for the same
computation have one identity.  Settings are checked without torch, which takes a second to import;
components bring it.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property, lru_cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lpgnn.components import Component, construct, import_target
from lpgnn.errors import InputError
from lpgnn.hyperparameters import TunedValues, conf_dir, load_table
from lpgnn.rows import DEFAULT_METRICS, OTHER_METRICS, Computation

if TYPE_CHECKING:
    from lpgnn.data import Dataset, Graph, GraphFacts
    from lpgnn.learners import Learner
    from lpgnn.models import Backbone
    from lpgnn.privacy import Feature, FeatureMechanism, LabelMechanism, Protocol
    from lpgnn.privacy.reports import Form
    from lpgnn.propagation import Filter

# The version of the science: bump it when a change would change numbers.
SCIENCE_VERSION = 1


class _Kinds(Mapping[str, type[Component]]):
    """Kinds of components and their base classes, which are imported when asked for."""

    def __init__(self, homes: Mapping[str, tuple[str, str]]) -> None:
        self._homes = homes

    def __getitem__(self, kind: str) -> type[Component]:
        module, name = self._homes[kind]
        base: type[Component] = getattr(import_module(module), name)
        return base

    def __iter__(self) -> Iterator[str]:
        return iter(self._homes)

    def __len__(self) -> int:
        return len(self._homes)

    def __contains__(self, kind: object) -> bool:
        return kind in self._homes


# The components that a run consists of, and those that watch it and are in no identity.
KINDS = _Kinds(
    {
        "dataset": ("lpgnn.data", "Dataset"),
        "feature": ("lpgnn.privacy", "Feature"),
        "mechanism": ("lpgnn.privacy", "FeatureMechanism"),
        "label_mechanism": ("lpgnn.privacy", "LabelMechanism"),
        "protocol": ("lpgnn.privacy", "Protocol"),
        "filter": ("lpgnn.propagation", "Filter"),
        "backbone": ("lpgnn.models", "Backbone"),
        "learner": ("lpgnn.learners", "Learner"),
    }
)
WATCHERS = _Kinds({"logger": ("lpgnn.loggers", "Logger")})
SELECTIONS = ("paper", "released")  # the keys of lpgnn.learners.RULES
OUTPUTS = ("predictions", "weights", "history")
_DEFAULT_EPOCHS = 500
_EARLIER_PROTOCOL = "one_round"  # of rows that name none

Choice = str | Component | Mapping[str, Any]


@dataclass(frozen=True)
class Settings:
    """A run as a user describes it; the fields are the keys of ``conf/config.yaml``.

    A component is given by the name of its file in conf/, by a mapping with ``_target_``, or as an
    object; a dataset may also be a ``Graph``.  None leaves a value open.
    """

    dataset: Choice | Graph = "sbm"
    feature: Choice = "raw"
    mechanism: Choice = "mb"
    label_mechanism: Choice = "rr"
    filter: Choice = "kprop"
    backbone: Choice = "sage"
    learner: Choice = "drop"
    protocol: Choice | None = None
    x_eps: float = 1.0
    y_eps: float = 1.0
    reports: str | Path | None = None
    labels: str | Path | None = None
    hparams: str | None = None
    learning_rate: float | None = None
    weight_decay: float | None = None
    dropout: float | None = None
    max_epochs: int | None = None
    hidden_dim: int = 16
    repeats: int = 10
    seed: int = 0
    split: str = "random"
    selection: str = "released"
    metric: str = "acc"
    metrics: Mapping[str, str] = field(default_factory=lambda: DEFAULT_METRICS)
    save: str | Sequence[str] = ()
    logger: Choice | None = None
    device: str = "auto"
    kernels: str = "auto"
    data_dir: str | Path = "data"
    results_dir: str | Path = "results"
    force: bool | str = False
    time_limit: float | str | None = "auto"
    workers: int | None = None
    dry_run: bool = False

    def __post_init__(self) -> None:
        for name in _CHECKS:
            check_setting(name, getattr(self, name))
        for name in self.outputs:
            _one_of("save", name, OUTPUTS)
        if not isinstance(self.metrics, Mapping):
            raise InputError("metrics", self.metrics, "must map names to module.function")
        if self.metric not in self.metrics and self.metric in OTHER_METRICS:
            known = {**self.metrics, self.metric: OTHER_METRICS[self.metric]}
            object.__setattr__(self, "metrics", known)
        _one_of("metric", self.metric, tuple({**self.metrics, **OTHER_METRICS}))
        if self.labels is not None and self.reports is None:
            raise InputError("labels", self.labels, "is for runs with reports=FILE only")

    @property
    def outputs(self) -> tuple[str, ...]:
        """What to save beside the rows."""
        if isinstance(self.save, str):
            return tuple(name.strip() for name in self.save.split(",") if name.strip())
        return tuple(self.save)

    @property
    def data_path(self) -> Path:
        return Path(self.data_dir).expanduser()

    @property
    def results_path(self) -> Path:
        return Path(self.results_dir).expanduser()

    def component(self, kind: str) -> Component:
        """The component of a kind, with open options still open."""
        if kind == "dataset" and self.reports is not None:
            from lpgnn.privacy.collection import ReceivedReports

            return ReceivedReports(str(self.reports), str(self.labels or ""))
        if kind == "protocol" and self.protocol is None:
            return make_component(kind, self._suggested(kind, _EARLIER_PROTOCOL))  # type: ignore[no-any-return]
        found: Component = make_component(kind, getattr(self, kind))
        return found

    def resolve(self, *, fetch: bool = True) -> Configuration:
        """Fill in what is open and spell what is not applied as not applied.

        ``fetch=False`` downloads nothing: a published graph that is not here is taken as published.
        """
        return self._under_task()._resolve(fetch=fetch)

    def _under_task(self) -> Settings:
        """With reports: what their task prescribes, in place of the defaults.

        Anything else that was asked for is refused: the reports are drawn already.
        """
        if self.reports is None:
            return self
        found: Any = self.component("dataset")
        prescribed, defaults = found.prescribed(), Settings()
        for name, value in {**prescribed, "dataset": "sbm"}.items():
            given, default = getattr(self, name), getattr(defaults, name)
            if name in KINDS:
                given, default, value = (
                    make_component(name, one) for one in (given, default, value)
                )
            if given not in (default, value):
                allowed = "is decided by the collected reports: leave it out"
                raise InputError(name, getattr(given, "name", given), allowed)
        return replace(self, **prescribed)

    def _resolve(self, *, fetch: bool) -> Configuration:
        dataset: Any = self.component("dataset")
        facts = facts_of(dataset, self.data_path, fetch=fetch)
        learner: Any = self.component("learner")
        feature: Any = self.component("feature")
        label_mechanism: Any = self.component("label_mechanism")
        y_eps = float(self.y_eps)
        seeds: dict[str, Any] = {"split": self.split, "seed": self.seed}
        protocol: Any = self.component("protocol")
        if protocol.asks != learner.asks:
            wanted = "a learner that asks: two_round" if protocol.asks else "protocol=two_round"
            allowed = f"learner={learner.name} does not go with it: needs {wanted}"
            raise InputError("protocol", protocol.name, allowed)
        if protocol.asks:
            return self._asking(dataset, facts, learner, feature, protocol)
        if self.reports is not None and dataset.has_questions and learner.needs_features:
            allowed = "needs features, which users have not reported: allowed are learners that "
            raise InputError(
                "learner", learner.name, f"{allowed}ask (two_round) or use labels only"
            )
        if not learner.needs_features:  # labels and the graph are all it looks at
            filled, origin = _Table(self, dataset, facts, feature, math.inf).fill(learner)
            return Configuration(
                dataset=dataset,
                graph=facts,
                label_mechanism=_usable(label_mechanism, y_eps, facts.num_classes),
                y_eps=y_eps,
                learner=filled.canonical(labels_are_exact=math.isinf(y_eps)),
                origin=origin or "nothing to set",
                **seeds,
            )
        # What holds nothing private passes through no mechanism and spends no budget.
        x_eps = float(self.x_eps) if feature.spends_budget else math.inf
        if feature.needs_mechanism and math.isinf(x_eps):
            raise InputError("x_eps", self.x_eps, f"must be finite with feature={feature.name}")
        mechanism = _usable(self.component("mechanism"), x_eps, facts.num_features)
        table = _Table(self, dataset, facts, feature, x_eps)
        learner, _ = table.fill(learner)
        without_network = Configuration(
            dataset=dataset,
            graph=facts,
            feature=feature,
            mechanism=mechanism,
            x_eps=x_eps,
            label_mechanism=_usable(label_mechanism, y_eps, facts.num_classes),
            y_eps=y_eps,
            learner=learner.canonical(labels_are_exact=math.isinf(y_eps)),
            origin=table.origin or "nothing to set",
            **seeds,
        )
        if not learner.uses_network:
            return without_network
        filter_: Any
        filter_, _ = table.fill(self.component("filter"))
        backbone: Any
        backbone, _ = table.fill(self.component("backbone"))
        exact = feature.reads_features and math.isinf(x_eps)
        learning_rate, weight_decay, dropout = (
            float(table.value(name)) for name in ("learning_rate", "weight_decay", "dropout")
        )
        return replace(
            without_network,
            filter=filter_.canonical(reports_are_exact=exact),
            backbone=backbone,
            learning_rate=learning_rate,
            weight_decay=weight_decay,
            dropout=dropout,
            max_epochs=int(self._suggested("max_epochs", _DEFAULT_EPOCHS)),
            hidden_dim=self.hidden_dim,
            origin=table.origin,
        )

    def _asking(
        self, dataset: Any, facts: GraphFacts, learner: Any, feature: Any, protocol: Any
    ) -> Configuration:
        """A run whose nodes are asked while it learns."""
        if self.reports is not None and not dataset.has_questions:
            raise InputError("protocol", protocol.name, "reports=FILE was collected in one round")
        if not feature.spends_budget:
            allowed = f"protocol={protocol.name} asks for raw or blank"
            raise InputError("feature", feature.name, allowed)
        x_eps, y_eps = float(self.x_eps), float(self.y_eps)
        if math.isinf(x_eps):
            raise InputError("x_eps", self.x_eps, f"must be finite with protocol={protocol.name}")
        return Configuration(
            dataset=dataset,
            graph=facts,
            feature=feature,
            x_eps=x_eps,
            label_mechanism=_usable(self.component("label_mechanism"), y_eps, facts.num_classes),
            y_eps=y_eps,
            protocol=protocol,
            learner=learner,
            split=self.split,
            seed=self.seed,
            origin="nothing to set",
        )

    def _suggested(self, name: str, default: Any) -> Any:
        """The user's value, else what suits the learner, else the default."""
        given = getattr(self, name)
        if given is not None:
            return given
        learner: Any = self.component("learner")
        return learner.suggests.get(name, default)


def _usable(mechanism: Any, budget: float, size: int) -> Any:
    """A mechanism that works at a budget and a size; None where the budget is infinite.

    It is bound once for its checks, so that what they refuse shows before the work.
    """
    if math.isinf(budget):
        return None
    try:
        mechanism.bind(budget, size)
    except InputError as error:
        if error.setting not in mechanism.options():
            raise
        setting = f"{mechanism.kind}.{error.setting}"
        raise InputError(setting, error.value, error.allowed) from None
    return mechanism


class _Table:
    """Open values of one run: from the learner's suggestions, then from the table.

    Where the table does not have the graph, the dataset's suggestions go before another graph's
    values.
    """

    def __init__(
        self,
        settings: Settings,
        dataset: Dataset,
        facts: GraphFacts,
        feature: Feature,
        x_eps: float,
    ) -> None:
        self.settings, self.dataset, self.facts = settings, dataset, facts
        self.feature, self.x_eps = feature, x_eps
        self.hparams = settings._suggested("hparams", "paper")
        self.taken: list[str] = []
        self._tuned: TunedValues | None = None

    def tuned(self, name: str, setting: str) -> Any:
        """A value of the table, which is read only if something is open."""
        table = load_table(self.hparams, self.settings.results_path)
        own = self.settings
        table.check_collection(own.split, own.seed, own.repeats)
        if setting in self.dataset.suggests and self.dataset.tuned_as not in table.steps:
            return self.dataset.suggests[setting]
        if self._tuned is None:
            degree = self.facts.average_degree
            self._tuned = table.look_up(
                *(self.dataset.tuned_as, self.feature.name),
                *(self.x_eps, float(self.settings.y_eps), degree),
            )
        if name not in self._tuned.values:
            raise InputError(setting, None, f"must be set: hparams={self.hparams} has no {name}")
        self.taken.append(setting)
        return self._tuned.values[name]

    def value(self, name: str) -> Any:
        given = getattr(self.settings, name)
        return self.tuned(name, name) if given is None else given

    def fill(self, component: Any) -> tuple[Any, str]:
        """A component with its open options filled in, and where they came from."""
        learner: Any = self.settings.component("learner")
        changes = {}
        for option, value in component.options().items():
            setting = f"{component.kind}.{option}"
            if value is None and setting in learner.suggests:
                changes[option] = learner.suggests[setting]
            elif value is None and option in component.open_fields:
                changes[option] = self.tuned(component.open_fields[option], setting)
        return (component.replace(**changes) if changes else component), self.origin

    @property
    def origin(self) -> str:
        if self._tuned is None:
            return ""
        return f"{self.hparams} table, as {self._tuned.graph}: {', '.join(self.taken)}"


@dataclass(frozen=True)
class Configuration:
    """A computation: everything that decides its numbers, and nothing else."""

    dataset: Dataset
    graph: GraphFacts
    learner: Learner
    split: str
    seed: int
    feature: Feature | None = None
    mechanism: FeatureMechanism | None = None
    x_eps: float = 0.0
    label_mechanism: LabelMechanism | None = None
    y_eps: float = math.inf
    filter: Filter | None = None
    backbone: Backbone | None = None
    protocol: Protocol | None = None  # None: one round
    learning_rate: float = 0.0
    weight_decay: float = 0.0
    dropout: float = 0.0
    max_epochs: int = 1
    hidden_dim: int = 0
    origin: str = field(default="", compare=False)  # where open values came from, for the reader

    def components(self) -> dict[str, Component | None]:
        return {kind: getattr(self, kind) for kind in KINDS}

    def numbers(self) -> dict[str, Any]:
        """The settings that belong to no component."""
        names = ("x_eps", "y_eps", "learning_rate", "weight_decay", "dropout")
        return {n: getattr(self, n) for n in (*names, "max_epochs", "hidden_dim", "split", "seed")}

    def columns(self) -> dict[str, Any]:
        """The configuration as it stands in a row: names, numbers, and all options as JSON."""
        components = self.components()
        names = {kind: c.name if c else "none" for kind, c in components.items()}
        if self.protocol is None:
            names["protocol"] = _EARLIER_PROTOCOL
        text, fingerprint = self._options_text, self.graph.fingerprint
        return {**names, **self.numbers(), "options": text, "fingerprint": fingerprint}

    @cached_property
    def _options_text(self) -> str:
        options: dict[str, Any] = {}
        for kind, component in self.components().items():
            if component is None:
                continue
            options |= {f"{kind}.{key}": value for key, value in component.options().items()}
            if component.source:
                options |= {
                    f"{kind}._target_": component.target,
                    f"{kind}.source": component.source,
                }
            elif component.name != type(component).name:  # no file in conf/ has that name
                options |= {f"{kind}._target_": component.target, f"{kind}.name": component.name}
        return json.dumps(options, sort_keys=True, default=_plain)

    @cached_property
    def identity(self) -> str:
        """A hash of the computation: rows with it are this computation's results."""
        parts: dict[str, Any] = {
            kind: component.identity if component else None
            for kind, component in self.components().items()
            # The graph itself decides, not how it was loaded; and rows were one round's before
            # there were protocols.
            if kind != "dataset" and not (kind == "protocol" and component is None)
        }
        content = {"science": SCIENCE_VERSION, "graph": self.graph.fingerprint, **parts}
        text = json.dumps({**content, **self.numbers()}, sort_keys=True, default=_plain)
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    @cached_property
    def computation(self) -> Computation:
        """What rows know of it."""
        return Computation(self.identity, self.dataset.name, self.dataset.has_truth)

    @cached_property
    def batch_kind(self) -> str:
        """What runs must share to train side by side: all but budgets, rates, decay and seeds."""
        own = {"x_eps", "y_eps", "learning_rate", "weight_decay", "dropout", "seed", "split"}
        if self.backbone is not None and self.backbone.shares_dropout:
            own.remove("dropout")
        return str({name: value for name, value in self.columns().items() if name not in own})

    @property
    def asks(self) -> bool:
        """Whether nodes are asked about their features while the server learns."""
        return self.protocol is not None and self.protocol.asks

    @property
    def reads_features(self) -> bool:
        """Whether a result depends on features, reported or asked for."""
        return self.learner.needs_features or self.asks

    @property
    def trains(self) -> bool:
        """Whether a result grows step by step, so that a rounding error grows with it.

        What is solved at once keeps an error small: scripts/two_round_rounding.py measures it for
        two rounds; of 240 repeats of hop_regression on Minesweeper and Tolokers 239 had the same
        ROC AUC with both kernels, and one differed by 0.001 points.
        """
        return self.learner.uses_network

    @property
    def report_form(self) -> Form:
        """How the feature reports are stored."""
        if self.mechanism is not None:
            return self.mechanism.form
        return "sparse" if self.feature is None else self.feature.form

    @property
    def holds_matrix(self) -> bool:
        """Whether a run holds an N x d matrix, or as many bits, on the server's side."""
        has_network = self.filter is not None and self.backbone is not None
        return self.forms_matrix or (has_network and self.report_form == "signs")

    @property
    def forms_matrix(self) -> bool:
        """Whether the filtered reports are formed before the first epoch, as N x d numbers."""
        if self.filter is None or self.backbone is None:
            return False
        if self.backbone.needs_dense or self.report_form == "dense":
            return True
        size = self.graph
        return self.filter.forms_matrix(size.num_nodes, size.num_features, size.num_entries)

    @property
    def total_budget(self) -> float:
        """What one node spends in all (paper Corollary dp); inf if any part is sent as it is."""
        spends = self.feature is not None and self.feature.spends_budget
        return self.y_eps + (self.x_eps if spends else 0.0)


def _plain(value: Any) -> Any:
    """Options in an identity must be plain values, or it would change from process to process."""
    if isinstance(value, Component):
        return value.identity
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, set | frozenset):
        return sorted(value)
    if isinstance(value, Path):
        return str(value)
    allowed = "must be a number, text, true, false, null, or a list or mapping of these"
    raise InputError("option", repr(value), allowed)


def component_name(row: Mapping[str, Any], kind: str) -> str:
    """The name of a row's component; a row of before there were protocols is of one round."""
    return str(row.get(kind) or _EARLIER_PROTOCOL if kind == "protocol" else row[kind])


def configuration_of(
    row: Mapping[str, Any], data_dir: Path, dataset: Dataset | None = None
) -> Configuration:
    """The computation behind a row, rebuilt from its columns; on another dataset, if given."""
    options: dict[str, dict[str, Any]] = {kind: {} for kind in KINDS}
    for key, value in json.loads(row["options"]).items():
        kind, _, name = key.partition(".")
        if kind in KINDS and name != "source":
            options[kind][name] = value
    parts: dict[str, Any] = {}
    for kind, own in options.items():
        name = component_name(row, kind)
        if kind == "dataset" and dataset is not None:
            parts[kind] = dataset
        elif name not in ("none", _EARLIER_PROTOCOL):
            target = own.pop("_target_", None) or _named_component(kind, name).target
            found = import_target(f"{kind}._target_", target)
            is_class = isinstance(found, type) and issubclass(found, Component)
            earlier = found.earlier_options() if is_class else {}
            parts[kind] = make_component(kind, {"_target_": target, **earlier, **own})
    numbers: dict[str, Any] = {
        name: float(row[name])
        for name in ("x_eps", "y_eps", "learning_rate", "weight_decay", "dropout")
    }
    numbers |= {name: int(row[name]) for name in ("max_epochs", "hidden_dim", "seed")}
    facts = facts_of(parts["dataset"], data_dir, fetch=False)
    return Configuration(graph=facts, split=row["split"], **parts, **numbers)


def make_component(kind: str, choice: Any) -> Any:
    """A component from its name in conf/, from a mapping with ``_target_``, or as it is."""
    from lpgnn.data import Graph, InMemory

    base = (WATCHERS if kind in WATCHERS else KINDS)[kind]
    if isinstance(choice, base):
        _check_dataclass(kind, type(choice))
        return choice
    if kind == "dataset" and isinstance(choice, Graph):
        return InMemory(choice)
    if isinstance(choice, str):
        return _named_component(kind, choice.lower())
    if not isinstance(choice, Mapping):
        known = ", ".join(component_names(kind))
        raise InputError(kind, choice, f"must be one of {known}, a mapping or a component")
    target = choice.get("_target_")
    if target in (None, "???"):
        raise InputError(f"{kind}._target_", target, "must name a class, as module.Name")
    if not str(target).startswith("lpgnn."):
        return _built_component(kind, base, str(target), choice)
    # A grid has few components and many runs: ours, whose source stays as it is, are built once.
    key = (kind, json.dumps(dict(choice), default=repr))
    if key not in _built:
        _built[key] = _built_component(kind, base, str(target), choice)
    return _built[key]


_built: dict[tuple[str, str], Any] = {}


def _built_component(
    kind: str, base: type[Component], target: str, choice: Mapping[str, Any]
) -> Any:
    from lpgnn.data import dataset_from_target, renamed

    options = {str(key): value for key, value in choice.items() if key != "_target_"}
    label = options.pop("name", None) if kind == "dataset" else None
    found = import_target(f"{kind}._target_", target)
    if not (isinstance(found, type) and issubclass(found, base)):
        if kind == "dataset":
            named = {} if label is None else {"name": label}
            return dataset_from_target(target, options | named)  # a function that loads a graph
        allowed = f"must be a subclass of {base.__module__.rpartition('.')[0]}.{base.__name__}"
        raise InputError(f"{kind}._target_", target, allowed)
    _check_dataclass(kind, found)
    names = {f.name.removesuffix("_"): f.name for f in fields(found)}
    known_options = [option for option, name in names.items() if name not in found.bound_fields]
    for key, value in options.items():
        if key not in known_options:
            known = ", ".join(known_options) or "none"
            raise InputError(
                f"{kind}.{key}", value, f"unknown option of {found.name}; known: {known}"
            )
    values = {names[option]: value for option, value in options.items()}
    built: Any = construct(kind, found, values)  # a component's own checks say more than types do
    _check_types(kind, found, values)
    return built if label is None else renamed(built, str(label))


def _check_dataclass(kind: str, found: type) -> None:
    """The fields of a component are its identity: a class without fields of its own has none."""
    parameters = vars(found).get("__dataclass_params__")
    if parameters is None or not parameters.frozen:
        target = f"{found.__module__}.{found.__qualname__}"
        allowed = "must be decorated with @dataclass(frozen=True): its fields are its options"
        raise InputError(f"{kind}._target_", target, allowed)


_PLAIN_TYPES = {"int": (int,), "float": (int, float), "str": (str,), "bool": (bool,)}


def _check_types(kind: str, found: type[Any], options: Mapping[str, Any]) -> None:
    """Compare options with the types that their fields declare, where these are plain."""
    for f in fields(found):
        names = {part.strip() for part in str(getattr(f.type, "__name__", f.type)).split("|")}
        allowed = names - {"None"}
        if f.name not in options or not allowed <= _PLAIN_TYPES.keys():
            continue
        value = options[f.name]
        if value is None and "None" in names:
            continue
        types = tuple(t for name in allowed for t in _PLAIN_TYPES[name])
        if not isinstance(value, types) or (isinstance(value, bool) and bool not in types):
            wanted = " or ".join(sorted(names))
            given = "null" if value is None else type(value).__name__
            reason = f"must be of type {wanted}, not {given}"
            if str in types:  # nan, 1 and true are text in quotes only
                reason += f""": '"{value}"' is text"""
            raise InputError(f"{kind}.{f.name}", value, reason)


@lru_cache(maxsize=128)
def _named_component(kind: str, name: str) -> Any:
    import yaml

    path = conf_dir() / kind / f"{name}.yaml"
    if name not in component_names(kind):
        raise InputError(kind, name, f"must be one of {', '.join(component_names(kind))}")
    return make_component(kind, yaml.safe_load(path.read_text()))


@lru_cache(maxsize=16)
def component_names(kind: str) -> tuple[str, ...]:
    """The choices that conf/ has for a kind."""
    return tuple(sorted(path.stem for path in (conf_dir() / kind).glob("*.yaml")))


def facts_of(dataset: Dataset, data_dir: Path, *, fetch: bool = True) -> GraphFacts:
    """The facts of a dataset's graph: published ones, or those of the graph itself."""
    published = dataset.facts_at(data_dir)
    if published is None and not fetch and dataset.will_fetch(data_dir):
        published = dataset.facts
    if published is not None:
        return published
    options = json.dumps(dataset.options(), sort_keys=True, default=str)
    return _loaded_facts(_ByKey((dataset.target, dataset.source, options), dataset), data_dir)


@dataclass(frozen=True)
class _ByKey:
    """A dataset to be cached by its content: its options may be lists, which have no hash."""

    key: tuple[str, ...]
    dataset: Dataset = field(compare=False)


@lru_cache(maxsize=64)
def _loaded_facts(dataset: _ByKey, data_dir: Path) -> GraphFacts:
    from lpgnn.data import graph_facts

    return graph_facts(dataset.dataset.load(data_dir))


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _positive(setting: str, value: Any, allowed: str, *, inf: bool = True) -> None:
    # NaN fails the comparison, as it should.
    if not (_number(value) and value > 0 and (inf or math.isfinite(value))):
        raise InputError(setting, value, allowed)


def _in_range(setting: str, value: Any, low: float, high: float, allowed: str) -> None:
    if not (_number(value) and low <= value < high):
        raise InputError(setting, value, allowed)


def _integer(setting: str, value: Any, *, at_least: int, allowed: str = "") -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < at_least:
        raise InputError(setting, value, allowed or f"must be a whole number >= {at_least}")


def _one_of(setting: str, value: Any, allowed: Sequence[str]) -> None:
    if value not in allowed:
        raise InputError(setting, value, f"must be one of {', '.join(allowed)}")


def _path(setting: str, value: Any, allowed: str) -> None:
    if not isinstance(value, str | Path) or not str(value):
        raise InputError(setting, value, allowed)


def _device(setting: str, value: Any) -> None:
    # Whether there is such a device is a question to the machine that computes.
    if not re.fullmatch(r"auto|(cpu|cuda)(:[0-9]+)?", str(value)):
        raise InputError(setting, value, "must be auto, cpu, cuda or cuda:N")


def _flag(setting: str, value: Any, *others: str) -> None:
    if not (isinstance(value, bool) or value in others):
        allowed = ", ".join(("true", "false", *others))
        raise InputError(setting, value, f"must be {' or '.join(allowed.rsplit(', ', 1))}")


_BUDGET = "must be a positive number, or inf for no perturbation"
_WORKERS = "must be a whole number >= 1, or 0 to compute in this process"
# Settings whose values are right or wrong whatever the others are.
_CHECKS: Mapping[str, Callable[[str, Any], None]] = {
    "x_eps": lambda name, value: _positive(name, value, _BUDGET),
    "y_eps": lambda name, value: _positive(name, value, _BUDGET),
    "learning_rate": lambda name, value: _positive(
        name, value, "must be a positive number", inf=False
    ),
    "weight_decay": lambda name, value: _in_range(
        name, value, 0, math.inf, "must be a number >= 0"
    ),
    "dropout": lambda name, value: _in_range(name, value, 0, 1, "must be a number in [0, 1)"),
    "max_epochs": lambda name, value: _integer(name, value, at_least=1),
    "hidden_dim": lambda name, value: _integer(name, value, at_least=1),
    "repeats": lambda name, value: _integer(name, value, at_least=1),
    "seed": lambda name, value: _integer(name, value, at_least=0),
    "split": lambda name, value: _one_of(name, value, ("random", "fixed", "collection")),
    "selection": lambda name, value: _one_of(name, value, SELECTIONS),
    "kernels": lambda name, value: _one_of(name, value, ("auto", "numba", "torch")),
    "time_limit": lambda name, value: (
        None
        if value == "auto"
        else _positive(name, value, "must be a number of seconds > 0, auto, or null for none")
    ),
    "workers": lambda name, value: _integer(name, value, at_least=0, allowed=_WORKERS),
    "force": lambda name, value: _flag(name, value, "engine"),
    "dry_run": _flag,
    "device": _device,
    "data_dir": lambda name, value: _path(name, value, "must be a folder"),
    "results_dir": lambda name, value: _path(name, value, "must be a folder"),
    "reports": lambda name, value: _path(name, value, "must be a file"),
    "labels": lambda name, value: _path(name, value, "must be a file"),
    "hparams": lambda name, value: _path(name, value, "must be paper, tuned or a file"),
}
# Of these None leaves the value open.
_OPEN = {f.name for f in fields(Settings) if f.default is None} | {"time_limit"}


def check_setting(name: str, value: Any) -> None:
    """Refuse a value that a setting cannot have, whatever the other settings are."""
    if name in _CHECKS and not (value is None and name in _OPEN):
        _CHECKS[name](name, value)
