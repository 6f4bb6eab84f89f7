// SPDX-License-Identifier: Apache-2.0
#include "settings.hpp"

#include <charconv>
#include <cstdlib>
#include <stdexcept>

namespace tidemark::torch {
namespace {

constexpr resource_kind kinds[] = {resource_kind::heap, resource_kind::planned};

std::string_view variable(char const* name) noexcept {
  char const* const value = std::getenv(name);
  return value == nullptr ? std::string_view{} : std::string_view{value};
}

std::optional<std::size_t> number_of(char const* where, std::size_t least, char const* otherwise) {
  const std::string_view text = variable(where);
  if (text.empty()) return {};
  std::size_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error == std::errc{} && end == text.data() + text.size() && number >= least) return number;
  throw std::invalid_argument{std::string{where} + " is '" + std::string{text} + otherwise};
}

}  // namespace

char const* name_of(resource_kind kind) noexcept { return kind == resource_kind::heap ? "heap" : "planned"; }

resource_kind resource_named(std::string_view name, std::string_view where) {
  for (resource_kind kind : kinds) {
    if (name == name_of(kind)) return kind;
  }
  throw std::invalid_argument{std::string{where} + " is '" + std::string{name} +
                              "'; it must be heap or planned"};
}

settings settings_from_environment() {
  settings chosen;
  if (const std::string_view name = variable("TIDEMARK_TORCH_RESOURCE"); !name.empty())
    chosen.resource = resource_named(name, "TIDEMARK_TORCH_RESOURCE");
  chosen.max_cached_bytes = number_of("TIDEMARK_TORCH_MAX_CACHED_BYTES", 0, "', not a number of bytes");
  chosen.max_kinds = number_of("TIDEMARK_TORCH_MAX_KINDS", 1, "', not a number of kinds");
  chosen.trace = variable("TIDEMARK_TORCH_TRACE");
  return chosen;
}

}  // namespace tidemark::torch
