"""Runs one test of a sanitized build, and fails when any process below it wrote a sanitizer's
report.

    sanitized.py KIND REPORTS PROGRAM [ARGUMENT...]        KIND: address or thread

A report ends or marks only the process that made it. Where that is a worker or a daemon, a test
that expects its session to end would pass all the same; so every process writes its reports into
the folder REPORTS, and this one looks there when the test has ended. CMake puts this in front of
every test (fargpu_add_test). UndefinedBehaviorSanitizer beside AddressSanitizer writes to stderr
whatever it is told, so the test's output is searched too; fargpu_testing prints what it finds in
the logs of its daemons."""

import ctypes
import os
import pathlib
import re
import shutil
import subprocess
import sys

SUPPRESSIONS = pathlib.Path(__file__).resolve().parent


def options(kind, reports):
    """What the sanitizers' run-time libraries read."""
    # 'report', then the process id. A small quarantine: sixteen sessions at once are some forty
    # processes. Aborting, so that a worker shows the end of its captured stderr, where
    # UndefinedBehaviorSanitizer's report is.
    common = f"log_path={reports}/report:print_stacktrace=1"
    if kind == "thread":
        return {
            "TSAN_OPTIONS": f"{common}:report_thread_leaks=0:second_deadlock_stack=1"
            f":suppressions={SUPPRESSIONS}/tsan.supp"
        }
    return {
        "ASAN_OPTIONS": f"{common}:detect_stack_use_after_return=1"
        ":check_initialization_order=1:quarantine_size_mb=64",
        "LSAN_OPTIONS": f"suppressions={SUPPRESSIONS}/lsan.supp:print_suppressions=0",
        "UBSAN_OPTIONS": "print_stacktrace=1:abort_on_error=1",
    }


def fixed_addresses():
    """ThreadSanitizer cannot start where the kernel spreads addresses over more than 28 bits
    (Ubuntu 24.04 does): not for this test."""
    no_randomisation = 0x0040000
    try:
        bits = int(pathlib.Path("/proc/sys/vm/mmap_rnd_bits").read_text())
    except PermissionError:  # only root may read it
        bits = None
    if bits is None or bits > 28:
        if ctypes.CDLL(None, use_errno=True).personality(no_randomisation) < 0:
            print(
                "cannot switch the randomisation of addresses off; "
                "ThreadSanitizer may refuse to start"
            )


def is_report(file):
    """Not the notes of a forked process that calls exit(): its leak check looks for the threads of
    its parent. What it finds it writes besides."""
    note = r"==\d+==Running thread \d+ was not suspended\. False leaks are possible\."
    return any(
        line and not re.fullmatch(note, line)
        for line in file.read_text(errors="replace").splitlines()
    )


def main():
    kind, reports, *command = sys.argv[1:]
    reports = pathlib.Path(reports)
    shutil.rmtree(reports, ignore_errors=True)
    reports.mkdir(parents=True)
    # What the caller set goes behind, and so wins.
    environment = dict(os.environ)
    for name, value in options(kind, reports).items():
        environment[name] = ":".join(filter(None, (value, os.environ.get(name))))
    if kind == "thread":
        fixed_addresses()
    undefined = False
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    ) as process:
        for line in process.stdout:
            sys.stdout.buffer.write(line)
            sys.stdout.buffer.flush()
            undefined = undefined or b": runtime error: " in line
    code = process.returncode

    found = sorted(filter(is_report, reports.iterdir()))
    for report in found:
        print(f"\n--- {report.name} ---\n{report.read_text(errors='replace')[:20000]}", flush=True)
    if found or undefined:
        print(
            f"made sanitizer reports: {len(found)} processes, see {reports}"
            if found
            else "made sanitizer reports: see 'runtime error' above"
        )
        return 1
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main())
