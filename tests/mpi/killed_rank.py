# SPDX-License-Identifier: Apache-2.0
"""A job whose last rank is killed while others wait for it ends, soon and with an error: LAUNCHER... PROGRAM."""
import subprocess
import sys
import time

started = time.monotonic()
job = subprocess.run([*sys.argv[1:], "--kill-last-rank"], capture_output=True, text=True, timeout=60)
if "ready to be killed" not in job.stdout:
    sys.exit(f"the ranks did not come as far as to be killed:\n{job.stdout}{job.stderr}")
if job.returncode == 0:
    sys.exit(f"the job succeeded without one of its ranks:\n{job.stdout}{job.stderr}")
if "went on" in job.stdout:
    sys.exit(f"a rank went on with what the killed one never sent:\n{job.stdout}")
print(f"ended after {time.monotonic() - started:.1f} s with {job.returncode}")
