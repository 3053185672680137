"""``python -m lpgnn.compact``: merge the shards of finished sweeps into one file per dataset."""

import sys
from collections.abc import Mapping, Sequence

from lpgnn.commands import Command, own_settings
from lpgnn.errors import InputError, exit_code
from lpgnn.rows import RowStore

_DEFAULTS = {"results_dir": "results", "publish": "false", "seal": "false"}


def main(arguments: Sequence[str] | None = None) -> int:
    command = Command(
        "compact",
        "Merge the shards in <results_dir>/local into <results_dir>/local/<dataset>.csv, or with "
        "publish=true all local rows into <results_dir>/rows/<dataset>.csv.  seal=true vouches "
        "for the tables first: rows that were edited by hand, or are older than checksums, get "
        "theirs and count again.",
        "Settings: results_dir=results, publish=false, seal=false.\n"
        "Exit codes: 0 done, 2 bad input.",
    )
    overrides = command.read(arguments).overrides
    return exit_code(lambda: _compact(own_settings(overrides, _DEFAULTS)))


def _compact(settings: Mapping[str, str]) -> int:
    publish, seal = (_is_true(settings, name) for name in ("publish", "seal"))
    store = RowStore(settings["results_dir"])
    if not store.results_dir.is_dir():
        raise InputError("results_dir", settings["results_dir"], "no such folder")
    done = [*(store.seal() if seal else ()), *store.compact(publish=publish)]
    for one in done:
        print(one)
    if not done:
        print(f"nothing to merge in {store.results_dir / 'local'}")
    return 0


def _is_true(settings: Mapping[str, str], name: str) -> bool:
    if settings[name].lower() not in ("true", "false"):
        raise InputError(name, settings[name], "must be true or false")
    return settings[name].lower() == "true"


if __name__ == "__main__":
    sys.exit(main())
