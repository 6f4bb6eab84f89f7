# SPDX-License-Identifier: Apache-2.0
"""Runs an example and compares its output, for the tests of the examples."""
import re
import subprocess
import sys

TIMEOUT_SECONDS = 240


def expect(what, got, wanted):
    if got != wanted:
        sys.exit(f"{what}\n  is:        {got!r}\n  should be: {wanted!r}")


def expect_match(pattern, text):
    found = re.search(pattern, text, re.MULTILINE)
    if not found:
        sys.exit(f"nothing matches {pattern!r} in:\n{text}")
    return found


def options_in(help_text):
    return re.findall(r"^  (--\w+)", help_text, re.MULTILINE)


class Example:
    """A program whose errors begin with its name."""

    def __init__(self, name, program):
        self.name, self.program = name, program

    def run(self, *arguments, **more):
        """Returns the exit status, the output and the errors."""
        done = subprocess.run([self.program, *arguments], **{"stdout": subprocess.PIPE} | more, stderr=subprocess.PIPE,
                              text=True, timeout=TIMEOUT_SECONDS)
        return done.returncode, done.stdout, done.stderr

    def output_of(self, *arguments, **more):
        status, output, errors = self.run(*arguments, **more)
        expect(f"exit status and errors of {arguments}", (status, errors), (0, ""))
        return output

    def expect_refusal(self, arguments, sentence):
        expect(f"exit status, output and errors of {arguments}", self.run(*arguments), (2, "", f"{self.name}: {sentence}\n"))

    def run_on_full_disk(self, *arguments):
        with open("/dev/full", "w") as full:
            status, _, errors = self.run(*arguments, stdout=full)
        return status, errors

    def expect_full_disk_error(self, *arguments):
        expect("exit status and errors", self.run_on_full_disk(*arguments), (1, f"{self.name}: cannot write the output.\n"))
