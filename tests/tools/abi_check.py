# SPDX-License-Identifier: Apache-2.0
"""scripts/abi on small libraries, of which the second differs from the first.

    abi_check.py ABI COMPILER CASE
"""
import pathlib
import subprocess
import sys
import tempfile

abi, compiler, case = sys.argv[1:]
OLD = "namespace tidemark { struct options { int size; }; int make(options const& o) { return o.size; } }\n"
# The second library, and whether programs of the first may run with it.
CASES = {
    "accepts_a_function_that_is_added": (OLD + "namespace tidemark { int more() { return 1; } }\n", True),
    "finds_a_function_that_is_gone": (OLD.replace("make(", "make_it("), False),
    "finds_a_layout_that_changed": (OLD.replace("int size;", "char first; int size;"), False),
}
new, compatible = CASES[case]
with tempfile.TemporaryDirectory() as folder:
    libraries = []
    for name, source in ("old", OLD), ("new", new):
        library = pathlib.Path(folder) / f"lib{name}.so"
        subprocess.run([compiler, "-gdwarf-4", "-shared", "-fPIC", "-x", "c++", "-", "-o", library], input=source, text=True, check=True)
        libraries.append(library)
    done = subprocess.run([abi, "diff", *libraries], capture_output=True, text=True)
print(done.stdout + done.stderr)
if (done.returncode == 0) != compatible or ("is not that of" in done.stderr) == compatible:
    sys.exit(f"scripts/abi must {'accept' if compatible else 'reject'} the second library")
