// SPDX-License-Identifier: Apache-2.0
/// @file
/// `workspace_core`: the slots of a workspace and the log that scopes restore them from, without types.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory_resource>
#include <source_location>
#include <string>
#include <utility>
#include <vector>

#include <tidemark/core/detail/thread_ownership.hpp>
#include <tidemark/core/macros.hpp>
#include <tidemark/core/reuse_fence.hpp>
#include <tidemark/diagnose/detail/sanitizers.hpp>
#include <tidemark/workspace/detail/shaped_view.hpp>
#include <tidemark/workspace/detail/slot_list.hpp>
#include <tidemark/workspace/workspace_options.hpp>

namespace tidemark::detail {

/// Whether memory is kept at all: TIDEMARK_WORKSPACE_POOLING. If not, no code is there that looks for sweeps.
inline constexpr bool pooling_is_compiled_in = TIDEMARK_WORKSPACE_POOLING != 0;

/// Ticks of the background sweeper so far. Each workspace compares them with the last one that it served, so
/// the sweeper need not know the workspaces. Visible, so that a program that hides its own symbols shares it
/// with a shared library.
[[gnu::visibility("default")]] inline constinit std::atomic<std::uint64_t> sweep_ticks{0};
struct sweep_request;
/// All that was requested after this tick, which the workspace has served. Thread-safe, O(1).
[[nodiscard]] sweep_request sweep_request_since(std::uint64_t served) noexcept;

/// Index in `workspace_core::others_` of an element type that is not in `fixed_elements`, the same in all
/// workspaces.
[[nodiscard]] std::size_t next_other_type() noexcept;
template <class T>
[[nodiscard]] std::size_t other_type() noexcept {
  static const std::size_t index = next_other_type();
  return index;
}

/// One entry of a workspace's log: a count that a scope saved, or the scope itself.
// The list stands between the numbers, so that no compiler reads both at once: they were written one by one
// just before, and a processor would wait until both writes are in its cache.
struct saved_count {
  std::size_t value;    // the count of active slots; or the number of the scope
  slot_list* list;      // null: a scope begins here
  std::uint64_t frame;  // of the list, or of the workspace, before
};

/// Most headers of a slot, where their number has a limit.
inline constexpr unsigned max_cache_ways = 16;
// The tensor headers of a slot, which `extras/dlpack.hpp` makes.
[[nodiscard]] std::size_t header_count(dlpack_header_cache const* headers) noexcept;
/// Takes the data from the slot's tensors, so that late use finds a null pointer. O(headers of the slot).
void withdraw_headers(dlpack_header_cache* headers) noexcept;
void free_headers(dlpack_header_cache* headers, std::pmr::memory_resource* bookkeeping) noexcept;

/// A stack of slots for each element type, and a log of what scopes found.
///
/// Each scope has a number that no other has, and begins with an entry in the log. The first acquisition of a
/// type in a scope saves that type's count in the log; the scope's end restores what was saved since its
/// entry. So a scope costs nothing for types it does not use, and one whose end was skipped is ended by that
/// around it. Numbers of checkpoints, which have no object that ends them, are odd.
///
/// Invariants, checked by `broken_invariant()`:
/// - those of each `slot_list` and its slots
/// - `frame_` is the number of the last scope in the log; if there is none, `outside_frame` while the owner
///   has slots outside scopes or is in a call, and else `idle_frame`, or `claimed_frame` during a trim by
///   another thread
/// - `held_bytes_ == sum over slots of capacity * bytes of an element`, `<= options_.max_held_bytes` if that
///   is not 0
///
/// Thread-safety: one thread at a time, but for `trim_if_idle`. A thread publishes that the workspace is idle
/// by the store that ends its last scope; a thread that trims claims the workspace by one compare-exchange,
/// and an outermost scope begins with one.
class workspace_core {
 public:
  workspace_core(workspace_options const& options, bool checked);
  workspace_core(workspace_core const&) = delete;
  workspace_core& operator=(workspace_core const&) = delete;
  ~workspace_core();

  // The fast path.

  /// Begins a scope, and returns its number. @param parity 0 for a scope, 1 for a checkpoint. @param counts
  /// how many it will save at once, for which the log then has room. @throws std::bad_alloc if the log cannot
  /// grow; nothing has changed then.
  std::uint64_t open(std::uint64_t parity, std::size_t counts) {
    if (room_bytes() <= counts * sizeof(saved_count)) [[unlikely]]
      grow_log(counts);
    const std::uint64_t frame = (last_frame_ += 2) | parity;
    const std::uint64_t outer = __atomic_load_n(&frame_, __ATOMIC_RELAXED);
    // Other threads leave the log alone.
    if (outer > idle_frame) {
      *log_end_++ = {.value = frame, .list = nullptr, .frame = outer};
      set_frame(frame);
    } else {
      *log_end_++ = {.value = frame, .list = nullptr, .frame = idle_frame};  // also if it is claimed now
      if (!replace_idle(frame)) [[unlikely]]
        wait_for_trim(frame);
    }
    return frame;
  }

  /// Saves the list's count for the innermost scope, if that has not done so yet. @throws as `open`.
  void save(slot_list& list) {
    if (list.frame == frame()) return;
    if (log_end_ == log_limit_) [[unlikely]]
      grow_log(0);
    *log_end_++ = {.value = list.active, .list = &list, .frame = list.frame};
    list.frame = frame();
  }
  /// The same of several, where there is room for them. @param frame of the innermost scope
  template <class... Lists>
  void save_in_room([[maybe_unused]] std::uint64_t frame, Lists&... lists) noexcept {
    saved_count* end = log_end_;  // stays in a register, where each store might otherwise change log_end_
    [[maybe_unused]] const auto save_one = [&](slot_list& list) {
      if (list.frame == frame) return;
      *end++ = {.value = list.active, .list = &list, .frame = list.frame};
      list.frame = frame;
    };
    (save_one(lists), ...);
    log_end_ = end;
  }

  /// The list's next slot, with memory for `n` elements.
  /// @throws std::bad_alloc as the upstream does, or out_of_memory; nothing is acquired then.
  slot& take(slot_list& list, std::size_t n) {
    save(list);
    return take_saved(list, n);
  }
  /// The same, for a request that may lie outside all scopes. The workspace is not idle from then on, until
  /// `reset`, `release` or `rewind`.
  slot& take_anywhere(slot_list& list, std::size_t n) {
    // No list has the number of an idle workspace: the guard is not needed where the count is saved.
    if (list.frame != frame()) {
      if (__atomic_load_n(&frame_, __ATOMIC_RELAXED) <= idle_frame) [[unlikely]]
        (void)leave_idle();
      save(list);
    }
    return take_saved(list, n);
  }
  /// The same, where the innermost scope has saved the list's count.
  slot& take_saved(slot_list& list, std::size_t n) {
    slot& next = list.items[list.active];
    if (n - 1 >= next.limit) [[unlikely]]
      return take_slow(list, n);  // 0 elements too: there may be no slot
    next.size = n;
    ++list.active;
    if constexpr (tools_are_notified) show(list, next);
    return next;
  }

  /// Ends the scope, and those inside it. Does nothing if it has been ended.
  /// @tparam Retire whether `retire` has anything to do
  template <bool Retire>
  void close(std::uint64_t frame, std::source_location where) noexcept {
    if (this->frame() != frame) [[unlikely]] {
      if (!end_those_inside(frame, where)) return;
    }
    saved_count* last = log_end_;
    while (slot_list* const list = (--last)->list) {  // back to where this scope begins
      if constexpr (Retire) retire(*list, last->value, where);
      else list->active = last->value;
      list->frame = last->frame;
    }
    log_end_ = last;
    set_frame(last->frame);
  }

  // The compare-exchange of another thread only reads while a scope is open, but ThreadSanitizer takes that
  // for a write.
  [[nodiscard]] std::uint64_t frame() const noexcept {
    if constexpr (thread_sanitizer_is_on) return __atomic_load_n(&frame_, __ATOMIC_RELAXED);
    else return frame_;
  }
  /// Whether an outermost scope has to `sweep` before it opens.
  [[nodiscard]] bool is_to_sweep() const noexcept {
    return sweep_ticks.load(std::memory_order_relaxed) != served_tick_ && log_end_ == log_;
  }
  [[nodiscard]] slot_list& fixed(std::size_t i) noexcept { return fixed_[i]; }
  /// The list of another type; null if there is none.
  [[nodiscard]] slot_list* find_other(std::size_t i) noexcept {
    return i < others_.size() ? others_[i] : nullptr;
  }
  /// Makes the list of another type that has none. @throws std::bad_alloc, with nothing changed.
  TIDEMARK_COLD slot_list& add_other(std::size_t i, element_info const& element);

  /// Level 1: a scope was opened or has ended. Keeps the place of the outermost one for messages.
  void note_opened(std::uint64_t frame, std::source_location where) noexcept {
    if (outermost_scope_ != 0) return;
    outermost_scope_ = frame;
    opened_at_ = where;
  }
  void note_ended(std::uint64_t frame) noexcept {
    if (outermost_scope_ == frame) outermost_scope_ = 0;
  }

  // What is done seldom. `workspace.hpp` documents what these do.

  /// @throws std::logic_error if a scope is open.
  void require_closed(char const* doing) const;
  void rewind(std::source_location where) noexcept;
  void reset(std::source_location where);
  void reset(slot_list& list, std::source_location where);
  void release(std::source_location where);
  trim_summary trim() noexcept;
  trim_summary trim(slot_list& list) noexcept;
  trim_summary trim_to_recent_peak() noexcept;
  /// Measures slots by their newest request, or by the largest since the last call.
  compact_summary compact(compact_options const& options, bool by_largest = false) noexcept;
  TIDEMARK_COLD void sweep() noexcept;
  /// For another thread: frees the slots that are not in use, unless the owner uses the workspace or work
  /// elsewhere uses the slots. The upstream must be for any thread. @return bytes that were freed.
  std::size_t trim_if_idle() noexcept;
  /// From now on, the next use of each slot that was acquired in the scope awaits the fence. Waits for it
  /// here if there is no memory to store it, or if the scope has ended.
  void put_behind(std::uint64_t frame, reuse_fence fence) noexcept;
  /// The slot that was acquired since the scope began and overlaps these bytes; null if there is none, or no
  /// such scope.
  using overlap = std::pair<slot_list const*, slot const*>;
  [[nodiscard]] overlap find_overlap(std::uint64_t frame, void const* first,
                                     std::size_t bytes) const noexcept;
  /// Reports use by a thread that is not the owner; the first to use it becomes that.
  void require_thread(char const* doing) noexcept;
  void release_thread_ownership() noexcept { owner_.release(); }
  /// @throws std::logic_error if the memory is not the host's and the options have no `fill`.
  void require_fill(char const* call) const;
  /// Writes copies of an element to the whole of the list's newest request. @throws what `device_fill`
  /// throws; the slot is taken back then.
  void fill(slot_list& list, void const* element);
  TIDEMARK_COLD void take_back_newest(slot_list& list) noexcept;
  [[noreturn]] void throw_out_of_memory(slot_list const& list, std::size_t bytes) const;

  [[nodiscard]] workspace_stats stats() const noexcept;
  template <class Visitor>
  void for_each_type(Visitor&& visitor) const {
    const outside_use own{*this};
    for_each_list(*this, [&](slot_list const& list) {
      if (list.count > 0) visitor(stats_of(list));
    });
  }
  [[nodiscard]] workspace_options const& options() const noexcept { return options_; }
  [[nodiscard]] bool checked() const noexcept { return checked_; }
  [[nodiscard]] bool pooling() const noexcept { return pooling_; }
  [[nodiscard]] char const* broken_invariant() const noexcept;

 private:
  // In place of the number of a scope: no scope is open, and another thread may claim the workspace ...
  static constexpr std::uint64_t idle_frame = 1;
  static constexpr std::uint64_t claimed_frame = 0;  // ... and has claimed it

  // A use by the owner that may lie outside all scopes: other threads leave the workspace alone meanwhile.
  class outside_use {
   public:
    explicit outside_use(workspace_core const& of) noexcept : core_{&of}, becomes_idle_{of.leave_idle()} {}
    outside_use(outside_use const&) = delete;
    outside_use& operator=(outside_use const&) = delete;
    ~outside_use() {
      if (becomes_idle_) core_->set_frame(idle_frame);
    }
    // Nothing is acquired any more.
    void end_in_idle() noexcept { becomes_idle_ = true; }

   private:
    workspace_core const* core_;
    bool becomes_idle_;
  };

  [[nodiscard]] bool replace_idle(std::uint64_t frame) const noexcept {
    std::uint64_t idle = idle_frame;
    return __atomic_compare_exchange_n(&frame_, &idle, frame, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED);
  }
  // Releases, because the number may say that the workspace is idle.
  void set_frame(std::uint64_t frame) const noexcept { __atomic_store_n(&frame_, frame, __ATOMIC_RELEASE); }
  TIDEMARK_COLD void wait_for_trim(std::uint64_t frame) const noexcept;
  // False if the owner uses it already.
  TIDEMARK_COLD bool leave_idle() const noexcept;
  void reset_all(std::source_location where) noexcept;
  // Not as a number of entries, which takes a division.
  [[nodiscard]] std::size_t room_bytes() const noexcept {
    return reinterpret_cast<std::uintptr_t>(log_limit_) - reinterpret_cast<std::uintptr_t>(log_end_);
  }
  [[nodiscard]] saved_count* beginning_of(std::uint64_t frame) const noexcept;
  template <class Visitor>  // called with each list and slot
  void for_each_acquired_since(std::uint64_t frame, Visitor&& visitor) const;
  TIDEMARK_COLD void grow_log(std::size_t counts);
  TIDEMARK_COLD slot& take_slow(slot_list& list, std::size_t n);
  TIDEMARK_COLD bool end_those_inside(std::uint64_t frame, std::source_location where) noexcept;
  slot& prepare(slot_list& list, std::size_t n);
  void add_slot(slot_list& list, std::size_t n);
  void grow_slot(slot_list const& list, slot& grown, std::size_t n);
  void replace_memory(slot_list const& list, slot& of, std::size_t n);
  void free_memory(slot_list const& list, slot& of) noexcept;
  void remove_slots(slot_list& list, std::size_t keep, trim_summary& summary) noexcept;
  void retire(slot_list& list, std::size_t from, std::source_location where) noexcept;
  void write(slot_list const& list, slot const& of, void const* element, std::size_t element_bytes) const;
  void poison(slot_list const& list, slot const& taken) const noexcept;
  void retire_all(std::source_location where) noexcept;
  void await(slot& of) noexcept;
  void forget_fences_that_are_done() noexcept;
  void show(slot_list const& list, slot const& of) const noexcept;
  [[nodiscard]] std::size_t alignment_of(slot_list const& list) const noexcept;
  [[nodiscard]] bool scopes_are_open() const noexcept;
  // " opened at main.cpp:12", of the outermost scope; empty if it is not known.
  [[nodiscard]] std::string opened_text() const;
  [[nodiscard]] workspace_type_stats stats_of(slot_list const& list) const noexcept;
  [[nodiscard]] char const* broken_invariant(slot_list const& list, std::size_t& held_bytes) const noexcept;
  template <class Self, class Visitor>
  static void for_each_list(Self& self, Visitor&& visitor) {
    for (auto& list : self.fixed_) visitor(list);
    for (slot_list* const list : self.others_) {
      if (list != nullptr) visitor(*list);
    }
  }

  // Number of the innermost scope. Any thread reads it; only the owner changes it unless it is `idle_frame`.
  mutable std::uint64_t frame_ = idle_frame;
  std::uint64_t last_frame_ = slot_list::outside_frame;  // the newest number given; even
  saved_count* log_ = nullptr;                           // entries of open scopes
  saved_count* log_end_ = nullptr;                       // … end here
  saved_count* log_limit_ = nullptr;                     // … and have room up to here
  std::uint64_t served_tick_ = sweep_ticks.load(std::memory_order_relaxed);
  std::array<slot_list, fixed_elements::infos.size()> fixed_;
  workspace_options options_;  // with the resources that null stood for
  std::size_t held_bytes_ = 0;
  std::uint64_t outermost_scope_ = 0;  // its number; 0: no scope is open, or places are not noted
  std::source_location opened_at_;     // … and its place
  bool checked_;
  bool pooling_;  // whether memory is kept; otherwise every slot is removed when it is taken back
  thread_ownership owner_;

  std::pmr::vector<slot_list*> others_;  // by other_type(); null where this workspace has none of that type
  std::pmr::vector<std::pair<std::uint64_t, reuse_fence>>
      fences_;  // those not yet seen to be done, by number
  std::uint64_t last_fence_ = 0;
};

}  // namespace tidemark::detail
