# SPDX-License-Identifier: Apache-2.0
"""Each public member of a public class has a sentence: members.py REPOSITORY XML, where XML is Doxygen's, as
scripts/docs/site.py made it; or members.py REPOSITORY CASE, one fact on a declaration of a few lines.

Excluded by kind: members that the compiler makes, destructors, moves and swaps, names that the standard gives
its types, and members that a concept documents for all its models.
"""
import pathlib
import re
import sys
import xml.etree.ElementTree

repository = pathlib.Path(sys.argv[1])
sys.path.insert(0, str(repository / "scripts/docs"))
import reference  # noqa: E402

# Said once, on docs/address_spaces.md, <tidemark/core/registered_memory.hpp> and by cuda::mr.
OF_CONCEPTS = {"traits", "event_type", "is_collective", "reserve", "commit", "decommit", "release", "chunk_bytes", "granularity"}
OF_CUDA_MR = {"allocate", "deallocate", "allocate_async", "deallocate_async"}
OF_THE_STANDARD = re.compile(r"using (\w+_type|reference|\w*pointer|element_type|propagate_on_\w+|is_always_equal|other|scope) =|\bswap\(|"
                             r"operator bool|default_alignment")


def is_left_out(name, owner, declared):
    made = re.search(r"= (default|delete);?$", declared) or name.startswith("~")
    moved = re.search(rf"(?:{re.escape(owner)}|operator=)\({re.escape(owner)}(?:<[^()]*>)? ?&&", declared)
    in_cuda_mr = owner == "cuda_resource" and name in OF_CUDA_MR
    return bool(made or moved or in_cuda_mr or name in OF_CONCEPTS or name.endswith("_") or OF_THE_STANDARD.search(declared))


def without_sentence(known):
    for compound in known.compounds.values():
        path = reference.file_of(compound)
        if compound.get("kind") not in ("class", "struct", "union") or path is None or "/detail/" in path:
            continue
        if compound.get("prot") in ("private", "protected") or "::detail" in compound.findtext("compoundname"):
            continue
        owner = re.sub(r"<.*", "", compound.findtext("compoundname")).split("::")[-1]
        for member in known.members(compound):
            lines, first = known.lines_of(reference.file_of(member) or path).splitlines(), reference.line_of(member) - 1
            statement = " ".join(" ".join(lines[first:first + 3]).split()).partition(";")[0] + ";"
            if not reference.documented(member) and reference.file_of(member) == path and \
                    not is_left_out(member.findtext("name"), owner, statement):
                yield f"{path}:{first + 1}: {owner}::{member.findtext('name')}: {lines[first].strip()}"


def expect(got, wanted):
    if got != wanted:
        sys.exit("\n".join(["is:", *map(str, got), "should be:", *map(str, wanted)]))


def declaration_of(text, line):
    known = reference.headers.__new__(reference.headers)
    known.text = {"a.hpp": text}
    member = xml.etree.ElementTree.fromstring(f'<memberdef kind="function"><location file="a.hpp" line="{line}"/></memberdef>')
    return known.declaration(member, "a.hpp")


if sys.argv[2] == "shows_each_declaration_as_its_own":
    text = "[[nodiscard]] bool a() { return true; }\n[[nodiscard]] bool b();  // why\n" \
           "template <class T>\n  requires(x)\n[[nodiscard]]\nint c();\n"
    expect([declaration_of(text, line) for line in (1, 2, 6)],
           ["[[nodiscard]] bool a();", "[[nodiscard]] bool b();", "template <class T>\n  requires(x)\n[[nodiscard]]\nint c();"])
elif sys.argv[2] == "leaves_out_by_kind_alone":
    expect([is_left_out(*each) for each in (("a", "a", "a(a&& other) noexcept {;"), ("a", "a", "a() = default;"), ("~a", "a", "~a();"),
                                            ("b", "a", "int b();"), ("a", "a", "explicit a(int x);"), ("commit", "a", "bool commit();"))],
           [True, True, True, False, False, True])
else:
    folders = ("pmr/include", "thrust_adapters/include", "adapters/mpi/include", "planner/search/include")
    headers = reference.headers(sys.argv[2], [repository / folder for folder in folders])
    found = list(without_sentence(headers))
    if not headers.files:
        sys.exit("there is no header: this looks at nothing")
    expect(found, [])
