# SPDX-License-Identifier: Apache-2.0
"""NumPy's own tests with tidemark_numpy installed: own_tests.py MODULE..., names below numpy. Fails if a test
fails, or if few arrays were made. The kind is 'fast', which leaves out the tests that NumPy marks as slow."""
import sys

import numpy

import tidemark_numpy

modules = [f"numpy.{name}" for name in sys.argv[1:]]
if not modules:
    sys.exit("usage: own_tests.py MODULE...")
pool = tidemark_numpy.install()
# No cache, because the folder is not ours; plain assertions, because pytest would compile each file again.
passed = numpy.test("fast", tests=modules, verbose=2,
                    extra_argv=["-p", "no:cacheprovider", "--assert=plain", "-W", "ignore", "--tb=short"])
now = pool.stats()
print(now)
sys.exit(0 if passed and now.allocations > 1000 else 1)
