// SPDX-License-Identifier: Apache-2.0
/// @file
/// `workspace_core`: the slots of a workspace and the log that its scopes restore. It has no template
/// parameters.
///
/// Each scope has a unique number and begins with an entry in the log. The first acquisition of a type in a
/// scope saves the type's count in the log. The end of the scope restores the counts after its entry. A scope
/// therefore costs nothing for types it does not use, and the outer scope ends an inner scope whose end was
/// skipped. Numbers of checkpoints are odd, because no object ends a checkpoint.
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

#include <tidemark/core/detail/observed.hpp>
#include <tidemark/core/detail/thread_ownership.hpp>
#include <tidemark/core/macros.hpp>
#include <tidemark/core/reuse_fence.hpp>
#include <tidemark/diagnose/detail/sanitizers.hpp>
#include <tidemark/workspace/detail/shaped_view.hpp>
#include <tidemark/workspace/detail/slot_list.hpp>
#include <tidemark/workspace/workspace_options.hpp>

namespace tidemark::detail {

/// True if workspaces may keep memory: TIDEMARK_WORKSPACE_POOLING. If false, no code checks for sweeps.
inline constexpr bool pooling_is_compiled_in = TIDEMARK_WORKSPACE_POOLING != 0;

/// Ticks of the background sweeper up to now. Each workspace compares the ticks with the last tick that it
/// served, and the sweeper needs no list of workspaces. The symbol is visible, because a program that hides
/// its own symbols must share the variable with a shared library.
[[gnu::visibility("default")]] inline constinit std::atomic<std::uint64_t> sweep_ticks{0};
/// Returns a new index into `workspace_core::others_` for an element type without a `fixed_place`.
/// All workspaces use the same index.
[[nodiscard]] std::size_t next_other_type() noexcept;
template <class T>
[[nodiscard]] std::size_t other_type() noexcept {
  static const std::size_t index = next_other_type();
  return index;
}

/// An entry of a workspace's log: a count that a scope saved, or the scope itself.
// `list` is between the numbers to keep compilers from reading both numbers with one load. Both are written
// one by one just before, and such a load would wait until both stores are in the cache.
struct saved_count {
  std::size_t value;    // count of active slots, or number of the scope
  slot_list* list;      // null: the start of a scope
  std::uint64_t frame;  // previous number of the list, or of the workspace
};

/// Maximum headers of a slot if their number has a limit.
inline constexpr unsigned max_cache_ways = 16;
[[nodiscard]] constexpr bool is_valid_ways(unsigned ways) noexcept {
  return (ways >= 1 && ways <= max_cache_ways) || ways == unlimited_cache_ways;
}
// Tensor headers of a slot, made by `extras/dlpack.hpp`.
[[nodiscard]] std::size_t header_count(dlpack_header_cache const* cache) noexcept;
/// Sets the data of the slot's tensors to null, so that a late use finds null. O(headers of the slot).
void withdraw_headers(dlpack_header_cache* headers) noexcept;
void free_headers(dlpack_header_cache* headers, std::pmr::memory_resource* bookkeeping) noexcept;

/// A stack of slots for each element type, and a log of counts that scopes restore.
///
/// Invariants, checked by `check_invariants()`:
/// - the invariants of each `slot_list` and its slots
/// - `frame_` is the number of the last scope in the log, and `outside_frame` without a scope. After
///   `permit_idle_trims`, `frame_` is `outside_frame` only while the owner has slots outside scopes or is in a
///   call. It is `claimed_frame` during a trim by another thread, and otherwise `idle_frame`.
/// - `held_bytes_ == sum over slots of capacity * element bytes`, and `held_bytes_ <= max_held_bytes` if the
///   limit is not 0
///
/// Thread-safety: one thread at a time, except for `trim_if_idle`.
class workspace_core {
 public:
  workspace_core(workspace_options const& options, bool checked);
  workspace_core(workspace_core const&) = delete;
  workspace_core& operator=(workspace_core const&) = delete;
  ~workspace_core();

  // ---- fast path --------------------------------------------------------------------------------------

  /// Begins a scope, and saves the counts of these lists.
  /// @param parity 0 for a scope, 1 for a checkpoint
  /// @return the number of the scope
  /// @throws std::bad_alloc if the log cannot grow; nothing has changed then.
  template <class... Lists>
  std::uint64_t open(std::uint64_t parity, Lists&... lists) {
    if (room_bytes() <= sizeof...(lists) * sizeof(saved_count)) [[unlikely]]
      grow_log(sizeof...(lists));
    const std::uint64_t frame = (last_frame_ += 2) | parity;
    const std::uint64_t outer = __atomic_load_n(&frame_, __ATOMIC_RELAXED);
    saved_count* end = log_end_;  // kept in a register: each store might otherwise change log_end_
    // Other threads do not use the log.
    if (outer > idle_frame) {
      *end++ = {.value = frame, .list = nullptr, .frame = outer};
      set_frame(frame);
    } else {
      *end++ = {.value = frame, .list = nullptr, .frame = idle_frame};  // also while it is claimed
      if (!replace_idle(frame)) [[unlikely]]
        wait_for_trim(frame);
    }
    [[maybe_unused]] const auto save_one = [&](slot_list& list) {
      if (list.frame == frame) return;  // the type is named twice
      *end++ = {.value = list.active, .list = &list, .frame = list.frame};
      list.frame = frame;
    };
    (save_one(lists), ...);
    log_end_ = end;
    return frame;
  }

  /// Saves the list's count for the innermost scope unless the scope has saved it. @throws as `open`.
  void save(slot_list& list) {
    if (list.frame == frame()) return;
    if (log_end_ == log_limit_) [[unlikely]]
      grow_log(0);
    *log_end_++ = {.value = list.active, .list = &list, .frame = list.frame};
    list.frame = frame();
  }

  /// Acquires the list's next slot, with memory for `n` elements. The request may be outside all scopes: the
  /// workspace is then not idle until `reset`, `release` or `rewind`.
  /// @throws std::bad_alloc from the upstream, or out_of_memory; nothing is acquired then.
  slot& acquire(slot_list& list, std::size_t n) {
    // The number of an idle workspace is in no list, so an idle workspace always takes this branch. A list
    // with a saved count needs no guard.
    if (list.frame != frame()) {
      if (__atomic_load_n(&frame_, __ATOMIC_RELAXED) <= idle_frame) [[unlikely]]
        (void)exit_idle();
      save(list);
    }
    return acquire_saved(list, n);
  }
  /// Calls `acquire` if the innermost scope has saved the list's count.
  slot& acquire_saved(slot_list& list, std::size_t n) {
    slot& next = list.items[list.active];
    if (n - 1 >= next.limit) [[unlikely]]
      return acquire_slow(list, n);  // for 0 elements too, because there may be no slot
    next.size = n;
    ++list.active;
    if constexpr (tools_are_notified) show(list, next);
    return next;
  }

  /// Ends the scope and the scopes inside it. Does nothing if the scope has ended.
  /// @tparam Retire true if the ended slots need `retire`
  template <bool Retire>
  void close(std::uint64_t frame, std::source_location where) noexcept {
    if (this->frame() != frame) [[unlikely]] {
      if (!end_those_inside(frame, where)) return;
    }
    saved_count* last = log_end_;
    while (slot_list* const list = (--last)->list) {  // back to the entry of this scope
      if constexpr (Retire) retire(*list, last->value, where);
      else list->active = last->value;
      list->frame = last->frame;
    }
    log_end_ = last;
    set_frame(last->frame);
  }

  // Another thread's compare-exchange only reads while a scope is open. ThreadSanitizer treats it as a write.
  [[nodiscard]] std::uint64_t frame() const noexcept {
    if constexpr (thread_sanitizer_is_on) return __atomic_load_n(&frame_, __ATOMIC_RELAXED);
    else return frame_;
  }
  /// Returns true if an outermost scope has to call `sweep` before it opens.
  [[nodiscard]] bool is_to_sweep() const noexcept {
    return sweep_ticks.load(std::memory_order_relaxed) != served_tick_ && log_end_ == log_;
  }
  /// Returns the list of an element type, and makes the list of a type that is not fixed.
  /// @throws std::bad_alloc; nothing has changed then.
  template <class T>
  [[nodiscard]] slot_list& list() {
    static_assert(std::is_trivially_copyable_v<T>,
                  "a workspace reuses memory as it is: its elements must be trivially copyable");
    static_assert(!std::is_const_v<T>,
                  "memory of a workspace is still to be written: its elements cannot be const");
    if (slot_list* const found = find<T>()) [[likely]]
      return *found;
    return add_other(other_type<T>(), element_of<T>);
  }
  /// Returns the list of an element type; null if it does not exist.
  template <class T>
  [[nodiscard]] slot_list* find() noexcept {
    if constexpr (fixed_place<T> < fixed_elements) return &fixed_[fixed_place<T>];
    const std::size_t other = other_type<T>();
    return other < others_.size() ? others_[other] : nullptr;
  }

  // ---- slow path; `workspace.hpp` documents these functions

  void rewind(std::source_location where) noexcept;
  void reset(std::source_location where);
  void reset(slot_list& list, std::source_location where);
  void release(std::source_location where);
  /// Trims one list, or all lists.
  trim_summary trim(slot_list* only = nullptr) noexcept;
  trim_summary trim_to_recent_peak() noexcept;
  /// Measures slots by their newest request, or by the largest request since the last call.
  compact_summary compact(compact_options const& options, bool by_largest = false) noexcept;
  TIDEMARK_COLD void sweep() noexcept;
  /// Permits `trim_if_idle`. An outermost scope then begins with a compare-exchange instead of a store. The
  /// upstream must be thread-safe. @pre The workspace was not used yet.
  void permit_idle_trims() noexcept {
    permits_idle_trims_ = true;
    set_frame(idle_frame);
  }
  /// Frees the slots that are not in use, on behalf of another thread. Frees none while the owner uses the
  /// workspace, and keeps slots that work elsewhere uses. @pre `permit_idle_trims` was called.
  ///
  /// The store that ends the last scope publishes that the workspace is idle. The trimming thread claims the
  /// workspace by one compare-exchange, with which an outermost scope begins too. @return bytes freed.
  std::size_t trim_if_idle() noexcept;
  /// Makes the next use of each slot that was acquired in the scope await the fence. Waits for the fence here
  /// if there is no memory to store it, or if the scope has ended.
  void put_behind(std::uint64_t frame, reuse_fence fence) noexcept;
  /// @throws workspace_escape if these bytes overlap memory that was acquired since the scope began.
  void reject_escape(std::uint64_t frame, void const* first, std::size_t bytes,
                     std::source_location where) const;
  /// Reports use by a thread that is not the owner. Without an owner, the calling thread becomes the owner.
  void require_thread(char const* doing) const noexcept {
    owner_.require_owner("workspace", options_.name, doing);
  }
  void release_thread_ownership() noexcept { owner_.release(); }
  /// @throws std::logic_error if the host cannot access the memory and the options have no `fill`.
  void require_fill(char const* call) const;
  /// Writes copies of an element to the list's newest request. @throws the exceptions of `device_fill`; the
  /// slot is free again then.
  void fill(slot_list& list, void const* element);
  TIDEMARK_COLD void retire_newest(slot_list& list) noexcept;
  [[noreturn]] void throw_out_of_memory(slot_list const& list, std::size_t bytes) const;

  [[nodiscard]] workspace_stats stats() const noexcept;
  [[nodiscard]] std::string describe() const;
  [[nodiscard]] std::string report() const;
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
  /// Returns true if the end of a scope has to call `retire`.
  [[nodiscard]] bool retires() const noexcept { return retires_; }
  void check_invariants() const noexcept;

 private:
  // Values of `frame_` without an open scope: another thread may claim the workspace ...
  static constexpr std::uint64_t idle_frame = 1;
  static constexpr std::uint64_t claimed_frame = 0;  // ... or has claimed it

  // A use by the owner that may be outside all scopes. Other threads do not claim the workspace meanwhile.
  class outside_use {
   public:
    // Level 1 checks the thread unless `doing` is null.
    explicit outside_use(workspace_core const& of, char const* doing = nullptr) noexcept : core_{&of} {
      if (of.checked_ && doing != nullptr) of.require_thread(doing);
      becomes_idle_ = of.exit_idle();
    }
    outside_use(outside_use const&) = delete;
    outside_use& operator=(outside_use const&) = delete;
    ~outside_use() {
      if (becomes_idle_) core_->set_frame(idle_frame);
    }
    // Records that no slot is acquired any more.
    void end_in_idle() noexcept { becomes_idle_ = core_->permits_idle_trims_; }

   private:
    workspace_core const* core_;
    bool becomes_idle_;
  };

  [[nodiscard]] bool replace_idle(std::uint64_t frame) const noexcept {
    std::uint64_t idle = idle_frame;
    return __atomic_compare_exchange_n(&frame_, &idle, frame, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED);
  }
  // A release store, because the number may publish that the workspace is idle.
  void set_frame(std::uint64_t frame) const noexcept { __atomic_store_n(&frame_, frame, __ATOMIC_RELEASE); }
  TIDEMARK_COLD void wait_for_trim(std::uint64_t frame) const noexcept;
  // Returns false if the owner already uses the workspace.
  TIDEMARK_COLD bool exit_idle() const noexcept;
  // @throws std::logic_error if a scope is open.
  void end_all(char const* doing, std::source_location where);
  // Bytes, because a number of entries needs a division.
  [[nodiscard]] std::size_t room_bytes() const noexcept {
    return reinterpret_cast<std::uintptr_t>(log_limit_) - reinterpret_cast<std::uintptr_t>(log_end_);
  }
  [[nodiscard]] saved_count* beginning_of(std::uint64_t frame) const noexcept;
  template <class Visitor>  // called with each list and slot
  void for_each_acquired_since(std::uint64_t frame, Visitor&& visitor) const;
  TIDEMARK_COLD void grow_log(std::size_t counts);
  TIDEMARK_COLD slot& acquire_slow(slot_list& list, std::size_t n);
  TIDEMARK_COLD bool end_those_inside(std::uint64_t frame, std::source_location where) noexcept;
  slot& prepare_or_trim(slot_list& list, std::size_t n);
  slot& prepare(slot_list& list, std::size_t n);
  void add_slot(slot_list& list);
  void grow_slot(slot_list const& list, slot& grown, std::size_t n);
  void replace_memory(slot_list const& list, slot& of, std::size_t n);
  void free_memory(slot_list const& list, slot& of) noexcept;
  template <class Keep>
  trim_summary remove_slots(Keep keep) noexcept;
  void retire(slot_list& list, std::size_t from, std::source_location where) noexcept;
  void write(slot_list const& list, slot const& of, void const* element, std::size_t element_bytes) const;
  void poison(slot_list const& list, slot const& taken) const noexcept;
  TIDEMARK_COLD slot_list& add_other(std::size_t i, element_info const& element);
  void await(slot& of) noexcept;
  void remove_done_fences() noexcept;
  void show(slot_list const& list, slot const& of) const noexcept;
  [[nodiscard]] std::size_t alignment_of(slot_list const& list) const noexcept;
  [[nodiscard]] bool scopes_are_open() const noexcept;
  [[nodiscard]] workspace_type_stats stats_of(slot_list const& list) const noexcept;
  template <class Self, class Visitor>
  static void for_each_list(Self& self, Visitor&& visitor) {
    for (auto& list : self.fixed_) visitor(list);
    for (slot_list* const list : self.others_) {
      if (list != nullptr) visitor(*list);
    }
  }

  // Number of the innermost scope. Any thread reads it. Only the owner changes it, except from `idle_frame`.
  mutable std::uint64_t frame_ = slot_list::outside_frame;
  std::uint64_t last_frame_ = slot_list::outside_frame;  // newest number; even
  saved_count* log_ = nullptr;                           // entries of open scopes
  saved_count* log_end_ = nullptr;                       // … end of these entries
  saved_count* log_limit_ = nullptr;                     // … end of the space for entries
  std::uint64_t served_tick_ = sweep_ticks.load(std::memory_order_relaxed);
  std::array<slot_list, fixed_elements> fixed_;
  workspace_options options_;  // with default resources in place of null
  std::size_t held_bytes_ = 0;
  bool permits_idle_trims_ = false;
  bool checked_;
  bool pooling_;                                 // if false, every slot is removed at the end of its scope
  bool retires_;                                 // not pooling, or observed
  ended_pointer<allocation_observer> observer_;  // null: none. Otherwise the limits of all slots are 0
  mutable thread_ownership owner_;

  std::pmr::vector<slot_list*> others_;  // by other_type(); null: no list of this type here
  std::pmr::vector<std::pair<std::uint64_t, reuse_fence>>
      fences_;  // fences that may not be done, by their numbers
  std::uint64_t last_fence_ = 0;
};

}  // namespace tidemark::detail
