# SPDX-License-Identifier: Apache-2.0
"""Runs the Python blocks of a page, in one namespace and in their own folder, and compares their output with
the text block that follows: documented_code.py PAGE."""
import contextlib
import io
import os
import re
import sys
import tempfile

page = os.path.abspath(sys.argv[1])
with open(page) as file:
    blocks = re.findall(r"^```python\n(.*?)^```\n(?:\nprints\n\n```\n(.*?)^```$)?", file.read(), re.M | re.S)
compared, names = 0, {"__name__": "__main__"}
with tempfile.TemporaryDirectory() as folder:
    os.chdir(folder)
    for code, wanted in blocks:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(code, page, "exec"), names)
        if wanted:
            compared += 1
            assert printed.getvalue() == wanted, f"{code}printed\n{printed.getvalue()}and not\n{wanted}"
assert blocks and compared, f"{page} has {len(blocks)} blocks of Python, {compared} with what they print"
