"""YAML files of users: a mapping that names a key twice is refused, where YAML keeps the last."""

from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from yaml import MappingNode, SafeLoader


def parse_yaml(text: str) -> Any:
    """Plain values only.  Raises yaml.YAMLError, for a repeated key as well."""
    import yaml

    return yaml.load(text, _loader())


@cache
def _loader() -> "type[SafeLoader]":
    import yaml

    class UniqueKeys(yaml.SafeLoader):
        def construct_mapping(self, node: "MappingNode", deep: bool = False) -> dict[Any, Any]:
            known = set[Any]()
            for one, _ in node.value:
                # "<<" merges another mapping; what is no scalar is no key of a Python dictionary
                if isinstance(one, yaml.ScalarNode) and one.tag != "tag:yaml.org,2002:merge":
                    key = self.construct_object(one)
                    if key in known:
                        problem = f"the key {key!r} is repeated"
                        raise yaml.constructor.ConstructorError(
                            problem=problem, problem_mark=one.start_mark
                        )
                    known.add(key)
            return super().construct_mapping(node, deep=deep)

    return UniqueKeys
