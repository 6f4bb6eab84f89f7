// SPDX-License-Identifier: Apache-2.0
// Trapped scopes of an arena on virtual memory: slow paths that run only if the options enable traps. A
// trapped scope has its own chunk, a slice of separate addresses, from its first allocation on. The end
// of the scope is then a rewind over a chunk, which is a slow path in any arena; it decommits the slice.
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <chrono>
#include <cstdlib>
#include <optional>
#include <span>
#include <string_view>
#include <tuple>

#include <tidemark/arena/arena.hpp>
#include <tidemark/core/violation.hpp>

#include "../diagnose/code_symbols.hpp"
#include "../diagnose/trap_log.hpp"

namespace tidemark::detail {
namespace {

constexpr char const* rate_variable = "TIDEMARK_TRAP";

// NOLINTNEXTLINE(concurrency-mt-unsafe): as documented
char const* rate_text() noexcept { return std::getenv(rate_variable); }

bool is_rate_set() noexcept { return rate_text() != nullptr && *rate_text() != '\0'; }

// Parses the rate; nothing if it is not set or not a number in the range.
std::optional<std::uint32_t> rate_of_environment() noexcept {
  if (!is_rate_set()) return {};
  std::uint32_t rate = 0;
  char const* const text = rate_text();
  char const* const last = text + std::string_view{text}.size();
  const auto [end, error] = std::from_chars(text, last, rate);
  if (error != std::errc{} || end != last) return {};
  return rate;
}

// Warns after the initialisation, because the handler may make arenas.
std::uint32_t trap_rate(std::uint32_t chosen) noexcept {
  static const std::optional<std::uint32_t> rate = rate_of_environment();
  static std::atomic<bool> must_warn{!rate.has_value() && is_rate_set()};
  if (must_warn.load(std::memory_order_relaxed) && must_warn.exchange(false)) {
    report_variable(rate_variable, "%s is '%s', which is not a number from 0 to 4294967295; it is ignored",
                    rate_variable, rate_text());
  }
  return rate.value_or(chosen);
}

}  // namespace

/// Slices of one reservation, taken upwards, each for one scope: `region.begin <= next <= region.end()`.
/// Below `next` lie the used slices and the slices of ended scopes, which are inaccessible and have no
/// memory. `next` returns to the beginning when no slice is used and no room is left.
///
/// Sampling as in GWP-ASan: a random number of rewinds after each trapped scope, `one_in` on average. A log
/// holds the places of the last rewinds; the fault handler may read the log at any time. Thread-safety: as
/// its arena.
class rewind_trap {
 public:
  using arena_type = arena_state<virtual_memory>;
  using chunk_record = arena_chunk<virtual_memory>;

  /// @throws std::bad_alloc.
  rewind_trap(trap_options const& options, char const* name)
      : options_{options}, log_{&open_log(options, name)} {
    // A different seed in each process and arena, so that together they cover all scopes.
    random_ = static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count()) ^
              (reinterpret_cast<std::uintptr_t>(this) << 20);
    draw();
  }
  rewind_trap(rewind_trap const&) = delete;
  rewind_trap& operator=(rewind_trap const&) = delete;
  ~rewind_trap() { release_trap_log(*log_); }

  /// True if the next scope is to be trapped.
  [[nodiscard]] bool is_due() const noexcept { return rewinds_until_trap_ == 0; }
  void count_rewind() noexcept { rewinds_until_trap_ -= rewinds_until_trap_ != 0 ? 1 : 0; }
  // Allocates a block in a new slice, which is twice as large as the full slice that it continues. Returns
  // null without addresses, memory or a record; ordinary memory then serves the scope.
  void* allocate_in_slice(arena_type& arena, std::size_t bytes, std::size_t align) noexcept {
    const std::size_t size = arena.block_bytes(bytes);
    const std::size_t least = size + (align > arena.default_alignment ? align : 0);
    const std::size_t room = arena.remaining_bytes();
    if (size > room) return nullptr;
    chunk_record& current = *arena.chunk_;
    const bool continues_slice = current.is_slice() && !arena.begins_scope();
    const std::size_t before =
        continues_slice ? 2 * (current.end - current.begin) : arena.options_.commit_step;
    if (!continues_slice) {
      draw();
      arena.set_cursor(current, arena.cursor_);
    }
    const byte_range slice = reserve_slice(arena.space_, std::min(std::max(least, before), room));
    chunk_record* const chunk = slice.empty() ? nullptr : arena.acquire_chunk_record();
    if (chunk != nullptr) {
      chunk->begin = chunk->committed = chunk->touched = slice.begin;
      chunk->end = slice.begin + std::min(slice.size, room);
      chunk->begins_scope = !continues_slice;
      chunk->insert_after(current);
      const std::uintptr_t block = place(chunk->begin, chunk->end, size, align);
      if (block != 0 && arena.commit_up_to(*chunk, block + size)) {
        arena.enter(*chunk);
        return arena.bump(block, bytes);
      }
      chunk->unlink();
      arena.recycle_chunk_record(*chunk);
    }
    if (!slice.empty()) {
      --slices_;
      next_ = slice.begin;
    }
    if (continues_slice) mark_untrapped(current);
    else ++untrapped_;
    return nullptr;
  }
  // Retires all slices between `newest` and the current chunk, to which the arena has rewound.
  void retire_slices(arena_type& arena, chunk_record& newest) noexcept {
    chunk_record& current = *arena.chunk_;
    for (chunk_record* left = &newest; left != &current;) {
      chunk_record* const before = left->previous;
      if (left->is_slice()) {
        const std::size_t bytes = left->committed - left->begin;
        arena.committed_bytes_ -= bytes;
        left->marks.on_decommit(left->begin, left->committed);
        if (!retire(arena.space_, *left)) mark_untrapped(*left);
        if (left->begins_scope) ++(left->is_untrapped ? untrapped_ : trapped_);
        poison(left->begin, bytes);  // a sanitizer's report says more than a fault
        left->unlink();
        arena.recycle_chunk_record(*left);
      }
      left = before;
    }
    arena.set_cursor(current, arena.cursor_);
  }

  /// Reserves the region from a space. On failure no scope is trapped.
  void reserve(virtual_memory& space) noexcept {
    ++system_calls_;
    region_ = space.reserve(1, options_.reserve);
    next_ = highest_ = region_.begin;
    log_->set_region(region_);
  }
  /// Returns the region. @pre no scope has a slice. @return the part of the region that ever had memory
  byte_range release(virtual_memory& space) noexcept {
    const byte_range used{region_.begin, highest_ - region_.begin};
    if (!region_.empty()) {
      log_->set_region({});
      ++system_calls_;
      space.release(region_);
    }
    region_ = {};
    next_ = highest_ = slices_ = lost_bytes_ = 0;
    return used;
  }

  /// Adds the trap's counters to an arena's statistics.
  void add_to(arena_stats& stats) const noexcept {
    stats.reserved_bytes += region_.size;
    stats.committed_bytes += lost_bytes_;
    stats.system_calls += system_calls_;
    stats.trapped_scopes = trapped_;
    stats.untrapped_scopes = untrapped_;
    stats.trap_reuses = reuses_;
  }
  /// Formula of a broken invariant; null if all hold.
  [[nodiscard]] char const* broken_invariant() const noexcept {
    if (next_ < region_.begin || next_ > region_.end()) return "region.begin <= next <= region.end";
    return lost_bytes_ > next_ - region_.begin ? "lost <= next - region.begin" : nullptr;
  }

 private:
  // Takes the log last, because a constructor that throws returns no log.
  static trap_log& open_log(trap_options const& options, char const* name) {
    if (options.handle_signals) handle_faults();
    return acquire_trap_log(name);
  }
  // Draws the number of rewinds until the next trapped scope: uniform in [1, 2 n - 1], so n on average. Uses
  // SplitMix64 (Steele, Lea, Flood 2014). The process id makes the numbers differ between a parent and its
  // forked children.
  void draw() noexcept {
    if (options_.one_in <= 1) return;
    std::uint64_t mixed = random_ += 0x9e3779b97f4a7c15;
    mixed ^= static_cast<std::uint64_t>(::getpid()) << 32;
    mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9;
    mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111eb;
    mixed ^= mixed >> 31;
    rewinds_until_trap_ = 1 + mixed % (2 * std::uint64_t{options_.one_in} - 1);
  }
  // Takes whole pages of addresses without memory; an empty range if no addresses are left.
  byte_range reserve_slice(virtual_memory& space, std::size_t bytes) noexcept {
    if (bytes > region_.size) return {};
    const std::size_t size = align_up(bytes, space.granularity());
    if (size > region_.end() - next_) {
      if (slices_ != 0) return {};
      next_ = region_.begin;
      ++reuses_;
    }
    const byte_range slice{next_, size};
    next_ = slice.end();
    highest_ = std::max(highest_, next_);
    ++slices_;
    return slice;
  }
  rewind_place calls_of(call_stack const& stack) noexcept {
    const std::span<stack_frame const> frames = owners_.calls_of_program(stack.frames());
    rewind_place calls{};
    std::ranges::transform(frames.first(std::min(frames.size(), calls.size())), calls.begin(),
                           &stack_frame::call);
    return calls;
  }
  // Retires a slice that was rewound over: records the caller and makes the memory inaccessible. On success
  // it stays inaccessible.
  bool retire(virtual_memory& space, chunk_record const& slice) noexcept {
    const std::size_t granularity = space.granularity();  // a bounded slice may end inside a page
    const std::uintptr_t last = align_up(std::min(slice.touched, slice.committed), granularity);
    const std::size_t bytes = slice.committed - slice.begin;
    ++system_calls_;
    if (!space.decommit({slice.begin, align_up(bytes, granularity)})) {
      lost_bytes_ += bytes;
      return false;  // the slice stays in use, because its bytes are not zero
    }
    --slices_;
    if (next_ == align_up(slice.end, granularity))
      next_ = last;  // the newest slice: its untouched part is still fresh
    const call_stack stack{__builtin_return_address(0), 2 * std::tuple_size_v<rewind_place>};
    log_->rewinds.add(slice.begin, last, calls_of(stack));
    // Reinstalls the handler: a fault other than a late use restores the earlier action.
    if (options_.handle_signals) handle_faults();
    return true;
  }
  // Marks a scope that is trapped only in part. It is counted once, when its first slice ends.
  static void mark_untrapped(chunk_record& slice) noexcept {
    chunk_record* first = &slice;
    while (!first->begins_scope) first = first->previous;
    first->is_untrapped = true;
  }

  trap_options options_;
  std::uint64_t random_;
  std::uint64_t rewinds_until_trap_ = 0;  // 0: a scope is due
  trap_log* log_;                         // never freed, because a fault may come at any time
  byte_range region_;                     // empty while the arena has no first chunk
  std::uintptr_t next_ = 0;               // region addresses at or above are fresh
  std::uintptr_t highest_ = 0;            // no slice has ended above this address
  std::size_t slices_ = 0;                // in use, or lost
  std::size_t lost_bytes_ = 0;            // still accessible, because the system refused to decommit them
  std::uint64_t trapped_ = 0, untrapped_ = 0, reuses_ = 0, system_calls_ = 0;
  code_owner_cache<64> owners_;  // of functions that rewound
};

ended_pointer<rewind_trap> make_trap(trap_options& options, char const* name) {
  options.one_in = trap_rate(options.one_in);
  if (options.one_in == 0) return {};
  return {*new rewind_trap{options, name}, [](rewind_trap& trap) noexcept { delete &trap; }};
}

}  // namespace tidemark::detail

template class tidemark::detail::arena_state<tidemark::virtual_memory>;
