"""Graphs from networkx, and from GraphML files through it."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from lpgnn.data.frames import graph_from_frames
from lpgnn.data.graph import Graph
from lpgnn.data.ranges import RangeChoice
from lpgnn.data.splits import SplitChoice
from lpgnn.errors import InputError, error_line

if TYPE_CHECKING:
    import networkx as nx


def graph_from_networkx(
    network: "nx.Graph",
    *,
    ranges: RangeChoice,
    split: SplitChoice = None,
    label: str = "label",
    name: str = "custom",
) -> Graph:
    """Take nodes, edges and node attributes over into a ``Graph``.

    Attribute ``label`` is the class, ``split`` the part, and every other one a feature: a number,
    or a sequence of numbers.  A node without the attribute ``label`` has none.
    """
    import pandas as pd

    attributes = [_flat(values) for _, values in network.nodes(data=True)]
    nodes = pd.DataFrame(attributes, index=pd.Index(list(network.nodes), dtype=object))
    if "id" in nodes:  # the node itself is the id; the attribute would take its place
        nodes = nodes.drop(columns="id")
    if label not in nodes:
        nodes[label] = None
    edges = pd.DataFrame(list(network.edges()), columns=["source", "target"], dtype=object)
    return graph_from_frames(nodes, edges, ranges=ranges, split=split, label=label, name=name)


def read_graphml(path: Path) -> "nx.Graph":
    """Read a GraphML file."""
    import networkx as nx

    try:
        return nx.read_graphml(path)
    except Exception as error:  # of expat, of networkx, and of int() and float()
        reason = error_line(error)[:100]
        raise InputError("graphml", path.name, f"not readable as GraphML: {reason}") from None


def _flat(attributes: dict[Any, Any]) -> dict[str, Any]:
    """Sequences as one column for each of their numbers."""
    found = {}
    for key, value in attributes.items():
        if isinstance(value, str) or not hasattr(value, "__len__"):
            found[str(key)] = value
        else:
            found |= {f"{key}_{place}": one for place, one in enumerate(value)}
    return found
