// SPDX-License-Identifier: Apache-2.0
// The trace of a whole process: TIDEMARK_TRACE.
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <exception>
#include <memory>
#include <string>

#include <tidemark/core/detail/observed.hpp>
#include <tidemark/core/detail/until_unload.hpp>
#include <tidemark/core/violation.hpp>
#include <tidemark/telemetry/observer_list.hpp>
#include <tidemark/telemetry/trace_log.hpp>
#include <tidemark/telemetry/trace_resource.hpp>

namespace tidemark::detail {
namespace {

constexpr char const* trace_variable = "TIDEMARK_TRACE";

void warn(std::string const& reason) noexcept {
  report_variable(trace_variable, "%s: %s", trace_variable, reason.c_str());
}

struct process_trace {
  explicit process_trace(std::string path) {
    try {
      if (const std::size_t at = path.find("%p"); at != std::string::npos)
        path.replace(at, 2, std::to_string(::getpid()));
      log = std::make_shared<trace_log>(trace_log_options{.csv = path, .finds_callers = true});
    } catch (std::exception const& error) {
      refusal = error.what();
    }
  }

  std::shared_ptr<trace_log> log;  // shared with its observers, which may end after it
  std::string refusal;
};

// Null if the variable is not set or empty.
char const* path_of_environment() noexcept {
  // NOLINTNEXTLINE(concurrency-mt-unsafe): as documented
  char const* const value = std::getenv(trace_variable);
  return value != nullptr && *value != '\0' ? value : nullptr;
}

std::shared_ptr<trace_log> log_of_environment() {
  static char const* const path = path_of_environment();
  if (path == nullptr) return nullptr;
  static auto& made = *new until_unload<process_trace>{path};
  // The file is complete when the process ends, although arenas may live on.
  static const struct closes_at_exit {
    ~closes_at_exit() {
      if (made.value.log == nullptr) return;
      try {
        made.value.log->close();
      } catch (std::exception const& error) {
        warn(error.what());
      }
    }
  } closes;
  // Warns after the initialisation, because the handler may make arenas.
  static std::atomic<bool> must_warn{!made.value.refusal.empty()};
  if (must_warn.load(std::memory_order_relaxed) && must_warn.exchange(false))
    warn(made.value.refusal + "; nothing is traced");
  return made.value.log;
}

/// The process's trace of a resource, and its log, which may otherwise end before the resource.
struct traced {
  std::shared_ptr<trace_log> log;
  trace_resource trace;
};
/// A program's observer, which may be null, and the process's trace.
class observer_and_trace final : traced, public observer_list {
 public:
  observer_and_trace(allocation_observer* chosen, std::shared_ptr<trace_log> const& log, char const* name)
      : traced{log, trace_resource{*log, name}}, observer_list{chosen, &trace} {}
};

}  // namespace

ended_pointer<allocation_observer> observer_of(allocation_observer* chosen, char const* name) {
  if (const std::shared_ptr<trace_log> log = log_of_environment())
    return {*new observer_and_trace{chosen, log, name}, [](allocation_observer& both) noexcept {
              both.detached();
              delete static_cast<observer_and_trace*>(&both);
            }};
  if (chosen == nullptr) return {};
  return {*chosen, [](allocation_observer& observer) noexcept { observer.detached(); }};
}

}  // namespace tidemark::detail
