# SPDX-License-Identifier: Apache-2.0
"""Misuse raises Python's own exceptions with one sentence. Stubs and docstrings have every name of the
package."""
import ast
import inspect
import pathlib
import tempfile
import threading

import numpy

import support
import tidemark_numpy
from support import equal, handler, refused


def options_of_the_wrong_type_are_refused():
    for wrong in ("1", 1.5, None, True, [1]):
        with refused(TypeError, "max_cached_bytes is a whole number of bytes, not "):
            tidemark_numpy.pool(max_cached_bytes=wrong)
    for wrong in (1, "yes", None):
        with refused(TypeError, "huge_pages is True or False, not "):
            tidemark_numpy.pool(huge_pages=wrong)
    with refused(TypeError, "max_cached_bytes is a whole number"):
        tidemark_numpy.install(max_cached_bytes="1")
    tidemark_numpy.pool(max_cached_bytes=numpy.int64(5), huge_pages=numpy.bool_(True))


def options_out_of_range_are_refused():
    for wrong in (-1, 1 << 62, 1 << 80):
        with refused(ValueError, f"0 or more and less than 2\\*\\*62, not {wrong}"):
            tidemark_numpy.pool(max_cached_bytes=wrong)


def a_second_installed_pool_is_refused():
    tidemark_numpy.install(max_cached_bytes=100)
    with refused(ValueError, "max_cached_bytes=100 huge_pages=True> is installed in this process"):
        tidemark_numpy.install(max_cached_bytes=200)
    equal(handler(), "tidemark_numpy")


def stats_and_trace_require_a_pool():
    with refused(RuntimeError, "stats is for a context that uses a pool"):
        tidemark_numpy.stats()
    with refused(RuntimeError, "trace is for a context that uses a pool"):
        tidemark_numpy.trace("run.csv")


def trace_requires_writable_files():
    with tempfile.TemporaryDirectory() as folder, tidemark_numpy.pool():
        with refused(ValueError, "trace wants the path of a file"):
            tidemark_numpy.trace()
        with refused(ValueError, "the path of a trace is empty"):
            tidemark_numpy.trace("")
        with refused(TypeError, "the path of a trace is a text or a path, not 5"):
            tidemark_numpy.trace(5)
        try:
            tidemark_numpy.trace(f"{folder}/none/run.csv")
        except FileNotFoundError as error:
            assert "none/run.csv" in str(error), error
        else:
            raise AssertionError("there was no error")
        with refused(ValueError, "have the same path"):
            tidemark_numpy.trace(f"{folder}/run", chrome=f"{folder}/run")
        with tidemark_numpy.trace(f"{folder}/run.csv"):
            with refused(RuntimeError, "this pool has a trace already"):
                tidemark_numpy.trace(f"{folder}/other.csv")
            assert not pathlib.Path(folder, "other.csv").exists()


def blocks_end_in_the_reverse_order():
    before = handler()
    outer, inner = tidemark_numpy.pool(), tidemark_numpy.pool()
    outer.__enter__()
    inner.__enter__()
    with refused(RuntimeError, "this is not the innermost pool of this context"):
        outer.__exit__(None, None, None)
    equal(handler(), "tidemark_numpy")
    inner.__exit__(None, None, None)
    equal(handler(), before)  # and not the one that began between them
    with refused(RuntimeError, "this is not the innermost pool"):
        inner.__exit__(None, None, None)


def generator_closed_too_early_leaves_no_pool():
    before = handler()

    def batches():
        with tidemark_numpy.pool():
            yield numpy.ones(10)

    running = batches()
    next(running)
    equal(handler(), "tidemark_numpy")  # its block is open in this context while it waits
    with tidemark_numpy.pool():
        with refused(RuntimeError, "this is not the innermost pool"):
            running.close()
    equal(handler(), before)


def a_block_does_not_end_in_another_thread():
    errors = []

    def end(pool):
        try:
            pool.__exit__(None, None, None)
        except RuntimeError as error:
            errors.append(str(error))

    with tidemark_numpy.pool() as pool:
        thread = threading.Thread(target=end, args=(pool,))
        thread.start()
        thread.join()
    assert len(errors) == 1 and "in the context where they began" in errors[0], errors


def leaks_requires_tracemalloc():
    with refused(RuntimeError, "leaks needs tracemalloc: call tracemalloc.start"):
        tidemark_numpy.leaks()
    import tracemalloc
    tracemalloc.start()
    with refused(TypeError, "leaks wants a snapshot of tracemalloc, not 5"):
        tidemark_numpy.leaks(5)


def foreign_capsules_are_rejected():
    import datetime

    from tidemark_numpy import _core
    for wrong in (5, None, datetime.datetime_CAPI, _core.set_handler(_core.make(0, False))):
        for call in (_core.stats, _core.trim, _core.retire, _core.close_trace):
            with refused(TypeError, "this is not a pool of tidemark_numpy"):
                call(wrong)


def stubs_and_docstrings_have_every_name():
    module = pathlib.Path(tidemark_numpy.__file__)
    stubs = ast.parse(module.with_suffix(".pyi").read_text())
    kinds = (ast.ClassDef, ast.FunctionDef)
    equal(sorted(node.name for node in stubs.body if isinstance(node, kinds)), sorted(tidemark_numpy.__all__))
    for node in (node for node in stubs.body if isinstance(node, kinds)):
        named = getattr(tidemark_numpy, node.name)
        assert inspect.getdoc(named), node.name
        members = [inner for inner in getattr(node, "body", []) if isinstance(inner, ast.FunctionDef)]
        functions = [(node, named)] if isinstance(node, ast.FunctionDef) else [(m, getattr(named, m.name)) for m in members]
        for stub, function in functions:
            arguments = [each.arg for each in (*stub.args.args, *stub.args.kwonlyargs)]
            equal(arguments, list(inspect.signature(function).parameters))
        fields = [inner.target.id for inner in getattr(node, "body", []) if isinstance(inner, ast.AnnAssign)]
        equal(fields, list(getattr(named, "_fields", ())))
    assert (module.parent / "py.typed").exists()


if __name__ == "__main__":
    support.run(globals())
