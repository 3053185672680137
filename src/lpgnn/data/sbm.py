"""A synthetic citation graph: a degree-corrected block model with class-dependent words."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from lpgnn.data.graph import Graph, Topology
from lpgnn.data.normalise import make_graph
from lpgnn.data.sparse import CsrMatrix
from lpgnn.errors import InputError
from lpgnn.randomness import derive_generator

# Class c has a share of nodes in proportion to (c + 1)^-CLASS_SKEW: with seven classes the largest
# has 27 % of the nodes and the smallest 9 % (Cora: 30 % and 7 %).
CLASS_SKEW = 0.6
MIN_NODES_PER_CLASS = 8
# The word of rank r has the weight (r + WORD_OFFSET)^-1, Zipf's law with a flattened head.
WORD_OFFSET = 10.0
MAX_ROUNDS = 200


@dataclass(frozen=True)
class BlockModel:
    """Degree-corrected stochastic block model (Karrer and Newman 2011) with bag-of-words features.

    Every node has a topic, which is its class but for a share ``label_noise`` of the nodes: small
    groups filed under another class than their words tell.  Without them a graph of Cora's
    homophily and words is learnt far better than Cora.  An edge picks its ends in proportion to
    power-law propensities; a share ``homophily`` of the edges joins nodes of one class and topic,
    the others join two classes.  A node's words come with probability ``feature_signal`` from its
    topic's own distribution and else from a background that all topics share.  The defaults are of
    Cora's size and difficulty.  Time and memory are O(edges + words).
    """

    num_nodes: int = 2708
    average_degree: float = 3.9
    num_classes: int = 7
    num_features: int = 1433
    homophily: float = 0.81
    features_per_node: float = 18.0
    feature_signal: float = 0.45
    label_noise: float = 0.08
    degree_exponent: float = 3.0
    seed: int = 0

    def generate(self) -> Graph:
        """Draw the graph that belongs to the seed.

        Words that no node or every node has are dropped with the other constant columns.
        """
        self._validate()
        generator = derive_generator(self.seed, 0, "graph")
        topics = self._topics(generator)
        labels = self._labels(topics, generator)
        topology = self._topology(topics, labels, generator)
        features = self._features(topics, generator)
        return make_graph("sbm", topology, features, labels, self.num_classes)

    def num_edges(self) -> int:
        return round(self.num_nodes * self.average_degree / 2)

    def class_sizes(self) -> Tensor:
        """Every class gets its minimum, the rest is shared by weight.  -> [C], sums to N"""
        weights = torch.arange(1, self.num_classes + 1, dtype=torch.float64) ** -CLASS_SKEW
        base = MIN_NODES_PER_CLASS // 2
        shared = self.num_nodes - base * self.num_classes
        sizes = base + (shared * weights / weights.sum()).floor().to(torch.int64)
        sizes[: self.num_nodes - int(sizes.sum())] += 1
        return sizes

    def _topics(self, generator: torch.Generator) -> Tensor:  # -> [N]
        topics = torch.repeat_interleave(torch.arange(self.num_classes), self.class_sizes())
        return topics[torch.randperm(self.num_nodes, generator=generator)]

    def _labels(self, topics: Tensor, generator: torch.Generator) -> Tensor:
        """Move round(label_noise N) nodes to one of the other classes.  [N] -> [N]"""
        num_noisy = round(self.label_noise * self.num_nodes)
        chosen = torch.randperm(self.num_nodes, generator=generator)[:num_noisy]
        shift = torch.randint(1, self.num_classes, (num_noisy,), generator=generator)
        labels = topics.clone()
        labels[chosen] = (topics[chosen] + shift) % self.num_classes
        return labels

    def _topology(self, topics: Tensor, labels: Tensor, generator: torch.Generator) -> Topology:
        """Draw exactly ``num_edges`` edges, of which round(homophily * num_edges) within a class.

        Self-loops and repeated pairs are drawn again.
        """
        num_edges = self.num_edges()
        picker = _EndPicker.build(topics, labels, self._propensities(generator), self.num_classes)
        num_inside = round(self.homophily * num_edges)
        wanted = {True: num_inside, False: num_edges - num_inside}
        drawn = {True: torch.empty(0, dtype=torch.int64), False: torch.empty(0, dtype=torch.int64)}
        # Every node starts one edge as far as they go round: few nodes stay isolated.
        starts = torch.randperm(self.num_nodes, generator=generator)[:num_edges]
        cut = round(self.homophily * starts.numel())
        first_sources = {True: starts[:cut], False: starts[cut:]}
        for inside, target_size in wanted.items():
            sources = first_sources[inside][:target_size]
            for _ in range(MAX_ROUNDS):
                shortfall = target_size - drawn[inside].numel()
                if shortfall == 0:
                    break
                more = picker.any_end(shortfall - sources.numel(), generator)
                sources = torch.cat([sources, more])
                targets = picker.other_end(sources, inside, generator)
                low, high = torch.minimum(sources, targets), torch.maximum(sources, targets)
                keys = (low * self.num_nodes + high)[low != high]
                drawn[inside] = torch.cat([drawn[inside], keys]).unique()
                sources = sources[:0]
            else:
                raise InputError(
                    "dataset.average_degree",
                    self.average_degree,
                    f"too dense for {self.num_nodes} nodes with homophily {self.homophily}; "
                    "lower it or raise dataset.num_nodes",
                )
        keys = torch.cat([drawn[True], drawn[False]])
        edges = torch.stack([keys // self.num_nodes, keys % self.num_nodes])
        return Topology.from_edges(self.num_nodes, edges)

    def _propensities(self, generator: torch.Generator) -> Tensor:
        """Pareto with density ~ theta^-degree_exponent, cut where a pair would repeat.  -> [N]"""
        uniform = torch.rand(self.num_nodes, generator=generator, dtype=torch.float64)
        theta = (1 - uniform) ** (-1 / (self.degree_exponent - 1))
        # The structural cut-off of an uncorrelated graph: no expected degree above sqrt(N k).
        return theta.clamp(max=math.sqrt(self.num_nodes / self.average_degree) + 1)

    def _features(self, topics: Tensor, generator: torch.Generator) -> CsrMatrix:
        """Draw Poisson numbers of words a node, each from its topic or the background.  -> [N, d]"""
        d, num_nodes = self.num_features, self.num_nodes
        weights = 1 / (torch.arange(d, dtype=torch.float64) + WORD_OFFSET)
        cumulative = weights.cumsum(0) / weights.sum()
        # Row c orders the vocabulary by frequency in topic c; the last row is the background.
        num_orders = self.num_classes + 1
        order = torch.rand(num_orders, d, generator=generator).argsort(dim=1)  # [C + 1, d]

        rate = self._draws_per_node(weights / weights.sum(), order)
        draws = torch.poisson(torch.full((num_nodes,), rate), generator=generator).to(torch.int64)
        nodes = torch.repeat_interleave(torch.arange(num_nodes), draws)  # [draws]
        from_topic = torch.rand(nodes.numel(), generator=generator) < self.feature_signal
        distribution = torch.where(from_topic, topics[nodes], self.num_classes)
        uniform = torch.rand(nodes.numel(), generator=generator, dtype=torch.float64)
        rank = torch.searchsorted(cumulative, uniform, right=True).clamp_(max=d - 1)
        keys = (nodes * d + order.flatten()[distribution * d + rank]).unique()

        indptr = torch.zeros(num_nodes + 1, dtype=torch.int64)
        indptr[1:] = torch.bincount(keys // d, minlength=num_nodes).cumsum(0)
        return CsrMatrix(indptr, keys % d, torch.ones(keys.numel()), (num_nodes, d))

    def _draws_per_node(self, word_probability: Tensor, order: Tensor) -> float:
        """Solve E[distinct words] = sum_j (1 - exp(-rate p_j)) = features_per_node for the rate."""
        by_word = torch.empty_like(order, dtype=torch.float64)
        by_word.scatter_(1, order, word_probability.expand_as(by_word))
        signal = self.feature_signal
        mixed = signal * by_word[:-1] + (1 - signal) * by_word[-1]  # [C, d]
        share = self.class_sizes().double() / self.num_nodes
        low, high = 0.0, self.features_per_node
        while float(share @ -torch.expm1(-high * mixed).sum(dim=1)) < self.features_per_node:
            low, high = high, 2 * high
        for _ in range(40):
            middle = (low + high) / 2
            distinct = float(share @ -torch.expm1(-middle * mixed).sum(dim=1))
            low, high = (middle, high) if distinct < self.features_per_node else (low, middle)
        return high

    def _validate(self) -> None:
        def check(setting: str, ok: bool, allowed: str) -> None:
            if not ok:
                raise InputError(f"dataset.{setting}", getattr(self, setting), allowed)

        check("num_classes", self.num_classes >= 2, "at least 2")
        least = MIN_NODES_PER_CLASS * self.num_classes
        check(
            "num_nodes",
            self.num_nodes >= least,
            f"at least {MIN_NODES_PER_CLASS} per class: {least}",
        )
        limit = self.num_nodes / 4
        check(
            "average_degree", 0 < self.average_degree <= limit, f"in (0, num_nodes / 4 = {limit:g}]"
        )
        check("num_features", self.num_features >= 2, "at least 2")
        check("homophily", 0 <= self.homophily <= 1, "in [0, 1]")
        limit = self.num_features / 2
        in_range = 0 < self.features_per_node <= limit
        check("features_per_node", in_range, f"in (0, num_features / 2 = {limit:g}]")
        check("feature_signal", 0 <= self.feature_signal <= 1, "in [0, 1]")
        limit = (self.num_classes - 1) / self.num_classes
        check(
            "label_noise",
            0 <= self.label_noise < limit,
            f"in [0, 1 - 1 / num_classes = {limit:.3f})",
        )
        check("degree_exponent", 2 < self.degree_exponent < math.inf, "a finite number above 2")
        check("seed", self.seed >= 0, "a whole number, at least 0")


@dataclass(frozen=True)
class _EndPicker:
    """Picks the ends of edges in proportion to the nodes' propensities.

    Nodes lie side by side on a line, each with its propensity as its length, class after class and
    within a class topic after topic.  A uniform point on the whole line, on the stretch of a block
    (a class and topic) or off the stretch of a class picks a node.
    """

    nodes: Tensor  # [N] in the order of the line
    ends: Tensor  # [N] where each node's length ends
    block_bounds: Tensor  # [C * C + 1] where the blocks' stretches begin and end
    class_bounds: Tensor  # [C + 1] the same for classes
    labels: Tensor  # [N]
    blocks: Tensor  # [N]

    @classmethod
    def build(
        cls, topics: Tensor, labels: Tensor, propensities: Tensor, num_classes: int
    ) -> "_EndPicker":
        blocks = labels * num_classes + topics
        nodes = blocks.argsort(stable=True)
        ends = propensities[nodes].cumsum(0)
        block_sizes = torch.bincount(blocks, minlength=num_classes**2)
        from_zero = torch.cat([torch.zeros(1, dtype=ends.dtype), ends])  # [N + 1]
        positions = torch.cat([torch.zeros(1, dtype=torch.int64), block_sizes.cumsum(0)])
        block_bounds = from_zero[positions]
        return cls(nodes, ends, block_bounds, block_bounds[::num_classes], labels, blocks)

    def any_end(self, count: int, generator: torch.Generator) -> Tensor:
        uniform = torch.rand(count, generator=generator, dtype=torch.float64)
        return self._node_at(uniform * self.ends[-1])

    def other_end(self, sources: Tensor, inside: bool, generator: torch.Generator) -> Tensor:
        """Pick a node of the source's block, or of any other class.  [n] -> [n]"""
        uniform = torch.rand(sources.numel(), generator=generator, dtype=torch.float64)
        if inside:
            block = self.blocks[sources]
            begin, end = self.block_bounds[block], self.block_bounds[block + 1]
            return self._node_at(begin + uniform * (end - begin))
        label = self.labels[sources]
        begin, end = self.class_bounds[label], self.class_bounds[label + 1]
        point = uniform * (self.ends[-1] - (end - begin))
        return self._node_at(torch.where(point < begin, point, point + (end - begin)))

    def _node_at(self, point: Tensor) -> Tensor:
        position = torch.searchsorted(self.ends, point, right=True)
        return self.nodes[position.clamp_(max=self.nodes.numel() - 1)]
