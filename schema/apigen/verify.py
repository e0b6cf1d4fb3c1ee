"""What CI asks: do description, committed contracts, registry and hand-written files belong
together?
"""

import subprocess
from pathlib import Path

import yaml

from . import contracts, manual, registry


def _registry_at(root, revision):
    """The committed registry at `revision`, or None when there is no git or no such file."""
    done = subprocess.run(
        ["git", "-C", str(root), "show", f"{revision}:schema/api/registry.yml"],
        capture_output=True,
        text=True,
        check=False,
    )
    return yaml.safe_load(done.stdout) if done.returncode == 0 else None


def problems(api, schema_dir, base="HEAD"):
    """One line per problem; empty when all is well.

    The description itself was judged when it was loaded.
    """
    root = Path(schema_dir)
    opcodes = registry.load(root / "api" / "registry.yml", root)
    lines = []
    old = _registry_at(root.parent, base)
    if old:
        lines += registry.check_append_only(old, opcodes)
    for name in registry.assign(api, opcodes):
        lines.append(f"api/registry.yml: {name} has no opcode; run 'apigen generate'")
    for name, text in contracts.all_contracts(api).items():
        path = root.parent / name
        if not path.exists():
            lines.append(f"{name} is missing; run 'apigen generate'")
        elif path.read_text(encoding="utf-8") != text:
            lines.append(f"{name} differs from the description; run 'apigen generate'")
    for side in ("client", "server"):
        lines += manual.problems(api, side, root.parent / side / "manual")
    return lines
