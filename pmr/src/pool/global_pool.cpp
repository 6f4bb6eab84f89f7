// SPDX-License-Identifier: Apache-2.0
#include <tidemark/pool/global_pool.hpp>

#include <memory_resource>

namespace tidemark::detail {

synchronized_pool& make_global_pool() {
  static auto* const pool =
      new synchronized_pool{pool_options{.upstream = std::pmr::new_delete_resource(), .name = "global pool"}};
  return *pool;
}

}  // namespace tidemark::detail
