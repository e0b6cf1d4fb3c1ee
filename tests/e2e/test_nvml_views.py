"""Programs that only look at GPUs, by NVML: they reserve nothing, count nowhere, and leave some
management sessions for others."""

import json
import subprocess
import sys

import fargpu_testing as testing
from nvml_job import LIMIT, PRELUDE, Job, need_nvidia_ml_py

MONITOR = """
nvmlInit()
print(len(handles()), nvmlDeviceGetMemoryInfo(handles()[0]).total, flush=True)
for line in sys.stdin:
    take_memory(1 << 20)
    print(nvmlDeviceGetMemoryInfo(handles()[0]).used, flush=True)
"""


def setUpModule():
    need_nvidia_ml_py()


class Views(Job):
    def by_itself(self, server, script, **environment):
        """A program without `fargpu run`."""
        program = subprocess.Popen(
            [sys.executable, "-c", PRELUDE + script],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=testing.clean_environment(
                FARGPU_SERVER=server,
                LD_LIBRARY_PATH=testing.BUILD.client_libraries,
                **environment,
            ),
        )
        self.addCleanup(program.communicate)
        self.addCleanup(program.kill)
        return program

    def monitor(self, **environment):
        """One that uses NVML, and stays; what it says first."""
        program = self.by_itself(self.daemon.server, MONITOR, **environment)
        return program, program.stdout.readline()

    def test_a_monitor_reserves_nothing(self):
        monitors = [self.monitor(FARGPU_MEMORY="64M", FARGPU_GPUS="3") for _ in range(2)]
        self.assertEqual([said for _, said in monitors], [f"3 {LIMIT}\n"] * 2)
        devices = testing.run([testing.BUILD.fargpu, "devices", "--server", self.daemon.server])
        rows = [line.split() for line in devices.stdout.splitlines()[1:4]]
        self.assertEqual([row[-4:-2] + row[-2:-1] for row in rows], [["0", "B", "0"]] * 3)
        listed = testing.run([testing.BUILD.fargpu, "ps", "--server", self.daemon.server]).stdout
        self.assertIn("0 jobs\n2 sessions\n", listed)
        # Its first session of CUDA makes the job, and what it showed stays true.
        program, _ = monitors[0]
        program.stdin.write("take\n")
        program.stdin.flush()
        self.assertEqual(program.stdout.readline(), f"{1 << 20}\n")
        listed = testing.run([testing.BUILD.fargpu, "ps", "--server", self.daemon.server]).stdout
        self.assertIn("1 jobs\n3 sessions\n", listed)

    def test_another_job_takes_what_a_view_shows(self):
        script = """
nvmlInit()
shown = [nvmlDeviceGetUUID(h) for h in handles()]
print(*shown, flush=True)
sys.stdin.readline()
take_memory(1 << 20)
while not (lost := error(nvmlDeviceGetUtilizationRates, handles()[0])):
    time.sleep(0.02)
nvmlShutdown()
nvmlInit()
after = [nvmlDeviceGetUUID(h) for h in handles()]
print(json.dumps([lost, after, nvmlDeviceGetMemoryInfo(handles()[0]).used]), flush=True)
"""
        with testing.Daemon("--max-sessions-per-gpu", 1, gpus=2) as daemon:
            program = self.by_itself(daemon.server, script)
            shown = program.stdout.readline().strip()
            other = daemon.start("cat", flags=("--device", "0"), stdin=subprocess.PIPE)
            self.addCleanup(other.kill)
            testing.wait_until(lambda: "job-begin" in daemon.log_text(), "the other job")
            program.stdin.write("go\n")
            program.stdin.flush()
            lost, after, used = json.loads(program.stdout.readline())
            other.communicate(timeout=testing.LIMIT)
        self.assertEqual(lost, 15)  # GPU_IS_LOST
        self.assertEqual((len(after), used), (1, 1 << 20))
        self.assertNotEqual(after, [shown])

    def test_one_of_who_has_most_gives_way(self):
        """Each has a job of its own, so that no job has more than its part."""
        with testing.Daemon("--max-sessions", 3) as daemon:
            stays = "nvmlInit(); print(len(handles()), flush=True); sys.stdin.read()"
            for _ in range(4):
                self.assertEqual(self.by_itself(daemon.server, stays).stdout.readline(), "1\n")
            cut = [line for line in daemon.log_text().splitlines() if "session-cut" in line]
            self.assertEqual(len(cut), 1, cut)
            self.assertIn("limit=max-sessions", cut[0])

    def test_no_job_takes_all_management_sessions(self):
        with testing.Daemon("--max-sessions", 4) as daemon:
            script = """
children = []
for i in range(3):
    read, write = os.pipe()
    if os.fork() == 0:
        os.write(write, b"%d" % error(nvmlInit))
        signal.pause()
    children.append(int(os.read(read, 10)))
print(json.dumps(children), flush=True)
sys.stdin.readline()
os.killpg(0, signal.SIGKILL)
"""
            program = daemon.start(
                sys.executable,
                "-c",
                PRELUDE + script,
                stdin=subprocess.PIPE,
                start_new_session=True,
            )
            self.assertEqual(json.loads(program.stdout.readline()), [0, 0, 23])
            other = daemon.run(sys.executable, "-c", PRELUDE + "print(error(nvmlInit))")
            self.assertEqual(other.stdout, "0\n", other.stderr)
            _, errors = program.communicate("end\n", timeout=60)
            self.assertIn("the job has 2 management sessions", errors)


if __name__ == "__main__":
    testing.main()
