// SPDX-License-Identifier: Apache-2.0
#include <tidemark/test_resource.hpp>

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <stdexcept>
#include <string>

#include <tidemark/detail/align.hpp>
#include <tidemark/detail/block_report.hpp>
#include <tidemark/detail/sanitizers.hpp>
#include <tidemark/out_of_memory.hpp>
#include <tidemark/violation.hpp>

namespace tidemark {
namespace {

constexpr std::uint64_t endless = std::numeric_limits<std::uint64_t>::max();

std::string called(char const* name) { return std::string{"test_resource '"} + name + "'"; }

void fill(std::uintptr_t first, std::uintptr_t last, unsigned char value) noexcept {
  detail::hand_out(first, last - first);
  std::memset(reinterpret_cast<void*>(first), value, last - first);
}

// Bytes that nobody but the resource itself may touch from now on.
void fill_and_withhold(std::uintptr_t first, std::uintptr_t last, unsigned char value) noexcept {
  fill(first, last, value);
  detail::withhold(first, last - first);
}

}  // namespace

test_resource::test_resource(test_resource_options const& options, std::pmr::memory_resource* upstream)
    : resource_adaptor{"test_resource", upstream, options.name}, options_{options}, first_failing_{1} {
  if (options.guard_bytes > guard_bytes_max) {
    throw std::invalid_argument(called(options.name) + ": guard_bytes is " +
                                std::to_string(options.guard_bytes) + "; it may be " +
                                std::to_string(guard_bytes_max) + " at most");
  }
}

test_resource::~test_resource() {
  check_guards();
  detail::report_leak("test_resource", name(), ledger_);
  shrink_quarantine(0);
  for (auto const& [block, entry] : ledger_.live()) give_to_upstream(padded(block, entry));
}

// ---- blocks and their guards ----

// Whole alignments, so that the block behind is aligned as its guard is.
std::size_t test_resource::front_bytes(std::size_t align) const noexcept {
  return detail::align_up(options_.guard_bytes, align);
}

test_resource::padded_block test_resource::padded(std::uintptr_t block,
                                                  detail::ledger_entry const& entry) const noexcept {
  return {block - front_bytes(entry.align), block, block + entry.bytes + options_.guard_bytes, entry};
}

void* test_resource::allocate_at(std::size_t bytes, std::size_t align,
                                 std::optional<std::source_location> site) {
  const std::scoped_lock lock{mutex_};
  const std::uint64_t number = ++requests_;
  padded_blocks spare;
  void* first = nullptr;
  try {
    before_allocate(bytes, align, number);
    spare.emplace_back();
    first = take_padded(bytes, align);
    const std::uintptr_t block = reinterpret_cast<std::uintptr_t>(first) + front_bytes(align);
    ledger_.add(reinterpret_cast<void*>(block), detail::entry_here(bytes, align, number, site));
    const padded_block whole = padded(block, {.bytes = bytes, .align = align});
    fill(block, block + bytes, fresh_fill);
    detail::hand_out(block, bytes);  // a sanitizer shall take the fill for nothing that was written
    fill_and_withhold(whole.first, block, guard_fill);
    fill_and_withhold(block + bytes, whole.last, guard_fill);
    spare_.splice(spare_.end(), spare);
    counter_.handed_out(bytes);
    return reinterpret_cast<void*>(block);
  } catch (...) {
    if (first != nullptr) {
      upstream_resource()->deallocate(first, front_bytes(align) + bytes + options_.guard_bytes, align);
    }
    counter_.refused();
    throw;
  }
}

void test_resource::before_allocate(std::size_t bytes, std::size_t align, std::uint64_t number) {
  if (!std::has_single_bit(align)) {
    throw std::invalid_argument(called(name()) + ": alignment " + std::to_string(align) +
                                " is not a power of two");
  }
  if (first_failing_ <= number && number <= last_failing_) {
    ++injected_failures_;
    refuse(bytes, align, number);
  }
  constexpr auto block_max = static_cast<std::size_t>(std::numeric_limits<std::ptrdiff_t>::max());
  const std::size_t around = detail::add_saturating(front_bytes(align), options_.guard_bytes);
  if (detail::add_saturating(bytes, around) > block_max) refuse(bytes, align, 0);
}

void* test_resource::take_padded(std::size_t bytes, std::size_t align) {
  const std::size_t all_bytes = front_bytes(align) + bytes + options_.guard_bytes;
  if (quarantine_.empty()) return upstream_resource()->allocate(all_bytes, align);
  try {
    return upstream_resource()->allocate(all_bytes, align);
  } catch (std::bad_alloc const&) {
    shrink_quarantine(0);  // code under test shall not run out of memory because of what waits here
    return upstream_resource()->allocate(all_bytes, align);
  }
}

void test_resource::refuse(std::size_t bytes, std::size_t align, std::uint64_t told_to_fail) {
  const std::size_t used = counter_.used_bytes();
  throw out_of_memory({.resource = name(),
                       .requested_bytes = bytes,
                       .alignment = align,
                       .used_bytes = used,
                       .committed_bytes = used,
                       .reserved_bytes = used,
                       .told_to_fail = told_to_fail});
}

void test_resource::deallocate(void* block, std::size_t bytes, std::size_t align) {
  const std::scoped_lock lock{mutex_};
  const auto entry = ledger_.remove("test_resource", name(), block, bytes, align);
  if (!entry) return;
  padded_blocks freed;
  freed.splice(freed.end(), spare_, spare_.begin());
  freed.front() = padded(reinterpret_cast<std::uintptr_t>(block), *entry);
  padded_block const& whole = freed.front();
  counter_.given_back(bytes);
  check_outside(whole);
  fill_and_withhold(whole.block, whole.block + bytes, detail::rewound_fill);
  const std::size_t all_bytes = whole.last - whole.first;
  if (all_bytes > options_.quarantine_bytes) {  // it would only drive all others out
    give_to_upstream(whole);
    return;
  }
  shrink_quarantine(options_.quarantine_bytes - all_bytes);
  quarantine_.splice(quarantine_.end(), freed);
  quarantined_bytes_ += all_bytes;
}

void test_resource::give_to_upstream(padded_block const& whole) {
  const std::size_t all_bytes = whole.last - whole.first;
  detail::hand_out(whole.first, all_bytes);
  upstream_resource()->deallocate(reinterpret_cast<void*>(whole.first), all_bytes, whole.entry.align);
}

void test_resource::shrink_quarantine(std::size_t bytes_max) {
  while (quarantined_bytes_ > bytes_max) {
    padded_blocks oldest;
    oldest.splice(oldest.end(), quarantine_, quarantine_.begin());
    padded_block const& whole = oldest.front();
    quarantined_bytes_ -= whole.last - whole.first;
    check_outside(whole);
    check_inside(whole);
    give_to_upstream(whole);
  }
}

// ---- failing on demand ----

void test_resource::fail_requests(char const* operation, std::uint64_t n, std::uint64_t count) {
  if (n == 0) {
    throw std::invalid_argument(called(name()) + ": " + operation + "(0): the next request is number 1");
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

test_resource::failing_run::failing_run(test_resource& resource, std::uint64_t n)
    : resource_{resource},
      n_{n},
      failures_before_{resource.injected_failures()},
      requests_before_{resource.requests_} {
  resource.fail_allocation(n);
}

std::size_t test_resource::failing_run::report_leak(std::size_t blocks_max,
                                                    char const* thrown) const noexcept {
  const std::size_t blocks = resource_.counter_.used_blocks();
  if (blocks <= blocks_max) return blocks_max;
  char end[128] = "";
  if (thrown != nullptr) std::snprintf(end, sizeof end, " and that an exception ended (%.90s)", thrown);
  char when[224];
  std::snprintf(when, sizeof when,
                "fail_each_allocation: run %llu, in which %s%s: ", static_cast<unsigned long long>(n_),
                failed() ? "that request failed" : "nothing failed", end);
  const std::scoped_lock lock{resource_.mutex_};
  detail::report_leak("test_resource", resource_.name(), resource_.ledger_, requests_before_ + 1, when);
  return blocks;
}

void test_resource::failing_run::check_order() const {
  {
    const std::scoped_lock lock{resource_.mutex_};
    const std::uint64_t failing = requests_before_ + n_;
    if (resource_.last_failing_ == failing) return;  // every other order sets another number
  }
  throw std::logic_error(called(resource_.name()) + ": fail_each_allocation: in run " + std::to_string(n_) +
                         " the body has changed which allocation fails; leave that to the loop");
}

void test_resource::throw_too_many_runs(test_resource const& resource, std::uint64_t runs_max) {
  throw std::logic_error(
      called(resource.name()) + ": fail_each_allocation: an allocation still failed in run " +
      std::to_string(runs_max) + "; pass a larger runs_max if the body allocates that often");
}

// ---- looking ----

std::size_t test_resource::check_guards() noexcept {
  const std::scoped_lock lock{mutex_};
  std::size_t corrupted = 0;
  for (auto const& [block, entry] : ledger_.live()) corrupted += check_outside(padded(block, entry)) ? 0 : 1;
  for (padded_block const& freed : quarantine_) {
    const bool outside = check_outside(freed);
    const bool inside = check_inside(freed);
    corrupted += outside && inside ? 0 : 1;
  }
  return corrupted;
}

bool test_resource::check_outside(padded_block const& whole) noexcept {
  const std::uintptr_t end = whole.block + whole.entry.bytes;
  const bool before =
      check_range(whole, whole.first, whole.block, guard_fill, "overrun: a byte before the block");
  const bool behind = check_range(whole, end, whole.last, guard_fill, "overrun: a byte behind the block");
  return before && behind;
}

bool test_resource::check_inside(padded_block const& whole) noexcept {
  return check_range(whole, whole.block, whole.block + whole.entry.bytes, detail::rewound_fill,
                     "write after free: a byte");
}

// Reports the first byte that is not `fill`, and repairs the range, so that each is reported once.
bool test_resource::check_range(padded_block const& whole, std::uintptr_t first, std::uintptr_t last,
                                unsigned char fill, char const* what) noexcept {
  detail::hand_out(first, last - first);
  detail::mark_defined(first, last - first);
  auto const* const begin = reinterpret_cast<unsigned char const*>(first);
  auto const* const end = begin + (last - first);
  auto const* const changed = std::find_if(begin, end, [=](unsigned char byte) { return byte != fill; });
  const bool intact = changed == end;
  if (!intact) {
    const auto offset = static_cast<std::ptrdiff_t>(reinterpret_cast<std::uintptr_t>(changed) - whole.block);
    const detail::block_text text = detail::describe(reinterpret_cast<void const*>(whole.block), whole.entry);
    detail::report_violation(violation_kind::overrun, name(),
                             "test_resource '%s': %s was written, at offset %td, now 0x%02X: %s", name(),
                             what, offset, static_cast<unsigned>(*changed), text.text);
  }
  fill_and_withhold(first, last, fill);
  return intact;
}

void test_resource::empty_quarantine() noexcept {
  const std::scoped_lock lock{mutex_};
  shrink_quarantine(0);
}

std::size_t test_resource::quarantined_bytes() const noexcept {
  const std::scoped_lock lock{mutex_};
  return quarantined_bytes_;
}

std::vector<live_block> test_resource::leaks() const {
  const std::scoped_lock lock{mutex_};
  return detail::live_blocks(ledger_);
}

std::size_t test_resource::print_leaks(std::FILE* out) const {
  const std::vector<live_block> blocks = leaks();
  detail::print_blocks(out, "test_resource", name(), blocks);
  return blocks.size();
}

}  // namespace tidemark
