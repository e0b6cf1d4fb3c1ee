"""What copies cost in frames. A synchronous one to the device: one, without a round trip, where
nothing can tell that the bytes are not there yet. A wait behind one to the host: none."""

import re
import unittest

import fargpu_testing as testing


class CopyCalls(unittest.TestCase):
    def calls(self, transport, memory, count):
        """How many frames the worker of one run has executed."""
        with testing.Daemon(gpus=1) as daemon:
            done = daemon.run(
                testing.BUILD.program("counted_copies"),
                memory,
                count,
                flags=("--transport", transport),
            )
            self.assertEqual((done.returncode, done.stdout), (0, ""), done.stderr)
            ended = testing.wait_until(
                lambda: re.search(r"event=session-end .*\bcalls=(\d+)", daemon.log_text()),
                "the end of the session in the log",
            )
            return int(ended[1])

    def test_no_copy_waits(self):
        count = 200
        for transport, memory in (
            ("tcp", "pageable"),
            ("tcp", "pinned"),
            ("tcp", "registered"),
            ("shm", "pageable"),
            ("shm", "registered"),
        ):
            with self.subTest(transport=transport, memory=memory):
                more = self.calls(transport, memory, count) - self.calls(transport, memory, 0)
                # The fills, the copies, and perhaps a ping on a slow machine.
                self.assertGreaterEqual(more, 2 * count)
                self.assertLess(more, 2 * count + 10)

    def test_a_wait_behind_a_read_asks_nobody(self):
        count = 200
        for transport in ("tcp", "shm"):
            with self.subTest(transport=transport):
                more = self.calls(transport, "reads", count) - self.calls(transport, "reads", 0)
                self.assertGreaterEqual(more, 2 * count)
                self.assertLess(more, 2 * count + 20)

    @unittest.skipUnless(
        testing.WORKER_SHARES_MEMORY,
        "the worker's sanitizer lets it share no memory of this client",
    )
    def test_a_copy_of_shared_memory_waits_in_one_call(self):
        more = self.calls("shm", "pinned", 50) - self.calls("shm", "pinned", 0)
        self.assertLess(more, 2 * 50 + 10)


if __name__ == "__main__":
    testing.main()
