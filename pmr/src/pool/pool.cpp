// SPDX-License-Identifier: Apache-2.0
#include <tidemark/pool/pool.hpp>

namespace tidemark {

template class detail::basic_pool<detail::pool_blocks>;

pool::pool(pool_options const& options, std::pmr::memory_resource* upstream)
    : basic_pool{options.max_cached_bytes, options.name, options, upstream},
      pressure_{detail::call_under_pressure(this, [this] { lists().pending().post(); })} {}

}  // namespace tidemark
