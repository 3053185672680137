"""``lpgnn <verb> ...``: the same as ``python -m lpgnn.<verb> ...``.

Nothing is imported here that takes time: until ``main`` is called, Ctrl-C is a stack trace.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

# Each verb is a module with ``main(arguments) -> int``, and one line of what it does.
VERBS = {
    "run": ("lpgnn.run", "train: one run, a grid or an experiment"),
    "predict": ("lpgnn.predict", "a trained model's class and probabilities for every node"),
    "tune": ("lpgnn.tune", "search hyper-parameters by private validation loss"),
    "report": ("lpgnn.report.__main__", "tables and figures from the rows of a results folder"),
    "status": ("lpgnn.status", "where the sweeps of a results folder stand"),
    "information": ("lpgnn.information", "how much reports tell of features and classes"),
    "simulate": ("lpgnn.simulate", "write what the users of a clean graph would send"),
    "client": ("lpgnn.client", "turn a user's features and label into a private report"),
    "collect": ("lpgnn.collect", "check users' reports and put them into one file to train from"),
    "question": ("lpgnn.question", "write what users are asked next, from what they have sent"),
    "audit": ("lpgnn.audit", "try to refute the budget that a mechanism claims"),
    "compact": ("lpgnn.compact", "merge what many writers left into one file per dataset"),
    "benchmark": ("lpgnn.benchmark.__main__", "every method under one protocol, and a leaderboard"),
    "bench": ("lpgnn.bench.__main__", "measure against the plain pipeline"),
}


def main(arguments: Sequence[str] | None = None) -> int:
    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        from lpgnn.errors import exit_code

        return exit_code(lambda: _answer(words))
    except KeyboardInterrupt:  # before it was handled there, or after
        print("interrupted", file=sys.stderr)
        return 130


def _answer(words: Sequence[str]) -> int:
    import os

    if not {"", os.getcwd()} & set(sys.path):
        sys.path.insert(0, os.getcwd())  # as python -m: custom components lie there
    if not words or words[0] in ("-h", "--help"):
        print("usage: lpgnn VERB ...\n\nverbs (lpgnn VERB --help says more):")
        width = max(map(len, VERBS))
        for verb, (_, purpose) in VERBS.items():
            print(f"  {verb:<{width}} {purpose}")
        return 0 if words else 2
    if words[0] == "--version":
        import lpgnn

        print(f"lpgnn {lpgnn.__version__}")
        return 0
    if words[0] in ("-sc", "--shell-completion"):
        return _complete(words)
    return _call(words[0], words[1:])


def _complete(words: Sequence[str]) -> int:
    """Answer a shell that completes: Hydra's function leaves the verb to us."""
    import os
    import re

    _, verb, rest, *_ = (*os.environ.get("COMP_LINE", "").split(maxsplit=2), "", "", "")
    if verb in ("run", "tune"):
        os.environ["COMP_LINE"] = f"lpgnn {rest}"
        # Hydra looks for its flags beside -sc only, and the last folder may be half typed.
        folders = re.findall(r"(?:--config-dir|-cd)[ =]+(\S+)", rest)
        found = [folder for folder in folders if os.path.isdir(folder)]
        return _call(verb, [*words, *(f"--config-dir={folder}" for folder in found)])
    print(*VERBS)
    return 0


def _call(verb: str, arguments: Sequence[str]) -> int:
    from importlib import import_module

    from lpgnn.errors import InputError

    if verb not in VERBS:
        allowed = f"must be one of {', '.join(VERBS)}"
        raise InputError("verb", verb, allowed)
    code: int = import_module(VERBS[verb][0]).main(arguments)
    return code


if __name__ == "__main__":
    sys.exit(main())
