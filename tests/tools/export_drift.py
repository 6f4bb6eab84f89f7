# SPDX-License-Identifier: Apache-2.0
"""Every public name of the headers is exported by a module of its part, and by no more than one.

The names come from clang's syntax tree of <tidemark/tidemark.hpp> and, for the device part and the adapters,
of <tidemark/cuda.hpp>, <tidemark/thrust.hpp>, <tidemark/mpi.hpp> and <tidemark/planner.hpp>: all names
declared in one of our headers in namespace tidemark itself, in tidemark::compat, tidemark::gpu, tidemark::mpi
or tidemark::planner. The exports come from the using-declarations of modules/*.cppm, which the compiler
checks.
"""
import collections
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

# The modules that are a part of their own; all others are the host's, and `import tidemark;` brings those.
OWN_MODULES = {"device": "modules/tidemark.cuda.cppm", "thrust": "modules/tidemark.thrust.cppm",
               "mpi": "modules/tidemark.mpi.cppm", "planner": "planner/search/modules/tidemark.planner.cppm"}
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


def declarations(*headers):
    """How often each public name is declared."""
    includes = [word for header in headers for word in ("-include", header)]
    dump = subprocess.run([compiler, *flags, "-fsyntax-only", "-x", "c++", "-Xclang", "-ast-dump=json",
                           "-Xclang", "-ast-dump-filter=tidemark", *includes, "/dev/null"],
                          capture_output=True, text=True, check=True).stdout
    names = collections.Counter()
    decoder, position = json.JSONDecoder(), 0
    while (start := dump.find("{", position)) >= 0:
        tree, position = decoder.raw_decode(dump, start)
        if tree.get("kind") == "NamespaceDecl" and tree.get("name") == "tidemark":
            names.update(names_in(tree))
    return names


def exports_of(modules):
    exports = {}
    for module in modules:
        for name in re.findall(rf"using tidemark::((?:(?:{'|'.join(PUBLIC_NAMESPACES)})::)?\w+);", module.read_text()):
            exports.setdefault(name, []).append(module.name)
    return exports


modules = sorted((root / "modules").glob("*.cppm"))
host = declarations("tidemark/tidemark.hpp")
device = declarations("tidemark/tidemark.hpp", "tidemark/cuda.hpp") - host  # also the functions that it adds to a name
failures = []
parts = [("host", set(host), [module for module in modules if f"modules/{module.name}" not in OWN_MODULES.values()]),
         ("device", set(device), [root / OWN_MODULES["device"]])]
if "--thrust" in options:
    thrust = declarations("tidemark/tidemark.hpp", "tidemark/cuda.hpp", "tidemark/thrust.hpp") - host - device
    parts.append(("thrust", set(thrust), [root / OWN_MODULES["thrust"]]))
if "--mpi" in options:
    mpi = declarations("tidemark/tidemark.hpp", "tidemark/mpi.hpp") - host
    parts.append(("mpi", set(mpi), [root / OWN_MODULES["mpi"]]))
planner = declarations("tidemark/tidemark.hpp", "tidemark/planner.hpp") - host
parts.append(("planner", set(planner), [root / OWN_MODULES["planner"]]))
for part, public, its_modules in parts:
    exports = exports_of(its_modules)
    failures += [f"{name} is public in the {part} part's headers and exported by no module"
                 for name in sorted(public - exports.keys())]
    failures += [f"{name} is exported and not public in the {part} part's headers"
                 for name in sorted(exports.keys() - public)]
    failures += [f"{name} is exported by {', '.join(where)}" for name, where in exports.items() if len(where) > 1]
    failures += [f"no public names of the {part} part were found"] * (not public)
umbrella = (root / "modules/tidemark.cppm").read_text()
failures += [f"tidemark.cppm does not re-export {module.stem}" for module in parts[0][2]
             if module.stem != "tidemark" and f"export import {module.stem};" not in umbrella]
print(f"{sum(len(public) for _, public, _ in parts)} public names, {len(failures)} failures", *failures, sep="\n")
sys.exit(1 if failures else 0)
