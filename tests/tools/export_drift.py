# SPDX-License-Identifier: Apache-2.0
"""Every public name of the headers is exported by a module, and by no more than one.

The names come from clang's syntax tree of <tidemark/tidemark.hpp>: what is declared in namespace tidemark itself, in
one of our headers. The exports come from the using-declarations of modules/*.cppm, which the compiler checks.
"""
import json
import pathlib
import re
import subprocess
import sys

root, compiler, *flags = sys.argv[1:]
root = pathlib.Path(root)
dump = subprocess.run([compiler, *flags, "-fsyntax-only", "-x", "c++", "-Xclang", "-ast-dump=json",
                       "-Xclang", "-ast-dump-filter=tidemark", "-include", "tidemark/tidemark.hpp", "/dev/null"],
                      capture_output=True, text=True, check=True).stdout

KINDS = {"CXXRecordDecl", "ClassTemplateDecl", "FunctionDecl", "FunctionTemplateDecl", "TypeAliasDecl",
         "TypeAliasTemplateDecl", "VarDecl", "VarTemplateDecl", "EnumDecl", "ConceptDecl"}
public = set()
decoder, position = json.JSONDecoder(), 0
while (start := dump.find("{", position)) >= 0:
    tree, position = decoder.raw_decode(dump, start)
    if tree.get("kind") == "NamespaceDecl" and tree.get("name") == "tidemark":
        public |= {node["name"] for node in tree.get("inner", [])
                   if node.get("kind") in KINDS and node.get("name") and not node.get("isImplicit")
                   and "parentDeclContextId" not in node}  # a member that is defined outside its class

exports = {}
for module in sorted((root / "modules").glob("*.cppm")):
    for name in re.findall(r"using tidemark::(\w+);", module.read_text()):
        exports.setdefault(name, []).append(module.name)

failures = [f"{name} is public in the headers and exported by no module" for name in sorted(public - exports.keys())]
failures += [f"{name} is exported and not public in the headers" for name in sorted(exports.keys() - public)]
failures += [f"{name} is exported by {', '.join(where)}" for name, where in exports.items() if len(where) > 1]
umbrella = (root / "modules/tidemark.cppm").read_text()
failures += [f"tidemark.cppm does not re-export {module.stem}" for module in (root / "modules").glob("tidemark.*.cppm")
             if f"export import {module.stem};" not in umbrella]
print(f"{len(public)} public names, {len(failures)} failures", *failures, sep="\n")
sys.exit(1 if failures or not public else 0)
