// SPDX-License-Identifier: Apache-2.0
#include <tidemark/workspace/workspace_options.hpp>

#include <charconv>
#include <cstdlib>
#include <mutex>
#include <optional>
#include <string_view>

#include <tidemark/core/detail/fork_participant.hpp>
#include <tidemark/core/detail/require.hpp>
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

workspace_options options_of_environment() {
  constexpr char const* name = "TIDEMARK_WORKSPACE_CACHE_WAYS";
  workspace_options options;
  char const* const text = std::getenv(name);  // NOLINT(concurrency-mt-unsafe): as documented
  if (text == nullptr || *text == '\0') return options;
  if (const auto ways = parse_ways(text)) {
    options.cache_ways = *ways;
  } else {
    detail::report_warning(warning_kind::refused_setting, name,
                           "%s is '%s', which is not 1 to 16 or \"unlimited\"; it is ignored", name, text);
  }
  return options;
}

struct shared_defaults {
  detail::fork_safe<> mutex;
  workspace_options options = options_of_environment();
};
shared_defaults& defaults() {
  static auto* const shared = new shared_defaults;
  return *shared;
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
}

}  // namespace tidemark
