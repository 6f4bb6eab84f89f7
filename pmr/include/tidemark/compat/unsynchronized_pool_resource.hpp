// SPDX-License-Identifier: Apache-2.0
/// @file
/// `compat::unsynchronized_pool_resource`: the standard's class of that name. It owns the memory it took from
/// its upstream.
#pragma once

#include <tidemark/compat/detail/standard_pools.hpp>

namespace tidemark::compat {

/// `std::pmr::unsynchronized_pool_resource` by the rules of [mem.res.pool], with tidemark's annotations for
/// sanitizers.
///
/// Use it where a program relies on what those rules say; `pool` is quicker, has statistics and checks, keeps
/// large blocks, and returns memory when it is short.
///
/// ```cpp
/// compat::unsynchronized_pool_resource nodes{{.largest_required_pool_block = 256}, upstream};
/// std::pmr::map<int, double> table{&nodes};
/// ```
/// Requests of up to `options().largest_required_pool_block` bytes, aligned to no more than that and
/// 4 KiB, are rounded up to a multiple of 8 up to 64, and above to one of four sizes to each doubling, and served
/// from the pool of that size: from its free blocks, else from a chunk of the upstream. The limit is rounded up to
/// a power of two. The chunks of a pool grow by half from 1 KiB on, up to 512 KiB
/// or 16 blocks, and `options().max_blocks_per_chunk` blocks. Each other request is one block of the upstream, and is
/// returned to it at once. All memory is the upstream's, also that of records; construction allocates
/// nothing. The upstream gets back exactly the (pointer, bytes, alignment) that it gave.
///
/// Complexity: allocate and deallocate O(1), release O(chunks + large blocks). Thread-safety: one thread at a
/// time.
class unsynchronized_pool_resource : public detail::standard_pool_resource<detail::no_mutex> {
 public:
  using standard_pool_resource::standard_pool_resource;
};

}  // namespace tidemark::compat
