"""What CI asks: do description, committed contracts, registry and hand-written files belong
together, and do they keep what earlier commits and the previous release promised?
"""

import subprocess
from pathlib import Path

import yaml

from . import contracts, control, manual, registry
from .nvml import contracts as nvml
from .nvml import manual as nvml_manual


def _at(root, revision, path):
    """The text of a committed file, or None where there is no git, commit or file."""
    done = subprocess.run(
        ["git", "-C", str(root), "show", f"{revision}:{path}"],
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout if done.returncode == 0 else None


def registry_at(root, revision, path="schema/api/registry.yml"):
    """The committed registry at `revision`, or None."""
    text = _at(root, revision, path)
    return None if text is None else registry.parse(yaml.safe_load(text))


def _previous_release(root):
    """The commit that tests/skew is about, as a list; empty when there is none."""
    path = root / "tests" / "skew" / "previous.txt"
    return [path.read_text(encoding="utf-8").split()[1]] if path.exists() else []


def problems(api, schema_dir, base="HEAD"):
    """One line per problem; empty when all is well.

    The description itself was judged when it was loaded.
    """
    schema = Path(schema_dir)
    root = schema.parent
    entries = registry.load(schema / "api" / "registry.yml", schema)
    nvml_entries = nvml.load_registry(schema)
    lines = []
    for revision in [base, *_previous_release(root)]:
        if old := registry_at(root, revision):
            lines += registry.check_append_only(old, entries)
        if old := registry_at(root, revision, nvml.REGISTRY):
            lines += registry.check_append_only(old, nvml_entries, nvml.REGISTRY)
        if old := _at(root, revision, "schema/control.capnp"):
            new = (schema / "control.capnp").read_text(encoding="utf-8")
            lines += control.problems(old, new)
    for name, entry in registry.assign(api, entries).items():
        if entries.get(name) == entry:
            continue
        what = "has changed its message" if "@" in name else "has no opcode or no fingerprint"
        function = registry.function_name(name)
        lines.append(f"api/registry.yml: {function} {what}; run 'apigen generate'")
    if nvml.assign(api.nvml, nvml_entries) != nvml_entries:
        lines.append(f"{nvml.REGISTRY} differs from the description; run 'apigen generate'")
    for name, text in contracts.all_contracts(api).items():
        path = root / name
        if not path.exists():
            lines.append(f"{name} is missing; run 'apigen generate'")
        elif path.read_text(encoding="utf-8") != text:
            lines.append(f"{name} differs from the description; run 'apigen generate'")
    for side in ("client", "server"):
        lines += manual.problems(api, side, root / side / "manual")
    lines += nvml_manual.problems(api.nvml, root)
    return list(dict.fromkeys(lines))
