// SPDX-License-Identifier: Apache-2.0
#include <tidemark/workspace/workspace_options.hpp>

#include <atomic>
#include <charconv>
#include <cstdlib>
#include <mutex>
#include <optional>
#include <string_view>

#include <tidemark/core/detail/fork_participant.hpp>
#include <tidemark/core/detail/request.hpp>
#include <tidemark/core/detail/until_unload.hpp>
#include <tidemark/core/violation.hpp>
#include <tidemark/workspace/detail/workspace_core.hpp>

namespace tidemark {
namespace {

std::optional<unsigned> parse_ways(std::string_view text) {
  if (text == "unlimited") return unlimited_cache_ways;
  unsigned ways = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), ways);
  if (error != std::errc{} || end != text.data() + text.size() || ways < 1 || ways > detail::max_cache_ways)
    return {};
  return ways;
}

constexpr char const* ways_variable = "TIDEMARK_WORKSPACE_CACHE_WAYS";

// NOLINTNEXTLINE(concurrency-mt-unsafe): as documented
char const* ways_of_environment() { return std::getenv(ways_variable); }

workspace_options options_of_environment(bool& is_refused) {
  workspace_options options;
  char const* const text = ways_of_environment();
  if (text == nullptr || *text == '\0') return options;
  if (const auto ways = parse_ways(text)) options.cache_ways = *ways;
  else is_refused = true;
  return options;
}

struct shared_defaults {
  detail::fork_safe<> mutex;
  bool has_refused_ways = false;
  workspace_options options = options_of_environment(has_refused_ways);
};
// Warns after the initialisation, because the handler may make workspaces.
shared_defaults& defaults() {
  static auto& shared = *new detail::until_unload<shared_defaults>;
  static std::atomic<bool> must_warn{shared.value.has_refused_ways};
  if (must_warn.load(std::memory_order_relaxed) && must_warn.exchange(false)) {
    detail::report_warning(warning_kind::refused_setting, ways_variable,
                           "%s is '%s', which is not 1 to 16 or \"unlimited\"; it is ignored", ways_variable,
                           ways_of_environment());
  }
  return shared.value;
}

}  // namespace

workspace_options default_workspace_options() {
  const std::scoped_lock lock{defaults().mutex};
  return defaults().options;
}

void set_default_workspace_options(workspace_options const& options) {
  detail::require_power_of_two("workspace", options.name, options.alignment);
  const std::scoped_lock lock{defaults().mutex};
  defaults().options = options;
  defaults().options.name = detail::name_or(options.name, workspace_options{}.name);
}

}  // namespace tidemark
