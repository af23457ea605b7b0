"""Measure how the package is built, by syntax tree and by tracing, and fail if a bound is broken.

`python tests/house.py` prints a table. Lower a bound as soon as its figure is better.
`python tests/house.py questions` prints the number of questions of the kind in each file.
"""

import ast
import io
import re
import sys
import tokenize
from collections import Counter
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from traced_walks import walks

ROOT = Path(__file__).parents[1]
PACKAGE, TESTS = ROOT / "dgl_lara", ROOT / "tests"

# name: (bound now, to reach)
AT_MOST = {
    "lines of the package": (35_300, 28_500),
    "lines of the tests": (23_600, 20_000),
    "public names per 1,000 lines": (51, 40),
    "most imports of a module": (15, 15),
    "modules with more than 15 imports": (0, 0),
    "longest chain of imports": (16, 16),
    "person words per 10,000 words": (0.1, 0),
    "says, told, speaks per 10,000 words": (1, 1),
    "colons and semicolons per 10,000 words": (90, 90),
    "% of test functions that compare prose": (3, 8),
    "questions of the kind": (69, 40),
    "files with questions of the kind": (34, 20),
    "questions outside game/": (43, 0),
    "files of LARA.explain([5])": (26, 15),
    "functions of LARA.explain([5])": (70, 45),
    "files of explain --node": (85, 30),
    "functions of explain --node": (480, 180),
}
AT_LEAST = {
    "% of docstrings that begin with a verb": (92, 75),
    "% of public signatures with Args or Returns": (81.5, 100),
}

VERBS = set((TESTS / "verbs.txt").read_text().split())
PROSE = {
    "person words": r"\b(who(m|ever|mever)|nobody|somebody|everybody|anybody|everyone|someone)\b",
    "says, told, speaks": r"\b(sa(ys?|id)|tells?|told|speaks?)\b",
    "colons and semicolons": r"[:;] [a-z]",
}
SEARCHES = ("startswith", "endswith", "search", "fullmatch", "findall", "match")


@cache
def trees(root):
    """Return {path: (source, tree)}."""
    sources = {path: path.read_text() for path in sorted(root.rglob("*.py"))}
    return {path: (source, ast.parse(source)) for path, source in sources.items()}


def functions_of(tree):
    return [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]


def is_public(node):
    return isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and not node.name.startswith("_")


# --- size, names and imports


def imported(tree):
    """Return the modules of the package that are imported when the module is."""
    found = {node.module or "" for node in tree.body if isinstance(node, ast.ImportFrom)}
    found |= {alias.name for node in tree.body if isinstance(node, ast.Import) for alias in node.names}
    return {name for name in found if name.split(".")[0] == PACKAGE.name}


def structure():
    lines = sum(source.count("\n") for source, _ in trees(PACKAGE).values())
    names, imports = 0, {}
    for path, (_, tree) in trees(PACKAGE).items():
        top = [node for node in tree.body if is_public(node)]
        names += len(top) + sum(sum(map(is_public, one.body)) for one in top if isinstance(one, ast.ClassDef))
        module = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        imports[module] = imported(tree)
    fan_out = [len(used) for name, used in imports.items() if not (PACKAGE.parent / name.replace(".", "/")).is_dir()]
    depth: dict[str, int] = {}

    def longest(module, above=()):
        if module not in depth:
            below = imports[module] & imports.keys() - {module, *above}
            depth[module] = 1 + max((longest(one, (*above, module)) for one in below), default=0)
        return depth[module]

    return {
        "lines of the package": lines,
        "lines of the tests": sum(source.count("\n") for source, _ in trees(TESTS).values()),
        "public names per 1,000 lines": 1000 * names / lines,
        "most imports of a module": max(fan_out),
        "modules with more than 15 imports": sum(count > 15 for count in fan_out),
        "longest chain of imports": max(map(longest, imports)),
    }


# --- prose


def texts(source, tree):
    """Yield docstrings, comments and all other strings of at least four words."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and len(node.value.split()) > 3:
            yield node.value
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.string


def signatures():
    """Return the share of what `__all__` names, and of its methods with parameters, that has a section for them."""
    exported = re.search(r"__all__ = \[(.*?)\]", trees(PACKAGE)[PACKAGE / "__init__.py"][0], re.DOTALL)[1]  # type: ignore
    found = []
    for _, tree in trees(PACKAGE).values():
        for node in tree.body:
            if is_public(node) and f'"{node.name}"' in exported:
                methods = functions_of(node) if isinstance(node, ast.ClassDef) else []
                found += [node, *(one for one in methods if is_public(one) and len(one.args.args) > 1)]
    sections = re.compile(r"^\s*(Args|Attributes|Returns|Yields):", re.MULTILINE)
    return 100 * sum(bool(sections.search(ast.get_docstring(node) or "")) for node in found) / len(found)


def compares_prose(function):
    """Return whether a test compares or searches for three words or more. A text without a space is an identifier."""
    for node in ast.walk(function):
        searched = isinstance(node, ast.Call) and getattr(node.func, "attr", "") in SEARCHES
        if isinstance(node, ast.Compare) or searched or (isinstance(node, ast.keyword) and node.arg == "match"):
            texts = [part.value for part in ast.walk(node) if isinstance(part, ast.Constant)]
            prose = [text for text in texts if isinstance(text, str) and " " in text]
            if any(len(re.findall(r"[A-Za-z']{2,}", text)) > 2 for text in prose):
                return True
    return False


def prose():
    text = "\n".join(one for source, tree in trees(PACKAGE).values() for one in texts(source, tree))
    words = len(re.findall(r"[A-Za-z']+", text))
    found = {f"{name} per 10,000 words": 1e4 * len(re.findall(rule, text)) / words for name, rule in PROSE.items()}
    written = [ast.get_docstring(one) for _, tree in trees(PACKAGE).values() for one in functions_of(tree)]
    first = [re.match(r"\W*(\w*)", doc)[1].lower() for doc in written if doc]  # type: ignore[index]
    tests = [one for _, tree in trees(TESTS).values() for one in functions_of(tree) if one.name.startswith("test_")]
    found["% of docstrings that begin with a verb"] = 100 * sum(word in VERBS for word in first) / len(first)
    found["% of public signatures with Args or Returns"] = signatures()
    found["% of test functions that compare prose"] = 100 * sum(map(compares_prose, tests)) / len(tests)
    return found


# --- conditionals that ask which task, which players, how many types or parts there are

WORDS = {"node", "graph", "link", "nodes", "edges", "features"}
# Their subclasses and their bool attributes are found in the code. ALSO: other classes that are a kind of something.
BASES = {"Task", "PlayerSet"}
ALSO = re.compile(r"^(Nodes|Edges|Features)$|InParts$|^(Partitioned|Distributed|Mmap|Remote|Hetero|Typed)|EdgeData$")
ASKS = {"sides", "num_endpoints", "types", "is_link", "is_typed", "is_hetero", "is_partitioned"}
UNCOUNTED = {"datasets", "gnns"}


@cache
def families():
    """Return the names of all classes that are a task, a set of players, typed or partitioned, and what they answer."""
    defined = [node for _, tree in trees(PACKAGE).values() for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    if missing := BASES - {node.name for node in defined}:
        sys.exit(f"no class is called {', '.join(missing)} any more; name the base class of now in tests/house.py.")
    classes = {node.name for node in defined if node.name in BASES or ALSO.search(node.name)}
    attributes = set(ASKS)
    for part in (part for node in defined if node.name in BASES for part in node.body):
        if isinstance(part, ast.AnnAssign) and re.fullmatch(r"(ClassVar\[)?bool\]?", ast.unparse(part.annotation)):
            attributes.add(ast.unparse(part.target))
        elif isinstance(part, ast.FunctionDef) and part.decorator_list and ast.unparse(part.returns or part) == "bool":
            attributes.add(part.name)
    while more := {one.name for one in defined if {ast.unparse(base) for base in one.bases} & classes} - classes:
        classes |= more
    return classes, attributes


def is_question(node):
    classes, attributes = families()
    if isinstance(node, ast.Compare | ast.MatchValue):
        return any(isinstance(one, ast.Constant) and str(one.value) in WORDS for one in ast.walk(node))
    typed = isinstance(node, ast.Call) and getattr(node.func, "id", "") in ("isinstance", "issubclass", "type")
    if typed or isinstance(node, ast.MatchClass):
        return any(getattr(one, "id", getattr(one, "attr", "")) in classes for one in ast.walk(node))
    if isinstance(node, ast.Attribute):
        return node.attr in attributes
    return isinstance(node, ast.Name) and node.id in attributes


def decisions(node):
    """Yield the outermost expressions that decide something."""
    tests: Sequence[ast.AST] = ()
    if isinstance(node, ast.If | ast.While | ast.IfExp | ast.Assert):
        tests = [node.test]
    elif isinstance(node, ast.comprehension):
        tests = node.ifs
    elif isinstance(node, ast.match_case):
        tests = [node.pattern]
    elif isinstance(node, ast.BoolOp | ast.Compare) or (isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not)):
        tests = [node]
    yield from tests
    for child in ast.iter_child_nodes(node):
        if child not in tests and node not in tests:
            yield from decisions(child)


def questions():
    count: Counter[Path] = Counter()
    for path, (_, tree) in trees(PACKAGE).items():
        if path.relative_to(PACKAGE).parts[0] not in UNCOUNTED:
            count[path] = sum(any(map(is_question, ast.walk(test))) for test in decisions(tree))
    return +count


def asked():
    count = questions()
    return {
        "questions of the kind": count.total(),
        "files with questions of the kind": len(count),
        "questions outside game/": sum(number for path, number in count.items() if path.parent.name != "game"),
    }


def report():
    """Print every figure and return whether all are within their bounds."""
    figures = {**structure(), **prose(), **asked(), **walks()}
    assert figures.keys() == {**AT_MOST, **AT_LEAST}.keys()
    fine = True
    print(f"{'':48}{'now':>10}{'bound':>10}{'to reach':>10}")
    for name, value in figures.items():
        bound, goal = AT_MOST.get(name) or AT_LEAST[name]
        broken = round(value, 1) > bound if name in AT_MOST else round(value, 1) < bound
        fine &= not broken
        print(f"{name:48}{value:10,.1f}{bound:10,}{goal:10,}{'  <- broken' * broken}")
    return fine


if __name__ == "__main__":
    if sys.argv[1:] == ["questions"]:
        for path, count in questions().most_common():
            print(f"{count:4}  {path.relative_to(ROOT)}")
        sys.exit()
    sys.exit(0 if report() else 1)
