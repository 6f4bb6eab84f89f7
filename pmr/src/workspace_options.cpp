// SPDX-License-Identifier: Apache-2.0
#include <tidemark/workspace_options.hpp>

#include <atomic>
#include <charconv>
#include <cstdlib>
#include <mutex>
#include <optional>
#include <string_view>

#include <tidemark/detail/header_cache.hpp>
#include <tidemark/warning.hpp>
#include <tidemark/with_workspace.hpp>

#include "require.hpp"

namespace tidemark {
namespace {

std::optional<unsigned> parse_ways(std::string_view text) {
  if (text == "unlimited") return unlimited_cache_ways;
  unsigned ways = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), ways);
  if (error != std::errc{} || end != text.data() + text.size() || ways < 1 || ways > detail::cache_ways_max)
    return {};
  return ways;
}

std::optional<bool> parse_switch(std::string_view text) {
  if (text == "0") return false;
  if (text == "1") return true;
  return {};
}

// Sets `value` to what the variable says, if it says something.
template <class T, class Parse>
void read_environment(char const* name, char const* allowed, T& value, Parse parse) {
  char const* const text = std::getenv(name);  // NOLINT(concurrency-mt-unsafe): as documented
  if (text == nullptr || *text == '\0') return;
  if (const auto parsed = parse(text)) value = *parsed;
  else
    detail::report_warning(warning_kind::refused_setting, name, "%s is '%s', which is not %s; it is ignored",
                           name, text, allowed);
}

workspace_options options_of_environment() {
  workspace_options options;
  read_environment("TIDEMARK_WORKSPACE_CACHE_WAYS", "1 to 16 or \"unlimited\"", options.cache_ways,
                   parse_ways);
  read_environment("TIDEMARK_WORKSPACE_POOLING", "0 or 1", options.pooling, parse_switch);
  return options;
}

struct shared_defaults {
  std::mutex mutex;
  std::optional<workspace_options> set;
};
shared_defaults& defaults() {
  static auto* const shared = new shared_defaults;
  return *shared;
}

std::atomic<bool> pooling_enabled{true};

}  // namespace

workspace_options default_workspace_options() {
  static const workspace_options of_environment = options_of_environment();
  const std::scoped_lock lock{defaults().mutex};
  return defaults().set.value_or(of_environment);
}

void set_default_workspace_options(workspace_options const& options) {
  detail::require_power_of_two("workspace", options.name, options.alignment);
  const std::scoped_lock lock{defaults().mutex};
  defaults().set = options;
}

bool workspace_pooling_enabled() noexcept { return pooling_enabled.load(std::memory_order_relaxed); }

void set_workspace_pooling(bool enabled) noexcept {
  pooling_enabled.store(enabled, std::memory_order_relaxed);
}

}  // namespace tidemark
