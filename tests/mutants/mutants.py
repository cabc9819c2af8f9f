"""
Makes mutants: copies of a module with one small fault each. Pure.

Texts, type annotations, assertions and the tuning figures at the top of a module are left alone: measurements determine
the figures, not tests.
"""

from __future__ import annotations

import ast
import itertools
from collections import Counter
from collections.abc import Iterable, Iterator
from copy import copy
from dataclasses import dataclass
from typing import NamedTuple

OTHER: dict[type[ast.AST], type[ast.AST]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.And: ast.Or,
    ast.Or: ast.And,
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult,
    ast.Pow: ast.Mult,
    ast.BitOr: ast.BitAnd,
    ast.BitAnd: ast.BitOr,
}
"""The operator that replaces each."""
OTHER_CALL = {"min": "max", "max": "min", "any": "all", "all": "any"}
# An f-string is a text for people, and so are its parts.
LEFT_ALONE = ast.JoinedStr | ast.Assert
Node = ast.expr | ast.stmt


class Mutation(NamedTuple):
    """A piece of the source, the name of its fault, and what a mutant has there."""

    node: Node
    shown: str
    runs: str


@dataclass(frozen=True, slots=True)
class Mutant:
    """
    A module with one fault.

    Args:
        path: the module's file.
        line: where the fault is.
        name: the function, the original and the replacement; unique in its module and independent of the line.
        source: the text of the module with the fault.
    """

    path: str
    line: int
    name: str
    source: bytes

    def __str__(self) -> str:
        return f"{self.path}:{self.line} {self.name}"


def mutants_of(path: str, source: bytes) -> list[Mutant]:
    """Return every mutant of a module, in source order."""
    starts = [0, *itertools.accumulate(map(len, source.splitlines(keepends=True)))]
    seen: Counter[str] = Counter()
    made, module = [], ast.parse(source)
    for function, (node, shown, runs) in _faults_below(module, module, ()):
        assert node.end_lineno is not None  # a parsed node has a position
        assert node.end_col_offset is not None
        begin, end = starts[node.lineno - 1] + node.col_offset, starts[node.end_lineno - 1] + node.end_col_offset
        name = f"{function}: {shown}"
        seen[name] += 1
        unique = name if seen[name] == 1 else f"{name} ({seen[name]})"
        made.append(Mutant(path, node.lineno, unique, source[:begin] + runs.encode() + source[end:]))
    return made


def _in_one_line(node: ast.AST) -> str:
    return " ".join(ast.unparse(node).split())


def _faults_below(node: ast.AST, parent: ast.AST, scope: tuple[str, ...]) -> Iterator[tuple[str, Mutation]]:
    """Yield the faults of a node and its children, each with the name of its function."""
    if isinstance(node, LEFT_ALONE):
        return
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        scope = (*scope, node.name)
    if scope:
        for fault in _faults(node, parent, scope):
            yield ".".join(scope), fault
    for child in _children(node):
        yield from _faults_below(child, node, scope)


def _children(node: ast.AST) -> Iterable[ast.AST]:
    match node:
        case ast.FunctionDef():
            return [*node.args.defaults, *filter(None, node.args.kw_defaults), *node.body]
        case ast.ClassDef():
            return node.body
        case ast.AnnAssign():
            return [node.value] if node.value else []
        case ast.Call(func=ast.Name("zip")):  # `strict` matters only if there is another fault
            return node.args
        case ast.Call(func=ast.Name("cast")):
            return node.args[1:]
    return ast.iter_child_nodes(node)


def _faults(node: ast.AST, parent: ast.AST, scope: tuple[str, ...]) -> Iterator[Mutation]:
    yield from _wrong_operator(node)
    yield from _wrong_constant(node, parent)
    yield from _wrong_branch(node)
    yield from _dropped(node, scope)


def _wrong_operator(node: ast.AST) -> Iterator[Mutation]:
    match node:
        case ast.Compare():
            for place, operator in enumerate(node.ops):
                yield _changed(node, ops=[*node.ops[:place], OTHER[type(operator)](), *node.ops[place + 1 :]])
        case ast.BoolOp() | ast.BinOp() | ast.AugAssign() if type(node.op) in OTHER:
            yield _changed(node, op=OTHER[type(node.op)]())
        case ast.UnaryOp(op=ast.Not() | ast.USub()):
            yield _replaced(node, node.operand)
        case ast.Call(func=ast.Name(name)) if name in OTHER_CALL:
            yield _changed(node, func=ast.Name(OTHER_CALL[name]))


def _wrong_constant(node: ast.AST, parent: ast.AST) -> Iterator[Mutation]:
    """Yield another value for a constant, named with its parent to tell it from equal constants."""
    match node:
        case ast.Constant(bool(value)):
            other: float = not value
        case ast.Constant(int(value) | float(value)):
            other = value + 1
        case _:
            return
    part_of = "a default" if isinstance(parent, ast.FunctionDef) else _in_one_line(parent)[:80]
    yield Mutation(node, f"{value} → {other} in {part_of}", f"({other})")


def _wrong_branch(node: ast.AST) -> Iterator[Mutation]:
    match node:
        case ast.If() | ast.IfExp():
            yield _decided(node.test, yes=True)
            yield _decided(node.test, yes=False)
        case ast.While():
            yield _decided(node.test, yes=False)
        case ast.comprehension():
            yield from (_decided(test, yes=True) for test in node.ifs)


def _decided(test: ast.expr, *, yes: bool) -> Mutation:
    """Return a test that is evaluated and ignored."""
    text = _in_one_line(test)
    return Mutation(test, f"{text} → {yes}", f"(({text}) {'or' if yes else 'and'} {yes})")


def _dropped(node: ast.AST, scope: tuple[str, ...]) -> Iterator[Mutation]:
    """Yield a statement that is not run, unless others need it."""
    match node:
        case ast.Expr(ast.Call()) | ast.Delete() | ast.AugAssign():
            yield _skipped(node)
        case ast.Assign() if scope[-1] != "__init__" and all(map(_lasts, node.targets)):
            yield _skipped(node)


def _skipped(node: ast.stmt) -> Mutation:
    """Return a statement that is not run but stays, so that names keep their meaning."""
    text = _in_one_line(node)
    return Mutation(node, f"{text} → nothing", f"if False: {text}")


def _lasts(target: ast.expr) -> bool:
    return isinstance(target, ast.Attribute | ast.Subscript)


def _changed(node: Node, **changes: object) -> Mutation:
    other = copy(node)
    for name, value in changes.items():
        setattr(other, name, value)
    return _replaced(node, other)


def _replaced(node: Node, other: Node) -> Mutation:
    text = _in_one_line(other)
    return Mutation(node, f"{_in_one_line(node)} → {text}", text if isinstance(other, ast.stmt) else f"({text})")
