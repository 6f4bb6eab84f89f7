// SPDX-License-Identifier: Apache-2.0
/// @file
/// What `basic_arena` does seldom: construction, growth, rewinds over chunks, misuse. See arena.hpp for the
/// class.
#pragma once

#include <bit>
#include <cstdio>
#include <limits>
#include <stdexcept>
#include <string>

#include <tidemark/arena.hpp>
#include <tidemark/detail/identity.hpp>

namespace tidemark {

namespace detail {

// Of the chunks kept for reuse so many are looked at before a new one is made: growing stays O(1).
inline constexpr int kept_chunks_tried_max = 16;

// No request above this can be served, and sums of two requests do not wrap.
inline constexpr std::size_t request_max = std::numeric_limits<std::size_t>::max() / 4;

/// Where a block of `bytes` lies in `chunk` if it is placed at `from` or above; 0 if it does not fit.
[[nodiscard]] inline std::uintptr_t place(arena_chunk const& chunk, std::uintptr_t from, std::size_t bytes,
                                          std::size_t align) noexcept {
  const std::uintptr_t block = align_up(from, align);
  return block >= from && block <= chunk.end && chunk.end - block >= bytes ? block : 0;
}

/// `size` rounded up to a multiple of `step`, which need not be a power of two; saturates.
[[nodiscard]] constexpr std::size_t round_up(std::size_t size, std::size_t step) noexcept {
  return add_saturating(size, step - 1) / step * step;
}

}  // namespace detail

template <class AddressSpace>
basic_arena<AddressSpace>::basic_arena(AddressSpace space, arena_options options)
    : id_{detail::next_identity()}, options_{options}, space_{std::move(space)} {
  const std::size_t granularity = space_.granularity();
  next_chunk_bytes_ = options_.reserve != 0 ? options_.reserve : space_.chunk_bytes();
  if (options_.name == nullptr) options_.name = arena_options{}.name;
  if (options_.commit_step == 0) options_.commit_step = arena_options{}.commit_step;
  options_.commit_step = detail::round_up(options_.commit_step, granularity);
  if constexpr (AddressSpace::reserves_at_once) {
    detail::arena_chunk* chunk = add_chunk(default_alignment);
    if (chunk == nullptr) throw_out_of_memory(next_chunk_bytes_, default_alignment, false);
    enter(*chunk);
  }
}

template <class AddressSpace>
basic_arena<AddressSpace>::~basic_arena() {
  if (innermost_ != nullptr) {
    detail::report_violation(violation_kind::scope_outlived, name(),
                             "arena '%s' is destroyed while a scope on it is open", name());
    for (scope_type* scope = std::exchange(innermost_, nullptr); scope != nullptr; scope = scope->outer_) {
      scope->arena_ = nullptr;
    }
  }
  hand_over();  // who destroys an arena need not be who used it
  release();
}

template <class AddressSpace>
void* basic_arena<AddressSpace>::allocate_slow(std::size_t bytes, std::size_t align) {
  bool commit_refused = false;
  if (void* block = grow(bytes, align, commit_refused)) return block;
  throw_out_of_memory(bytes, align, commit_refused);
}

template <class AddressSpace>
void* basic_arena<AddressSpace>::try_allocate(std::size_t bytes, std::size_t align) noexcept {
  try {
    if constexpr (check_level >= 2) before_allocate(bytes, align);
    bool commit_refused = false;
    return grow(bytes, align, commit_refused);
  } catch (...) {  // the upstream's exception, or an alignment that is none
    return nullptr;
  }
}

// A block from the current chunk, a kept one or a new one; null if there is no memory, with nothing changed. Where the
// system gives no memory for a chunk, one behind it may have some still.
template <class AddressSpace>
void* basic_arena<AddressSpace>::grow(std::size_t bytes, std::size_t align, bool& commit_refused) {
  if (!std::has_single_bit(align)) {
    throw std::invalid_argument("arena '" + std::string(name()) + "': alignment " + std::to_string(align) +
                                " is not a power of two");
  }
  if (bytes > detail::request_max || align > detail::request_max) return nullptr;
  const std::size_t size = block_bytes(bytes);

  if (const std::uintptr_t block = detail::place(*chunk_, cursor_, size, align)) {
    if (commit_up_to(*chunk_, block + size)) return bump(block, bytes);
    commit_refused = true;
  }
  int untried = detail::kept_chunks_tried_max;
  for (detail::arena_chunk* kept = chunk_->next; kept != nullptr && untried-- > 0; kept = kept->next) {
    const std::uintptr_t block = detail::place(*kept, kept->begin, size, align);
    if (block == 0) continue;
    if (commit_up_to(*kept, block + size)) {
      enter(*kept);
      return bump(block, bytes);
    }
    commit_refused = true;
  }
  if (commit_refused) return nullptr;
  if (!options_.growable && chunks_ != 0) return nullptr;
  detail::arena_chunk* added = add_chunk(size + (align > default_alignment ? align - default_alignment : 0));
  if (added == nullptr) return nullptr;
  const std::uintptr_t block = detail::place(*added, added->begin, size, align);
  if (block == 0 || !commit_up_to(*added, block + size)) {
    drop(*added);
    commit_refused = true;
    return nullptr;
  }
  enter(*added);
  return bump(block, bytes);
}

// Hands out a block that lies in the committed part of the current chunk.
template <class AddressSpace>
void* basic_arena<AddressSpace>::bump(std::uintptr_t block, std::size_t bytes) noexcept {
  cursor_ = block + block_bytes(bytes);
  end_ = chunk_->committed;
  if constexpr (AddressSpace::host_accessible) detail::hand_out(block, bytes);
  return reinterpret_cast<void*>(block);
}

// A new chunk right behind the current one; null if there is no memory. The size of those to come grows by one step,
// however large this one had to be.
template <class AddressSpace>
detail::arena_chunk* basic_arena<AddressSpace>::add_chunk(std::size_t least_bytes) {
  const bool is_first = chunk_ == &first_ && first_.range.empty();
  std::unique_ptr<detail::arena_chunk> record;
  if (!is_first) {
    record.reset(new (std::nothrow) detail::arena_chunk{});
    if (record == nullptr) return nullptr;
  }
  ++system_calls_;
  const byte_range range = space_.reserve(least_bytes, std::max(least_bytes, next_chunk_bytes_));
  if (range.empty()) return nullptr;

  detail::arena_chunk& chunk = is_first ? first_ : *record.release();
  chunk.range = range;
  next_chunk_bytes_ = detail::multiply_saturating(next_chunk_bytes_, AddressSpace::chunk_growth);
  // A block at address 0 would look like none, and some device might have one.
  chunk.begin = detail::align_up(std::max<std::uintptr_t>(range.begin, 1), default_alignment);
  // The top 4 GiB of addresses are left out, so that the fast path's sums cannot wrap.
  constexpr std::uintptr_t last = std::numeric_limits<std::uintptr_t>::max() - 4 * fast_request_max;
  chunk.end = std::max(chunk.begin, detail::align_down(std::min(range.end(), last), default_alignment));
  chunk.committed = AddressSpace::commits ? chunk.begin : chunk.end;
  chunk.touched = AddressSpace::fresh_is_zero ? chunk.begin : chunk.end;
  if (is_first) {
    cursor_ = end_ = floor_ = marked_ = high_ = chunk.begin;
  } else {
    chunk.previous = chunk_;
    chunk.next = chunk_->next;
    if (chunk.next != nullptr) chunk.next->previous = &chunk;
    chunk_->next = &chunk;
  }
  ++chunks_;
  reserved_bytes_ += range.size;
  committed_bytes_ += chunk.committed - chunk.begin;
  if constexpr (AddressSpace::host_accessible) detail::withhold(chunk.begin, chunk.committed - chunk.begin);
  return &chunk;
}

// Commits in steps until `last` has memory behind it; false if there is none. Where a whole step is refused, what
// is needed may still be had.
template <class AddressSpace>
bool basic_arena<AddressSpace>::commit_up_to(detail::arena_chunk& chunk, std::uintptr_t last) noexcept {
  if (last <= chunk.committed) return true;
  const std::size_t step = options_.commit_step;
  const std::size_t amortised = detail::round_up(committed_bytes_ / 8, step);
  const std::size_t needed = detail::round_up(last - chunk.begin, step);
  const std::size_t wanted = std::max(needed, (chunk.committed - chunk.begin) + std::max(step, amortised));
  const std::size_t capacity = chunk.end - chunk.begin;
  const std::size_t least = std::min(detail::round_up(last - chunk.begin, space_.granularity()), capacity);
  std::uintptr_t target = chunk.begin + std::min(wanted, capacity);
  ++system_calls_;
  if (!space_.commit({chunk.committed, target - chunk.committed})) {
    if (target == chunk.begin + least) return false;
    target = chunk.begin + least;
    ++system_calls_;
    if (!space_.commit({chunk.committed, target - chunk.committed})) return false;
  }
  if constexpr (AddressSpace::host_accessible) detail::withhold(chunk.committed, target - chunk.committed);
  committed_bytes_ += target - chunk.committed;
  chunk.committed = target;
  return true;
}

// Goes on in a chunk behind the current one; kept chunks that it skips stay kept, behind it.
template <class AddressSpace>
void basic_arena<AddressSpace>::enter(detail::arena_chunk& chunk) noexcept {
  const std::size_t base = position();
  peak_ = peak();
  chunk_->touched = std::max({chunk_->touched, high_, cursor_});
  chunk_->floor = floor_;
  if (&chunk != chunk_ && chunk_->next != &chunk) {
    chunk.previous->next = chunk.next;
    if (chunk.next != nullptr) chunk.next->previous = chunk.previous;
    chunk.previous = chunk_;
    chunk.next = chunk_->next;
    chunk.next->previous = &chunk;
    chunk_->next = &chunk;
  }
  chunk.base = base;
  chunk_ = &chunk;
  cursor_ = floor_ = marked_ = high_ = chunk.begin;
  end_ = chunk.committed;
  dirty_ = chunk.touched;
}

// Gives a chunk that is not in use back to where it came from.
template <class AddressSpace>
void basic_arena<AddressSpace>::drop(detail::arena_chunk& chunk) noexcept {
  if (chunk.range.empty()) return;
  if constexpr (AddressSpace::host_accessible) detail::hand_out(chunk.begin, chunk.committed - chunk.begin);
  ++system_calls_;
  space_.release(chunk.range);
  next_chunk_bytes_ /= AddressSpace::chunk_growth;
  --chunks_;
  reserved_bytes_ -= chunk.range.size;
  committed_bytes_ -= chunk.committed - chunk.begin;
  if (&chunk == &first_) {
    chunk.range = {};
    chunk.begin = chunk.end = chunk.committed = chunk.touched = 0;
    cursor_ = end_ = floor_ = marked_ = high_ = dirty_ = 0;
    return;
  }
  if (chunk.previous != nullptr) chunk.previous->next = chunk.next;
  if (chunk.next != nullptr) chunk.next->previous = chunk.previous;
  delete &chunk;
}

// Goes back to `cursor` in a chunk that is in use. `cursor` may be that of a chunk that was empty then.
template <class AddressSpace>
void basic_arena<AddressSpace>::rewind_to(detail::arena_chunk& chunk, std::uintptr_t cursor) noexcept {
  cursor = std::max(cursor, chunk.begin);
  const std::size_t target = chunk.base + (cursor - chunk.begin);
  while (finalizers_ != nullptr && finalizers_->end_position > target) {
    const detail::arena_finalizer finalizer = *finalizers_;
    finalizers_ = finalizer.previous;
    finalizer.destroy(finalizer.object);
  }
  history_.rewound_to(target);
  if (&chunk == chunk_) {
    lower_cursor(cursor);
    floor_ = std::clamp(floor_, chunk.begin, cursor);
  } else {
    return_to(chunk, cursor);
    if (committed_bytes_ > options_.retain) drop_beyond_retain();
  }
  marked_ = chunk.begin + (std::max(history_.newest_mark(), chunk.base) - chunk.base);
  if constexpr (check_level >= 2) check_invariants();
}

// Of the kept chunks the last used go first: the next batch needs the others before it needs them.
template <class AddressSpace>
void basic_arena<AddressSpace>::drop_beyond_retain() noexcept {
  detail::arena_chunk* last = chunk_;
  while (last->next != nullptr) last = last->next;
  while (last != chunk_ && committed_bytes_ > options_.retain) {
    detail::arena_chunk* const before = last->previous;
    drop(*last);
    last = before;
  }
}

// An earlier chunk becomes the current one, at `cursor`; those behind it are kept.
template <class AddressSpace>
void basic_arena<AddressSpace>::return_to(detail::arena_chunk& chunk, std::uintptr_t cursor) noexcept {
  peak_ = peak();
  chunk_->touched = std::max({chunk_->touched, high_, cursor_});
  if constexpr (AddressSpace::host_accessible) {
    for (detail::arena_chunk* left = chunk_; left != &chunk; left = left->previous) {
      reclaim(left->begin, std::min(left->touched, left->committed));
    }
    reclaim(cursor, std::min(chunk.touched, chunk.committed));
  }
  chunk_ = &chunk;
  cursor_ = floor_ = high_ = cursor;
  end_ = chunk.committed;
  dirty_ = chunk.touched;
}

// The last block of the current chunk was given back: goes on where the chunk before it was left. No mark and no scope
// begins here, because this is done at once whenever a chunk becomes empty.
template <class AddressSpace>
void basic_arena<AddressSpace>::leave_empty_chunk() noexcept {
  detail::arena_chunk* const before = chunk_->previous;
  if (before == nullptr) return;
  return_to(*before, before->begin + (chunk_->base - before->base));
  marked_ = before->begin + (std::max(history_.newest_mark(), before->base) - before->base);
  floor_ = std::max(before->floor, marked_);  // as it was when the chunk was left
}

template <class AddressSpace>
void basic_arena<AddressSpace>::rewind_slow(arena_mark const& mark) {
  const auto refuse = [this](char const* why) {
    throw std::invalid_argument("arena '" + std::string(name()) + "': cannot rewind: the mark " + why);
  };
  if (mark.arena_ != id_) refuse("is of another arena, or older than its last release()");
  if (mark.position_ > position()) refuse("lies ahead of the present position");
  if (!history_.is_live(mark.position_, mark.serial_)) refuse("was rewound over after it was taken");
  if (mark.position_ < scope_floor()) refuse("lies before the beginning of a scope that is still open");

  // The end of a chunk and the beginning of the next are one position: the address tells which was meant.
  detail::arena_chunk* chunk = chunk_;
  detail::arena_chunk* const deepest = &deepest_chunk();
  while (chunk->base > mark.position_) chunk = chunk->previous;
  for (detail::arena_chunk* tie = chunk; tie->base == mark.position_ && tie != deepest;) {
    tie = tie->previous;
    if (tie->begin + (mark.position_ - tie->base) == mark.cursor_) chunk = tie;
  }
  rewind_to(*chunk, chunk->begin + (mark.position_ - chunk->base));
}

template <class AddressSpace>
void basic_arena<AddressSpace>::pop(std::size_t bytes) noexcept {
  if constexpr (check_level >= 2) before_use("pop");
  const std::size_t poppable = position() - scope_floor();
  const std::size_t rounded = bytes >= poppable ? poppable : detail::align_up(bytes, default_alignment);
  const std::size_t target = position() - std::min(rounded, poppable);
  detail::arena_chunk* chunk = chunk_;
  detail::arena_chunk* const deepest = &deepest_chunk();
  while (chunk != deepest && chunk->base >= target) chunk = chunk->previous;
  rewind_to(*chunk, chunk->begin + (target - chunk->base));
}

template <class AddressSpace>
void basic_arena<AddressSpace>::reset() {
  if constexpr (check_level >= 2) before_use("reset");
  refuse_open_scope("reset");
  rewind_to(first_, first_.begin);
}

template <class AddressSpace>
void basic_arena<AddressSpace>::release() {
  if constexpr (check_level >= 2) before_use("release");
  refuse_open_scope("release");
  rewind_to(first_, first_.begin);
  while (first_.next != nullptr) drop(*first_.next);
  peak_ = peak();
  drop(first_);
  id_ = detail::next_identity();  // marks hold addresses that may come back as something else
}

template <class AddressSpace>
std::size_t basic_arena<AddressSpace>::trim(std::size_t keep_bytes) noexcept {
  if constexpr (check_level >= 2) before_use("trim");
  peak_ = peak();
  const std::size_t committed_before = committed_bytes_;
  std::size_t kept_bytes = chunk_->committed - cursor_;
  for (detail::arena_chunk* kept = chunk_->next; kept != nullptr;) {
    detail::arena_chunk* const next = kept->next;
    const std::size_t bytes = kept->committed - kept->begin;
    if (detail::add_saturating(kept_bytes, bytes) > keep_bytes) {
      drop(*kept);
    } else {
      kept_bytes += bytes;
    }
    kept = next;
  }
  if constexpr (AddressSpace::commits) {
    const std::uintptr_t first = detail::align_up(
        std::min(detail::add_saturating(cursor_, keep_bytes), chunk_->committed), space_.granularity());
    if (first < chunk_->committed) {
      ++system_calls_;
      const std::size_t bytes = chunk_->committed - first;
      // Who takes memory back may touch it.
      if constexpr (AddressSpace::host_accessible) detail::hand_out(first, bytes);
      if (!space_.decommit({first, bytes})) {
        if constexpr (AddressSpace::host_accessible) detail::withhold(first, bytes);
      } else {
        committed_bytes_ -= bytes;
        chunk_->committed = end_ = first;
        high_ = std::min(high_, first);
        if constexpr (AddressSpace::fresh_is_zero) {
          chunk_->touched = std::min(chunk_->touched, first);
          dirty_ = std::min(dirty_, first);
        }
      }
    }
  }
  return committed_before - committed_bytes_;
}

template <class AddressSpace>
bool basic_arena<AddressSpace>::expand(void* block, std::size_t old_bytes, std::size_t new_bytes) noexcept {
  if constexpr (check_level >= 2) before_deallocate(block, old_bytes);
  if (!is_newest(block, old_bytes) || new_bytes > detail::request_max) return false;
  const auto address = reinterpret_cast<std::uintptr_t>(block);
  const std::size_t size = block_bytes(new_bytes);
  if (size > chunk_->end - address || !commit_up_to(*chunk_, address + size)) return false;
  if (address + size < cursor_) lower_cursor(address + size);
  cursor_ = address + size;
  end_ = chunk_->committed;
  if constexpr (AddressSpace::host_accessible) {
    if (new_bytes > old_bytes) detail::hand_out(address + old_bytes, new_bytes - old_bytes);
  }
  return true;
}

template <class AddressSpace>
void basic_arena<AddressSpace>::close_scope_slow(scope_type& scope) noexcept {
  if (innermost_ == &scope) {
    rewind_to(*scope.chunk_, scope.begin_);
    floor_ = std::max(scope.outer_floor_, marked_);
    innermost_ = scope.outer_;
    return;
  }
  detail::report_violation(violation_kind::scope_order, name(),
                           "arena '%s': a scope ends while a scope inside it is still open", name());
  scope_type* inner = innermost_;
  while (inner->outer_ != &scope) inner = inner->outer_;
  inner->outer_ = scope.outer_;  // the inner scope takes over what the outer one would have rewound
  inner->chunk_ = scope.chunk_;
  inner->begin_ = scope.begin_;
  inner->outer_floor_ = scope.outer_floor_;
}

// Goes back to where the arena was when it was made, unless dismissed.
template <class AddressSpace>
class basic_arena<AddressSpace>::rollback {
 public:
  explicit rollback(basic_arena& arena) noexcept
      : arena_{&arena}, chunk_{arena.chunk_}, cursor_{arena.cursor_} {}
  rollback(rollback const&) = delete;
  rollback& operator=(rollback const&) = delete;
  ~rollback() {
    if (arena_ != nullptr) arena_->rewind_to(*chunk_, cursor_);
  }
  void dismiss() noexcept { arena_ = nullptr; }

 private:
  basic_arena* arena_;
  detail::arena_chunk* chunk_;
  std::uintptr_t cursor_;
};

template <class AddressSpace>
template <class T, class... Arguments>
T* basic_arena<AddressSpace>::construct(Arguments&&... arguments) {
  if constexpr (std::is_nothrow_constructible_v<T, Arguments...>) {
    return std::construct_at(static_cast<T*>(allocate(sizeof(T), alignof(T))),
                             std::forward<Arguments>(arguments)...);
  } else {
    rollback undo{*this};
    T* object = std::construct_at(static_cast<T*>(allocate(sizeof(T), alignof(T))),
                                  std::forward<Arguments>(arguments)...);
    undo.dismiss();
    return object;
  }
}

template <class AddressSpace>
template <class T, class... Arguments>
T* basic_arena<AddressSpace>::make(Arguments&&... arguments)
  requires(AddressSpace::host_accessible)
{
  if constexpr (std::is_trivially_destructible_v<T>) {
    return construct<T>(std::forward<Arguments>(arguments)...);
  } else {
    rollback undo{*this};
    auto* record = push<detail::arena_finalizer>(uninitialized);
    T* object = construct<T>(std::forward<Arguments>(arguments)...);
    *record = {finalizers_, [](void* made) noexcept { std::destroy_at(static_cast<T*>(made)); }, object,
               position()};
    finalizers_ = record;
    floor_ = cursor_;  // nothing below may be reclaimed without running the destructor
    undo.dismiss();
    return object;
  }
}

template <class AddressSpace>
arena_stats basic_arena<AddressSpace>::stats() const noexcept {
  arena_stats stats;
  stats.name = name();
  stats.used_bytes = position();
  stats.peak_bytes = peak();
  stats.committed_bytes = committed_bytes_;
  stats.reserved_bytes = reserved_bytes_;
  stats.chunks = chunks_;
  stats.system_calls = system_calls_;
  if constexpr (check_level >= 2) stats.allocations = allocations_;
  return stats;
}

template <class AddressSpace>
std::size_t basic_arena<AddressSpace>::peak() const noexcept {
  return std::max(peak_, chunk_->base + (std::max(high_, cursor_) - chunk_->begin));
}

// The chunk that no rewind may leave downwards.
template <class AddressSpace>
detail::arena_chunk& basic_arena<AddressSpace>::deepest_chunk() noexcept {
  return innermost_ != nullptr ? *innermost_->chunk_ : first_;
}

// Position of the innermost open scope's beginning, 0 if there is none.
template <class AddressSpace>
std::size_t basic_arena<AddressSpace>::scope_floor() const noexcept {
  if (innermost_ == nullptr) return 0;
  detail::arena_chunk const& chunk = *innermost_->chunk_;
  return chunk.base + (std::max(innermost_->begin_, chunk.begin) - chunk.begin);
}

template <class AddressSpace>
bool basic_arena<AddressSpace>::owns(void const* address) const noexcept {
  const auto value = reinterpret_cast<std::uintptr_t>(address);
  if (value >= chunk_->begin && value < cursor_) return true;
  for (detail::arena_chunk const* chunk = chunk_->previous; chunk != nullptr; chunk = chunk->previous) {
    const std::size_t used = chunk->next->base - chunk->base;
    if (value - chunk->begin < used) return true;
  }
  return false;
}

// The largest block that held memory has room for; only committed memory, if the system just refused to commit.
template <class AddressSpace>
std::size_t basic_arena<AddressSpace>::largest_fit(std::size_t align, bool commit_refused) const noexcept {
  const auto room = [=](detail::arena_chunk const& chunk, std::uintptr_t from) -> std::size_t {
    const std::uintptr_t block = detail::place(chunk, from, 0, align);
    const std::uintptr_t end = commit_refused ? chunk.committed : chunk.end;
    return block != 0 && block < end ? end - block : 0;
  };
  std::size_t largest = room(*chunk_, cursor_);
  int untried = detail::kept_chunks_tried_max;
  for (detail::arena_chunk const* kept = chunk_->next; kept != nullptr && untried-- > 0; kept = kept->next) {
    largest = std::max(largest, room(*kept, kept->begin));
  }
  return largest;
}

template <class AddressSpace>
void basic_arena<AddressSpace>::throw_out_of_memory(std::size_t bytes, std::size_t align,
                                                    bool commit_refused) const {
  const out_of_memory error{{name(), bytes, align, position(), committed_bytes_, reserved_bytes_,
                             largest_fit(align, commit_refused)}};
  if (options_.exhaustion == exhaustion_policy::abort) {
    detail::report_violation(violation_kind::exhausted, name(), "%s", error.what());
  }
  throw error;
}

template <class AddressSpace>
void basic_arena<AddressSpace>::refuse_open_scope(char const* operation) const {
  if (innermost_ == nullptr) return;
  throw std::logic_error("arena '" + std::string(name()) + "': " + operation + " while a scope is open");
}

template <class AddressSpace>
void basic_arena<AddressSpace>::before_use(char const* operation) const noexcept {
  void const* const thread = detail::this_thread_token();
  if (owner_thread_ == nullptr) owner_thread_ = thread;
  if (owner_thread_ == thread) return;
  detail::report_violation(violation_kind::wrong_thread, name(),
                           "arena '%s': %s on a thread that does not own the arena; see hand_over()", name(),
                           operation);
}

template <class AddressSpace>
void basic_arena<AddressSpace>::before_allocate(std::size_t bytes, std::size_t align) {
  before_use("allocate");
  ++allocations_;
  if (std::has_single_bit(align)) return;
  bool commit_refused = false;
  grow(bytes, align, commit_refused);  // throws the sentence about it
}

template <class AddressSpace>
void basic_arena<AddressSpace>::before_deallocate(void const* block, std::size_t bytes) const noexcept {
  before_use("deallocate");
  if (owns(block)) return;
  detail::report_violation(
      violation_kind::bad_deallocate, name(),
      "arena '%s': deallocate of %zu bytes at %p, which it does not hold: foreign, or rewound "
      "over already",
      name(), bytes, block);
}

template <class AddressSpace>
void basic_arena<AddressSpace>::check_invariants() const noexcept {
  const auto require = [this](bool holds, char const* formula) {
    if (!holds) {
      detail::report_violation(violation_kind::invariant, name(), "arena '%s': broken invariant: %s", name(),
                               formula);
    }
  };
  require(chunk_->begin <= marked_, "chunk.begin <= marked");
  require(marked_ <= floor_, "marked <= floor");
  require(floor_ <= cursor_, "floor <= cursor");
  require(cursor_ <= end_, "cursor <= end");
  require(end_ == chunk_->committed, "end == chunk.committed");
  require(chunk_->begin <= high_ && high_ <= end_, "chunk.begin <= high <= end");
  require(cursor_ % default_alignment == 0, "cursor % block_alignment == 0");
  require(floor_ % default_alignment == 0, "floor % block_alignment == 0");
  require(scope_floor() <= position(), "begin of the innermost scope <= position");
  require(finalizers_ == nullptr || finalizers_->end_position <= position(), "newest destructor <= position");
  std::size_t chunks = 0, committed = 0, reserved = 0;
  bool in_use = true;
  for (detail::arena_chunk const* chunk = &first_; chunk != nullptr; chunk = chunk->next) {
    chunks += chunk->range.empty() ? 0 : 1;
    committed += chunk->committed - chunk->begin;
    reserved += chunk->range.size;
    require(chunk->begin <= chunk->committed && chunk->committed <= chunk->end, "begin <= committed <= end");
    require(chunk->next == nullptr || chunk->next->previous == chunk, "next.previous == chunk");
    if (chunk == chunk_) in_use = false;
    if (in_use) require(chunk->next != nullptr && chunk->base <= chunk->next->base, "base <= next.base");
  }
  require(!in_use, "the current chunk is in the list");
  require(chunks == chunks_, "chunks == number of chunks");
  require(committed == committed_bytes_, "committed == sum over chunks");
  require(reserved == reserved_bytes_, "reserved == sum over chunks");
}

}  // namespace tidemark
