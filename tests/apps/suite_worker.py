"""A plugin of pytest for scripts/suites: collects tests, or runs those of a list, and says after
every step in a file how far it is. The environment variable SUITE_JOB names a file with JSON:

  results   where a line of JSON is written for each step
  tests     the tests to run, in order; without it, they are only collected
  package   the Python package that lies in `folder`, and whose modules are imported by name
  prelude   Python code that runs first
  fixtures  fixtures that set attributes of a test's class

A process whose CUDA context has an error that stays ends after that test, so that no test fails
because of one before it."""

import ctypes
import importlib
import json
import os
import pathlib

JOB = json.loads(pathlib.Path(os.environ["SUITE_JOB"]).read_text())
exec(JOB["prelude"], {})

import pytest  # noqa: E402

TEXT = 3000  # characters of a failure that are kept
# What cuCtxSynchronize answers in a process that is well: success, not initialised, no context,
# and during a capture.
WELL = (0, 3, 201, 900)
stream = open(JOB["results"], "a", buffering=1)
found = {}  # of the test that runs: the worst outcome so far


def fixture_of(name, attributes):
    @pytest.fixture(scope="class", name=name)
    def given(request):
        for key, value in attributes.items():
            setattr(request.cls, key, value)

    return given


for fixture, attributes in JOB.get("fixtures", {}).items():
    globals()[fixture] = fixture_of(fixture, attributes)


def say(**step):
    stream.write(json.dumps(step) + "\n")


def module_of(path):
    """The module of an installed package that this file is."""
    inside = pathlib.Path(path).resolve().relative_to(pathlib.Path(JOB["folder"]).resolve())
    return ".".join((JOB["package"], *inside.with_suffix("").parts))


class InstalledModule(pytest.Module):
    """A file of an installed package: imported by the name that the package gives it."""

    def _getobj(self):
        try:
            return importlib.import_module(module_of(self.path))
        except pytest.skip.Exception:
            raise
        except Exception as error:
            raise self.CollectError(f"{type(error).__name__}: {error}") from error


def pytest_pycollect_makemodule(module_path, parent):
    if "package" in JOB:
        return InstalledModule.from_parent(parent, path=module_path)
    return None


@pytest.hookimpl(optionalhook=True)
def pytest_collect_directory(path, parent):
    if "package" in JOB:
        return pytest.Dir.from_parent(parent, path=path)
    return None


@pytest.hookimpl(trylast=True)  # behind -k, which takes some away
def pytest_collection_modifyitems(session, config, items):
    if "tests" not in JOB:
        for item in items:
            say(collected=item.nodeid, file=str(item.path))
        return
    wanted = {name: index for index, name in enumerate(JOB["tests"])}
    chosen = [item for item in items if item.nodeid in wanted]
    items[:] = sorted(chosen, key=lambda item: wanted[item.nodeid])


def pytest_collectreport(report):
    if report.failed:
        say(broken=report.nodeid, text=str(report.longrepr)[-TEXT:])


def pytest_runtest_logstart(nodeid, location):
    found.clear()
    say(begins=nodeid)


def pytest_runtest_logreport(report):
    found["seconds"] = found.get("seconds", 0) + report.duration
    if report.failed:
        found.update(outcome="failed", text=str(report.longrepr)[-TEXT:])
    elif report.skipped and found.get("outcome") != "failed":
        outcome = "xfailed" if hasattr(report, "wasxfail") else "skipped"
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
        found.update(outcome=outcome, text=str(reason or "")[-TEXT:])


@pytest.hookimpl(tryfirst=True)
def pytest_report_teststatus(report):
    return report.outcome, "", ""  # no letter: tests look at what is printed


def context_is_well():
    try:
        return ctypes.CDLL("libcuda.so.1").cuCtxSynchronize() in WELL
    except OSError:
        return True


@pytest.hookimpl(trylast=True)
def pytest_runtest_logfinish(nodeid, location):
    result = {"outcome": "passed", "text": "", "seconds": 0} | found
    say(ends=nodeid, **result)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item, nextitem):
    done = yield
    if found.get("outcome") == "failed" and not context_is_well():
        say(ill=item.nodeid)
        stream.flush()
        os._exit(3)  # an orderly end could wait for the GPU
    return done
