#!/usr/bin/env python3
"""What do sessions cost a server? Starts a daemon on loopback and, for each number of standing
sessions, prints

* how long a further session takes to start (cuInit and the primary context, in a new process), and
  what a call that waits for the server takes in one session while the others stand still;
* the memory of daemon, workers and workers that wait for a session: Pss of /proc/PID/smaps_rollup,
  so that pages which processes share count once in the sum; their threads and open files.

With the machine's GPU (--where gpu) a line of the same many processes without fargpu comes before
each: what the driver alone takes, and the memory that it adds to a process. The client's GPU is
hidden then, which needs root or a user who may use unshare -m. The last line with the simulated GPU
is what it takes in a process without fargpu: of a worker's memory it is not fargpu's part. The
sessions are processes of one job; they start one behind the other.

    bench/sessions.py --build-dir build/release --counts 1,16,64,256
"""

import argparse
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


def driver(path="libcuda.so.1"):
    return ctypes.CDLL(path)


def need(result):
    if result != 0:
        raise RuntimeError(f"CUDA error {result}")


def start_session(cuda):
    """Seconds until there is a current context."""
    context = ctypes.c_void_p()
    begin = time.perf_counter()
    need(cuda.cuInit(0))
    need(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0))
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


def in_child(work):
    """Runs `work` in a process of its own, which has not loaded the driver before; its answer, and
    a descriptor that ends the process when it is closed."""
    answer, says = os.pipe()
    stays, ends = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(ends)
        os.close(answer)
        os.write(says, json.dumps(work()).encode())
        os.close(says)
        os.read(stays, 1)
        os._exit(0)
    os.close(says)
    os.close(stays)
    with os.fdopen(answer) as text:
        said = text.read()
    return json.loads(said), pid, ends


def end_child(pid, ends):
    os.close(ends)
    os.waitpid(pid, 0)


def be_client(standing, starts, pause):
    """Under `fargpu run`: the sessions. Says what was measured, then waits for a line."""
    held, times = [], []
    before = private("self")

    def stand():
        start_session(driver())
        return private("self") - before

    memory = []
    for _ in range(standing):
        own, pid, ends = in_child(stand)
        held.append((pid, ends))
        memory.append(own)
    for _ in range(starts):
        time.sleep(pause)
        seconds, pid, ends = in_child(lambda: start_session(driver()))
        end_child(pid, ends)
        times.append(seconds)

    def one_session():
        cuda = driver()
        start_session(cuda)
        call_times(cuda)
        return call_times(cuda)

    calls, pid, ends = in_child(one_session)
    end_child(pid, ends)
    said = {"starts": times, "calls": calls, "memory": sum(memory) / max(1, len(memory))}
    print(json.dumps(said), flush=True)
    sys.stdin.readline()
    for pid, ends in reversed(held):  # a later one has the descriptors of those before it
        end_child(pid, ends)


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
    command += ["--pause", options.pause]
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

            prefix = daemon.client(options.transport, hide=not simulated)
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

    answer, pid, ends = in_child(work)
    end_child(pid, ends)
    return answer


def times(said):
    starts, calls = said["starts"], said["calls"]
    return (
        f"  {percentile(starts, 0.5) * 1e3:9.2f} {percentile(starts, 0.99) * 1e3:7.2f}"
        f"  {percentile(calls, 0.5) * 1e6:9.1f} {percentile(calls, 0.99) * 1e6:7.1f}"
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
    parser.add_argument("--transport", default="shm", choices=("shm", "tcp"))
    parser.add_argument("--workers-ahead", type=int, help="default: the daemon's")
    parser.add_argument("--client", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.client is not None:
        return be_client(options.client, options.starts, options.pause)
    build = pathlib.Path(options.build_dir).resolve()
    print("sessions  start p50, p99 ms  call p50, p99 us  daemon KiB, files  ", end="")
    print("worker KiB, private, threads, files  ahead KiB, private")
    for standing in map(int, options.counts.split(",")):
        if options.where == "gpu":
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
