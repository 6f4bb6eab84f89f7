# SPDX-License-Identifier: Apache-2.0
"""Checks RealtimeSanitizer's report of a step: check.py EXPECTED PROGRAM RESOURCE warm|cold; EXPECTED is a
regular expression."""
import re
import subprocess
import sys

expected, *command = sys.argv[1:]
done = subprocess.run(command, capture_output=True, text=True)
if not re.search(expected, done.stdout + done.stderr):
    sys.exit(f"exit status {done.returncode}, without '{expected}':\n{done.stdout}{done.stderr}")
