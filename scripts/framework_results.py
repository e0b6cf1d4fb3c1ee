"""What is known of frameworks and libraries: docs/data/frameworks.json has the newest result of
each workload of tests/apps/workloads.toml. scripts/gpu-suite --results enters what it finds,
scripts/frameworks_page.py makes the page of it.

A result says `native`: runs, or fails, with `reason`, `date` and `machine`. Beside it, each
transport that has run has a `result` (right, wrong or fails), `date` and `machine` of its own, the
`reason` where it is not right, a `note` where it needs one, and from runs with --times `seconds`
and `native_seconds` of the same run: of the timed work, or else of the whole process."""

import fcntl
import json
import pathlib
import tomllib

ROOT = pathlib.Path(__file__).resolve().parents[1]
RESULTS = ROOT / "docs" / "data" / "frameworks.json"
WORKLOADS = ROOT / "tests" / "apps" / "workloads.toml"


def described():
    with open(WORKLOADS, "rb") as file:
        return tomllib.load(file)


def load(path=RESULTS):
    return json.loads(pathlib.Path(path).read_text())


def combined(known, found):
    """What is known of a workload once `found` was: of a transport that did not run this time, what
    was known before."""
    transports = {key: value for key, value in known.items() if isinstance(value, dict)}
    return {"native": found["native"]} | transports | found


def merge(path, name, result):
    """Enters one result; several processes may do so. A new file begins as the committed one."""
    with open(path, "a+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        results = json.loads(file.read() or RESULTS.read_text())
        results[name] = combined(results.get(name, {}), result)
        order = [row["name"] for row in described()["workload"]]
        known = {each: results[each] for each in order if each in results}
        file.seek(0)
        file.truncate()
        file.write(json.dumps(known, indent=2) + "\n")
