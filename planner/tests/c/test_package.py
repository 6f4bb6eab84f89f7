# SPDX-License-Identifier: Apache-2.0
"""Tests the package tidemark_plan as pip installs it from its wheel. Each test is one fact. Hypothesis makes
random problems. Plans are checked pair by pair, independent of the planner."""
import array
import ctypes
import concurrent.futures
import itertools
import math
import os
import pathlib
import random
import re
import signal
import subprocess
import sys
import textwrap
import threading
import time

import pytest
from hypothesis import given, settings, strategies

import tidemark_plan
from tidemark_plan import plan

try:
    import numpy
except ImportError:
    numpy = None

moments = strategies.integers(0, 30)
blocks = strategies.lists(
    strategies.tuples(moments, strategies.integers(1, 10), strategies.integers(0, 100), strategies.sampled_from((1, 2, 8, 64))),
    max_size=24)
quick = settings(max_examples=200, deadline=None)


def arguments(drawn):
    begin, length, size, alignment = zip(*drawn) if drawn else ((), (), (), ())
    return {"begin": begin, "end": [b + n for b, n in zip(begin, length)], "size": size, "alignment": alignment}


def expect_sound(made, size, are_in_conflict):
    for i, offset in enumerate(made.offsets):
        assert 0 <= offset and offset + size[i] <= made.height
        for j in range(i):
            if are_in_conflict(i, j):
                assert offset + size[i] <= made.offsets[j] or made.offsets[j] + size[j] <= offset or 0 in (size[i], size[j])


def live_together(problem):
    return lambda i, j: problem["begin"][i] < problem["end"][j] and problem["begin"][j] < problem["end"][i]


def most_live(problem):
    return max((sum(s for b, e, s in zip(problem["begin"], problem["end"], problem["size"]) if b <= moment < e)
                for moment in problem["begin"]), default=0)


# ---- traces --------------------------------------------------------------------------------------------------------

TRACE = ("op,id,bytes,thread\nr,0,step,0\na,9,100,0\ns,0,first,0\na,1,20,0\np,1,f() at x,0\na,2,30,1\nf,1,0,0\nf,9,0,0\n"
         "e,0,0,0\nf,2,0,0\na,3,8,0\n")


def test_reads_a_trace_and_a_step_of_it(tmp_path):
    path = tmp_path / "run.csv"
    path.write_text(TRACE)
    assert tidemark_plan.read_trace(path) == {"begin": [0, 1, 2], "end": [4, 3, 5], "size": [100, 20, 30]}
    assert tidemark_plan.read_trace(path, step=0) == {"begin": [1], "end": [3], "size": [20]}
    assert plan(**tidemark_plan.read_trace(path)).height == 150


@pytest.mark.parametrize("text, step, reason", [
    ("", 0, ": no step 0 has events"), ("op,id\n", None, ":1: this is not a row of a trace"),
    (TRACE, 1, ": no step 1 has events"), (TRACE + "x,0,0,0\n", None, ":13: this is not a row of a trace"),
    (TRACE + "a,x,0,0\n", None, ":13: this is not a row of a trace"), (TRACE + "a,0\n", None, ":13: this is not a row of a trace")])
def test_rejects_what_is_no_trace(tmp_path, text, step, reason):
    path = tmp_path / "run.csv"
    path.write_text(text)
    with pytest.raises(ValueError, match=re.escape(f"tidemark_plan: {path}{reason}")):
        tidemark_plan.read_trace(path, step)


# ---- plans ---------------------------------------------------------------------------------------------------------


@quick
@given(blocks)
def test_plans_are_sound_and_not_below_live_bytes(drawn):
    problem = arguments(drawn)
    made = plan(**problem, node_limit=500)
    assert len(made.offsets) == len(drawn)
    expect_sound(made, problem["size"], live_together(problem))
    assert all(offset % alignment == 0 for offset, alignment in zip(made.offsets, problem["alignment"]))
    assert most_live(problem) <= made.bound <= made.proven_bound <= made.height
    assert made.optimal == (made.proven_bound == made.height)


@quick
@given(blocks, strategies.randoms(use_true_random=False))
def test_every_block_order_has_sound_plans_and_the_same_bound(drawn, chance):
    shuffled = list(drawn)
    chance.shuffle(shuffled)
    problem = arguments(shuffled)
    made, before = plan(**problem, node_limit=500), plan(**arguments(drawn), node_limit=500)
    expect_sound(made, problem["size"], live_together(problem))
    if "proven" not in (made.proof, before.proof):  # a proof may raise the bound
        assert made.bound == before.bound
    if made.optimal and before.optimal:
        assert made.height == before.height


@quick
@given(strategies.lists(strategies.integers(0, 50), min_size=1, max_size=12), strategies.data())
def test_plans_of_conflicts_are_sound(size, data):
    number = strategies.integers(0, len(size) - 1)
    pairs = data.draw(strategies.lists(strategies.tuples(number, number), max_size=40))
    made = plan(size=size, conflicts=pairs, node_limit=500)
    either = {*pairs, *((b, a) for a, b in pairs)}
    expect_sound(made, size, lambda i, j: (i, j) in either)
    assert made.bound <= made.height


@quick
@given(blocks)
def test_conflicts_of_lifetimes_have_sound_plans(drawn):
    problem = arguments(drawn)
    together = live_together(problem)
    pairs = [(i, j) for i, j in itertools.combinations(range(len(drawn)), 2) if together(i, j)]
    made = plan(size=problem["size"], alignment=problem["alignment"], conflicts=pairs, node_limit=500)
    expect_sound(made, problem["size"], together)


@quick
@given(blocks)
def test_returns_the_same_plan_if_all_offsets_are_fixed(drawn):
    problem = arguments(drawn)
    made = plan(**problem, node_limit=500)
    again = plan(**problem, fixed=made.offsets)
    assert (again.offsets, again.height, again.optimal) == (made.offsets, made.height, True)


def test_reports_how_optimality_is_known():
    problem = {"begin": (0, 1, 0, 6, 2, 6, 3, 4), "end": (1, 5, 3, 7, 4, 11, 5, 7), "size": (6, 4, 6, 6, 2, 2, 3, 5)}
    made = plan(**problem, time_limit=math.inf)
    assert (made.height, made.optimal) == (14, True)
    assert made.proof == ("at_bound" if made.bound == 14 else "proven")
    assert plan([0], [1], [5]).proof == "at_bound"


def test_no_blocks_are_a_plan_of_height_0():
    for made in (plan(), plan([], [], []), plan(size=[], conflicts=[])):
        assert (made.offsets, made.height, made.bound, made.optimal) == ([], 0, 0, True)


def test_alignment_applies_to_all_offsets_and_the_height():
    made = plan([0, 0, 0], [1, 1, 1], [1, 2, 300], alignment=256)
    assert (sorted(made.offsets)[0], made.height) == (0, 1024)
    assert all(offset % 256 == 0 for offset in made.offsets)


def test_fixed_blocks_stay():
    made = plan([0, 0, 0], [9, 9, 9], [10, 10, 5], fixed=[None, 7, None])
    assert made.offsets[1] == 7 and made.bound >= 25
    expect_sound(made, (10, 10, 5), lambda i, j: True)


def test_takes_every_kind_of_sequence():
    wanted = plan([0, 1, 2], [2, 3, 4], [10, 20, 30])
    for kind in (tuple, iter, lambda values: array.array("Q", values), lambda values: array.array("i", values),
                 lambda values: (ctypes.c_uint32 * len(values))(*values)):
        made = plan(kind([0, 1, 2]), kind([2, 3, 4]), kind([10, 20, 30]), alignment=kind([1, 1, 2]))
        assert made.offsets == wanted.offsets


@pytest.mark.skipif(numpy is None, reason="there is no NumPy")
def test_takes_arrays_of_numpy():
    wanted = plan([0, 1, 2], [2, 3, 4], [10, 20, 30])
    for kind in ("uint64", "int64", "int32", ">u8", "uint8"):
        rows = numpy.array([[0, 2, 10], [1, 3, 20], [2, 4, 30]], dtype=kind)
        assert plan(*rows.T).offsets == wanted.offsets, kind
        assert plan(*(numpy.ascontiguousarray(column) for column in rows.T)).offsets == wanted.offsets, kind
    made = plan(size=numpy.array([5, 6]), conflicts=numpy.array([[0, 1]]))
    assert made.height == 11 and all(type(offset) is int for offset in made.offsets)


def test_imports_without_numpy():
    code = "import sys; sys.modules['numpy'] = None; import tidemark_plan; print(tidemark_plan.plan([0], [1], [7]).height)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "7\n"


def test_plans_buffers_of_usmp_as_documented():
    class buffer_info:  # like TVM's: hashed as an object, with numbers that are objects
        def __init__(self, size_bytes, alignment):
            self.size_bytes, self.alignment, self.conflicts = int_imm(size_bytes), int_imm(alignment), []

    class int_imm:
        def __init__(self, value):
            self.value = value

        def __int__(self):
            return self.value

    infos = [buffer_info(30, 1), buffer_info(8, 16), buffer_info(30, 1), buffer_info(8, 16)]
    for i, info in enumerate(infos):
        info.conflicts = [infos[i - 1], infos[(i + 1) % 4], buffer_info(1, 1)]  # the last one: another pool
    page = (pathlib.Path(__file__).parents[2] / "docs/use.md").read_text()
    names = {"tidemark_plan": tidemark_plan}
    exec(re.search(r"^```python\n(def offsets_of_usmp.*?)^```$", page, re.M | re.S)[1], names)
    offsets = names["offsets_of_usmp"](infos)
    expect_sound(tidemark_plan.Plan([offsets[info] for info in infos], 46, 0, 0, "", 0, 0), (30, 8, 30, 8),
                 lambda i, j: (i - j) % 2 == 1)
    assert offsets[infos[1]] % 16 == 0


# ---- limits --------------------------------------------------------------------------------------------------------


def many(n=400):
    """Lifetimes that the plan of make_plan does not place at the bound."""
    chance = random.Random(1)
    begin = [chance.randrange(60) for _ in range(n)]
    return begin, [moment + chance.randint(1, 8) for moment in begin], [chance.randint(1, 1000) for _ in range(n)]


def endless():
    """Conflicts far from a clique, for which no search ends by itself."""
    chance = random.Random(3)
    pairs = [pair for pair in itertools.combinations(range(60), 2) if chance.random() < 0.3]
    return {"size": [chance.randint(1, 100) for _ in range(60)], "conflicts": pairs, "time_limit": math.inf}


def test_a_node_limit_gives_the_same_plan():
    first, again = (plan(*many(), node_limit=5000, seed=7) for _ in range(2))
    assert first[:5] == again[:5]
    assert plan(*many(), node_limit=20000, seed=7).height <= first.height


def test_a_time_limit_of_0_leaves_the_first_order():
    made = plan(*many(), time_limit=0)
    assert made.nodes == 400
    assert plan(*many(), time_limit=0.2).height <= made.height


def test_a_capacity_ends_the_search():
    first = plan(*many(), time_limit=0)
    assert plan(*many(), capacity=first.height)[1:5] == first[1:5]


def test_progress_reports_lower_plans():
    seen = []
    made = plan(*many(), node_limit=20000, progress=seen.append)
    assert seen and seen[-1].height == made.height
    assert all(now.bound <= now.proven_bound <= now.height and now.seconds >= 0 for now in seen)
    assert [now.height for now in seen] == sorted((now.height for now in seen), reverse=True)


def test_progress_exception_ends_the_search_and_passes_through():
    def stop(now):
        raise LookupError("enough")
    with pytest.raises(LookupError, match="enough"):
        plan(**endless(), progress=stop)
    assert threading.active_count() == 1


def test_an_interrupt_ends_the_search():
    def interrupt():
        time.sleep(0.3)
        os.kill(os.getpid(), signal.SIGINT)
    interrupter = threading.Thread(target=interrupt)
    interrupter.start()
    with pytest.raises(KeyboardInterrupt):
        plan(**endless())
    interrupter.join()
    assert threading.active_count() == 1


def test_signal_handler_exception_ends_the_search():
    def on_alarm(number, frame):
        raise TimeoutError("the alarm")
    before = signal.signal(signal.SIGALRM, on_alarm)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        with pytest.raises(TimeoutError, match="the alarm"):
            plan(**endless())
    finally:
        signal.signal(signal.SIGALRM, before)
    assert threading.active_count() == 1


def test_threads_plan_at_once():
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        made = list(pool.map(lambda seed: plan(*many(100), node_limit=3000, seed=seed % 2), range(8)))
    assert all(one[:5] == made[i % 2][:5] for i, one in enumerate(made))


# ---- wrong calls ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("call, kind, sentence", [
    (lambda: plan([0], [0], [1]), ValueError, "block 0 ends at 0, which is not after its begin, 0"),
    (lambda: plan([0, 1], [1], [1, 1]), ValueError, "end has 1 entries, and size has 2"),
    (lambda: plan(size=[1]), ValueError, "begin has 0 entries, and size has 1"),
    (lambda: plan([0], [1]), ValueError, "begin has 1 entries, and size has 0"),
    (lambda: plan([0], [1], [1], alignment=[1, 1]), ValueError, "alignment has 2 entries, and size has 1"),
    (lambda: plan([0], [1], [1], fixed=[]), ValueError, "fixed has 0 entries, and size has 1"),
    (lambda: plan([-1], [1], [1]), ValueError, "begin[0] is -1, not a number from 0 to 2^64 - 1"),
    (lambda: plan([0], [1], [2**64]), ValueError, f"size[0] is {2**64}, not a number from 0 to 2^64 - 1"),
    (lambda: plan([0], [1], [1.5]), TypeError, "size[0] is 1.5, not a whole number"),
    (lambda: plan([0], [1], ["1"]), TypeError, "size[0] is '1', not a whole number"),
    (lambda: plan([0], [1], [None]), TypeError, "size[0] is None, not a whole number"),
    (lambda: plan([0], [1], 1), TypeError, "size is 1, not a sequence of whole numbers"),
    (lambda: plan([0], [1], [1], alignment=None), TypeError, "alignment is None, neither a whole number nor a sequence of whole numbers"),
    (lambda: plan([0], [1], [1], alignment=16.0), TypeError, "alignment is 16.0, neither a whole number nor a sequence of whole numbers"),
    (lambda: plan([0], [1], [1], fixed=7), TypeError, "fixed is 7, not a sequence of whole numbers"),
    (lambda: plan(size=[1], conflicts=7), TypeError, "conflicts is 7, not a sequence of pairs"),
    (lambda: plan([0], [1], [1], progress=5), TypeError, "progress is 5, not a function"),
    (lambda: plan([0], [1], [1], alignment=3), ValueError, "the alignment of the options, 3, is not a power of two"),
    (lambda: plan([0], [1], [1], alignment=[3]), ValueError, "block 0 has alignment 3, which is not a power of two"),
    (lambda: plan([0], [1], [1], fixed=[2**64 - 1]), ValueError,
     f"fixed[0] is {2**64 - 1}, and no block may end above 2^62"),
    (lambda: plan([0, 0], [1, 1], [4, 4], fixed=[0, 3]), ValueError,
     "block 0 and block 1 are in conflict, and their fixed offsets make them share bytes"),
    (lambda: plan([0], [1], [1], conflicts=[]), ValueError,
     "begin and end cannot be combined with conflicts"),
    (lambda: plan(size=[1], conflicts=[(0, 1)]), ValueError, "conflict 0 names block 1, and there are 1 blocks"),
    (lambda: plan(size=[1], conflicts=[(0,)]), ValueError, "conflicts[0] is (0,), not a pair of blocks"),
    (lambda: plan(size=[1], conflicts=[0]), ValueError, "conflicts[0] is 0, not a pair of blocks"),
    (lambda: plan([0], [1], [1], time_limit=-1), ValueError, "time_limit is -1.0, not a number of seconds"),
    (lambda: plan([0], [1], [1], time_limit=math.nan), ValueError, "time_limit is nan, not a number of seconds"),
    (lambda: plan([0], [1], [1], time_limit="long"), TypeError, "time_limit is 'long', not a number of seconds"),
    (lambda: plan([0], [1], [1], node_limit=-1), ValueError, "node_limit is -1, not a number from 0 to 2^64 - 1"),
    (lambda: plan([0], [1], [1], capacity=0), ValueError, "capacity is 0, expected at least 1"),
])
def test_wrong_values_are_named_in_one_sentence(call, kind, sentence):
    with pytest.raises(kind) as caught:
        call()
    assert str(caught.value) == f"tidemark_plan: {sentence}"


def test_names_a_missing_library():
    done = subprocess.run([sys.executable, "-c", "import tidemark_plan"], capture_output=True, text=True,
                          env={**os.environ, "TIDEMARK_PLAN_LIBRARY": "/nowhere/libtidemark_plan.so"})
    assert "ImportError: tidemark_plan: cannot load /nowhere/libtidemark_plan.so: " in done.stderr
    assert done.stderr.rstrip().endswith("; TIDEMARK_PLAN_LIBRARY may name it")


# ---- the installed package -----------------------------------------------------------------------------------------


def test_is_installed_with_its_library_and_type_hints():
    folder = pathlib.Path(tidemark_plan.__file__).parent
    assert {path.name for path in folder.iterdir()} - {"__pycache__"} == {"__init__.py", "py.typed", "libtidemark_plan.so"}
    [info] = folder.parent.glob("tidemark_plan-*.dist-info")
    assert info.name == f"tidemark_plan-{tidemark_plan.version()}.dist-info"
    assert {"METADATA", "WHEEL", "RECORD", "LICENSE"} <= {path.name for path in info.iterdir()}


def test_every_public_name_has_a_description():
    for name in tidemark_plan.__all__:
        assert textwrap.dedent(getattr(tidemark_plan, name).__doc__).strip(), name
