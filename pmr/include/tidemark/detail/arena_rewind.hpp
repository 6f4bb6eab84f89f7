// SPDX-License-Identifier: Apache-2.0
/// @file
/// How an arena goes back: rewinds over chunks, scopes that need care, destructors. See arena.hpp for the
/// class.
#pragma once

#include <algorithm>
#include <memory>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>

#include <tidemark/arena.hpp>
#include <tidemark/detail/align.hpp>
#include <tidemark/detail/identity.hpp>

namespace tidemark {

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
  marked_ = highest_mark_in(chunk);
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
  } else {
    for (detail::arena_chunk* left = chunk_; left != &chunk; left = left->previous) left->marks.take_back(0);
    chunk.marks.take_back(cursor);
  }
  chunk_ = &chunk;
  cursor_ = floor_ = high_ = cursor;
  end_ = chunk.committed;
  dirty_ = chunk.touched;
}

// The last block of the current chunk was given back: goes on where the chunk before it was left. No mark and
// no scope begins here, because this is done at once whenever a chunk becomes empty.
template <class AddressSpace>
void basic_arena<AddressSpace>::leave_empty_chunk() noexcept {
  detail::arena_chunk* const before = chunk_->previous;
  if (before == nullptr) return;
  return_to(*before, before->begin + (chunk_->base - before->base));
  marked_ = highest_mark_in(*before);
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
  if (chunk != deepest && mark.position_ < deepest->next->base) chunk = deepest;  // mostly, and then at once
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

// No live mark lies above this address of a chunk that no chunk in use follows; its beginning, if none lies
// in it.
template <class AddressSpace>
std::uintptr_t basic_arena<AddressSpace>::highest_mark_in(detail::arena_chunk const& chunk) const noexcept {
  return chunk.begin + (std::max(history_.newest_mark(), chunk.base) - chunk.base);
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
void basic_arena<AddressSpace>::refuse_open_scope(char const* operation) const {
  if (innermost_ == nullptr) return;
  throw std::logic_error("arena '" + std::string(name()) + "': " + operation + " while a scope is open");
}

}  // namespace tidemark
