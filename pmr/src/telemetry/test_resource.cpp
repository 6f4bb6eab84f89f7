// SPDX-License-Identifier: Apache-2.0
#include <tidemark/telemetry/test_resource.hpp>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <exception>
#include <limits>
#include <mutex>
#include <new>
#include <stdexcept>
#include <string>

#include <tidemark/core/detail/align.hpp>
#include <tidemark/core/detail/request.hpp>
#include <tidemark/core/out_of_memory.hpp>
#include <tidemark/core/violation.hpp>
#include <tidemark/diagnose/detail/sanitizers.hpp>

namespace tidemark {
namespace {

constexpr std::uint64_t endless = std::numeric_limits<std::uint64_t>::max();

std::string subject(char const* name) { return std::string{"test_resource '"} + name + "': "; }

void fill_and_poison(std::uintptr_t first, std::size_t bytes, unsigned char value) noexcept {
  detail::unpoison(first, bytes);
  std::memset(reinterpret_cast<void*>(first), value, bytes);
  detail::poison(first, bytes);
}

}  // namespace

test_resource::test_resource(std::pmr::memory_resource* upstream, test_resource_options const& options)
    : ledger_adaptor{"test_resource", upstream, detail::name_or(options.name, test_resource_options{}.name)},
      options_{options} {
  options_.name = name();
  if (options.guard_bytes > max_guard_bytes) {
    throw std::invalid_argument(subject(name()) + "guard_bytes is " + std::to_string(options.guard_bytes) +
                                "; the maximum is " + std::to_string(max_guard_bytes));
  }
}

test_resource::~test_resource() {
  check_guards();
  detail::report_leak(kind_, name(), ledger_);
  {
    detail::late_reports late;
    shrink_quarantine(0);
  }
  for (auto const& [address, block] : ledger_.live()) free_padded(block);
}

// ---- blocks and their guards ----

// A multiple of the alignment, so that the block after it is aligned.
std::size_t test_resource::front_bytes(std::size_t align) const noexcept {
  return align <= max_guard_bytes ? detail::align_up(options_.guard_bytes, align) : 0;
}

std::size_t test_resource::padded_bytes(std::size_t bytes, std::size_t align) const noexcept {
  return detail::add_saturating(detail::add_saturating(front_bytes(align), bytes), options_.guard_bytes);
}

void* test_resource::allocate(std::size_t bytes, std::size_t align,
                              std::optional<std::source_location> site) {
  detail::late_reports late;
  const std::scoped_lock lock{mutex_};
  const std::uint64_t number = ++requests_;
  const std::size_t front = front_bytes(align), all_bytes = padded_bytes(bytes, align);
  void* memory = nullptr;
  try {
    detail::require_power_of_two(kind_, name(), align);
    const bool must_fail = first_failing_ <= number && number <= last_failing_;
    if (must_fail) ++injected_failures_;
    if (must_fail || std::max(all_bytes, align) > detail::max_block_bytes) {
      const std::size_t used = counter_.used_bytes();
      throw out_of_memory({.resource = name(),
                           .requested_bytes = bytes,
                           .alignment = align,
                           .used_bytes = used,
                           .committed_bytes = used,
                           .reserved_bytes = used,
                           .because = must_fail ? "the test_resource was configured to fail it" : ""});
    }
    std::list<live_block> node(1);
    memory = allocate_from_upstream(all_bytes, align);
    const std::uintptr_t first = detail::address_of(memory), begin = first + front;
    void* const block = reinterpret_cast<void*>(begin);
    ledger_.add(detail::block_here(block, bytes, align, number, site));
    free_nodes_.splice(free_nodes_.end(), node);
    fill_and_poison(first, front, guard_fill);
    fill_and_poison(begin, bytes, fresh_fill);
    fill_and_poison(begin + bytes, options_.guard_bytes, guard_fill);
    detail::unpoison(begin, bytes);  // sanitizers must treat the fill as uninitialised memory
    counter_.on_allocate(bytes);
    return block;
  } catch (...) {
    if (memory != nullptr) upstream_resource()->deallocate(memory, all_bytes, align);
    counter_.refused();
    throw;
  }
}

void* test_resource::allocate_from_upstream(std::size_t bytes, std::size_t align) {
  try {
    return upstream_resource()->allocate(bytes, align);
  } catch (std::bad_alloc const&) {
    if (quarantine_.empty()) throw;
    shrink_quarantine(0);  // the quarantine must not cause an out-of-memory error in the tested code
  }
  return upstream_resource()->allocate(bytes, align);
}

void test_resource::deallocate(void* block, std::size_t bytes, std::size_t align) {
  if (block == nullptr) return;
  detail::late_reports late;
  const std::scoped_lock lock{mutex_};
  const auto entry = ledger_.remove(kind_, name(), block, bytes, align);
  if (!entry) return;
  counter_.on_deallocate(bytes);
  check_guards_of(*entry);
  fill_and_poison(detail::address_of(block), bytes, detail::freed_fill);
  std::list<live_block> freed;
  freed.splice(freed.end(), free_nodes_, free_nodes_.begin());
  freed.front() = *entry;
  const std::size_t all_bytes = padded_bytes(bytes, align);
  // A larger block would displace all others. A block of 0 bytes would never leave, because the limit is in
  // bytes.
  if (all_bytes == 0 || all_bytes > options_.quarantine_bytes) return free_padded(*entry);
  shrink_quarantine(options_.quarantine_bytes - all_bytes);
  quarantine_.splice(quarantine_.end(), freed);
  quarantined_bytes_ += all_bytes;
}

void test_resource::free_padded(live_block const& block) {
  const std::uintptr_t first = detail::address_of(block.address) - front_bytes(block.align);
  const std::size_t all_bytes = padded_bytes(block.bytes, block.align);
  detail::unpoison(first, all_bytes);
  upstream_resource()->deallocate(reinterpret_cast<void*>(first), all_bytes, block.align);
}

void test_resource::shrink_quarantine(std::size_t max_bytes) {
  while (quarantined_bytes_ > max_bytes) {
    const live_block oldest = quarantine_.front();
    quarantine_.pop_front();
    quarantined_bytes_ -= padded_bytes(oldest.bytes, oldest.align);
    check_freed(oldest);
    free_padded(oldest);
  }
}

// ---- failing on demand ----

void test_resource::fail_requests(char const* operation, std::uint64_t n, std::uint64_t count) {
  if (n == 0) {
    throw std::invalid_argument(subject(name()) + "" + operation + "(0): the next request is number 1");
  }
  const std::scoped_lock lock{mutex_};
  first_failing_ = n > endless - requests_ ? endless : requests_ + n;
  last_failing_ = count - 1 > endless - first_failing_ ? endless : first_failing_ + (count - 1);
}

void test_resource::fail_allocation(std::uint64_t n) { fail_requests("fail_allocation", n, 1); }

void test_resource::fail_allocations_from(std::uint64_t n) {
  fail_requests("fail_allocations_from", n, endless);
}

void test_resource::stop_failing() noexcept {
  const std::scoped_lock lock{mutex_};
  first_failing_ = 1;
  last_failing_ = 0;
}

std::uint64_t test_resource::injected_failures() const noexcept {
  const std::scoped_lock lock{mutex_};
  return injected_failures_;
}

std::size_t fail_each_allocation(test_resource& resource, std::function<void()> const& body,
                                 std::uint64_t max_runs) {
  struct ended_by {
    ~ended_by() { resource.stop_failing(); }
    test_resource& resource;
  };
  std::size_t max_blocks = resource.stats().used_blocks;
  for (std::uint64_t n = 1; n <= max_runs; ++n) {
    const std::uint64_t failures = resource.injected_failures(), requests = resource.requests_;
    resource.fail_allocation(n);
    const ended_by stops{resource};
    const auto has_failed = [&] { return resource.injected_failures() != failures; };
    try {
      body();
    } catch (std::bad_alloc const&) {
      if (!has_failed()) throw;
    }
    if (const std::size_t blocks = resource.counter_.used_blocks(); blocks > max_blocks) {
      max_blocks = blocks;
      char when[128];
      std::snprintf(when, sizeof when,
                    "fail_each_allocation: run %llu, in which %s: ", static_cast<unsigned long long>(n),
                    has_failed() ? "that request failed" : "nothing failed");
      detail::late_reports late;
      const std::scoped_lock lock{resource.mutex_};
      detail::report_leak(resource.kind_, resource.name(), resource.ledger_, requests + 1, when);
    }
    // Every other call of `fail_allocation` sets another number.
    if (const std::scoped_lock lock{resource.mutex_}; resource.last_failing_ != requests + n) {
      throw std::logic_error(subject(resource.name()) + "fail_each_allocation: in run " + std::to_string(n) +
                             " the body has changed which allocation fails; leave that to the loop");
    }
    if (!has_failed()) return static_cast<std::size_t>(n - 1);
  }
  throw std::logic_error(
      subject(resource.name()) + "fail_each_allocation: an allocation still failed in run " +
      std::to_string(max_runs) + "; pass a larger max_runs if the body allocates that often");
}

// ---- checks ----

std::size_t test_resource::check_guards() noexcept {
  detail::late_reports late;
  const std::scoped_lock lock{mutex_};
  std::size_t corrupted = 0;
  for (auto const& [address, block] : ledger_.live()) corrupted += check_guards_of(block) ? 0 : 1;
  for (live_block const& freed : quarantine_) corrupted += check_freed(freed) ? 0 : 1;
  return corrupted;
}

bool test_resource::check_guards_of(live_block const& block) noexcept {
  const std::uintptr_t begin = detail::address_of(block.address);
  const std::size_t front = front_bytes(block.align);
  const bool before =
      check_range(block, begin - front, front, guard_fill, "overrun: a byte before the block");
  const bool behind = check_range(block, begin + block.bytes, options_.guard_bytes, guard_fill,
                                  "overrun: a byte behind the block");
  return before && behind;
}

bool test_resource::check_freed(live_block const& block) noexcept {
  const bool outside = check_guards_of(block);
  return check_range(block, detail::address_of(block.address), block.bytes, detail::freed_fill,
                     "write after free: a byte") &&
         outside;
}

// Reports the first byte that differs from `fill`, and repairs the range, so that each error is reported
// once.
bool test_resource::check_range(live_block const& block, std::uintptr_t first, std::size_t bytes,
                                unsigned char fill, char const* what) noexcept {
  detail::unpoison(first, bytes);
  detail::mark_defined(first, bytes);
  auto const* const begin = reinterpret_cast<unsigned char const*>(first);
  auto const* const changed =
      std::find_if(begin, begin + bytes, [=](unsigned char byte) { return byte != fill; });
  const bool intact = changed == begin + bytes;
  if (!intact) {
    detail::report_violation(violation_kind::overrun, name(),
                             "test_resource '%s': %s was written, at offset %td, now 0x%02X: %s", name(),
                             what, changed - static_cast<unsigned char const*>(block.address),
                             static_cast<unsigned>(*changed), detail::describe(block).data());
  }
  fill_and_poison(first, bytes, fill);
  return intact;
}

void test_resource::empty_quarantine() noexcept {
  detail::late_reports late;
  const std::scoped_lock lock{mutex_};
  shrink_quarantine(0);
}

std::size_t test_resource::quarantined_bytes() const noexcept {
  const std::scoped_lock lock{mutex_};
  return quarantined_bytes_;
}

}  // namespace tidemark
