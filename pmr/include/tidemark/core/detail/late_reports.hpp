// SPDX-License-Identifier: Apache-2.0
/// @file
/// `late_reports` and `late_warnings`: keep reports that are found under a lock until after it. Own their
/// texts.
#pragma once

#include <string>
#include <vector>

#include <tidemark/core/macros.hpp>
#include <tidemark/core/violation.hpp>

namespace tidemark::detail {

/// Keeps violations until it ends, and reports them then. Declared in front of a lock it reports after the
/// lock is released, so that the handler may use the resource, on this thread or on others.
///
/// ```cpp
/// late_reports late;
/// const std::scoped_lock lock{mutex_};
/// if (!ledger_.remove(late, "pool", name(), block, bytes, align)) return;
/// ```
/// The first violation needs no memory. A further one is reported at once if there is no memory for it.
class late_reports {
 public:
  /// @param then what the default handler does after each report
  explicit late_reports(by_default then = by_default::aborts) noexcept : then_{then} {}
  late_reports(late_reports const&) = delete;
  late_reports& operator=(late_reports const&) = delete;
  ~late_reports() {
    if (first_.resource != nullptr) [[unlikely]]
      report_all();
  }

  /// As `report_violation`, later. @param resource must live until this ends
  [[gnu::cold, gnu::noinline, TIDEMARK_FORMATS(4, 5)]] void add(violation_kind kind, char const* resource,
                                                                char const* format, ...) noexcept;

 private:
  struct entry {
    entry() noexcept {}  // NOLINT(modernize-use-equals-default): leaves the message uninitialised
    violation_kind kind{};
    char const* resource = nullptr;  // null: unused
    entry* next = nullptr;
    char message[512];
  };

  TIDEMARK_COLD void report_all() noexcept;

  by_default then_;
  entry first_;
  entry* last_ = &first_;
};

/// Keeps the warnings that its thread reports until it ends, and reports them then. Declared in front of a
/// lock under which address spaces are called, because they report warnings by themselves.
///
/// An inner one keeps nothing, because the lock of the outer one is still held. A warning is reported at once
/// if there is no memory for it. A local variable of one thread.
class late_warnings {
 public:
  late_warnings() noexcept;
  late_warnings(late_warnings const&) = delete;
  late_warnings& operator=(late_warnings const&) = delete;
  ~late_warnings();

  /// The handler of the calling thread's warnings: keeps them while there is one of this class, else
  /// `in_force`.
  [[nodiscard]] static warning_handler handler_or(warning_handler in_force) noexcept;

 private:
  struct entry {
    warning_kind kind;
    std::string resource, message;
  };

  static void keep(warning const& found) noexcept;

  std::vector<entry> kept_;
};

}  // namespace tidemark::detail
