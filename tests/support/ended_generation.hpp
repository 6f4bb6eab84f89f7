// SPDX-License-Identifier: Apache-2.0
// A generation of views that has ended, and reports the arguments of its calls.
#pragma once

#include <cstddef>
#include <span>
#include <stdexcept>
#include <string>

#include <tidemark/workspace/detail/shaped_view.hpp>

#include "caught.hpp"

namespace tidemark::test {

struct ended_generation {
  static constexpr bool checks = true;
  struct ended : std::logic_error {
    using std::logic_error::logic_error;
  };
  void require_live(char const* element, std::span<std::size_t const> extents) const {
    if (over) throw ended{detail::shape_text(element, extents)};
  }
  bool over = true;
};

/// The shape with which `access` calls an `ended_generation`.
template <class Access>
std::string message_of_access(Access access) {
  return message_of<ended_generation::ended>(access);
}

}  // namespace tidemark::test
