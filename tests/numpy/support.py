# SPDX-License-Identifier: Apache-2.0
"""Shared parts of the tests of tidemark_numpy. A test file is run as `FILE CASE`: each of its functions whose
name does not begin with `_` is a case, which fails with an exception."""
import contextlib
import re
import sys

MiB = 1 << 20


def run(names):
    if len(sys.argv) != 2 or sys.argv[1].startswith("_") or not callable(names.get(sys.argv[1])):
        sys.exit(f"usage: {sys.argv[0]} CASE")
    names[sys.argv[1]]()


def equal(found, wanted):
    assert found == wanted, f"{found!r}, and not {wanted!r}"


@contextlib.contextmanager
def refused(kind, pattern):
    """Expects that the block raises this exception, with one sentence that fits the pattern."""
    try:
        yield
    except kind as error:
        assert re.search(pattern, str(error)), f"'{error}' does not say {pattern}"
        assert "\n" not in str(error) and str(error).startswith(("tidemark_numpy: ", "trace_log: ")), error
    else:
        raise AssertionError(f"nothing was raised: {kind.__name__} of '{pattern}'")


def handler(array=None):
    """Returns the name of the handler of an array, or of the handler for new arrays."""
    from numpy.core.multiarray import get_handler_name
    return get_handler_name() if array is None else get_handler_name(array)


def resident_bytes():
    with open("/proc/self/statm") as numbers:
        return int(numbers.read().split()[1]) * 4096
