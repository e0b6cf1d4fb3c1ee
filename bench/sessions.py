#!/usr/bin/env python3
"""What do sessions cost a server? Starts a daemon on loopback and, for each number of standing
sessions, prints

* how long a further session takes to start (cuInit and the primary context, in a new process), and
  what a call that waits for the server takes in one session while the others stand still;
* what that call takes in the standing sessions while all of them make it all the time: the median
  and the highest of their medians, the same of their 99th percentiles, and how many calls a second
  the slowest session made, the median one and the fastest;
* the memory of daemon, workers and workers that wait for a session: Pss of /proc/PID/smaps_rollup,
  so that pages which processes share count once in the sum; their threads and open files.

With the machine's GPU (--where gpu) a line of the same many processes without fargpu comes before
each: what the driver alone takes, and the memory that it adds to a process. The client's GPU is
hidden then, which needs root or a user who may use unshare -m. The last line with the simulated GPU
is what it takes in a process without fargpu: of a worker's memory it is not fargpu's part. The
sessions are processes of one job; they start one behind the other. With --gpus they take its GPUs
in turn.

    bench/sessions.py --build-dir build/release --counts 1,16,64,256
"""

import argparse
import array
import ctypes
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "scripts"))
from gpu_runs import Daemon  # noqa: E402

CALLS = 2000
BEFORE_ALL = 0.5  # seconds from the word that all are to call until they do


def driver(path="libcuda.so.1"):
    return ctypes.CDLL(path)


def need(result):
    if result != 0:
        raise RuntimeError(f"CUDA error {result}")


def start_session(cuda, device=0):
    """Seconds until there is a current context."""
    context = ctypes.c_void_p()
    begin = time.perf_counter()
    need(cuda.cuInit(0))
    need(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device))
    need(cuda.cuCtxSetCurrent(context))
    return time.perf_counter() - begin


def call_times(cuda):
    """Seconds of calls that wait for the server."""
    times = []
    for _ in range(CALLS):
        begin = time.perf_counter()
        cuda.cuStreamQuery(ctypes.c_void_p(1))
        times.append(time.perf_counter() - begin)
    return times


def percentile(times, part):
    return sorted(times)[min(len(times) - 1, int(part * len(times)))]


def active_calls(cuda, seconds, first):
    """p50 and p99 of such calls from `first` on, one behind the other, in seconds; calls a
    second."""
    times = array.array("f")
    time.sleep(max(0, first - time.perf_counter()))
    first = begin = time.perf_counter()
    while begin < first + seconds:
        cuda.cuStreamQuery(ctypes.c_void_p(1))
        end = time.perf_counter()
        times.append(end - begin)
        begin = end
    return percentile(times, 0.5), percentile(times, 0.99), len(times) / (end - first)


class Child:
    """A process that has not loaded the driver before. It says what `work` returns, and then what
    `again` returns of the number that it is told. Those that were made later end first: they have
    the descriptors of those before them."""

    def __init__(self, work, again=None):
        answer, says = os.pipe()
        stays, self.tells = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(self.tells)
            os.close(answer)
            with os.fdopen(says, "w") as text:
                print(json.dumps(work()), file=text, flush=True)
                while told := os.read(stays, 64):
                    print(json.dumps(again(float(told))), file=text, flush=True)
            os._exit(0)
        os.close(says)
        os.close(stays)
        self.text = os.fdopen(answer)

    def answer(self):
        return json.loads(self.text.readline())

    def tell(self, number):
        os.write(self.tells, repr(number).encode())

    def end(self):
        os.close(self.tells)
        os.waitpid(self.pid, 0)
        self.text.close()


def in_child(work):
    """What `work` returns in a process of its own."""
    child = Child(work)
    said = child.answer()
    child.end()
    return said


def be_client(options):
    """Under `fargpu run`: the sessions. Says what was measured, then waits for a line."""
    held, times, memory = [], [], []
    before = private("self")
    cuda = None

    def stand(device):
        nonlocal cuda
        cuda = driver()
        start_session(cuda, device)
        return private("self") - before

    def call(first):
        return active_calls(cuda, options.active, first)

    for number in range(options.client):
        held.append(Child(lambda number=number: stand(number % options.gpus), call))
        memory.append(held[-1].answer())
    further = options.client % options.gpus  # the device of a further one
    for _ in range(options.starts):
        time.sleep(options.pause)
        times.append(in_child(lambda: start_session(driver(), further)))

    def one_session():
        own = driver()
        start_session(own, further)
        call_times(own)
        return call_times(own)

    calls = in_child(one_session)
    first = time.perf_counter() + BEFORE_ALL
    for child in held:
        child.tell(first)
    active = [child.answer() for child in held]
    said = {"starts": times, "calls": calls, "active": active, "memory": sum(memory) / len(memory)}
    print(json.dumps(said), flush=True)
    sys.stdin.readline()
    for child in reversed(held):
        child.end()


def pss(pid, kind="Pss"):
    """KiB."""
    for line in pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith(kind + ":"):
            return int(line.split()[1])
    raise RuntimeError(f"no {kind} of {pid}")


def private(pid):
    """KiB of pages that are of this process alone."""
    return pss(pid, "Private_Dirty") + pss(pid, "Private_Clean")


def process(pid):
    """Memory in KiB, threads and open files of one process."""
    return {
        "pss": pss(pid),
        "private": private(pid),
        "threads": len(os.listdir(f"/proc/{pid}/task")),
        "files": len(os.listdir(f"/proc/{pid}/fd")),
    }


def workers_of(daemon):
    """(those with a session, those that wait for one)"""
    children = pathlib.Path(f"/proc/{daemon}/task/{daemon}/children").read_text().split()
    named = {pid: pathlib.Path(f"/proc/{pid}/cmdline").read_bytes() for pid in children}
    ahead = [pid for pid, line in named.items() if b"--ahead" in line]
    return [pid for pid in children if pid not in ahead], ahead


def mean(processes, name):
    return sum(p[name] for p in processes) / len(processes) if processes else 0


def client_command(options, standing):
    command = [sys.executable, __file__, "--client", standing, "--starts", options.starts]
    command += ["--pause", options.pause, "--gpus", options.gpus, "--active", options.active]
    return [str(part) for part in command]


def measure_client(command, look=lambda: None):
    """What the client says, and what `look` finds while its sessions stand."""
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as client:
        said = json.loads(client.stdout.readline())
        time.sleep(1)
        seen = look()
        client.communicate("\n")
    return said, seen


def measure(build, options, standing):
    simulated = options.where == "sim"
    more = ["--max-sessions", "1024", "--max-sessions-per-gpu", "1024", "--log-level", "error"]
    if options.workers_ahead is not None:
        more += ["--workers-ahead", str(options.workers_ahead)]
    with tempfile.TemporaryDirectory(prefix="fargpu-sessions-") as folder:
        driver_path = build / "lib" / "libfargpu-sim.so" if simulated else None
        daemon = Daemon(build, pathlib.Path(folder), driver_path, options=more)
        daemon.start()
        try:
            time.sleep(1)

            def look():
                working, ahead = workers_of(daemon.process.pid)
                return (
                    process(daemon.process.pid),
                    [process(worker) for worker in working],
                    [process(worker) for worker in ahead],
                )

            prefix = daemon.client(options.transport, options.gpus, hide=not simulated)
            return measure_client([*prefix, *client_command(options, standing)], look)
        finally:
            daemon.stop()


def simulator_alone(build):
    """Private KiB that opening the simulated GPU, and a context in it, add to a process."""

    def work():
        before = pss("self", "Private_Dirty")
        cuda = driver(str(build / "lib" / "libfargpu-sim.so"))
        need(cuda.cuInit(0))
        opened = pss("self", "Private_Dirty")
        start_session(cuda)
        return opened - before, pss("self", "Private_Dirty") - before

    return in_child(work)


def times(said):
    starts, calls = said["starts"], said["calls"]
    medians, tails, rates = zip(*said["active"], strict=True)
    active = [percentile(medians, 0.5), max(medians), percentile(tails, 0.5), max(tails)]
    rates = [min(rates), percentile(rates, 0.5), max(rates)]
    return (
        f"  {percentile(starts, 0.5) * 1e3:9.2f} {percentile(starts, 0.99) * 1e3:7.2f}"
        f"  {percentile(calls, 0.5) * 1e6:9.1f} {percentile(calls, 0.99) * 1e6:7.1f}"
        "  "
        + " ".join(f"{value * 1e6:7.1f}" for value in active)
        + "  "
        + " ".join(f"{rate:7.0f}" for rate in rates)
    )


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--build-dir", default="build/release")
    parser.add_argument("--where", choices=("sim", "gpu"), default="sim")
    parser.add_argument("--counts", default="1,16,64,256", help="numbers of standing sessions")
    parser.add_argument("--starts", type=int, default=200, help="further ones to measure")
    parser.add_argument(
        "--pause",
        type=float,
        default=0,
        help="seconds before each of these, for the end of another",
    )
    parser.add_argument("--gpus", type=int, default=1, help="of the job, or natively")
    parser.add_argument("--active", type=float, default=2, help="seconds in which all call")
    parser.add_argument("--transport", default="shm", choices=("shm", "tcp"))
    parser.add_argument("--workers-ahead", type=int, help="default: the daemon's")
    parser.add_argument("--no-native", dest="native", action="store_false")
    parser.add_argument("--client", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.active <= 0:
        parser.error("--active: more than 0 seconds")
    if options.client is not None:
        return be_client(options)
    build = pathlib.Path(options.build_dir).resolve()
    print("sessions  start p50, p99 ms  call p50, p99 us  ", end="")
    print("all call: p50, highest, p99, highest us, rates  daemon KiB, files  ", end="")
    print("worker KiB, private, threads, files  ahead KiB, private")
    for standing in map(int, options.counts.split(",")):
        if options.where == "gpu" and options.native:
            said, _ = measure_client(client_command(options, standing))
            memory = f"{said['memory']:.0f} KiB of each process"
            print(f"{standing:8}{times(said)}  without fargpu, {memory}", flush=True)
        said, (daemon, working, ahead) = measure(build, options, standing)
        print(
            f"{standing:8}{times(said)}"
            f"  {daemon['pss']:10} {daemon['files']:6}"
            f"  {mean(working, 'pss'):10.0f} {mean(working, 'private'):8.0f}"
            f" {mean(working, 'threads'):8.1f} {mean(working, 'files'):6.1f}"
            f"  {mean(ahead, 'pss'):9.0f} {mean(ahead, 'private'):8.0f}",
            flush=True,
        )
    if options.where == "sim":
        opened, context = simulator_alone(build)
        print(f"the simulated GPU alone: {opened} KiB opened, {context} KiB with a context")


if __name__ == "__main__":
    main()
