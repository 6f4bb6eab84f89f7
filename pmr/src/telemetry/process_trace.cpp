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

/// A program's observer and the process's trace. Ends with its resource, as the trace's observer does.
class traced_beside final : public observer_list {
 public:
  using observer_list::observer_list;
  void detached() noexcept override {
    observer_list::detached();
    delete this;
  }
};

}  // namespace

observer_pointer observer_of(allocation_observer* chosen, char const* name) {
  const std::shared_ptr<trace_log> log = log_of_environment();
  if (log == nullptr) return observer_pointer{chosen};
  auto traced = std::make_unique<trace_resource>(*log, name);
  traced->process_log_ = log;
  allocation_observer* all = traced.get();
  if (chosen != nullptr) all = new traced_beside{chosen, all};
  (void)traced.release();
  return observer_pointer{all};
}

}  // namespace tidemark::detail
