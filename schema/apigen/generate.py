"""Writing and comparing: contracts into the tree, C++ into the build folder."""

from pathlib import Path

from . import contracts, registry, render, verify
from .nvml import contracts as nvml


def write(path, text):
    """Leaves the file alone when nothing changes, so that nothing is rebuilt."""
    path = Path(path)
    if path.exists() and path.read_text(encoding="utf-8") == text:
        return False
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return True


def write_contracts(api, schema_dir):
    """Registers new functions, then writes the committed files; the changed paths."""
    root = Path(schema_dir)
    path = root / "api" / "registry.yml"
    before = registry.load(path, root)
    after = registry.assign(api, before, kept=verify.registry_at(root.parent, "HEAD"))
    new = [name for name in after if after[name] != before.get(name)]
    write(path, registry.text(after))
    new_nvml = _write_nvml_registry(api.nvml, root)
    texts = contracts.all_contracts(api)
    changed = [name for name, text in texts.items() if write(root.parent / name, text)]
    for stale in sorted((root / "generated").glob("*.capnp")):
        if f"schema/generated/{stale.name}" not in texts:
            stale.unlink()
            changed.append(f"schema/generated/{stale.name} (removed)")
    for name, count in (("schema/api/registry.yml", len(new)), (nvml.REGISTRY, new_nvml)):
        changed += [f"{name} ({count} new or changed)"] if count else []
    return changed


def _write_nvml_registry(library, root):
    """How many lines of it are new or changed."""
    before = nvml.load_registry(root)
    kept = verify.registry_at(root.parent, "HEAD", nvml.REGISTRY) or {}
    after = nvml.assign(library, before, kept)
    if after:
        write(root.parent / nvml.REGISTRY, registry.text(after, nvml.REGISTRY_HEADER))
    return sum(after[name] != before.get(name) for name in after)


def cpp(api, schema_dir):
    """path below generated/ -> text of every generated C++ file."""
    root = Path(schema_dir)
    entries = registry.assign(api, registry.load(root / "api" / "registry.yml", root))
    return render.render(api, entries, nvml.assign(api.nvml, nvml.load_registry(root)))


def outputs(api, schema_dir):
    """Paths that write_cpp makes, for the build system."""
    return sorted(cpp(api, schema_dir))


def write_cpp(api, schema_dir, out):
    texts = cpp(api, schema_dir)
    for name, text in texts.items():
        write(Path(out) / name, text)
    return texts
