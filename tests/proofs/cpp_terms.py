# SPDX-License-Identifier: Apache-2.0
"""Converts C++ expressions on 64-bit unsigned numbers from sources to terms of z3.

The reader accepts names and members (one name each, including `.`, `->`, `::` and template arguments),
numbers, calls of given functions, `+ - * / % & | ^ ~ << >>`, comparisons, `! && ||`, `?:`, parentheses, and
`static_cast<T>(x)` and `std::size_t{x}`, which change nothing. It rejects everything else.
"""
import re

import z3

BITS = 64
TOKEN = re.compile(r"\s*(?:(?P<number>(?:0[xX][0-9a-fA-F']+|\d[\d']*)[uUlL]*)"
                   r"|(?P<name>[A-Za-z_]\w*(?:<[\w:]+>)?(?:(?:::|\.|->)~?\w+(?:<[\w:]+>)?)*)"
                   r"|(?P<operator><<|>>|<=|>=|==|!=|&&|\|\||[-+*/%&|^~!<>?:(),{}]))")
LEVELS = [["||"], ["&&"], ["|"], ["^"], ["&"], ["==", "!="], ["<", "<=", ">", ">="], ["<<", ">>"], ["+", "-"], ["*", "/", "%"]]
APPLY = {"||": lambda a, b: z3.Or(truth(a), truth(b)), "&&": lambda a, b: z3.And(truth(a), truth(b)),
         "|": lambda a, b: number(a) | number(b), "^": lambda a, b: number(a) ^ number(b), "&": lambda a, b: number(a) & number(b),
         "==": lambda a, b: number(a) == number(b), "!=": lambda a, b: number(a) != number(b),
         "<": lambda a, b: z3.ULT(number(a), number(b)), "<=": lambda a, b: z3.ULE(number(a), number(b)),
         ">": lambda a, b: z3.UGT(number(a), number(b)), ">=": lambda a, b: z3.UGE(number(a), number(b)),
         "<<": lambda a, b: number(a) << number(b), ">>": lambda a, b: z3.LShR(number(a), number(b)),
         "+": lambda a, b: number(a) + number(b), "-": lambda a, b: number(a) - number(b),
         "*": lambda a, b: number(a) * number(b), "/": lambda a, b: z3.UDiv(number(a), number(b)),
         "%": lambda a, b: z3.URem(number(a), number(b))}


class not_read(Exception):
    """One sentence, which names the part of the expression that is not understood."""


def number(term):
    return z3.If(term, z3.BitVecVal(1, BITS), z3.BitVecVal(0, BITS)) if z3.is_bool(term) else term


def truth(term):
    return term if z3.is_bool(term) else term != 0


class reader:
    def __init__(self, text, names):
        self.text, self.names, self.tokens, at = text, names, [], 0
        while at < len(text.rstrip()):
            found = TOKEN.match(text, at)
            if not found:
                raise not_read(f"'{text[at:].strip()}' in '{text}'")
            self.tokens.append((found.lastgroup, found[found.lastgroup]))
            at = found.end()
        self.tokens.append(("end", ""))

    def next_is(self, *operators):
        return self.tokens[0][0] == "operator" and self.tokens[0][1] in operators

    def next_token(self, operator=None):
        kind, token = self.tokens.pop(0)
        if operator is not None and token != operator:
            raise not_read(f"'{token}' in place of '{operator}' in '{self.text}'")
        return kind, token

    def whole(self):
        term = self.conditional()
        if self.tokens[0][0] != "end":
            raise not_read(f"'{self.tokens[0][1]}' in '{self.text}'")
        return term

    def conditional(self):
        condition = self.binary(0)
        if not self.next_is("?"):
            return condition
        self.next_token()
        then = self.conditional()
        self.next_token(":")
        return z3.If(truth(condition), number(then), number(self.conditional()))

    def binary(self, level):
        if level == len(LEVELS):
            return self.unary()
        left = self.binary(level + 1)
        while self.next_is(*LEVELS[level]):
            operator = self.next_token()[1]
            left = APPLY[operator](left, self.binary(level + 1))
        return left

    def unary(self):
        if self.next_is("~"):
            self.next_token()
            return ~number(self.unary())
        if self.next_is("!"):
            self.next_token()
            return z3.Not(truth(self.unary()))
        return self.primary()

    def primary(self):
        kind, token = self.next_token()
        if kind == "number":
            return z3.BitVecVal(int(token.rstrip("uUlL").replace("'", ""), 0), BITS)
        if token == "(":
            term = self.conditional()
            self.next_token(")")
            return term
        if kind != "name":
            raise not_read(f"'{token}' in '{self.text}'")
        if not self.next_is("(", "{"):
            if token not in self.names:
                raise not_read(f"no value is given for '{token}' in '{self.text}'")
            return self.names[token]
        closing = {"(": ")", "{": "}"}[self.next_token()[1]]
        arguments = []
        while not self.next_is(closing):
            arguments.append(self.conditional())
            if not self.next_is(closing):
                self.next_token(",")
        self.next_token(closing)
        if token.startswith("static_cast<") or token in ("std::size_t", "std::uintptr_t"):
            return arguments[0]
        function = self.names.get(token)
        if not callable(function):
            raise not_read(f"no function is given for '{token}' in '{self.text}'")
        return function(*arguments)


def term(text, **names):
    """Returns the expression as a term of these values and functions: `a__b` stands for `a.b`, `a->b` and
    `a::b`."""
    known = {}
    for name, value in names.items():
        for separator in (".", "->", "::"):
            known[name.replace("__", separator)] = value
    known |= {"std::numeric_limits<std::size_t>::max": lambda: z3.BitVecVal(2**BITS - 1, BITS)}
    return reader(text, known).whole()
