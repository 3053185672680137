"""``python -m lpgnn.question``: write what users are asked next, from what they have sent."""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from lpgnn.commands import Command, one_run, writing
from lpgnn.errors import InputError, exit_code
from lpgnn.files import write_atomically

USAGE = """\
Settings are those of lpgnn.run: reports=FILE, a learner that asks, and the seed that decides who is
asked.  The question is the same each time.
Exit codes: 0 done, 2 bad input, or all questions are answered."""


def main(arguments: Sequence[str] | None = None) -> int:
    command = Command(
        "question",
        "Learn from a collection until users have to be asked, and write the question: a JSON file "
        "to be published.",
        USAGE,
    )
    command.add_argument("--out", type=Path, required=True, help="the file to write")
    command.takes_settings()
    options = command.read(arguments)
    return exit_code(lambda: _ask(options))


def _ask(options: argparse.Namespace) -> int:
    settings = one_run(options)
    if settings.reports is None:
        raise InputError("reports", None, "must be a file of lpgnn.collect")
    configuration = settings.resolve()
    if not configuration.asks:
        raise InputError("learner", configuration.learner.name, "does not ask; allowed: two_round")
    from lpgnn.engine import run_repeats
    from lpgnn.privacy.respondents import Unanswered

    graph = configuration.dataset.load(settings.data_path)
    try:
        run_repeats(configuration, graph, [0], device=settings.device, kernels=settings.kernels)
    except Unanswered as unanswered:
        asked = unanswered
    else:
        found = "all questions are answered: train with python -m lpgnn.run"
        raise InputError("reports", settings.reports, found)
    with writing("--out", options.out):
        write_atomically(options.out, asked.source)
    content = json.loads(asked.source)
    print(
        f"question {asked.number} ({content['kind']}) to {len(content['nodes']):,} nodes in "
        f"{options.out}, {len(asked.source):,} bytes\n"
        f"next: users answer with python -m lpgnn.client task.json --question {options.out} ...; "
        f"collect with python -m lpgnn.collect question={options.out} "
        f"collected={settings.reports} reports=FOLDER out=FILE"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
