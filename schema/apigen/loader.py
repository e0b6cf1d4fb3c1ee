"""YAML with positions: every mapping and every value of the mapping knows its file and line."""

from dataclasses import dataclass, field
from pathlib import Path

import yaml

from .errors import DescriptionError

# The loader in C is much faster; both give nodes with positions.
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_SCALARS = yaml.SafeLoader("")


@dataclass
class Located(dict):
    """A mapping that knows where it stands: `where` is "file:line" of its first key."""

    where: str = ""
    lines: dict = field(default_factory=dict)

    def __init__(self, where="", lines=None, items=()):
        dict.__init__(self, items)
        self.where = where
        self.lines = lines or {}

    def at(self, key):
        """ "file:line" of one key."""
        return self.lines.get(key, self.where)


def _construct(node, name):
    if isinstance(node, yaml.MappingNode):
        result = Located(f"{name}:{node.start_mark.line + 1}")
        for key_node, value_node in node.value:
            key = _construct(key_node, name)
            place = f"{name}:{key_node.start_mark.line + 1}"
            if key in result:
                raise DescriptionError(place, f"'{key}' is given twice")
            result[key] = _construct(value_node, name)
            result.lines[key] = place
        return result
    if isinstance(node, yaml.SequenceNode):
        return [_construct(item, name) for item in node.value]
    return _SCALARS.construct_object(node)


def _functions(entries):
    """The functions of a chapter, each with the keys of its group."""
    for entry in entries:
        if not isinstance(entry, Located) or "functions" not in entry:
            yield entry
            continue
        group = {key: value for key, value in entry.items() if key != "functions"}
        for f in entry["functions"] or ():
            if not isinstance(f, Located):
                raise DescriptionError(entry.at("functions"), "'functions' is a list of functions")
            for key in group.keys() & f.keys():
                raise DescriptionError(f.at(key), f"the group says '{key}'")
            yield Located(f.where, entry.lines | f.lines, group | f)


def load_chapter(path, root=None):
    """(title, functions) of a file: a list of functions and groups below a line with its title."""
    entries = load_yaml(path, root)
    if not isinstance(entries, list):
        raise DescriptionError(f"{path.name}:1", "a chapter is a list of functions")
    functions = list(_functions(entries))
    first = path.read_text(encoding="utf-8").split("\n", 1)[0]
    return first.lstrip("# ").rstrip(".") if first.startswith("#") else path.stem, functions


def refuse_doubles(functions):
    """Each is described once."""
    seen = {}
    for f in functions:
        if f.name in seen:
            raise DescriptionError(f.where, f"{f.name} is already described at {seen[f.name]}")
        seen[f.name] = f.where


def load_yaml(path, root=None):
    """The document in `path`; positions name the file relative to `root`."""
    path = Path(path)
    name = str(path.relative_to(root)) if root else path.name
    try:
        node = yaml.compose(path.read_text(encoding="utf-8"), Loader=_LOADER)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise DescriptionError(f"{name}:{line}", f"not YAML: {error.problem}") from error
    except OSError as error:
        raise DescriptionError(name, f"cannot be read: {error.strerror}") from error
    return _construct(node, name) if node is not None else None
