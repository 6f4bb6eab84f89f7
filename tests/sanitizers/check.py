# SPDX-License-Identifier: Apache-2.0
"""Runs the program `touch` in one case and expects a clean end or a report that matches."""
import re
import subprocess
import sys

expected, *command = sys.argv[1:]
result = subprocess.run(command, capture_output=True, text=True)
output = result.stdout + result.stderr
if expected == "clean":
    sys.exit(0 if result.returncode == 0 else f"must end cleanly; status {result.returncode}\n{output}")
if result.returncode == 0:
    sys.exit(f"must be reported and is not\n{output}")
sys.exit(0 if re.search(expected, output) else f"the report does not say '{expected}'\n{output}")
