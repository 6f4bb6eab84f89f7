// SPDX-License-Identifier: Apache-2.0
/// @file
/// `workspace_core`: the slots of a workspace and the log that restores them; what of a workspace has no
/// types.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory_resource>
#include <source_location>
#include <vector>

#include <tidemark/detail/header_cache.hpp>
#include <tidemark/detail/sanitizers.hpp>
#include <tidemark/detail/slot_life.hpp>
#include <tidemark/detail/slot_list.hpp>
#include <tidemark/macros.hpp>
#include <tidemark/reuse_fence.hpp>
#include <tidemark/workspace_compaction.hpp>
#include <tidemark/workspace_options.hpp>
#include <tidemark/workspace_stats.hpp>

namespace tidemark::detail {

/// Index in `workspace_core::others_` of an element type that has no list of its own, the same in all
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

/// A stack of slots for each element type, and a log of what scopes found.
///
/// Each scope has a number that no other has, and begins with an entry in the log. The first acquisition of a
/// type in a scope saves that type's count in the log; the scope's end restores what was saved since its
/// entry. So a scope costs nothing for types it does not use, and one whose end was skipped is ended by that
/// around it. Numbers of checkpoints, which have no object that ends them, are odd.
///
/// Invariants, checked by `broken_invariant()`:
/// - those of each `slot_list` and its slots
/// - `frame_` is the number of the last scope in the log; 0 if there is none
/// - `held_bytes_ == sum over slots of capacity * bytes of an element`, `<= options_.held_bytes_max` if that
///   is not 0
///
/// Thread-safety: one thread at a time, but for `sweep_requests`.
class workspace_core {
 public:
  static constexpr std::size_t fixed_types = 8;
  // What the background sweeper asks for: bits of sweep_requests.
  static constexpr unsigned wants_trim = 1;
  static constexpr unsigned wants_compact = 2;

  workspace_core(workspace_options const& options, workspace_policy policy,
                 std::array<element_info const*, fixed_types> const& fixed);
  workspace_core(workspace_core const&) = delete;
  workspace_core& operator=(workspace_core const&) = delete;
  ~workspace_core();

  // The fast path.

  /// Begins a scope, and returns its number. @param parity 0 for a scope, 1 for a checkpoint. @param counts
  /// how many it is to save at once, for which there is room then. @throws std::bad_alloc if the log has to
  /// grow and cannot; nothing has changed then.
  std::uint64_t open(std::uint64_t parity, std::size_t counts) {
    if (room_bytes() <= counts * sizeof(saved_count)) [[unlikely]]
      grow_log(counts);
    const std::uint64_t frame = (last_frame_ += 2) | parity;
    *log_end_++ = {.value = frame, .list = nullptr, .frame = frame_};
    frame_ = frame;
    return frame;
  }

  /// Saves the list's count for the innermost scope, if that has not done so yet. @throws as `open`.
  void save(slot_list& list) {
    if (list.frame == frame_) return;
    if (log_end_ == log_limit_) [[unlikely]]
      grow_log(0);
    *log_end_++ = {.value = list.active, .list = &list, .frame = list.frame};
    list.frame = frame_;
  }
  /// The same of several, where there is room for them.
  template <class... Lists>
  void save_in_room(Lists&... lists) noexcept {
    const std::uint64_t frame = frame_;
    saved_count* end = log_end_;  // stays in a register, where each store might otherwise change log_end_
    const auto save_one = [&](slot_list& list) {
      if (list.frame == frame) return;
      *end++ = {.value = list.active, .list = &list, .frame = list.frame};
      list.frame = frame;
    };
    (save_one(lists), ...);
    log_end_ = end;
  }

  /// The list's next slot, with memory for `n` elements.
  /// @throws std::bad_alloc as the upstream does, or out_of_memory; nothing is handed out then.
  slot& take(slot_list& list, std::size_t n) {
    save(list);
    return take_saved(list, n);
  }
  /// The same, where the innermost scope that is to take the slot back has saved the list's count.
  slot& take_saved(slot_list& list, std::size_t n) {
    slot& next = list.slots[list.active];
    if (n - 1 >= next.limit) [[unlikely]]
      return take_slow(list, n);  // 0 elements too: there may be no slot
    next.size = n;
    ++list.active;
    if constexpr (tools_are_told) show(list, next);
    return next;
  }

  /// Ends the scope, and those inside it. Does nothing if it has been ended.
  /// @tparam Retire whether the memory is to be looked after: see `retire`.
  template <bool Retire>
  void close(std::uint64_t frame, std::source_location where) noexcept {
    if (frame_ != frame) [[unlikely]] {
      if (!end_those_inside(frame, where)) return;
    }
    saved_count* last = log_end_;
    while (slot_list* const list = (--last)->list) {  // back to where this scope begins
      if constexpr (Retire) retire(*list, last->value, where);
      list->active = last->value;
      list->frame = last->frame;
    }
    frame_ = last->frame;
    log_end_ = last;
  }

  [[nodiscard]] std::uint64_t frame() const noexcept { return frame_; }
  /// Whether an outermost scope that is about to open has to `sweep` first.
  [[nodiscard]] bool is_to_sweep() const noexcept {
    return sweep_requests.load(std::memory_order_relaxed) != 0 && log_end_ == log_;
  }
  [[nodiscard]] slot_list& fixed(std::size_t i) noexcept { return fixed_[i]; }
  /// The list of another type, made if there is none. @throws std::bad_alloc, with nothing changed.
  slot_list& other(std::size_t i, element_info const& element) {
    if (i < others_room_ && others_[i] != nullptr) [[likely]]
      return *others_[i];
    return add_other(i, element);
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
  enum class measure { newest, largest };
  compact_summary compact(compact_options const& options, measure by) noexcept;
  TIDEMARK_COLD void sweep() noexcept;
  /// From now on, slots that the scope handed out wait for the fence before they are used again. Waits for it
  /// here if there is no memory to remember it, or if the scope was ended by another, which has taken its
  /// slots back.
  void put_behind(std::uint64_t frame, reuse_fence fence) noexcept;
  /// The header for the list's newest request. @throws std::bad_alloc if there is none and no memory for one;
  /// the slot is taken back then.
  dl_tensor& header(slot_list& list, slot& newest, std::size_t const* extents, std::size_t rank,
                    bool column_major, dl_data_type type);
  /// The slot that was handed out since the scope began and overlaps these bytes; null: there is none, or no
  /// such scope.
  struct overlap {
    slot_list const* list;
    slot const* taken;
  };
  [[nodiscard]] overlap find_overlap(std::uint64_t frame, void const* first,
                                     std::size_t bytes) const noexcept;
  /// Reports use by a thread that is not the owner; the first to use it becomes that.
  void require_thread(char const* doing) noexcept;
  void hand_over() noexcept { owner_thread_ = 0; }
  /// @throws std::logic_error if the memory is not the host's and nobody has said how to fill it.
  void require_fill(char const* call) const;
  /// @throws std::logic_error if the memory is not the host's.
  void require_host_memory(char const* call) const;
  /// Writes an element's bytes to the whole of the list's newest request. @throws what `device_fill` throws;
  /// the slot is taken back then.
  void fill(slot_list& list, slot const& newest, void const* element, std::size_t element_bytes);

  [[nodiscard]] workspace_stats stats() const noexcept;
  template <class Visitor>
  void for_each_type(Visitor&& visitor) const {
    for (slot_list const& list : fixed_) {
      if (list.count > 0) visitor(stats_of(list));
    }
    for (std::size_t i = 0; i < others_room_; ++i) {
      if (others_[i] != nullptr && others_[i]->count > 0) visitor(stats_of(*others_[i]));
    }
  }
  [[nodiscard]] slot_list* find_other(std::size_t i) noexcept {
    return i < others_room_ ? others_[i] : nullptr;
  }
  [[nodiscard]] workspace_options const& options() const noexcept { return options_; }
  [[nodiscard]] bool checked() const noexcept { return checked_; }
  [[nodiscard]] bool pooling() const noexcept { return pooling_; }
  [[nodiscard]] char const* broken_invariant() const noexcept;

  /// Raised by the background sweeper, on its thread.
  std::atomic<unsigned> sweep_requests{0};
  // The workspaces that the sweeper knows, under its lock.
  workspace_core* next_swept = nullptr;
  workspace_core** swept_link = nullptr;

 private:
  // Not as a number of entries, which takes a division.
  [[nodiscard]] std::size_t room_bytes() const noexcept {
    return reinterpret_cast<std::uintptr_t>(log_limit_) - reinterpret_cast<std::uintptr_t>(log_end_);
  }
  [[nodiscard]] saved_count* beginning_of(std::uint64_t frame) const noexcept;
  TIDEMARK_COLD void grow_log(std::size_t counts);
  TIDEMARK_COLD slot& take_slow(slot_list& list, std::size_t n);
  TIDEMARK_COLD slot_list& add_other(std::size_t i, element_info const& element);
  TIDEMARK_COLD void take_back_newest(slot_list& list) noexcept;  // which nobody has seen
  TIDEMARK_COLD bool end_those_inside(std::uint64_t frame, std::source_location where) noexcept;
  slot& prepare(slot_list& list, std::size_t n);
  void make_room(slot_list& list) const;
  void grow_slot(slot_list const& list, slot& small, std::size_t n);
  [[noreturn]] void throw_out_of_memory(slot_list const& list, std::size_t bytes) const;
  void give_memory(slot_list const& list, slot& to, std::size_t n);
  void free_memory(slot_list const& list, slot& of) noexcept;
  void remove_slots(slot_list& list, std::size_t keep, trim_summary& summary) noexcept;
  void free_list(slot_list& list) noexcept;
  void retire(slot_list& list, std::size_t from, std::source_location where) noexcept;
  void write(slot_list const& list, slot const& of, void const* element, std::size_t element_bytes) const;
  void poison(slot_list const& list, slot const& taken) const noexcept;
  void retire_all(std::source_location where) noexcept;
  void await(slot& of) noexcept;
  void forget_fences_that_are_done() noexcept;
  void compact(slot_list& list, compact_options const& options, measure by,
               compact_summary& summary) noexcept;
  void show(slot_list const& list, slot const& of) const noexcept;
  [[nodiscard]] std::size_t alignment_of(slot_list const& list) const noexcept;
  [[nodiscard]] bool scopes_are_open() const noexcept;
  [[nodiscard]] workspace_type_stats stats_of(slot_list const& list) const noexcept;
  [[nodiscard]] char const* broken_invariant(slot_list const& list, std::size_t& held_bytes) const noexcept;
  template <class Visitor>
  void for_each_list(Visitor&& visitor) {
    for (slot_list& list : fixed_) visitor(list);
    for (std::size_t i = 0; i < others_room_; ++i) {
      if (others_[i] != nullptr) visitor(*others_[i]);
    }
  }

  std::uint64_t frame_ = 0;           // number of the innermost scope; 0: none is open
  std::uint64_t last_frame_ = 0;      // the newest number given; even
  saved_count* log_ = nullptr;        // entries of open scopes
  saved_count* log_end_ = nullptr;    // … end here
  saved_count* log_limit_ = nullptr;  // … and have room up to here
  std::array<slot_list, fixed_types> fixed_;
  slot_list** others_ = nullptr;  // by other_type(); null where this workspace has none of that type
  std::size_t others_room_ = 0;

  workspace_options options_;  // with the resources that null stood for
  header_source headers_;      // how tensor headers are made
  std::size_t held_bytes_ = 0;
  bool checked_;
  bool pooling_;  // whether memory is kept; otherwise every slot loses its memory when it is taken back
  unsigned long long owner_thread_ = 0;  // 0: the next user's

  struct numbered_fence {
    std::uint64_t number;
    reuse_fence fence;
  };
  std::pmr::vector<numbered_fence> fences_;  // those not yet seen to be done, by number
  std::uint64_t last_fence_ = 0;
};

}  // namespace tidemark::detail
