// SPDX-License-Identifier: Apache-2.0
// An owner of a `reuse_cache` that calls functions of a test.
#pragma once

#include <functional>

#include <tidemark/pool/detail/reuse_cache_owner.hpp>

namespace tidemark::test {

struct calling_owner : detail::reuse_cache_owner {
  std::function<bool()> relief = [] { return false; };
  std::function<void(std::function<void()> const&)> around = [](auto const& queries) { queries(); };

  bool relieve() noexcept override { return relief(); }
  void query(std::function<void()> const& queries) noexcept override { around(queries); }
};

}  // namespace tidemark::test
