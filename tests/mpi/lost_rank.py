# SPDX-License-Identifier: Apache-2.0
"""Kills the last rank of a job while others wait for it: the job must end soon, with an error. HOW LAUNCHER... PROGRAM."""
import subprocess
import sys
import time

how, *job = sys.argv[1:]
started = time.monotonic()
done = subprocess.run([*job, f"--lose-last-rank={how}"], capture_output=True, text=True, timeout=60)
if "ready to be lost" not in done.stdout:
    sys.exit(f"the ranks did not come as far as to lose one:\n{done.stdout}{done.stderr}")
if done.returncode == 0:
    sys.exit(f"the job succeeded without one of its ranks:\n{done.stdout}{done.stderr}")
if "went on" in done.stdout:
    sys.exit(f"a rank went on with what the lost one never sent:\n{done.stdout}")
print(f"ended after {time.monotonic() - started:.1f} s with {done.returncode}")
