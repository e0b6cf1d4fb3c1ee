"""What the tests have in common that are hostile for a while beside honest programs."""

import collections
import os
import pathlib
import re
import threading
import time

import fargpu_testing as testing

SEED = int(os.environ.get("FARGPU_FUZZ_SEED", time.time_ns() % (1 << 32)))
SUCCESSES, REFUSALS = 1000, 100  # of each call, in a run that is long enough
UNREACHED = pathlib.Path(__file__).with_name("unreached.txt")


def seconds(usual):
    """How long a test lasts."""
    return float(os.environ.get("FARGPU_FUZZ_SECONDS", usual))


class Campaign:
    """From now on for so many seconds, or until a worker has crashed."""

    def __init__(self, daemon, seconds):
        self.daemon, self.end = daemon, time.monotonic() + seconds
        self.crashed = threading.Event()

    def goes_on(self):
        return time.monotonic() < self.end and not self.crashed.is_set()

    def run_honest(self, test, pause=0):
        """Runs right programs as long as it goes on, and returns how many."""
        program = testing.BUILD.folder / "tests" / "fault" / "fault_program"
        count = 0
        while self.goes_on():
            done = self.daemon.run(program)
            test.assertEqual(done.returncode, 0, done.stderr)
            count += 1
            time.sleep(pause)
            if self.crashes():
                self.crashed.set()
        return count

    def run_beside(self, test, targets, pause=0, limit=None):
        """The same while each of `targets` runs in a thread; waits for these `limit` seconds."""
        threads = [threading.Thread(target=target) for target in targets]
        for thread in threads:
            thread.start()
        honest = self.run_honest(test, pause)
        for thread in threads:
            thread.join(limit)
        return honest

    def crashes(self):
        """How workers have ended, but for those that the daemon has: of a signal, of a sanitizer's
        report, or of memory that they gave the system and did not have."""
        ended = r'event=session-end .*how="(was killed by signal (?!9 |15 )\d+|exited with 1")'
        return re.findall(ended + "|(Bad address)", self.daemon.log_text())


class Counts:
    """How often each call has succeeded and was refused, those of NVML among them."""

    def __init__(self, calls, management):
        self.calls, self.management = calls, management
        self.names = [*calls.opcode, *management.by_name]
        self.succeeded, self.refused = collections.Counter(), collections.Counter()
        lines = UNREACHED.read_text().splitlines()
        fields = [line.split(maxsplit=2) for line in lines if line and line[0] != "#"]
        # Calls that cannot succeed on the simulated GPU, or cannot be refused.
        self.never = {
            word: {name for name, what, _ in fields if what == word}
            for word in ("succeeds", "refused")
        }
        unknown = {name for name, *_ in fields} - set(self.names)
        assert not unknown, f"{UNREACHED}: no calls {unknown}"

    def share(self, name):
        """How much of what it must be; 1: enough."""
        good = 1 if name in self.never["succeeds"] else self.succeeded[name] / SUCCESSES
        bad = 1 if name in self.never["refused"] else self.refused[name] / REFUSALS
        return min(good, bad, 1)

    def report(self, most=25):
        """Prints the calls with the fewest; returns those with too few, and those that have
        succeeded although they cannot."""
        missing = sorted((n for n in self.names if self.share(n) < 1), key=self.share)
        print(f"{'call':44} {'succeeded':>9} {'refused':>9}")
        for name in missing[:most]:
            print(f"{name:44} {self.succeeded[name]:9} {self.refused[name]:9}")
        if len(missing) > most:
            print(f"... {len(missing) - most} more")
        print(f"{self.succeeded.total()} successes, {self.refused.total()} refusals")
        total = len(self.names)
        tried = sum(bool(self.succeeded[n] + self.refused[n]) for n in self.names)
        good = sum(bool(self.succeeded[n]) for n in self.names)
        print(
            f"{total} calls, {tried} tried, {good} with success, {total - len(missing)} with "
            f"{SUCCESSES} successes and {REFUSALS} refusals or all that they can have"
        )
        return missing, [name for name in self.never["succeeds"] if self.succeeded[name]]
