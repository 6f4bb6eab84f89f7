// SPDX-License-Identifier: Apache-2.0
/// @file
/// `registered_memory`: an address space that registers memory before its use and deregisters it before its
/// end. Owns the registrar. The memory belongs to the address space below.
///
/// In a `basic_shared_arena`, all threads' extents lie in registered chunks. In a `basic_planned_arena`, the
/// plan is one registration; a larger plan gets a new one. Blocks of the fallback are not registered: those
/// of the recorded step, and those of requests that depart from the plan. A `graph_arena` takes its range
/// from an arena on registered memory.
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

/// A component that must know memory before it can use it: a network adapter, an MPI window, an NCCL
/// communicator.
///
/// | call | meaning |
/// |---|---|
/// | `on_commit(range)` | memory was committed: registers it; false, with nothing changed, on failure |
/// | `on_decommit(range)` | memory of an earlier `on_commit` ends: deregisters it; false on failure |
/// | `refusal()` | cause of the last failure; the text lives as long as the program |
///
/// One thread at a time calls it, and only when an arena takes or returns memory. If a constant
/// `is_collective` is true, other ranks must make the same calls. A refused range is then not tried again in
/// a smaller size.
template <class R>
concept memory_registrar = std::movable<R> && requires(R& registrar, byte_range range) {
  { registrar.on_commit(range) } noexcept -> std::same_as<bool>;
  { registrar.on_decommit(range) } noexcept -> std::same_as<bool>;
  { std::as_const(registrar).refusal() } noexcept -> std::convertible_to<char const*>;
};

/// An `address_space` that registers memory once, when it is taken, and deregisters it before its end.
///
/// Registration costs far more than sending, and a cache of registrations breaks if memory below it is
/// unmapped. An arena knows when memory comes and goes, and reuses the same addresses in each step:
///
/// ```cpp
/// basic_arena<registered_memory<virtual_memory, mpi::window_registrar>> step{
///     {.reserve = 64 * MiB, .name = "step"}, virtual_memory{}, mpi::window_registrar{window}};
/// for (int i = 0; i < 1000; ++i) {
///   decltype(step)::scope scope{step};
///   exchange(step.push_array<double>(n));   // registered since the first step
/// }
/// ```
/// A range is committed and registered as a whole, so a block never lies in two registrations. An arena's
/// chunk is a range; `arena_options::reserve` is the size of the first. Untouched pages take no memory unless
/// the registrar pins them, as network adapters do.
///
/// If the registrar refuses memory, the arena is unchanged, and its `out_of_memory` names the cause. Not
/// thread-safe: one thread at a time.
template <address_space Space, memory_registrar Registrar>
class registered_memory : public committed_ranges {
 public:
  /// The traits of the space, but ranges are committed as a whole. Chunks at least double, so that a large
  /// arena needs few registrations.
  static constexpr space_traits traits = [] {
    space_traits traits = Space::traits;
    traits.commits = traits.suspends = false;
    traits.chunk_growth = (std::max)(traits.chunk_growth, std::size_t{2});
    return traits;
  }();
  /// Event type of the space; void if it is not an `ordered_space`.
  using event_type = decltype(detail::event_type_of<Space>())::type;
  /// Maximum default size of the first chunk, because it may be pinned.
  static constexpr std::size_t max_default_chunk_bytes = 64 * MiB;

  /// Memory of `space`, registered with `registrar`.
  registered_memory(Space space,
                    Registrar registrar) noexcept(std::is_nothrow_move_constructible_v<Space> &&
                                                  std::is_nothrow_move_constructible_v<Registrar>)
      : space_{std::move(space)}, registrar_{std::move(registrar)} {}
  /// Memory of a default `Space`, registered with `registrar`.
  explicit registered_memory(Registrar registrar)
    requires std::default_initializable<Space>
      : registered_memory{Space{}, std::move(registrar)} {}

  /// Reserves, commits and registers a range. Halves the size on each refusal, down to `least_bytes`. A
  /// collective registrar gets only the wanted size.
  /// @return an empty range, with nothing changed, on failure; `refusal` has the cause.
  /// @throws the space's exception, with nothing changed.
  [[nodiscard]] byte_range reserve(std::size_t least_bytes, std::size_t wanted_bytes) {
    if constexpr (requires { requires Registrar::is_collective; }) {
      const std::size_t bytes = (std::max)(least_bytes, wanted_bytes);
      return reserve_and_register(bytes, bytes);  // other ranks would not try a smaller size
    } else {
      return detail::reserve_by_halves(least_bytes, wanted_bytes, [&](std::size_t bytes) {
        return reserve_and_register(least_bytes, bytes);
      });
    }
  }
  /// Deregisters and returns a range. Memory that cannot be deregistered is lost until the process ends,
  /// because the network may still write to it; a warning (`refused_return`) reports it.
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

  /// Cause of the last failed `reserve`, from the registrar or the space; empty if unknown.
  [[nodiscard]] char const* refusal() const noexcept { return refusal_; }
  /// Number of ranges currently registered.
  [[nodiscard]] std::size_t registrations() const noexcept { return registrations_; }
  /// Bytes in the registered ranges.
  [[nodiscard]] std::size_t registered_bytes() const noexcept { return registered_bytes_; }
  /// The registrar.
  [[nodiscard]] Registrar const& registrar() const noexcept { return registrar_; }
  /// The underlying address space.
  [[nodiscard]] Space const& space() const noexcept { return space_; }
  /// The stream of the memory, if the space has a stream.
  template <ordered_space S = Space>
    requires(S::traits.has_stream)
  [[nodiscard]] auto stream() const noexcept {
    return space_.stream();
  }
  /// The resource that ranges come from, if the space has one.
  template <class S = Space>
    requires requires(S const& space) { space.upstream_resource(); }
  [[nodiscard]] auto upstream_resource() const noexcept {
    return space_.upstream_resource();
  }
  /// Makes later work on the stream wait for the event or stream `before`. For device memory.
  template <class Before, ordered_space S = Space>
    requires requires(S& space, Before const& before) { space.wait_before_reuse(before); }
  void wait_before_reuse(Before const& before) noexcept(
      noexcept(std::declval<S&>().wait_before_reuse(before))) {
    space_.wait_before_reuse(before);
  }

 private:
  byte_range reserve_and_register(std::size_t least_bytes, std::size_t wanted_bytes) {
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
  // Registers a range; on failure returns it to the space.
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
  std::size_t registrations_ = 0, registered_bytes_ = 0;
  char const* refusal_ = "";
};

}  // namespace tidemark
