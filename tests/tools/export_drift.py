# SPDX-License-Identifier: Apache-2.0
"""Checks that exactly one module exports each public name of the headers: the module of its part.

The names come from one syntax tree of clang for <tidemark/tidemark.hpp>, the extras and, for the device part, the adapters
and the planner, <tidemark/cuda.hpp>, <tidemark/thrust.hpp>, <tidemark/mpi.hpp> and <tidemark/planner.hpp>: all
names declared in one of our headers in namespace tidemark itself, in tidemark::compat, tidemark::gpu,
tidemark::mpi or tidemark::planner. The folder of a header is its part. The exports come from the
using-declarations of modules/*.cppm, which the compiler checks. The host's modules export names of
modules/detail/tidemark.detail.headers.cppm, which lists no other name.
"""
import json
import pathlib
import re
import subprocess
import sys

root, compiler, *flags = sys.argv[1:]
flags.append(f"-I{root}/planner/search/include")
options = [flag for flag in flags if flag in ("--thrust", "--mpi")]  # what the adapters are for is there
flags = [flag for flag in flags if flag not in options]
root = pathlib.Path(root)

# The modules that are separate parts; all others are the host's, and `import tidemark;` brings those.
OWN_MODULES = {"device": "modules/tidemark.cuda.cppm", "thrust": "modules/tidemark.thrust.cppm",
               "mpi": "modules/tidemark.mpi.cppm", "planner": "planner/search/modules/tidemark.planner.cppm"}
# The innermost folder of a header decides.
FOLDERS = {"thrust": "thrust_adapters/include/tidemark/thrust", "device": "thrust_adapters/include", "mpi": "adapters/mpi/include",
           "planner": "planner/search/include", "host": "pmr/include"}
FILE = re.compile(r'"offset": \d+,\s+"file": "([^"]+)"')  # of a declaration, not of its includer
PUBLIC_NAMESPACES = ("compat", "gpu", "mpi", "planner")
KINDS = {"CXXRecordDecl", "ClassTemplateDecl", "FunctionDecl", "FunctionTemplateDecl", "TypeAliasDecl",
         "TypeAliasTemplateDecl", "VarDecl", "VarTemplateDecl", "EnumDecl", "ConceptDecl"}


def is_forward_declaration(node):
    records = [node] if node["kind"] == "CXXRecordDecl" else [
        inner for inner in node.get("inner", []) if inner.get("kind") == "CXXRecordDecl"] * (
        node["kind"] == "ClassTemplateDecl")
    return bool(records) and not any(record.get("completeDefinition") for record in records)


def names_in(namespace, prefix=""):
    for node in namespace.get("inner", []):
        if node.get("kind") == "NamespaceDecl" and node.get("isInline"):
            yield from names_in(node, prefix)
        elif node.get("kind") == "NamespaceDecl" and node.get("name") in PUBLIC_NAMESPACES:
            yield from names_in(node, node["name"] + "::")
        elif (node.get("kind") in KINDS and node.get("name") and not node.get("isImplicit")
              and not node["name"].startswith("<deduction guide")
              and "parentDeclContextId" not in node  # a member that is defined outside its class
              and not is_forward_declaration(node)):
            yield prefix + node["name"]


def declarations(headers):
    """Returns the public names of each part."""
    includes = [word for header in headers for word in ("-include", f"tidemark/{header}.hpp")]
    dump = subprocess.run([compiler, *flags, "-fsyntax-only", "-x", "c++", "-Xclang", "-skip-function-bodies", "-Xclang", "-ast-dump=json",
                           "-Xclang", "-ast-dump-filter=tidemark", *includes, "/dev/null"],
                          capture_output=True, text=True, check=True).stdout
    names = {part: set() for part in FOLDERS}
    file = ""  # of the last declaration, because the dump names a file only if it differs from the last one
    decoder, position = json.JSONDecoder(), 0
    while (start := dump.find("{", position)) >= 0:
        tree, position = decoder.raw_decode(dump, start)
        header = tree.get("loc", {}).get("file", file)
        part = next((part for part, folder in FOLDERS.items() if header.startswith(f"{root}/{folder}")), None)
        if part and tree.get("kind") == "NamespaceDecl" and tree.get("name") == "tidemark":
            names[part].update(names_in(tree))
        file = [file, *FILE.findall(dump, start, position)][-1]
    return names


def names_of(module):
    """The names in the using-declarations of a module, in order."""
    name = rf"tidemark::((?:(?:{'|'.join(PUBLIC_NAMESPACES)})::)?\w+)"
    return [found for names in re.findall(r"using ([^;]+);", module.read_text()) for found in re.findall(name, names)]


def exports_of(modules):
    exports = {}
    for module in modules:
        for name in names_of(module):
            exports.setdefault(name, []).append(module.name)
    return exports


modules = sorted((root / "modules").glob("*.cppm"))
declared = declarations(["tidemark", "workspace/extras/random", "cuda", "planner", *(option.removeprefix("--") for option in options)])
parts = [("host", declared.pop("host"), [module for module in modules if f"modules/{module.name}" not in OWN_MODULES.values()])]
parts += [(part, public, [root / OWN_MODULES[part]]) for part, public in declared.items()
          if part not in ("thrust", "mpi") or f"--{part}" in options]
failures = []
for part, public, its_modules in parts:
    exports = exports_of(its_modules)
    failures += [f"{name} is public in the {part} part's headers and exported by no module"
                 for name in sorted(public - exports.keys())]
    failures += [f"{name} is exported and not public in the {part} part's headers"
                 for name in sorted(exports.keys() - public)]
    failures += [f"{name} is exported by {', '.join(where)}" for name, where in exports.items() if len(where) > 1]
    failures += [f"no public names of the {part} part were found"] * (not public)
listed, exported = names_of(root / "modules/detail/tidemark.detail.headers.cppm"), exports_of(parts[0][2])
failures += [f"tidemark.detail.headers lists {name}, which no module exports" for name in listed if name not in exported]
failures += [f"tidemark.detail.headers lists {name} twice" for name in set(listed) if listed.count(name) > 1]
umbrella = (root / "modules/tidemark.cppm").read_text()
failures += [f"tidemark.cppm does not re-export {module.stem}" for module in parts[0][2]
             if module.stem != "tidemark" and f"export import {module.stem};" not in umbrella]
print(f"{sum(len(public) for _, public, _ in parts)} public names, {len(failures)} failures", *failures, sep="\n")
sys.exit(1 if failures else 0)
