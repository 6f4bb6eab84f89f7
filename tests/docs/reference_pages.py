# SPDX-License-Identifier: Apache-2.0
"""The pages of docs/reference name everything that exists, and nothing else: reference_pages.py REPOSITORY
CASE.

Each case compares the names in the sources with the names on a page. The last cases have small sources and
pages with a fault that must be found.
"""
import pathlib
import re
import sys

FOLDERS = ["pmr", "thrust_adapters", "adapters", "planner"]


def texts(root, folders, *patterns):
    return "\n".join(path.read_text() for folder in folders for pattern in patterns
                     for path in sorted((root / folder).rglob(pattern)))


def differences(what, there, named):
    return [f"{what} {name} is not on the page" for name in sorted(there - named)] + \
           [f"the page has {what} {name}, which there is not" for name in sorted(named - there)]


def build_options(cmake, page):
    there = set(re.findall(r"\boption\((TIDEMARK_\w+)", cmake))
    there |= set(re.findall(r"\bset\((TIDEMARK_\w+) [^\n]* CACHE (?:STRING|PATH|FILEPATH) ", cmake))
    there |= set(re.findall(r"\bfind_path\((TIDEMARK_\w+)", cmake))
    return differences("option", there, set(re.findall(r"`(TIDEMARK_\w+)`", page)))


def build_defaults(cmake, page):
    """Returns the differences between defaults in the sources and on the page. Defaults that CMake computes
    are ON on some condition."""
    rows = {name: cell for names, cell in re.findall(r"^\| ((?:`\w+`(?:, )?)+) \| ([^|]+) \|", page, re.M)
            for name in re.findall(r"`(\w+)`", names)}
    found = []
    for name, default in re.findall(r'\boption\((TIDEMARK_\w+) "[^"]*" ([^)\s]+)\)', cmake):
        wanted = {"ON": "ON", "OFF": "OFF", "${PROJECT_IS_TOP_LEVEL}": "ON, OFF in another project"}
        wanted = wanted.get(default, r"ON(?: where .*|; OFF .*)")
        if not re.fullmatch(wanted, rows.get(name, "")):
            found.append(f"{name} is {default}, and the page says '{rows.get(name, '')}'")
    for name, default in re.findall(r'\bset\((TIDEMARK_\w+) ("[^"]*"|[^"\s]+) CACHE ', cmake):
        value = default.strip('"')
        said = rows.get(name, "")
        begins = value and said.startswith(f"`{value}`")
        if said and not value.startswith("$") and said.strip("`") != (value or "none") and not begins:
            found.append(f"{name} is {default}, and the page says '{said}'")
    return found


def members_of(body):
    """Returns names of data members: lines with an indent of two spaces that end a declaration."""
    joined = re.sub(r"\n {4,}", " ", re.sub(r"//.*", "", body))
    joined = re.sub(r"<[^;=\n]*>", "", joined)
    joined = re.sub(r"^  [\w:*& ]+\(\*(\w+)\)\([^()\n]*\)(?: noexcept)?", r"  pointer \1", joined, flags=re.M)  # to a function
    return re.findall(r"^  [^()\n]*?\b(\w+)(?: =[^;\n]*|\{\})?; *$", joined, re.M)


def resource_options(headers, page):
    """@param headers pairs of a header's namespace within tidemark and its text"""
    there = set()
    for namespace, text in headers:
        prefix = namespace and f"{namespace}::"
        for struct, body in re.findall(r"^struct ((?:\w+_)?options) \{\n(.*?)^\};", text, re.M | re.S):
            there |= {f"{prefix}{struct}::{member}" for member in members_of(body)}
    named = set()
    for struct, members in re.findall(r"^\| \[`([\w:]+)`\]\([^)]*\) \| [^|]+ \| ([^|]+) \|$", page, re.M):
        named |= {f"{struct}::{member}" for member in re.findall(r"`(\w+)`", members)}
    return differences("option", there, named)


def variables(sources, page):
    """Compares the variables that the sources read from the environment, by name or by constant, with the
    page."""
    there = set(re.findall(r'(?:getenv|variable|number_of)\("([A-Z_\d]+)"[,)]|environ\.get\("([A-Z_\d]+)"\)', sources))
    there = {name for pair in there for name in pair if name}
    there |= set(re.findall(r'constexpr char const\* \w+ = "(TIDEMARK_[A-Z_]+)";', sources))
    table = page.split("Variables of the tests")[0]
    return differences("variable", there, set(re.findall(r"^\| `([A-Z_\d]+)`", table, re.M)))


def targets(cmake, modules, page):
    there = set(re.findall(r"add_library\((tidemark::\w+) ALIAS", cmake))
    found = differences("target", there, set(re.findall(r"^\| `(tidemark::\w+)` \|", page, re.M)))
    named = set(re.findall(r"^\| `(tidemark\.\w+)` \|", page, re.M)) | {"tidemark"}
    return found + differences("module", set(modules), named)


TOKEN = re.compile(r"""//[^\n]*|/\*.*?\*/|'(?:[^'\\\n]|\\.)+'|"((?:[^"\\\n]|\\.)*)\"""", re.S)
VARIES = re.compile(r"%[-.\d]*(?:ll|z|t)?[a-zA-Z]|…|\n")
# Files whose texts are not separate messages: words for statuses of CUDA and NCCL, which follow the name of
# the failed call, and a report of several lines, which has a page.
NO_MESSAGES = {"status_text.cpp", "nccl_error.cpp", "expect_resource.cpp"}
# Parts of messages that are names: kinds of memory, places, calls.
NAMES = {"a coroutine's frame", "opening of a scope", "a step begins", "workspace scope", "device memory", "pinned memory", "managed memory",
         "imported memory", "registered memory", "memory of NCCL", "addresses of a device"}


def without_invariants(text):
    """Returns the text without bodies of functions that return the formula of a broken invariant, and without
    assembly."""
    text = re.sub(r'^asm\(.*?\);$', "", text, flags=re.M | re.S)
    for head in reversed(list(re.finditer(r"\bbroken\w*\([^;{}]*\)[^;{}()]*\{", text))):
        end = head.end()
        depth = 1
        while depth > 0:
            depth += {"{": 1, "}": -1}.get(text[end], 0)
            end += 1
        text = text[:head.start()] + text[end:]
    return text


def caller(text, position):
    """Returns the word before the innermost open parenthesis."""
    depth = 0
    for i in range(position - 1, max(0, position - 600), -1):
        depth += (text[i] == ")") - (text[i] == "(")
        if depth < 0:
            return re.search(r"(\w*)\s*$", text[:i])[1]
        if text[i] in ";{}" and depth == 0:
            return ""
    return ""


def literals(text, leave_out=()):
    """Returns the strings of a source, adjacent ones joined, except arguments of calls of these names."""
    text = re.sub(r"^ *#(?:.*\\\n)*.*$", "", text, flags=re.M)
    found, between, kept = [], None, True
    for token in TOKEN.finditer(text):
        if token[1] is None:
            continue
        gap = None if between is None else re.sub(r"//.*", "", text[between:token.start()]).strip()
        between = token.end()
        if gap == "":
            if kept:
                found[-1] += token[1]
            continue
        kept = caller(text, token.start()) not in leave_out
        if kept:
            found.append(token[1])
    return [each.replace('\\"', '"').replace("\\n", "\n") for each in found]


def parts(message):
    """Returns the constant parts of a message, of at least 12 letters and two words, without a leading name of a program."""
    stripped = [re.sub(r"^tidemark(?:_\w+)?: ", "", part.strip(" ':;,.\"()")) for part in VARIES.split(message)]
    return [part for part in stripped if len(part) >= 12 and " " in part and "==" not in part and "<=" not in part]


def messages(sources, page):
    """@param sources pairs of a file's name and its text"""
    silent = ("static_assert", "require", "expect", "nodiscard", "deprecated",  # the compiler, and formulas of invariants
              "TIDEMARK_REJECTS", "TIDEMARK_DELETED", "TIDEMARK_NO_COPY", "TIDEMARK_SENTENCE")
    there = {part: name for name, text in sources if name not in NO_MESSAGES
             for literal in literals(without_invariants(text), silent) for part in parts(literal) if part not in NAMES}
    cells = re.findall(r"^\| (`.*?`) \| ", page, re.M)
    spans = [span for cell in cells for span in re.findall(r"`([^`]+)`", cell)]
    on_page = "\n".join(spans)
    in_sources = "\n".join(literal for _, text in sources for literal in literals(text))
    missing = [f"{name}: {part!r} is not on the page" for part, name in sorted(there.items()) if part not in on_page]
    gone = {part for span in spans for part in parts(span) if part not in in_sources}
    return missing + [f"the page has {part!r}, which no source has" for part in sorted(gone)]


SAID_BY_CMAKE = re.compile(r"""(?:\bmessage\((?:FATAL_ERROR|WARNING|STATUS)|\bset\((?:why|\w+_why|cure|no_modules|tidemark_no_modules|
    tidemark_NOT_FOUND_MESSAGE))\s+((?:"(?:[^"\\]|\\.)*"\s*)+)""", re.X | re.S)
SAID_BY_PYTHON = re.compile(r"""\braise \w+\(\s*((?:f?"(?:[^"\\]|\\.)*"\s*)+)""")

# Texts with which programs reject input or exit. Their other texts are help and results.
SAID_BY_TOOLS = re.compile(r"""(?:\bthrow\b|\b(?:fail|fail_at|say|refuse|end|number_of)\(|\bstd::fprintf\(stderr|\bstd::fputs\(|
    \b(?:reason|one_graph)\s=\s|\breturn\s(?=")|
    \bPyErr_SetString\()(?:"(?:[^"\\\n]|\\.)*"|[^";])*;""", re.X)
OF_CMAKE, OF_PYTHON = (SAID_BY_CMAKE, r"\$\{[^}]*\}"), (SAID_BY_PYTHON, r"\{[^{}]*\}")


def as_literals(pattern, hole, text):
    """Returns the messages of a source of CMake or Python as strings of C++, with … for the variable
    parts."""
    found = []
    for said in pattern.finditer(text):
        joined = "".join(re.findall(r'"((?:[^"\\]|\\.)*)"', said[1], re.S)).replace("\\\n", "")
        found.append('"' + re.sub(hole, "…", joined) + '"')
    return ";\n".join(found)


def expect(got, wanted):
    if got != wanted:
        sys.exit("\n".join(["is:", *map(str, got), "should be:", *map(str, wanted)]))


def main(repository, case):
    root = pathlib.Path(repository)
    page = {path.stem: path.read_text() for path in (root / "docs/reference").glob("*.md")}
    cmake = (root / "CMakeLists.txt").read_text() + texts(root, ["cmake", "adapters", "planner", "tests"], "CMakeLists.txt", "*.cmake")
    if case == "has_every_option_of_the_build":
        of_library = texts(root, ["cmake", "adapters", "planner"], "CMakeLists.txt", "*.cmake")
        expect(build_options(cmake, page["options"]) + build_defaults(of_library, page["options"]), [])
    elif case == "has_every_option_of_a_resource":
        headers = [("".join(re.findall(r"^namespace tidemark::(gpu|planner) \{", path.read_text(), re.M)[:1]), path.read_text())
                   for folder in FOLDERS for path in sorted((root / folder).glob("**/include/**/*.hpp"))
                   if "detail" not in path.parts]
        expect(resource_options(headers, page["options"]), [])
    elif case == "has_every_variable_of_the_environment":
        sources = texts(root, FOLDERS, "*.cpp", "*.hpp", "*.py")
        expect(variables(sources, page["environment"]), [])
    elif case == "has_every_target_and_module":
        modules = [path.stem for folder in ("modules", "planner/search/modules") for path in (root / folder).glob("*.cppm")]
        expect(targets(cmake, modules, page["targets"]), [])
    elif case == "has_every_message":
        sources = [(path.name, path.read_text()) for folder in ("pmr", "thrust_adapters", "adapters/mpi", "planner/search")
                   for pattern in ("*.cpp", "*.hpp") for path in sorted((root / folder).rglob(pattern))]
        for pattern, hole, names in (
                (*OF_CMAKE, ["cmake/*", "adapters/*/CMakeLists.txt", "planner/*/CMakeLists.txt", "tools/*/CMakeLists.txt", "bench/CMakeLists.txt", "tests/CMakeLists.txt"]),
                (*OF_PYTHON, ["tools/tidemark-report", "adapters/*/*/__init__.py", "planner/python/*/__init__.py", "adapters/torch/*.py"])):
            sources += [(path.name, as_literals(pattern, hole, path.read_text()))
                        for name in names for path in sorted(root.glob(name))]
        sources += [(path.name, "\n".join(SAID_BY_TOOLS.findall(without_invariants(path.read_text()))))
                    for folder in ("tools", "adapters", "planner/tool", "planner/c") for path in sorted((root / folder).rglob("*.[ch]pp"))]
        expect(messages(sources, page["messages"] + page["messages_of_tools"]), [])
    elif case == "finds_a_message_that_is_missing_or_gone":
        source = 'report("%s: %zu bytes are "  // why\n  "missing now", name); throw error{"it is " + name + " and new here"};'
        source += 'require(a, "a formula of things"); static_assert(b, "for the compiler only");'
        expect(messages([("a.cpp", source)], "| `…: … bytes are missing now`<br>`it is gone from here` | x | y |\n"),
               ["a.cpp: 'and new here' is not on the page", "the page has 'it is gone from here', which no source has"])
        cmake = 'message(FATAL_ERROR "tidemark: ${x} is not "\n  "to be found")\nset(x_why "there is a reason")'
        python = 'raise refusal(f"{path}: this file "\n  "is missing")'
        tool = 'std::puts("this is a result"); throw error("this option is " + text + "; there is no such");'
        expect(messages([("a.cpp", "\n".join(SAID_BY_TOOLS.findall(tool)))], "| `this option is …` | x | y |\n"),
               ["a.cpp: 'there is no such' is not on the page"])
        expect(messages([("a.cmake", as_literals(*OF_CMAKE, cmake)), ("a.py", as_literals(*OF_PYTHON, python))],
                        "| `tidemark: … is not to be found` | x | y |\n"),
               ["a.cmake: 'there is a reason' is not on the page", "a.py: 'this file is missing' is not on the page"])
    elif case == "finds_an_option_that_is_missing_or_gone":
        expect(build_options('option(TIDEMARK_A "x" ON)\nset(TIDEMARK_B 1 CACHE STRING "x")', "`TIDEMARK_A` `TIDEMARK_C`"),
               ["option TIDEMARK_B is not on the page", "the page has option TIDEMARK_C, which there is not"])
        source = 'option(TIDEMARK_A "x" ON)\nset(TIDEMARK_B 4 CACHE STRING "x")\noption(TIDEMARK_C "x" ${c_default})'
        expect(build_defaults(source, "| `TIDEMARK_A` | ON | |\n| `TIDEMARK_B` | 4 | |\n| `TIDEMARK_C` | ON where there is c | |\n"), [])
        expect(build_defaults(source, "| `TIDEMARK_A` | OFF | |\n| `TIDEMARK_B` | 3 | |\n| `TIDEMARK_C` | OFF | |\n"),
               ["TIDEMARK_A is ON, and the page says 'OFF'", "TIDEMARK_C is ${c_default}, and the page says 'OFF'",
                "TIDEMARK_B is 4, and the page says '3'"])
        header = "struct x_options {\n  int a = 0;  ///< text\n  bool b{};\n  long\n      c = 1;\n  void (*f)(int) = nullptr;\n" \
                 "  void (*g)(int& x) noexcept = nullptr;\n};\n"
        expect(resource_options([("", header)], "| [`x_options`](x) | x | `a`, `b`, `d` |\n"),
               ["option x_options::c is not on the page", "option x_options::f is not on the page",
                "option x_options::g is not on the page", "the page has option x_options::d, which there is not"])
    elif case == "finds_a_variable_or_a_target_that_is_missing_or_gone":
        expect(variables('std::getenv("A_B"); os.environ.get("C")', "| `C` | x | y |\n| `D` | x | y |\n"),
               ["variable A_B is not on the page", "the page has variable D, which there is not"])
        expect(targets("add_library(tidemark::a ALIAS x)", ["tidemark"], "| `tidemark::b` | x |\n| `tidemark.c` | x |\n"),
               ["target tidemark::a is not on the page", "the page has target tidemark::b, which there is not",
                "the page has module tidemark.c, which there is not"])
    else:
        sys.exit(f"there is no case {case}")


if __name__ == "__main__":
    main(*sys.argv[1:])
