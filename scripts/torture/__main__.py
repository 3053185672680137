"""``python scripts/torture [faults|kills|growth ...]``: run them and write results/faults.md."""

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path

PARTS = ("faults", "store-kills", "sweep-kills", "growth")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python scripts/torture", description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)} (all)")
    parser.add_argument("--data-dir", type=Path, help="with raw files, of which bits are flipped")
    parser.add_argument("--store-kills", type=int, default=300)
    parser.add_argument("--sweep-kills", type=int, default=100)
    parser.add_argument("--rows", type=int, default=200_000, help="of the largest folder")
    parser.add_argument("--out", type=Path, default=Path("results/faults"))
    options = parser.parse_args()
    parts, failed = options.parts or list(PARTS), 0
    if set(parts) - set(PARTS):
        parser.error(f"parts are {', '.join(PARTS)}")
    # Workers are forked only from a process with one thread, and numpy starts some when imported.
    for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = "1"
    from growth import growth_table
    from kills import store_kills, sweep_kills

    options.out.mkdir(parents=True, exist_ok=True)
    for part in parts:
        started = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="lpgnn-torture-") as scratch:
            if part == "faults":
                text, wrong = _fault_page(Path(scratch), options.data_dir)
            elif part == "store-kills":
                text, wrong = store_kills(Path(scratch), options.store_kills)
            elif part == "sweep-kills":
                text, wrong = sweep_kills(Path(scratch), options.sweep_kills)
            else:
                text, wrong = growth_table(Path(scratch), options.rows)
        failed += wrong
        (options.out / f"{part.replace('-', '_')}.md").write_text(text)
        print(f"{part}: {wrong} wrong, {time.monotonic() - started:.0f} s", flush=True)
    return 1 if failed else 0


def _fault_page(scratch: Path, data_dir: Path | None) -> tuple[str, int]:
    from faults import all_faults

    outcomes = all_faults(scratch, data_dir)
    wrong = sum(not one.is_right for one in outcomes)
    lines = [
        "# Faults and what happens",
        "",
        f"Written by `make torture`, which runs each of them: {len(outcomes)} faults, "
        f"{len(outcomes) - wrong} end as they should.",
        "",
        "| | fault | what happens | |",
        "|---|---|---|---|",
    ]
    group = ""
    for one in outcomes:
        shown = one.group if one.group != group else ""
        group = one.group
        mark = "as it should" if one.is_right else "**wrong**"
        lines.append(f"| {shown} | {one.fault} | {one.happened} | {mark} |")
    return "\n".join(lines) + "\n", wrong


if __name__ == "__main__":
    sys.exit(main())
