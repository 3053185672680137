"""``python -m lpgnn.compact``: merge the shards of finished sweeps into one file per dataset."""

import argparse
import sys
from collections.abc import Sequence

from lpgnn.errors import InputError, exit_code
from lpgnn.rows import RowStore

_DEFAULTS = {"results_dir": "results", "publish": "false"}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m lpgnn.compact",
        description="Merge the shards in <results_dir>/local into <results_dir>/local/<dataset>.csv"
        ", or with publish=true all local rows into <results_dir>/rows/<dataset>.csv.",
        epilog="Settings: results_dir=results, publish=false.  Exit codes: 0 done, 2 bad input.",
    )
    parser.add_argument("overrides", nargs="*", metavar="KEY=VALUE")
    overrides = parser.parse_args(arguments).overrides
    return exit_code(lambda: _compact(overrides))


def _compact(overrides: Sequence[str]) -> int:
    settings = dict(_DEFAULTS)
    for override in overrides:
        key, equals, value = override.partition("=")
        if key not in settings or not equals:
            known = ", ".join(settings)
            raise InputError(key, value, f"unknown setting; known settings: {known}")
        settings[key] = value
    publish = settings["publish"].lower()
    if publish not in ("true", "false"):
        raise InputError("publish", settings["publish"], "must be true or false")
    store = RowStore(settings["results_dir"])
    if not store.results_dir.is_dir():
        raise InputError("results_dir", settings["results_dir"], "no such folder")
    done = store.compact(publish=publish == "true")
    for one in done:
        print(one)
    if not done:
        print(f"nothing to merge in {store.results_dir / 'local'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
