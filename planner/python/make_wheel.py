# SPDX-License-Identifier: Apache-2.0
"""Makes a wheel of the package: make_wheel.py VERSION LIBRARY PACKAGE LICENSE WHEEL_FOLDER.

A wheel is a zip file with a list of its contents (specification: PyPA, "Binary distribution format"). Equal
input gives equal bytes: names are sorted, and times are the first day of the zip format.
"""
import base64
import hashlib
import pathlib
import sys
import sysconfig
import zipfile

METADATA = """Metadata-Version: 2.1
Name: tidemark-plan
Version: {version}
Summary: Places blocks whose lifetimes are known in little memory
License: Apache-2.0
Requires-Python: >=3.8
"""
WHEEL = """Wheel-Version: 1.0
Generator: tidemark
Root-Is-Purelib: false
Tag: {tag}
"""


def record_line(name, content):
    digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
    return f"{name},sha256={digest},{len(content)}\n"


version, library, package, license_file, folder = sys.argv[1:]
# The package uses no ABI of Python, but the library is for one system and machine.
tag = "py3-none-" + sysconfig.get_platform().replace("-", "_").replace(".", "_")
package, info = pathlib.Path(package), f"tidemark_plan-{version}.dist-info"
files = {f"tidemark_plan/{path.name}": path.read_bytes() for path in package.iterdir() if path.suffix in (".py", ".typed")}
files["tidemark_plan/libtidemark_plan.so"] = pathlib.Path(library).read_bytes()
files[f"{info}/LICENSE"] = pathlib.Path(license_file).read_bytes()
files[f"{info}/METADATA"] = METADATA.format(version=version).encode()
files[f"{info}/WHEEL"] = WHEEL.format(tag=tag).encode()
record = "".join(record_line(name, content) for name, content in sorted(files.items()))
files[f"{info}/RECORD"] = (record + f"{info}/RECORD,,\n").encode()

folder = pathlib.Path(folder)
folder.mkdir(parents=True, exist_ok=True)
for old in folder.glob("tidemark_plan-*.whl"):
    old.unlink()
with zipfile.ZipFile(folder / f"tidemark_plan-{version}-{tag}.whl", "w", zipfile.ZIP_DEFLATED) as wheel:
    for name, content in sorted(files.items(), key=lambda file: (file[0].startswith(info), file[0])):
        entry = zipfile.ZipInfo(name)
        entry.external_attr = (0o755 if name.endswith(".so") else 0o644) << 16
        entry.compress_type = zipfile.ZIP_DEFLATED
        wheel.writestr(entry, content)
print(wheel.filename)
