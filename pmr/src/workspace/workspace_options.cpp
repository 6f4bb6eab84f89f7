// SPDX-License-Identifier: Apache-2.0
#include <tidemark/workspace/workspace_options.hpp>

#include <charconv>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string_view>
#include <system_error>
#include <utility>

#include <tidemark/core/detail/fork_participant.hpp>
#include <tidemark/core/detail/request.hpp>
#include <tidemark/core/detail/until_unload.hpp>
#include <tidemark/core/violation.hpp>
#include <tidemark/workspace/detail/workspace_core.hpp>

namespace tidemark {
namespace {

constexpr char const* ways_variable = "TIDEMARK_WORKSPACE_CACHE_WAYS";

// NOLINTNEXTLINE(concurrency-mt-unsafe): as documented
char const* ways_of_environment() { return std::getenv(ways_variable); }

// Reads the variable. Returns false if its text is wrong.
bool read_ways(unsigned& ways) {
  char const* const text = ways_of_environment();
  if (text == nullptr || *text == '\0') return true;
  unsigned read = unlimited_cache_ways;
  if (std::string_view{text} != "unlimited") {
    char const* const end = text + std::strlen(text);
    const auto [parsed, error] = std::from_chars(text, end, read);
    if (error != std::errc{} || parsed != end || read > detail::max_cache_ways || read < 1) return false;
  }
  ways = read;
  return true;
}

struct shared_defaults {
  detail::fork_safe<> mutex;
  workspace_options options;
  bool must_warn = !read_ways(options.cache_ways);
};
shared_defaults& defaults() {
  static auto& shared = *new detail::until_unload<shared_defaults>;
  return shared.value;
}

}  // namespace

workspace_options default_workspace_options() {
  std::unique_lock lock{defaults().mutex};
  const workspace_options options = defaults().options;
  const bool must_warn = std::exchange(defaults().must_warn, false);
  lock.unlock();  // the handler may make workspaces
  if (must_warn) {
    detail::report_warning(warning_kind::refused_setting, ways_variable,
                           "%s is '%s', which is not 1 to 16 or \"unlimited\"; it is ignored", ways_variable,
                           ways_of_environment());
  }
  return options;
}

void set_default_workspace_options(workspace_options const& options) {
  detail::require_power_of_two("workspace", options.name, options.alignment);
  const std::scoped_lock lock{defaults().mutex};
  defaults().options = options;
  defaults().options.name = detail::name_or(options.name, workspace_options{}.name);
}

}  // namespace tidemark
