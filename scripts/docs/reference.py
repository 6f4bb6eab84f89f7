# SPDX-License-Identifier: Apache-2.0
"""Converts Doxygen's XML to pages in Markdown, one for each public header.

Declarations are copied from the header, because Doxygen drops their constraints. All other text is from doc comments.
Excludes private members, names in a namespace `detail`, and friends without a comment.
"""
import collections
import pathlib
import re
import textwrap
import xml.etree.ElementTree

GROUPS = [  # the headings of a class, with the kinds of members under each, in the order of the page
    ("Types", {"typedef", "enum"}),
    ("Functions", {"function"}),
    ("Data", {"variable"}),
]
EXCERPT = "An excerpt: it uses names of the program around it"


def escaped(text):
    return re.sub(r"([\\`*_{}\[\]#|])", r"\\\1", text).replace("<", "&lt;").replace(">", "&gt;")


def code(text):
    return f"``{text}``" if "`" in text else f"`{text}`"


class headers:
    """All public headers of an XML folder. `pages()` returns (path, title, Markdown) of each."""

    def __init__(self, xml, sources):
        self.sources = sources  # folders that `tidemark/…` is found in
        self.compounds = {}
        self.home = {}  # id of a compound or member: (page, anchor)
        self.of_file = collections.defaultdict(list)  # header: its classes, concepts, and members of namespaces
        self.text = {}
        for path in sorted(pathlib.Path(xml).glob("*.xml")):
            for compound in xml_root(path).findall("compounddef"):
                self.compounds[compound.get("id")] = compound
        self.files = sorted((c for c in self.compounds.values() if c.get("kind") == "file"),
                            key=lambda c: c.find("location").get("file"))
        for compound in self.compounds.values():
            kind = compound.get("kind")
            if kind in ("class", "struct", "union", "concept"):
                self.place(compound, compound)
            for member in self.members(compound) if kind != "file" else []:
                if kind == "namespace":
                    self.place(member, member)
                else:
                    self.home[member.get("id")] = (page_of(file_of(member)), anchor_of(member))
        for compound in self.files:
            for member in self.members(compound):
                if member.get("id") not in self.home:
                    self.place(member, member)

    def place(self, element, located):
        file = file_of(located)
        if file is None or "/detail/" in file or element.get("prot") in ("private", "protected"):
            return
        if all(anchor_of(other) != anchor_of(element) for other in self.of_file[file]):  # a name that `using` brings out
            self.of_file[file].append(element)
        self.home[element.get("id")] = (page_of(file), anchor_of(element))

    def members(self, compound):
        for section in compound.findall("sectiondef"):
            if section.get("kind").startswith(("private", "protected")):
                continue
            for member in section.findall("memberdef"):
                if member.get("kind") == "define" and not documented(member):
                    continue
                if member.get("kind") == "friend" and not documented(member):
                    continue
                if member.get("prot") == "private" or "@" in (member.findtext("name") or ""):
                    continue
                yield member

    def pages(self):
        for compound in self.files:
            path = compound.find("location").get("file")
            yield page_of(path), path, self.page(compound, path)

    def brief(self, path):
        """Returns the first sentence of a header's comment."""
        compound = next(c for c in self.files if c.find("location").get("file") == path)
        return self.one_line(compound.find("briefdescription"), path).replace("|", "\\|")

    def page(self, compound, path):
        out = [f"# `<{path}>`\n"]
        out += self.description(compound, path)
        for element in sorted(self.of_file[path], key=line_of):
            if element.get("kind") in ("class", "struct", "union", "concept"):
                out += self.of_class(element, path)
            else:
                out += self.member(element, path, "##")
        if not self.of_file[path]:
            out += ["This header includes the headers of its part:\n"]
            for included in re.findall(r"#include <(tidemark/[^>]+)>", self.lines_of(path)):
                if (target := page_of(included)) and any(f.find("location").get("file") == included for f in self.files):
                    out += [f"- [`<{included}>`]({relative(path, target)})"]
            out += [""]
        return "\n".join(out)

    def of_class(self, element, path):
        name = element.findtext("compoundname").removeprefix("tidemark::")
        out = [f"## `{name}` {{ #{anchor_of(element)} }}\n"]
        out += fence(self.declaration(element, path))
        out += self.description(element, path)
        for heading, kinds in GROUPS:
            members = [m for m in self.members(element) if (m.get("kind") in kinds
                       or (m.get("kind") == "friend" and heading == "Functions"))]
            # A class that another header declares only by name has members that are not here.
            members = [m for m in members if file_of(m) == path]
            if not members:
                continue
            out += [f"**{heading} of `{name}`**\n"]
            if heading == "Data":
                out += self.table(members, path)
                continue
            for member in sorted(members, key=line_of):
                out += self.member(member, path, "###")
        return out

    def table(self, members, path):
        rows = []
        for member in sorted(members, key=line_of):
            declared = " ".join(self.declaration(member, path).split()).replace("|", "\\|")
            text = " ".join(" ".join(self.description(member, path)).split())
            rows += [f'| <span id="{anchor_of(member)}"></span>{code(declared)} | {text} |']
        return ["| | |", "|---|---|", *rows, ""]

    def member(self, member, path, level):
        name = member.findtext("name")
        if name == "explicit":  # explicit(condition)
            name = member.findtext("qualifiedname").split("::")[-2]
        out = [f"{level} `{name}` {{ #{anchor_of(member)} }}\n", *fence(self.declaration(member, path))]
        if member.get("kind") == "enum":
            values = [(v.findtext("name"), " ".join(" ".join(self.description(v, path)).split()))
                      for v in member.findall("enumvalue")]
            out += self.description(member, path)
            if any(text for _, text in values):
                out += ["| | |", "|---|---|", *(f"| `{value}` | {text} |" for value, text in values), ""]
            return out
        return out + self.description(member, path)

    # ---- declarations, from the header ------------------------------------------------------------------------------

    def lines_of(self, path):
        if path not in self.text:
            self.text[path] = next(f / path for f in self.sources if (f / path).exists()).read_text()
        return self.text[path]

    def declaration(self, element, path):
        """Returns the text from the line that Doxygen names to the end of the statement or of its head."""
        lines = self.lines_of(path).splitlines()
        first = line_of(element) - 1
        while first > 0 and re.match(r"\s*(template\b|requires\b|\[\[|&& |\|\| |[^/{};]*(&&|\|\||>|\)|,|\]\])\s*$)", lines[first - 1]) \
                and not re.match(r"\s*(//|#|public:|$)", lines[first - 1]) and not re.search(r"[;}]\s*(//.*)?$", lines[first - 1]):
            first -= 1
        text = "\n".join(re.sub(r"\s*//.*", "", line) for line in lines[first:first + 40])
        kind = element.get("kind")
        end = end_of_head(text, kind)
        text = re.sub(r"[ ]?\bTIDEMARK_(COLD|LIFETIMEBOUND|POINTER)\b", "", text[:end])
        return textwrap.dedent(re.sub(r"\n\s*\n", "\n", text)).strip() + ("" if kind in ("class", "struct") else ";")

    # ---- doc comments -------------------------------------------------------------------------------------------------

    def description(self, element, path):
        blocks = []
        for tag in ("briefdescription", "detaileddescription"):
            found = element.find(tag)
            if found is not None:
                blocks += self.blocks(found, path)
        return [block + "\n" for block in blocks if block.strip()]

    def blocks(self, element, path):
        """Returns the paragraphs, lists, tables and code of an element, each as Markdown."""
        out, line = [], [self.inline_text(element.text)] if element.tag == "para" else []

        def flush():
            if (text := " ".join("".join(line).split())):
                out.append(text)
            line.clear()

        for child in element:
            if child.tag in BLOCKS:
                flush()
                out += BLOCKS[child.tag](self, child, path)
            elif child.tag in ("para", "sect1", "sect2", "parblock"):
                flush()
                out += self.blocks(child, path)
            else:
                line.append(self.inline(child, path))
            if element.tag == "para":
                line.append(self.inline_text(child.tail))
        flush()
        return out

    @staticmethod
    def inline_text(text):
        return escaped(text or "")

    def inline(self, element, path):
        if element.tag == "computeroutput":
            text = "".join(element.itertext())
            target = element.find("ref")
            return self.link(code(text), target, path) if target is not None and len(element) == 1 else code(text)
        if element.tag == "ref":
            return self.link(escaped("".join(element.itertext())), element, path)
        if element.tag == "ulink":
            return f"[{escaped(''.join(element.itertext()))}]({element.get('url')})"
        if element.tag in ("linebreak", "sp"):
            return " "
        inner = escaped(element.text or "") + "".join(self.inline(c, path) + escaped(c.tail or "") for c in element)
        return {"emphasis": f"*{inner}*", "bold": f"**{inner}**"}.get(element.tag, inner)

    def link(self, text, target, path):
        page, anchor = self.home.get(target.get("refid"), (None, None))
        return f"[{text}]({relative(path, page)}#{anchor})" if page else text

    def one_line(self, element, path):
        return " ".join(self.blocks(element, path))

    def listing(self, element, path):
        text = "\n".join("".join(" " if e.tag == "sp" else (e.text or "") if e.tag != "codeline" else ""
                                 for e in walk(line)) for line in element.findall("codeline"))
        return ["\n".join(fence(text, EXCERPT)).rstrip()]

    def items(self, element, path):
        mark = "1." if element.tag == "orderedlist" else "-"
        return ["\n".join(f"{mark} {self.one_line(item, path)}" for item in element.findall("listitem"))]

    def parameters(self, element, path):
        title = {"param": "Parameters", "templateparam": "Template parameters", "exception": "Throws",
                 "retval": "Returns"}[element.get("kind")]
        rows = []
        for item in element.findall("parameteritem"):
            if title == "Throws":  # the first words of a sentence: Doxygen takes one, or two with a comma, for types
                words = ["".join(n.itertext()) for n in item.iter("parametername")]
                names = ", ".join(code(word) if "_" in word or "::" in word else escaped(word) for word in words)
                rows.append(f"- {names} {self.one_line(item.find('parameterdescription'), path)}")
                continue
            names = ", ".join(code("".join(n.itertext())) for n in item.iter("parametername"))
            rows.append(f"- {names}: {self.one_line(item.find('parameterdescription'), path)}")
        return [f"*{title}*\n\n" + "\n".join(rows)]

    def labelled_paragraph(self, element, path):
        title = {"return": "Returns", "pre": "Requires", "post": "Afterwards", "see": "See also"}
        kind = element.get("kind")
        return [f"*{title.get(kind, kind.capitalize())}*: {self.one_line(element, path)}"]

    def markdown_table(self, element, path):
        rows = [[self.one_line(e, path).replace("|", "\\|") for e in row.findall("entry")] for row in element.findall("row")]
        head, *body = ["| " + " | ".join(row) + " |" for row in rows]
        return ["\n".join([head, "|" + "---|" * len(rows[0]), *body])]


BLOCKS = {"programlisting": headers.listing, "itemizedlist": headers.items, "orderedlist": headers.items,
          "parameterlist": headers.parameters, "simplesect": headers.labelled_paragraph, "table": headers.markdown_table}


def xml_root(path):
    return xml.etree.ElementTree.parse(path).getroot()


def walk(element):
    yield element
    for child in element:
        yield from walk(child)
        if child.tail:
            tail = xml.etree.ElementTree.Element("text")
            tail.text = child.tail
            yield tail


def documented(element):
    return any("".join(element.find(tag).itertext()).strip() for tag in ("briefdescription", "detaileddescription"))


def file_of(element):
    location = element.find("location")
    return None if location is None else location.get("declfile") or location.get("file")


def line_of(element):
    location = element.find("location")
    return int(location.get("declline") or location.get("line"))


def anchor_of(element):
    """Returns a readable anchor that is unique on its page: the digest of the id differs between overloads."""
    name = element.findtext("compoundname") or element.findtext("name")
    name = re.sub(r"[^a-z0-9_]+", "-", name.removeprefix("tidemark::").lower()).strip("-") or "operator"
    digest = re.search(r"_1[a-z]?([0-9a-f]{32})$", element.get("id"))
    return f"{name}-{digest[1][:6]}" if digest and "compoundname" not in {c.tag for c in element} else name


def page_of(path):
    return path.removeprefix("tidemark/").removesuffix(".hpp") + "_hpp.md" if path and path.endswith(".hpp") else None


def relative(path, page):
    return "../" * page_of(path).count("/") + page


def fence(text, title=None):
    return ["```cpp" + (f' title="{title}"' if title else ""), text, "```\n"]


def end_of_head(text, kind):
    """Returns the end of a declaration, without its body, member initialisers and bodies of base classes."""
    depth, i, braces = 0, 0, kind in ("enum", "variable", "concept", "typedef")
    while i < len(text):
        c = text[i]
        if c in "([" or (c == "{" and (depth or braces)):
            depth += 1
        elif c in ")]" or (c == "}" and (depth or braces)):
            depth -= 1
        elif depth == 0:
            if c == ";":
                return i
            if c == "{":
                if not re.search(r"\brequires\s*(\([^)]*\))?\s*$", text[:i]):
                    return i
                depth += 1
            if c == ":" and kind == "function" and text[i - 1] != ":" and text[i + 1] != ":":
                return i
        i += 1
    return len(text)
