// SPDX-License-Identifier: Apache-2.0
/// @file
/// `registered_memory`: an address space that tells a registrar of memory before it is used and before it
/// goes. It owns the registrar, and its memory is that of the address space below it.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <type_traits>
#include <utility>

#include <tidemark/core/address_space.hpp>
#include <tidemark/core/byte_range.hpp>
#include <tidemark/core/units.hpp>
#include <tidemark/core/violation.hpp>

namespace tidemark {

namespace detail {
/// The event of an `ordered_space`; void for other spaces.
template <class Space>
auto event_type_of() {
  if constexpr (ordered_space<Space>) return std::type_identity<typename Space::event_type>{};
  else return std::type_identity<void>{};
}
}  // namespace detail

/// What has to know memory before it can use it: a network adapter, a window of MPI, a communicator of NCCL.
///
/// | call | meaning |
/// |---|---|
/// | `on_commit(range)` | memory is there: registers it; false, with nothing changed, if it cannot |
/// | `on_decommit(range)` | the memory of an earlier `on_commit` goes: deregisters it; false if it cannot |
/// | `refusal()` | why the last of these calls failed, in words that live as long as the program |
///
/// It is called by one thread at a time, and only when an arena takes or returns memory. A constant
/// `is_collective` says that other ranks must make the same calls: then no smaller range is tried after a
/// refusal.
template <class R>
concept memory_registrar = std::movable<R> && requires(R& registrar, byte_range range) {
  { registrar.on_commit(range) } noexcept -> std::same_as<bool>;
  { registrar.on_decommit(range) } noexcept -> std::same_as<bool>;
  { std::as_const(registrar).refusal() } noexcept -> std::convertible_to<char const*>;
};

/// An `address_space` whose memory is registered once, when it is taken, and deregistered before it goes.
///
/// Registering a buffer costs far more than sending it, and a cache of registrations breaks when memory is
/// unmapped below it. An arena knows when memory comes and goes, and gives the same addresses in each step:
///
/// ```cpp
/// basic_arena<registered_memory<virtual_memory, mpi::window_registrar>> step{
///     {.reserve = 64 * MiB, .name = "step"}, virtual_memory{}, mpi::window_registrar{window}};
/// for (int i = 0; i < 1000; ++i) {
///   decltype(step)::scope scope{step};
///   exchange(step.push_array<double>(n));   // registered since the first step
/// }
/// ```
/// A range is committed as a whole and is one registration, because networks want a buffer within one: so a
/// block never lies in two. An arena's chunk is a range; `arena_options::reserve` is the size of the first.
/// Pages that no block has touched take no memory unless the registrar pins them, as adapters do.
///
/// With `basic_shared_arena` the extents of all threads lie in registered chunks. With `basic_planned_arena`
/// the whole plan is one registration; blocks that are not planned are the fallback's and not registered:
/// those of the recorded step, and of one that departs from its plan. A new plan that is larger gets a new
/// registration. A `graph_arena` takes its range from an arena on registered memory. Fast paths are those of
/// any arena.
///
/// If the registrar refuses, the memory goes back, and the arena is as before: its `out_of_memory` says why.
/// If it will not deregister, the memory is not returned, since the network may still write to it: it is lost
/// until the process ends, and a warning (`refused_return`) says so. One thread at a time.
template <address_space Space, memory_registrar Registrar>
class registered_memory : public committed_ranges, public refusals_only {
 public:
  /// Those of the space, but ranges are committed as a whole. Few registrations, however large an arena
  /// grows.
  static constexpr space_traits traits = [] {
    space_traits traits = Space::traits;
    traits.commits = traits.suspends = false;
    traits.chunk_growth = (std::max)(traits.chunk_growth, std::size_t{2});
    return traits;
  }();
  /// That of the space; void if it orders nothing.
  using event_type = decltype(detail::event_type_of<Space>())::type;
  /// The first chunk is no larger where nothing else is said, because it may be pinned.
  static constexpr std::size_t max_default_chunk_bytes = 64 * MiB;

  /// Memory of `space` that `registrar` knows.
  registered_memory(Space space,
                    Registrar registrar) noexcept(std::is_nothrow_move_constructible_v<Space> &&
                                                  std::is_nothrow_move_constructible_v<Registrar>)
      : space_{std::move(space)}, registrar_{std::move(registrar)} {}
  /// Memory of a default `Space` that `registrar` knows.
  explicit registered_memory(Registrar registrar)
    requires std::default_initializable<Space>
      : registered_memory{Space{}, std::move(registrar)} {}

  /// Reserves, commits and registers a range; if it is refused, one of half the size each time, down to
  /// `least_bytes`. A collective registrar gets the wanted size or none.
  /// @return an empty range, with nothing changed, without memory or for the reason in `refusal`.
  /// @throws what the space throws; nothing has changed then.
  [[nodiscard]] byte_range reserve(std::size_t least_bytes, std::size_t wanted_bytes) {
    if constexpr (requires { requires Registrar::is_collective; }) {
      const std::size_t bytes = (std::max)(least_bytes, wanted_bytes);
      return take(bytes, bytes);  // other ranks would try nothing smaller
    } else {
      return detail::reserve_by_halves(least_bytes, wanted_bytes,
                                       [&](std::size_t bytes) { return take(least_bytes, bytes); });
    }
  }
  /// Deregisters and returns a range.
  void release(byte_range range) noexcept {
    if (registrar_.on_decommit(range)) {
      --registrations_;
      registered_bytes_ -= range.size;
      space_.release(range);
    } else {
      if constexpr (requires { space_.abandon(range); }) space_.abandon(range);
      detail::report_warning(warning_kind::refused_return, "registered_memory",
                             "registered_memory: %zu bytes are lost until the process ends, because they "
                             "cannot be deregistered: %s",
                             range.size, static_cast<char const*>(registrar_.refusal()));
    }
  }
  [[nodiscard]] std::size_t chunk_bytes() const noexcept {
    return Space::traits.commits ? (std::min)(space_.chunk_bytes(), max_default_chunk_bytes)
                                 : space_.chunk_bytes();
  }
  [[nodiscard]] std::size_t granularity() const noexcept { return space_.granularity(); }

  /// Why the last `reserve` failed, in words: the registrar's, or the space's; empty if neither says.
  [[nodiscard]] char const* refusal() const noexcept { return refusal_; }
  /// Ranges registered now.
  [[nodiscard]] std::size_t registrations() const noexcept { return registrations_; }
  /// Bytes in them.
  [[nodiscard]] std::size_t registered_bytes() const noexcept { return registered_bytes_; }
  /// What knows the memory.
  [[nodiscard]] Registrar const& registrar() const noexcept { return registrar_; }
  /// Where the memory comes from.
  [[nodiscard]] Space const& space() const noexcept { return space_; }
  /// The stream that the memory is for, where it is for one.
  template <ordered_space S = Space>
    requires(S::traits.has_stream)
  [[nodiscard]] auto stream() const noexcept {
    return space_.stream();
  }
  /// The resource that ranges come from, where there is one.
  template <class S = Space>
    requires requires(S const& space) { space.upstream_resource(); }
  [[nodiscard]] auto upstream_resource() const noexcept {
    return space_.upstream_resource();
  }
  /// Later work on the stream waits for what the argument says, where the memory is a device's.
  template <class Before, ordered_space S = Space>
    requires requires(S& space, Before const& before) { space.wait_before_reuse(before); }
  void wait_before_reuse(Before const& before) noexcept(
      noexcept(std::declval<S&>().wait_before_reuse(before))) {
    space_.wait_before_reuse(before);
  }

 private:
  byte_range take(std::size_t least_bytes, std::size_t wanted_bytes) {
    refusal_ = "";
    const byte_range range = space_.reserve(least_bytes, wanted_bytes);
    if (range.empty()) return refuse_as_space();
    if constexpr (Space::traits.commits) {
      if (space_.commit(range, range.size) == 0) {
        space_.release(range);
        return refuse_as_space();
      }
    }
    return registers(range) ? range : byte_range{};
  }
  byte_range refuse_as_space() noexcept {
    refusal_ = detail::refusal_of(space_);
    return {};
  }
  // Registers a range, or returns it.
  bool registers(byte_range range) noexcept {
    if (!registrar_.on_commit(range)) {
      refusal_ = registrar_.refusal();
      space_.release(range);
      return false;
    }
    ++registrations_;
    registered_bytes_ += range.size;
    return true;
  }

  Space space_;
  Registrar registrar_;
  std::size_t registrations_ = 0;
  std::size_t registered_bytes_ = 0;
  char const* refusal_ = "";
};

}  // namespace tidemark
