# SPDX-License-Identifier: Apache-2.0
"""Runs the program `step` with TIDEMARK_EPOCH_DEBUG set in one way and expects a clean end or the detector's report."""
import os
import signal
import subprocess
import sys

FOUND = 'tidemark: use-after-epoch: mul: {} was reclaimed when epoch 2 "step" ended\n'
# Operation, value of the variable, and operand found
CASES = {
    "off_by_default": [("one", None, None), ("both", None, None)],
    "empty_text_and_0_disable_the_detector": [("one", "", None), ("one", "0", None), ("both", "", None), ("both", "0", None)],
    "any_other_value_enables_the_detector": [("one", "1", "rhs"), ("both", "1", "lhs"), ("one", "00", "rhs"), ("one", "yes", "rhs")],
    "a_promoted_buffer_passes": [("promoted", "1", None), ("promoted", None, None)],
    "the_environment_is_read_once": [("set_later", None, None), ("unset_later", "1", "rhs")],
}

program, case = sys.argv[1:]
failures = []
for what, value, operand in CASES[case]:
    environment = {name: text for name, text in os.environ.items() if name != "TIDEMARK_EPOCH_DEBUG"}
    if value is not None:
        environment["TIDEMARK_EPOCH_DEBUG"] = value
    result = subprocess.run([program, what], capture_output=True, text=True, env=environment)
    ended = (result.returncode, result.stdout + result.stderr)
    expected = (0, "") if operand is None else (-signal.SIGABRT, FOUND.format(operand))
    if ended != expected:
        failures.append(f"{what} with {value!r} ended as {ended}, not as {expected}")
sys.exit("\n".join(failures) or 0)
