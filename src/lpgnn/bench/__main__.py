"""The command line of the benchmarks."""

import sys
from collections.abc import Sequence
from importlib import import_module

from lpgnn.bench import __doc__ as description
from lpgnn.commands import Command
from lpgnn.errors import InputError, exit_code

# The module of each verb, its function, and its options.
_VERBS = {
    "speed": (
        "speed",
        "measure_speed",
        "data_dir=data results_dir=results runs=10 cases=cora,facebook",
    ),
    "profile": (
        "profile",
        "measure_profile",
        "data_dir=data results_dir=results runs=10 epochs=20",
    ),
    "scale": ("scale", "measure_scale", "results_dir=results sizes=10000,30000 draw=only"),
    "one": (
        "scale",
        "measure_one",
        "side=ours|plain nodes=10000: one row of scale, in this process",
    ),
    "costs": ("costs", "fit_costs", "data_dir=data results_dir=results"),
}


def main(arguments: Sequence[str] | None = None) -> int:
    usage = "\n".join(f"  {verb}: {options}" for verb, (*_, options) in _VERBS.items())
    purpose, _, verbs = (description or "").strip().partition("\n\n")
    parser = Command("bench", purpose, f"{verbs}\n\noptions:\n{usage}")
    parser.add_argument("words", nargs="*", metavar="[verb] option=value")
    words = list(parser.parse_args(arguments).words)
    verb = words.pop(0) if words and "=" not in words[0] else "speed"

    def measure() -> int:
        if verb not in _VERBS:
            raise InputError("verb", verb, f"must be one of {', '.join(_VERBS)}")
        module, function, known = _VERBS[verb]
        given = dict(_option(word, known) for word in words)
        getattr(import_module(f"lpgnn.bench.{module}"), function)(given)
        return 0

    return exit_code(measure)


def _option(word: str, known: str) -> tuple[str, str]:
    name, equals, value = word.partition("=")
    if not equals or f"{name}=" not in known.split(":")[0]:
        raise InputError("option", word, f"must be of {known}")
    return name, value


if __name__ == "__main__":
    sys.exit(main())
