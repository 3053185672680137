"""Does training from users' reports give what the simulation gives?

``python scripts/reports_against_simulation.py [--data-dir data] [--collections 10] [OVERRIDE ...]``
simulates a run in memory, and beside it has the client write the reports of each repeat's users,
collects them, deletes the clean data, and trains from the collected files alone.  Repeat and
collection share the split; noise and initial weights are drawn anew.  The accuracies are written
to ``results/reports.csv``, with the mean and 95 % CI of both and of their paired differences.
"""

import argparse
import csv
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import lpgnn
from lpgnn.composition import expand
from lpgnn.rows import RowStore, summarise

COLUMN = "released/test/acc"


def run(*words: str | Path) -> None:
    subprocess.run([sys.executable, "-m", *map(str, words)], check=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("overrides", nargs="*", default=["dataset=cora", "x_eps=1", "y_eps=1"])
    parser.add_argument("--data-dir", type=Path, default=Path("data"))
    parser.add_argument("--collections", type=int, default=10)
    parser.add_argument("--out", type=Path, default=Path("results/reports.csv"))
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        (point,) = expand([*options.overrides, f"data_dir={work / 'data'}"])
        configuration = point.settings.resolve(fetch=False)
        name = configuration.dataset.name
        if (options.data_dir / name).is_dir():
            shutil.copytree(options.data_dir / name, work / "data" / name)
        configuration = point.settings.resolve()
        graph = configuration.dataset.load(work / "data")
        numbers = range(options.collections)
        rows = lpgnn.run_repeats(configuration, graph, numbers)
        simulated = [float(row[COLUMN]) for row in rows]
        for number in numbers:
            sent = work / f"sent-{number}"
            words = [*options.overrides, f"data_dir={work / 'data'}"]
            run("lpgnn.simulate", *words, "--repeat", str(number), "--out", sent)
            run(
                "lpgnn.collect",
                *(f"task={sent / 'task.json'}", f"graph={sent / 'graph.npz'}"),
                *(f"reports={sent / 'reports.bin'}", f"out={work / f'{number}.npz'}"),
            )
        shutil.rmtree(work / "data", ignore_errors=True)
        for number in numbers:
            run(
                "lpgnn.run",
                *(f"reports={work / f'{number}.npz'}", f"seed={number}", "repeats=1"),
                *(f"labels={work / f'sent-{number}' / 'labels.csv'}", f"results_dir={work}"),
                f"data_dir={work / 'data'}",
            )
        learnt = []
        for number in numbers:
            settings = lpgnn.Settings(
                reports=work / f"{number}.npz",
                labels=work / f"sent-{number}" / "labels.csv",
                seed=number,
            )
            one = settings.resolve()
            stored = RowStore(work).finished(one.dataset.name, one.identity)
            learnt.append(float(stored[0][COLUMN]))
    options.out.parent.mkdir(parents=True, exist_ok=True)
    with options.out.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["collection", "simulation", "reports"])
        writer.writerows(zip(numbers, simulated, learnt, strict=True))
    differences = [b - a for a, b in zip(simulated, learnt, strict=True)]
    print(f"simulation    {summarise(simulated)}")
    print(f"from reports  {summarise(learnt)}")
    print(f"difference    {summarise(differences)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
