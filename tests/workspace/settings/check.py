# SPDX-License-Identifier: Apache-2.0
"""Runs the program `show` with settings of workspaces in the environment and compares its output.

A constructor overrides set_default_workspace_options, which overrides the environment, which overrides the
compiled-in settings."""
import os
import subprocess
import sys

WAYS = "TIDEMARK_WORKSPACE_CACHE_WAYS"
program, case = sys.argv[1:]
failures = []


def show(what, **settings):
    environment = {name: text for name, text in os.environ.items() if not name.startswith("TIDEMARK_WORKSPACE_")}
    result = subprocess.run([program, what], capture_output=True, text=True, env=environment | settings)
    if result.returncode != 0 or result.stderr:
        sys.exit(f"{what} ended with {result.returncode}: {result.stderr}")
    return result.stdout.splitlines()


def expect(lines, what="default", **settings):
    shown = show(what, **settings)
    if shown != lines:
        failures.append(f"{what} with {settings} printed\n  " + "\n  ".join(shown) + "\nnot\n  " + "\n  ".join(lines))


built = show("built")[0].removeprefix("built: ")
built_pooling = built.split(", ")[1]

if case == "compiled_in_settings_are_the_default":
    expect([f"default: {built}"])
    expect([f"default: {built}"], **{WAYS: ""})
elif case == "environment_overrides_compiled_in_settings":
    for ways, shown in ("1", "1 ways"), ("16", "16 ways"), ("unlimited", "unlimited ways"):
        expect([f"default: {shown}, {built_pooling}"], **{WAYS: ways})
    expect([f"default: {built}"], TIDEMARK_WORKSPACE_POOLING="0")  # not read
elif case == "the_environment_is_read_once":
    expect([f"default: 6 ways, {built_pooling}", f"again: 6 ways, {built_pooling}"], "twice", **{WAYS: "6"})
    expect([f"default: {built}", f"again: {built}"], "twice")
elif case == "constructor_overrides_program_settings_and_the_environment":
    expect([
        f"default: 2 ways, {built_pooling}",
        "set: 7 ways, pooling off",
        "of an upstream: 7 ways, pooling off",
        "of the thread: 7 ways, pooling off",
        f"constructed: 5 ways, {built_pooling}",
        "set again: 3 ways, pooling off",
    ], "set", **{WAYS: "2"})
elif case == "invalid_environment_values_warn_and_are_ignored":
    for text in "0", "17", "-1", "4x", " 4", "4 ", "four", "Unlimited", "99999999999999999999", "0x4", "+4", "4.0":
        expect([
            f"{WAYS}: {WAYS} is '{text}', which is not 1 to 16 or \"unlimited\"; it is ignored",
            f"default: {built}",
        ], **{WAYS: text})
elif case == "invalid_program_values_warn_and_become_4_ways":
    refused = "workspace '{0}': cache_ways is {1}, which is neither 1 to 16 nor unlimited; it is 4 instead"
    expect([
        f"default: 2 ways, {built_pooling}",
        "a: " + refused.format("a", 0),
        f"constructed with 0: 4 ways, {built_pooling}",
        "b: " + refused.format("b", 17),
        f"constructed with 17: 4 ways, {built_pooling}",
        "c: " + refused.format("c", 18),
        f"set to 18: 4 ways, {built_pooling}",
        f"constructed without limit: unlimited ways, {built_pooling}",
    ], "refused", **{WAYS: "2"})
else:
    sys.exit(f"there is no case {case}")
sys.exit("\n".join(failures) or 0)
