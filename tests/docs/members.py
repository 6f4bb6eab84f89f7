# SPDX-License-Identifier: Apache-2.0
"""Each public member of a public class has a sentence, and docs/reference/classes.md lists the functions.

    members.py REPOSITORY XML             fails if a member has no sentence
    members.py REPOSITORY ALL compare     fails if the page is not up to date
    members.py REPOSITORY ALL write       writes the page
    members.py REPOSITORY CASE            one fact on a declaration of a few lines

XML and ALL are folders that scripts/docs/site.py had Doxygen write, of public headers and of all headers.

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
OF_CONCEPTS = {"traits", "event_type", "is_collective", "reserve", "commit", "decommit", "chunk_bytes", "granularity"}
OF_CUDA_MR = {"allocate", "deallocate", "allocate_async", "deallocate_async"}
OF_THE_STANDARD = re.compile(r"using (\w+_type|reference|\w*pointer|element_type|propagate_on_\w+|is_always_equal|other|scope) =|\bswap\(|"
                             r"operator bool|default_alignment =|release\(byte_range")


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


INTRODUCTION = """# Classes and functions

The tests generate this page from the headers: a line has the first sentence of a comment, and `…` stands for any number
of arguments. Parentheses have the bases and the header of a class. Copies, moves, destructors, members of standard types,
functions of listed bases, and functions for one call of the driver or NCCL are left out. [Options](options.md) lists option
types, [Design](../design.md#names-of-statistics) the members of statistics. A line of several functions has those that an
earlier class of the part describes, or with one meaning in all classes: `name()` in messages, `stats()` is a snapshot,
`options()` are in effect, `check_invariants()` reports a violation for each broken invariant, `what()` is a sentence,
`resource()`, `upstream_resource()`, `space()`, `stream()` and `device()` return what they name.
"""

# Functions whose comment says no more than the introduction.
COMMON = re.compile(r"`(name\(\)`: The name (used )?in messages( and statistics)?|stats\(\)`: A snapshot( in numbers| of (the|all) count(er)?s.*)?|"
                    r"options\(\)`: The options( in effect)?|what\(\)`: One sentence|"
                    r"check_invariants\(\)`: Reports a violation (if an|for every|for each)( broken)? invariant.*|"
                    r"(resource|upstream_resource|space|stream|device)\(\)`: The ((?!.*\b(if|never|null)\b)[^;,]*|upstream, never null))")
# Functions for one call of the driver or NCCL, which the page leaves out.
CALL = re.compile(r"`(\w+)\(.*?`: (`(?:cu|nccl)[A-Z]\w+)\b.*")


def sentence(known, element):
    """Returns the first sentence of the comment, on one line."""
    text = [known.one_line(element.find(tag), None) for tag in ("briefdescription", "detaileddescription")]
    first = re.split(r"(?<=[.:]) (?=[A-Z`&*])", next((each for each in text if each), ""))[0]
    return "" if first.startswith("*") else re.sub(r"\\([_\[\]])", r"\1", first.rstrip(".:"))


def call(function, name):
    """`push_array<T>(n, uninitialized)`: names of parameters; the object of a tag's type, such as `uninitialized_t`."""
    used = "".join("".join(each.itertext()) for each in function.findall("param"))
    parameters = []
    for each in function.findall("param"):
        declared = "".join(each.find("type").itertext())
        words = re.sub(r"tidemark::|\bconst\b|[&*]|\.\.\.|std::(?=nullptr)|_t$", "", each.findtext("declname") or declared).split()
        if words and "void" not in words and "sizeof" not in words:
            parameters.append(words[-1] + ("…" if "..." in declared or "&&..." in declared else ""))
    explicit = []
    for each in function.findall("templateparamlist/param"):
        text = f"{''.join(each.find('type').itertext())} {each.findtext('declname') or ''}".strip()
        declared = re.match(r"(?:class|typename) ?(\.\.\.)? ?(\w+)$", text)
        if declared and each.find("defval") is None and not re.search(rf"\b{declared[2]}\b", used):
            explicit.append(declared[2])
    template = f"<{', '.join(explicit)}>" if explicit else ""
    return f"`{name}{template}({', '.join(parameters)})`"


def lines_of(known, members, owner, indent):
    """Returns a line for each way to call. Omits overloads that only reject calls."""
    lines = {}
    for each in members:
        name = each.findtext("name") if each.findtext("name") != "explicit" else owner
        text = sentence(known, each)
        if each.findtext("type") != "void" and not name.startswith(("trim", "collect", "release")):  # which return memory
            text = re.sub(r"^Returns (?=(?:a|an|one|the|true)\b)(.)", lambda match: match[1].upper(), text)
        if not text.startswith("Reject") and "=delete" not in (each.findtext("argsstring") or "").replace(" ", ""):
            shown = call(each, name) if each.get("kind") == "function" else f"`{name}`"
            lines[shown] = lines.get(shown) or text
    lines = [f"{shown}{': ' * bool(text)}{text}" for shown, text in lines.items()]
    common = [line.partition(":")[0] for line in lines if COMMON.fullmatch(line)]
    others = [line for line in lines if not COMMON.fullmatch(line) and not CALL.fullmatch(line)]
    return [f"{indent}- {line}" for line in [*others, ", ".join(common)] if line]


def of_hidden_bases(known, element, overridden):
    """Yields the documented functions that a class inherits from classes in `detail`, which have no lines of their own."""
    for base in element.findall("basecompoundref"):
        found = known.compounds.get(base.get("refid"))
        if found is None or base.get("prot") != "public" or "detail" not in base.text:
            continue
        owner = found.findtext("compoundname").split("::")[-1]
        own = [m for m in sorted(known.members(found), key=reference.line_of)
               if m.get("kind") == "function" and m.findtext("name") not in {owner, "release_unused", *overridden} and sentence(known, m) and
               not is_left_out(m.findtext("name"), owner, known.declaration(m, reference.file_of(m)))]
        yield from own
        yield from of_hidden_bases(known, found, overridden | {m.findtext("name") for m in own})


def page(known):
    known.home = {}  # no links: the pages of headers are only on the site
    parts, listed, above = {}, {}, {}
    for path, elements in sorted(known.of_file.items()):
        part = path.split("/")[1].removesuffix(".hpp")
        lines, above_here = parts.setdefault(part, []), above.setdefault(part, set())
        for element in sorted(elements, key=reference.line_of):
            name = (element.findtext("compoundname") or "").removeprefix("tidemark::")
            if "detail::" in name + (element.findtext("qualifiedname") or ""):
                continue
            if element.get("kind") in ("class", "struct"):
                short = re.sub(r"<.*", "", name).split("::")[-1]
                members = [m for m in sorted(known.members(element), key=reference.line_of)
                           if m.get("kind") == "function" and reference.file_of(m) == path and
                           not is_left_out(m.findtext("name"), short, known.declaration(m, path))]
                members += of_hidden_bases(known, element, {m.findtext("name") for m in members})
                bases = [re.sub(r"tidemark::|<.*", "", base.text).strip() for base in element.findall("basecompoundref")
                         if base.get("prot") == "public" and "detail" not in base.text]
                notes = [*(f"`{base}`" for base in bases), f"`<{path}>`"]
                inherited = {line for base in bases for line in listed.get(base.split("::")[-1], [])}
                listed[short] = lines_of(known, members, short, "  ")
                if members or sentence(known, element) and not name.endswith(("_options", "_stats")):
                    lines.append(f"- **`{name}`** ({', '.join(notes)}): {sentence(known, element)}")
                own = [line for line in listed[short] if line not in inherited]
                lines += [line for line in own if line not in above_here]
                if repeated := [re.sub("`: .*", "`", line.removeprefix("  - ")) for line in own if line in above_here]:
                    lines.append(f"  - {', '.join(repeated)}")
                above_here.update(own)
            elif element.get("kind") in ("function", "typedef") and sentence(known, element):
                lines += lines_of(known, [element], None, "")
    return "\n".join([INTRODUCTION, *("\n".join([f"## {part}\n", *lines, ""]) for part, lines in sorted(parts.items()) if lines)])


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
    listed = repository / "docs/reference/classes.md"
    if not headers.files:
        sys.exit("there is no header: this looks at nothing")
    if sys.argv[3:] == ["write"]:
        listed.write_text(page(headers))
    elif sys.argv[3:] == ["compare"]:
        if listed.read_text() != page(headers):
            sys.exit("docs/reference/classes.md is not up to date: run\n"
                     f"{' '.join(['python3', *sys.argv[:3], 'write'])}")
    else:
        expect(list(without_sentence(headers)), [])
