// SPDX-License-Identifier: Apache-2.0
// Slow paths of the adaptors that need few: errors, reports and the records of `tracking_resource`.
#include <stdexcept>
#include <string>

#include <tidemark/core/out_of_memory.hpp>
#include <tidemark/core/violation.hpp>
#include <tidemark/telemetry/expect_no_upstream.hpp>
#include <tidemark/telemetry/limit_resource.hpp>
#include <tidemark/telemetry/tracking_resource.hpp>

namespace tidemark {

void detail::throw_null_upstream(char const* kind, char const* name) {
  throw std::invalid_argument(std::string{kind} + " '" + name + "': the upstream resource is null");
}

void limit_resource::throw_over_limit(std::size_t bytes, std::size_t align) {
  counter_.refused();
  const std::size_t used = claimed_bytes_, limit = limit_bytes();
  throw out_of_memory({.resource = name(),
                       .requested_bytes = bytes,
                       .alignment = align,
                       .used_bytes = used,
                       .committed_bytes = limit,
                       .reserved_bytes = limit,
                       .largest_bytes = used < limit ? limit - used : 0});
}

void expect_no_upstream::report(std::size_t bytes, std::size_t align) noexcept {
  unexpected_.fetch_add(1, std::memory_order_relaxed);
  detail::report_violation(
      violation_kind::upstream_use, name(),
      "expect_no_upstream '%s': %zu bytes aligned to %zu are allocated from the upstream in "
      "a quiet period",
      name(), bytes, align);
}

tracking_resource::~tracking_resource() { detail::report_leak(kind_, name(), ledger_); }

void* tracking_resource::allocate(std::size_t bytes, std::size_t align,
                                  std::optional<std::source_location> site) {
  struct observer {
    tracking_resource& tracked;
    std::optional<std::source_location> const& site;

    static void before_allocate(std::size_t, std::size_t) noexcept {}
    void failed(std::size_t) const noexcept { tracked.counter_.refused(); }
    void allocated(void* block, std::size_t size, std::size_t alignment) const {
      const std::scoped_lock lock{tracked.mutex_};
      detail::block_ledger& ledger = tracked.ledger_;
      try {
        ledger.add(detail::block_here(block, size, alignment, ledger.next_number(), site));
      } catch (...) {
        failed(size);
        throw;
      }
      tracked.counter_.on_allocate(size);
    }
  } recorded{*this, site};
  return allocate_for(recorded, bytes, align);
}

void tracking_resource::deallocate(void* block, std::size_t bytes, std::size_t align) {
  if (block == nullptr) return;
  {
    detail::late_reports late;
    const std::scoped_lock lock{mutex_};
    if (!ledger_.remove(kind_, name(), block, bytes, align)) return;
  }
  counter_.on_deallocate(bytes);
  upstream_resource()->deallocate(block, bytes, align);
}

}  // namespace tidemark
