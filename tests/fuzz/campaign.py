"""What the tests have in common that are hostile for a while beside honest programs."""

import os
import re
import time

import fargpu_testing as testing

SEED = int(os.environ.get("FARGPU_FUZZ_SEED", time.time_ns() % (1 << 32)))


def seconds(usual):
    """How long a test lasts."""
    return float(os.environ.get("FARGPU_FUZZ_SECONDS", usual))


def run_honest(test, daemon, until, pause=0):
    """Runs right programs until then, and returns how many."""
    program = testing.BUILD.folder / "tests" / "fault" / "fault_program"
    count = 0
    while time.monotonic() < until:
        done = daemon.run(program)
        test.assertEqual(done.returncode, 0, done.stderr)
        count += 1
        time.sleep(pause)
    return count


def crashes(daemon):
    """The signals that have ended workers, but for those that the daemon sends."""
    ends = re.findall(r'event=session-end .*how="was killed by signal (\d+)', daemon.log_text())
    return [number for number in ends if number not in ("9", "15")]


def report(calls, succeeded, refused):
    """Prints how often each call has succeeded and was refused."""
    for name in calls.opcode:
        print(f"{name:40} {succeeded[name]:8} {refused[name]:8}")
    tried = [name for name in calls.opcode if succeeded[name] + refused[name]]
    good = [name for name in tried if succeeded[name]]
    print(f"{len(calls.all)} calls, {len(tried)} tried, {len(good)} with success")
