// SPDX-License-Identifier: Apache-2.0
#include <tidemark/pool/global_pool.hpp>

#include <memory_resource>

#include <tidemark/core/detail/until_unload.hpp>

namespace tidemark::detail {
namespace {

struct process_pool {
  synchronized_pool pool{pool_options{.upstream = std::pmr::new_delete_resource(), .name = "global pool"}};

  ~process_pool() { pool.release(); }  // releases leaked blocks, too
};

}  // namespace

synchronized_pool& make_global_pool() {
  static auto& made = *new until_unload<process_pool>;
  return made.value.pool;
}

}  // namespace tidemark::detail
