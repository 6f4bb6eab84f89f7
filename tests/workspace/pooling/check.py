# SPDX-License-Identifier: Apache-2.0
"""Compares the output of one source with workspaces that keep memory, and with pooling off at compile time.

usage: check.py KEEPING-PROGRAM PLAIN-PROGRAM CASE
"""
import subprocess
import sys

keeping_program, plain_program, case = sys.argv[1:]


def read(program):
    results, numbers = [], {}
    for line in subprocess.run([program], capture_output=True, text=True, check=True, timeout=60).stdout.splitlines():
        word, value = line.split()
        if word == "result":
            results.append(value)
        else:
            numbers[word] = int(value)
    return results, numbers


(kept_results, kept), (plain_results, plain) = read(keeping_program), read(plain_program)


def expect(what, found, wanted):
    if found != wanted:
        sys.exit(f"{what}: {found}, and should be {wanted}")


def both_give_the_same_results():
    expect("number of results", len(kept_results), 10)
    expect("results", plain_results, kept_results)


def without_pooling_each_acquisition_is_one_allocation():
    expect("acquisitions", plain["acquisitions"], 80)
    expect("allocations of the plain program", plain["allocations"], plain["acquisitions"])
    expect("pooling of the plain program", plain["pooling"], 0)
    # The first turn asks for the largest: later ones find all they want.
    expect("pooling of the keeping program", kept["pooling"], 1)
    if not 0 < kept["allocations"] <= kept["acquisitions"] // 10:
        sys.exit(f"the keeping program allocated {kept['allocations']} times")


def without_pooling_everything_is_freed_when_scopes_end():
    for word in ("live_between_turns", "records_between_turns", "live_at_end", "slots_of_this_thread"):
        expect(f"{word} of the plain program", plain[word], 0)
    for word in ("live_between_turns", "records_between_turns", "slots_of_this_thread"):
        if kept[word] == 0:
            sys.exit(f"{word} of the keeping program is 0")


def without_pooling_sweeps_do_nothing():
    expect("bytes that a workspace without pooling keeps", plain["kept_bytes_after_ticks"], 0)
    if kept["kept_bytes_after_ticks"] > 1000:
        sys.exit(f"the workspace with the hook still keeps {kept['kept_bytes_after_ticks']} bytes")


def no_thread_starts_by_itself():
    expect("sweeper", (plain["sweeper_by_itself"], kept["sweeper_by_itself"]), (0, 0))


globals()[case]()
