"""Settings of a run: typed, validated, resolved, and identified.

``Settings`` is what a user says, ``Configuration`` what will be computed: every open value filled
in from the tables, everything that is not applied spelt as such, so that two ways to say the same
computation have one identity.  Only the functions at the end of this file know Hydra.
"""

import hashlib
import itertools
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import lru_cache
from pathlib import Path
from typing import Any

from lpgnn.errors import InputError
from lpgnn.hyperparameters import AVERAGE_DEGREE, conf_dir, load_table, nearest_graph

# The version of the science: bump it when a change would change numbers.
SCIENCE_VERSION = 1

GROUPS = ("dataset", "mechanism", "backbone", "feature", "learner")
OWN_BACKBONES = ("gcn", "sage", "gat")  # any other is a plug-in
AD_HOC_FEATURES = ("ones", "ohd", "rnd")
_LEARNERS = ("drop", "forward", "cross_entropy", "propagation", "residual")
_FEATURES = ("raw", "blank", *AD_HOC_FEATURES)
# What a configuration without the later fields was: they say nothing in its identity.
_LATER_FIELDS = {"conditioning": "none"}


@dataclass(frozen=True)
class Component:
    """A choice of a group: its name, and the options that differ from its conf/ file, sorted."""

    name: str
    options: tuple[tuple[str, Any], ...] = ()

    @classmethod
    def of(cls, group: str, value: "str | Component | Mapping[str, Any]") -> "Component":
        if isinstance(value, Component):
            return value
        if isinstance(value, str):
            return cls(value.lower())
        if not isinstance(value, Mapping) or not isinstance(value.get("name"), str):
            raise InputError(group, value, "must be a name, or a name with options")
        name = value["name"].lower()
        usual = default_options(group, name)
        options = {
            key: float(option) if isinstance(usual.get(key), float) and _number(option) else option
            for key, option in value.items()
            if key != "name" and option != usual.get(key)
        }
        return cls(name, tuple(sorted(options.items())))

    def all_options(self, group: str) -> dict[str, Any]:
        """The options of the conf/ file with those that differ put over them."""
        return default_options(group, self.name) | dict(self.options)


@lru_cache(maxsize=64)
def _group_file(group: str, name: str) -> dict[str, Any]:
    import yaml

    path = conf_dir() / group / f"{name}.yaml"
    return dict(yaml.safe_load(path.read_text())) if path.is_file() else {}


def default_options(group: str, name: str) -> dict[str, Any]:
    """The options of a choice as its file in conf/ has them."""
    return {key: value for key, value in _group_file(group, name).items() if key != "name"}


@dataclass(frozen=True)
class Settings:
    """A run as a user describes it; the fields are the keys of ``conf/config.yaml``."""

    dataset: str | Component | Mapping[str, Any] = "sbm"
    mechanism: str | Component | Mapping[str, Any] = "mb"
    backbone: str | Component | Mapping[str, Any] = "sage"
    feature: str | Component | Mapping[str, Any] = "raw"
    learner: str | Component | Mapping[str, Any] = "drop"
    x_eps: float = 1.0
    y_eps: float = 1.0
    hparams: str = "paper"
    x_steps: int | None = None
    y_steps: int | None = None
    learning_rate: float | None = None
    weight_decay: float | None = None
    dropout: float | None = None
    conditioning: str = "none"
    aggregator: str = "gcn"
    max_epochs: int = 500
    hidden_dim: int = 16
    repeats: int = 10
    seed: int = 0
    split: str = "random"
    selection: str = "released"
    device: str = "auto"
    data_dir: str | Path = "data"
    results_dir: str | Path = "results"
    force: bool = False
    task: str = "train"

    def __post_init__(self) -> None:
        _positive("x_eps", self.x_eps, "must be a positive number, or inf for no perturbation")
        _positive("y_eps", self.y_eps, "must be a positive number, or inf for no perturbation")
        for name in ("x_steps", "y_steps"):
            if getattr(self, name) is not None:
                _integer(name, getattr(self, name), at_least=0)
        if self.learning_rate is not None:
            _positive("learning_rate", self.learning_rate, "must be a positive number", inf=False)
        if self.weight_decay is not None:
            _in_range("weight_decay", self.weight_decay, 0, math.inf, "must be a number >= 0")
        if self.dropout is not None:
            _in_range("dropout", self.dropout, 0, 1, "must be a number in [0, 1)")
        for name in ("max_epochs", "hidden_dim", "repeats"):
            _integer(name, getattr(self, name), at_least=1)
        _integer("seed", self.seed, at_least=0)
        _one_of("aggregator", self.aggregator, ("gcn", "mean"))
        _one_of("conditioning", self.conditioning, ("none", "scale", "node"))
        _one_of("split", self.split, ("random", "fixed"))
        _one_of("task", self.task, ("train", "statistics", "convexity", "tuning"))
        _one_of("selection", self.selection, ("paper", "released"))
        for group in GROUPS:
            Component.of(group, getattr(self, group))
        _one_of("feature", Component.of("feature", self.feature).name, _FEATURES)
        _one_of("learner", Component.of("learner", self.learner).name, _LEARNERS)
        if not isinstance(self.force, bool):
            raise InputError("force", self.force, "must be true or false")
        for name, allowed in (
            ("hparams", "must be paper, tuned or a file"),
            ("device", "must be auto, cpu, cuda or cuda:N"),
            ("data_dir", "must be a folder"),
            ("results_dir", "must be a folder"),
        ):
            if not isinstance(getattr(self, name), str | Path) or not str(getattr(self, name)):
                raise InputError(name, getattr(self, name), allowed)
        for key, value in Component.of("feature", self.feature).options:
            raise InputError("feature", f"{{{key}: {value}}}", "takes a name and no options")
        learner = Component.of("learner", self.learner)
        choices = {"walk": ("plain", "lazy"), "combine": ("one", "stack")}
        for key, value in learner.options:
            if key not in default_options("learner", learner.name):
                raise InputError(f"learner.{key}", value, f"{learner.name} has no such option")
            if key == "smooth":
                _integer("learner.smooth", value, at_least=0)
            else:
                _one_of(f"learner.{key}", value, choices[key])

    def resolve(self) -> "Configuration":
        """Fill in what is open and spell what is not applied as not applied."""
        dataset, feature = (
            Component.of("dataset", self.dataset),
            Component.of("feature", self.feature).name,
        )
        mechanism, learner = (
            Component.of("mechanism", self.mechanism),
            Component.of("learner", self.learner),
        )
        # Ad-hoc features hold nothing private: no mechanism, no budget.
        x_eps = float(self.x_eps) if feature in ("raw", "blank") else math.inf
        if feature == "blank" and math.isinf(x_eps):
            raise InputError("x_eps", self.x_eps, "must be finite with feature=blank")
        y_eps = float(self.y_eps)
        if learner.name != "drop" and self.y_steps:
            allowed = f"must be 0 or unset with learner={learner.name}"
            raise InputError("y_steps", self.y_steps, allowed)
        about = dataset.all_options("dataset")
        table = load_table(self.hparams, self.results_dir)
        degree = about.get("average_degree", AVERAGE_DEGREE["cora"])
        _positive("dataset.average_degree", degree, "must be a positive number", inf=False)
        tuned_as = about.get("tuned_as")
        if tuned_as is None:
            known = dataset.name in table.steps
            tuned_as = dataset.name if known else nearest_graph(float(degree))
        _one_of("dataset.tuned_as", tuned_as, tuple(table.steps))
        tuned = table.look_up(tuned_as, feature, x_eps, y_eps)
        y_steps = tuned.y_steps if self.y_steps is None else self.y_steps
        if learner.name != "drop":
            y_steps = 0
        # Drop without a step is forward correction, and without label noise that is cross entropy.
        if learner.name == "drop" and y_steps == 0:
            learner = Component("forward")
        if learner.name == "forward" and math.isinf(y_eps):
            learner = Component("cross_entropy")
        options = tuple((k, v) for k, v in dataset.options if k != "tuned_as")
        opened = [
            name
            for name in ("x_steps", "y_steps", "learning_rate", "weight_decay", "dropout")
            if getattr(self, name) is None
        ]
        if learner.name == "propagation":  # labels and the graph are all it looks at
            return Configuration(
                dataset=Component(dataset.name, options),
                feature="none",
                mechanism=Component("none"),
                x_eps=0.0,
                y_eps=y_eps,
                conditioning="none",
                backbone=Component("none"),
                learner=learner,
                x_steps=0,
                y_steps=0,
                aggregator=self.aggregator,
                learning_rate=0.0,
                weight_decay=0.0,
                dropout=0.0,
                max_epochs=1,
                hidden_dim=0,
                split=self.split,
                seed=self.seed,
                origin="nothing to set",
            )
        # Clean features have no noise to measure them by.
        bare = feature == "raw" and math.isinf(x_eps)
        return Configuration(
            dataset=Component(dataset.name, options),
            feature=feature,
            mechanism=Component("none") if math.isinf(x_eps) else mechanism,
            x_eps=x_eps,
            y_eps=y_eps,
            conditioning="none" if bare else self.conditioning,
            backbone=Component.of("backbone", self.backbone),
            learner=learner,
            x_steps=tuned.x_steps if self.x_steps is None else self.x_steps,
            y_steps=y_steps,
            aggregator=self.aggregator,
            learning_rate=_or(self.learning_rate, tuned.learning_rate),
            weight_decay=_or(self.weight_decay, tuned.weight_decay),
            dropout=_or(self.dropout, tuned.dropout),
            max_epochs=self.max_epochs,
            hidden_dim=self.hidden_dim,
            split=self.split,
            seed=self.seed,
            origin=f"{self.hparams} table, as {tuned_as}: {', '.join(opened)}" if opened else "",
        )


@dataclass(frozen=True)
class Configuration:
    """A computation: everything that decides its numbers, and nothing else."""

    dataset: Component
    feature: str
    mechanism: Component
    x_eps: float
    y_eps: float
    conditioning: str
    backbone: Component
    learner: Component
    x_steps: int
    y_steps: int
    aggregator: str
    learning_rate: float
    weight_decay: float
    dropout: float
    max_epochs: int
    hidden_dim: int
    split: str
    seed: int
    origin: str = field(default="", compare=False)  # where open values came from, for the reader

    def columns(self) -> dict[str, Any]:
        """The configuration as it stands in a row: one column a field."""
        row: dict[str, Any] = {}
        options: dict[str, Any] = {}
        for f in fields(self):
            value = getattr(self, f.name)
            if f.name == "origin":
                continue
            if isinstance(value, Component):
                options |= {f"{f.name}.{key}": option for key, option in value.options}
                value = value.name
            row[f.name] = value
        row["options"] = json.dumps(options, sort_keys=True) if options else ""
        return row

    @property
    def batch_kind(self) -> str:
        """What runs must share to train side by side: all but budgets, rates, decay and seeds.

        Conditioning works with one x_eps, and a plug-in is built with its dropout.
        """
        own = {"x_eps", "y_eps", "learning_rate", "weight_decay", "dropout", "seed", "split"}
        if self.conditioning != "none":
            own.remove("x_eps")
        if self.backbone.name not in OWN_BACKBONES or self.backbone.options:
            own.remove("dropout")
        return str({name: value for name, value in self.columns().items() if name not in own})

    @property
    def identity(self) -> str:
        """A hash of the computation: rows with it are this computation's results."""
        said = {name: str(value) for name, value in self.columns().items()}
        said = {name: text for name, text in said.items() if text != _LATER_FIELDS.get(name)}
        text = json.dumps({"science": SCIENCE_VERSION, **said}, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:12]


def _or(value: float | None, default: float) -> float:
    return float(default if value is None else value)


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _positive(setting: str, value: Any, allowed: str, *, inf: bool = True) -> None:
    # NaN fails the comparison, as it should.
    if not (_number(value) and value > 0 and (inf or math.isfinite(value))):
        raise InputError(setting, value, allowed)


def _in_range(setting: str, value: Any, low: float, high: float, allowed: str) -> None:
    if not (_number(value) and low <= value < high):
        raise InputError(setting, value, allowed)


def _integer(setting: str, value: Any, *, at_least: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < at_least:
        raise InputError(setting, value, f"must be a whole number >= {at_least}")


def _one_of(setting: str, value: Any, allowed: Sequence[str]) -> None:
    if value not in allowed:
        raise InputError(setting, value, f"must be one of {', '.join(allowed)}")


def compose_settings(overrides: Sequence[str], *, multirun: bool = False) -> list[Settings]:
    """Compose Hydra overrides into settings: one, or with ``multirun`` a grid.

    The grid is the product of the comma-separated overrides, for each member of the union that an
    experiment lists under ``grid``; what the command line says wins over the experiment.
    Composition is Hydra's, but the jobs of a grid are not handed to a Hydra launcher: launchers see
    one job at a time, while our sweep must know them all to recognise finished ones, to share
    computations between experiments, and to start the costly ones first.
    """
    from hydra import compose, initialize_config_dir
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.core.override_parser.types import Override
    from hydra.errors import HydraException
    from omegaconf import DictConfig, OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    def parse(texts: Sequence[str]) -> list[Override]:
        parsed: list[Override] = OverridesParser.create().parse_overrides(list(texts))
        for override in parsed:
            if override.is_sweep_override() and not multirun:
                value = override.input_line.split("=", 1)[1]
                raise InputError(override.key_or_group, value, "is a grid: add -m to run it")
        return parsed

    def choices(override: Override) -> list[str]:
        """The single-valued overrides that a (sweep) override stands for."""
        if not override.is_sweep_override():
            return [_known_choice(override.input_line)]
        prefix = override.input_line.split("=", 1)[0]
        return [_known_choice(f"{prefix}={value}") for value in override.sweep_string_iterator()]

    try:
        with initialize_config_dir(str(conf_dir().resolve()), version_base="1.3"):
            given = [(o.key_or_group, choices(o)) for o in parse(overrides)]
            said = {key.lstrip("+") for key, _ in given}
            plain = [texts[0] for _, texts in given if len(texts) == 1]
            experiment = [t for t in plain if t.lstrip("+").startswith("experiment=")]
            union = OmegaConf.to_container(compose("config", experiment).grid) or [{}]
            assert isinstance(union, list)
            composed: dict[tuple[str, ...], DictConfig] = {}
            result: list[Settings] = []
            for part in union if multirun else [{}]:
                lines = [f"{key}={value}" for key, value in part.items() if key not in said]
                axes = [choices(o) for o in parse(lines)] + [texts for _, texts in given]
                for texts in itertools.product(*axes):
                    groups = tuple(t for t in texts if _key(t) in (*GROUPS, "experiment"))
                    values = [t for t in texts if t not in groups]
                    if groups not in composed:  # group choices are slow to compose, values are not
                        composed[groups] = compose("config", list(groups))
                    result.append(_settings(_updated(composed[groups], values)))
            return result
    except (HydraException, OmegaConfBaseException) as error:
        raise _one_line(error, overrides) from None


def _updated(base: Any, values: list[str]) -> Any:
    """Apply value overrides to a composed config, as Hydra would."""
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from omegaconf import OmegaConf, open_dict

    config = base.copy()
    for override in OverridesParser.create().parse_overrides(values):
        key = override.key_or_group
        if override.is_delete():
            raise InputError(f"~{key}", override.value(), "a setting cannot be taken away")
        if override.is_add() or override.is_force_add():
            with open_dict(config):
                OmegaConf.update(config, key, override.value(), force_add=True)
            continue
        if OmegaConf.select(config, key, default=_MISSING) is _MISSING:
            parent = key.rsplit(".", 1)[0] if "." in key else ""
            node = OmegaConf.select(config, parent) if parent else config
            known = ", ".join(sorted(map(str, node))) if node is not None else "none"
            raise InputError(key, override.value(), f"is no setting; known here: {known}")
        OmegaConf.update(config, key, override.value())
    return config


_MISSING = object()


def _key(override: str) -> str:
    return override.split("=", 1)[0].lstrip("+~")


def _known_choice(override: str) -> str:
    """Check a group choice, and forgive its case (MB, 1B, LP, AG)."""
    key, _, value = override.partition("=")
    group = key.lstrip("+")
    if group not in (*GROUPS, "experiment"):
        return override
    known = sorted(path.stem for path in (conf_dir() / group).glob("*.yaml"))
    for name in known:
        if value.strip("'\"").lower() == name:
            return f"{key}={name}"
    raise InputError(group, value, f"must be one of {', '.join(known)}")


def _settings(config: Any) -> Settings:
    from omegaconf import OmegaConf

    content = OmegaConf.to_container(config, resolve=True)
    assert isinstance(content, dict)
    values = {str(key): value for key, value in content.items() if key != "grid"}
    for name in ("x_eps", "y_eps"):
        if isinstance(values[name], str) and values[name].lower() in ("inf", ".inf"):
            values[name] = math.inf
    known = {f.name for f in fields(Settings)}
    for key, value in values.items():
        if key not in known:
            raise InputError(key, value, f"is no setting; known: {', '.join(sorted(known))}")
    return Settings(**values)


def _one_line(error: Exception, overrides: Iterable[str]) -> InputError:
    reason = " ".join(str(error).split())
    return InputError("overrides", " ".join(overrides), f"not understood: {reason}")
