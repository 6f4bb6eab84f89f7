// SPDX-License-Identifier: Apache-2.0
#include "code_symbols.hpp"

#include <algorithm>
#include <span>
#include <string_view>

namespace tidemark::detail {
namespace {

using std::string_view;

bool begins_with_one_of(string_view name, std::span<string_view const> beginnings) noexcept {
  return std::ranges::any_of(beginnings, [=](string_view begin) { return name.starts_with(begin); });
}

bool is_system_library(char const* path) noexcept {
  constexpr string_view names[] = {"libc.so",       "libstdc++",  "libc++",       "libgcc_s",
                                   "libpthread.so", "ld-linux",   "libm.so",      "ld-musl",
                                   "libc.musl",     "libsystem_", "libdyld.dylib"};
  string_view file = path;
  file.remove_prefix(file.rfind('/') + 1);  // npos + 1 is 0
  return begins_with_one_of(file, names);
}

// Of names as the Itanium ABI mangles them, without _ZN.
constexpr string_view standard_names[] = {"St", "Sa",         "Sb",           "Ss", "Si", "So",
                                          "Sd", "9__gnu_cxx", "10__cxxabiv1", "nw", "na"};
constexpr string_view standard_resources[] = {"25monotonic_buffer_resource", "28unsynchronized_pool_resource",
                                              "26synchronized_pool_resource", "15__pool_resource"};
// They run what their caller passes: constructors and bodies.
constexpr string_view running_callers_code[] = {
    "10arena_pushI", "10with_epochI",   "14with_workspaceI",     "8rehearseI",
    "7captureI",     "12capture_withI", "20fail_each_allocation"};

code_owner owner_by_name(string_view name) noexcept {
  const auto skip = [&](string_view prefix) {
    if (!name.starts_with(prefix)) return false;
    name.remove_prefix(prefix.size());
    return true;
  };
  if (name == "main") return code_owner::main;
  if (!skip("_Z")) return code_owner::program;
  while (skip("Z")) continue;  // what is local to a function has the function's name in front
  if (skip("N"))
    while (skip("K") || skip("V") || skip("R") || skip("O")) continue;
  if (skip("8tidemark"))
    return begins_with_one_of(name, running_callers_code) ? code_owner::standard : code_owner::resource;
  if (!begins_with_one_of(name, standard_names)) return code_owner::program;
  (void)skip("St");
  (void)skip("3__1");  // of libc++
  const bool is_resource = skip("3pmr") && begins_with_one_of(name, standard_resources);
  return is_resource ? code_owner::resource : code_owner::standard;
}

}  // namespace

code_owner owner_of(std::uintptr_t address) noexcept {
  const code_place place = find_code(address);
  const code_owner owner = place.function != nullptr ? owner_by_name(place.function) : code_owner::program;
  const bool is_systems = place.module != nullptr && is_system_library(place.module);
  return owner == code_owner::program && is_systems ? code_owner::standard : owner;
}

}  // namespace tidemark::detail
