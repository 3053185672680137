#!/usr/bin/env bash
# From a wheel or sdist to a LaTeX table, as a new user would do it: a fresh virtual environment in a folder outside the
# checkout, one run, a grid, a graph of their own from CSV files (tune, run, report), and an experiment with a mechanism,
# a graph and YAML files of their own.  Prints what it does.
#
#   scripts/try_wheel.sh dist/lpgnn-*.whl [PYTHON]
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
package=$(realpath "$1")
python=${2:-python3}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"

say() { printf '$ %s\n' "$*"; "$@"; }

"$python" -m venv venv
source venv/bin/activate
export PIP_CONSTRAINT="$here/constraints.txt" PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_QUIET=1
pip install torch==2.13.0 # first and pinned: left to the resolver it may bring gigabytes of CUDA packages
printf '$ pip install %s\n' "$(basename "$package")"
pip install "$package"

say lpgnn run dataset=sbm repeats=3 max_epochs=60
say lpgnn run -m dataset=sbm x_eps=0.1,1 repeats=3 max_epochs=60

mkdir my_graph
python - <<'GRAPH'
from pathlib import Path
nodes = [f"p{i},{'ab'[i // 30]},{i % 11 - 3},{i // 30}" for i in range(60)]
edges = [f"p{i},p{i // 30 * 30 + (i + step) % 30}" for i in range(60) for step in (1, 2)]
Path("my_graph/nodes.csv").write_text("\n".join(["id,label,first,second", *nodes, ""]))
Path("my_graph/edges.csv").write_text("\n".join(["from,to", *edges, ""]))
GRAPH
mine=(dataset=files dataset.path=my_graph 'dataset.ranges=[-3,7]' max_epochs=2)
say lpgnn tune --quick "${mine[@]}"
say lpgnn run "${mine[@]}" hparams=tuned
say lpgnn report

cp "$here"/../tests/extending/workbench/*.py .
cp -r "$here/../tests/extending/workbench/conf" my_conf
export PYTHONPATH=.
say ls my_conf my_conf/experiment
say lpgnn run --config-dir my_conf experiment=mine
say lpgnn report --config-dir my_conf experiment=mine
say cat results/tables/mine.tex

# What must be in the package, and where it must come from.
python - "$folder" <<'CHECK'
import sys
from importlib.resources import files
import lpgnn
assert lpgnn.__file__.startswith(sys.argv[1]), lpgnn.__file__
for name in ("py.typed", "conf/config.yaml", "conf/hyperparameters/paper.yaml", "paper/mechanisms.csv", "report/page.html.j2"):
    assert files("lpgnn").joinpath(name).is_file(), name
CHECK
test "$(grep -c 'pm' results/tables/mine.tex)" -ge 3
grep -q '^my_graph,' results/tables/runs.csv
