"""An index out of range fails an assertion in a kernel: the program gets an error that says so, and
every later call of it fails. Each in a process of its own, because the context is lost."""

import subprocess
import sys
import time

from report import report

PROGRAM = """
import torch
table = torch.arange(10, device="cuda")
try:
    print(table[torch.tensor([3, 99], device="cuda")].sum().item())
except (RuntimeError, torch.AcceleratorError) as error:
    print("first:", "device-side assert" in str(error))
try:
    print(torch.ones(3, device="cuda").sum().item())
except (RuntimeError, torch.AcceleratorError) as error:
    print("later:", "device-side assert" in str(error))
"""

begin = time.perf_counter()
done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=100)
seconds = time.perf_counter() - begin
lines = done.stdout.splitlines()
assert "first: True" in lines and "later: True" in lines, done.stdout + done.stderr
# What the kernel printed of itself, which a driver may write to either.
told = "index out of bounds" in done.stdout + done.stderr
report([told, done.returncode], seconds)
