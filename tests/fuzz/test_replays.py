"""A hostile client that begins with what is right: sessions of all conformance programs are
recorded, and made again by hand, whole and in parts, some of their frames changed. A worker may
refuse calls and end its session; it must not crash, nor leave anything, and honest programs beside
it are right.

  FARGPU_FUZZ_SECONDS (12), FARGPU_FUZZ_SEED repeat or prolong a run; the last lines say which calls
  have succeeded and were refused least. From 1800 seconds on, none may have too few."""

import concurrent.futures
import functools
import pickle
import random
import subprocess
import time
import unittest

import campaign
import fargpu_testing as testing
import programs
from calls import Calls
from campaign import SEED
from management import Management
from mutations import Proxy
from replays import Known, Replayer

SECONDS = campaign.seconds(12)
LONG = 1800
LIMIT = 60  # of one program, in seconds


def record(daemon, calls, program):
    """Its sessions. They are kept beside the programs until these or the client are built anew."""
    kept = testing.BUILD.folder / "tests" / "recordings" / f"{program.name}.pickle"
    made_of = (program, testing.BUILD.client_libraries / "libcuda.so.1")
    if kept.exists() and all(kept.stat().st_mtime > each.stat().st_mtime for each in made_of):
        return pickle.loads(kept.read_bytes())
    with Proxy(daemon, calls, random.Random(SEED)) as proxy:
        command = [testing.BUILD.fargpu, "run", "--server", proxy.address, "--gpus", "2"]
        command += ["--transport", "tcp", "--no-check", "--", program]
        # No connection for bulk alone; packed images of some.
        packed = ("none", "zstd")[len(program.name) % 2]
        more = dict(FARGPU_TCP_CONNECTIONS=1, FARGPU_COMPRESS=packed)
        try:
            testing.run(command, timeout=LIMIT, env=testing.clean_environment(**more))
        except subprocess.TimeoutExpired:
            pass  # what it has asked is good enough
    kept.parent.mkdir(exist_ok=True)
    kept.with_suffix(".new").write_bytes(pickle.dumps(proxy.recordings))
    kept.with_suffix(".new").rename(kept)
    return proxy.recordings


def recorded(daemon, calls, seconds):
    """Sessions of the conformance programs, in any order and as many as there is time for."""
    found = programs.programs()
    random.Random(SEED).shuffle(found)
    end = time.monotonic() + seconds

    def one(program):
        return record(daemon, calls, program) if time.monotonic() < end else []

    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        return [recording for some in pool.map(one, found) for recording in some]


class Replays(unittest.TestCase):
    def test_hostile_clients(self):
        calls = Calls()
        counts = campaign.Counts(calls, Management(calls.layouts))
        flags = ("--max-memory-per-job", "256M", "--host-memory-per-session", "512M")
        print(f"seed {SEED}", flush=True)
        with testing.Daemon(*flags, "--job-grace", "1s", gpus=2) as daemon:
            end = time.monotonic() + SECONDS
            recordings = recorded(daemon, calls, SECONDS / 3)
            run = campaign.Campaign(daemon, end - time.monotonic())
            known = Known(calls, recordings)
            replayers = [
                Replayer(daemon, known, counts, random.Random(SEED * 64 + number))
                for number in range(3)
            ]
            targets = [functools.partial(each.run, run.goes_on) for each in replayers]
            honest = run.run_beside(self, targets, pause=1)
            testing.wait_until(lambda: not daemon.workers(), "no worker is left", 60)
            missing, wonders = counts.report()
            print(
                f"{len(recordings)} recordings, {sum(r.sessions for r in replayers)} sessions, "
                f"{sum(r.broken for r in replayers)} ended by the server, "
                f"{sum(r.waited for r in replayers)} in calls that wait, "
                f"{sum(r.changed for r in replayers)} frames changed, {honest} honest programs"
            )
            self.assertEqual(run.crashes(), [], f"seed {SEED}")
            self.assertIsNone(daemon.process.poll())
            # It is no good if it does not get anywhere.
            self.assertGreater(counts.succeeded.total(), 500)
            self.assertGreater(counts.refused.total(), 50)
            self.assertEqual(wonders, [], "they do not belong into unreached.txt")
            if SECONDS >= LONG:
                self.assertEqual(missing, [])


if __name__ == "__main__":
    testing.main()
