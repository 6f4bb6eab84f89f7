// SPDX-License-Identifier: Apache-2.0
/// @file
/// `acquire_uniform`, `acquire_normal`: random numbers in memory of a workspace, which owns it.
#pragma once

#include <concepts>
#include <random>
#include <stdexcept>
#include <string>

#include <tidemark/core/macros.hpp>
#include <tidemark/workspace/workspace.hpp>

namespace tidemark {
namespace detail {

template <class T, class Layout, class Source, class Distribution, class Generator, class... Extents>
auto acquire_drawn(char const* call, Source& source, Distribution distribution, Generator& generator,
                   located_extent const& first, Extents... rest) {
  workspace_options const& options = workspace_access::core(source).options();
  if (!options.host_memory) {
    throw std::logic_error{std::string{"workspace '"} + options.name + "': " + call +
                           " writes single elements, but the memory is not host memory"};
  }
  auto drawn = source.template acquire<T, Layout>(checked_extents(first.value, rest...), first.where);
  for (T& element : drawn.elements()) element = distribution(generator);
  return drawn;
}

}  // namespace detail

/// Acquires `source.acquire<T>(extents...)` and draws the elements in order from
/// `std::uniform_real_distribution<T>{}(generator)`: from 0 up to, but not including, 1.
/// @param source a workspace or a scope
/// @throws as `acquire`; the exceptions of `generator`; std::logic_error, before any draw, if the host cannot
/// access the memory.
template <std::floating_point T = double, class Layout = row_major, class Source, bool Checked,
          std::uniform_random_bit_generator Generator, std::integral... Extents>
[[nodiscard]] auto acquire_uniform(workspace_acquisition<Source, Checked>& source TIDEMARK_LIFETIMEBOUND,
                                   Generator& generator, detail::located_extent first, Extents... rest) {
  return detail::acquire_drawn<T, Layout>("acquire_uniform", static_cast<Source&>(source),
                                          std::uniform_real_distribution<T>{}, generator, first, rest...);
}
/// Acquires elements and draws them from `std::normal_distribution<T>`: mean 0, standard deviation 1.
template <std::floating_point T = double, class Layout = row_major, class Source, bool Checked,
          std::uniform_random_bit_generator Generator, std::integral... Extents>
[[nodiscard]] auto acquire_normal(workspace_acquisition<Source, Checked>& source TIDEMARK_LIFETIMEBOUND,
                                  Generator& generator, detail::located_extent first, Extents... rest) {
  return detail::acquire_drawn<T, Layout>("acquire_normal", static_cast<Source&>(source),
                                          std::normal_distribution<T>{}, generator, first, rest...);
}

}  // namespace tidemark
