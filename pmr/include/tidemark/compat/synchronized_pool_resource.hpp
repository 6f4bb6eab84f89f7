// SPDX-License-Identifier: Apache-2.0
/// @file
/// `compat::synchronized_pool_resource`: the standard's class of that name. It owns the memory it took from
/// its upstream.
#pragma once

#include <tidemark/compat/detail/standard_pools.hpp>
#include <tidemark/core/detail/fork_participant.hpp>

namespace tidemark::compat {

/// `std::pmr::synchronized_pool_resource` by the rules of [mem.res.pool]: `unsynchronized_pool_resource` for
/// any number of threads.
///
/// Use it where a program relies on what those rules say; for speed with many threads there is
/// `synchronized_pool`, which keeps a cache for each.
///
/// ```cpp
/// compat::synchronized_pool_resource messages;
/// std::jthread producer{[&] { queue.push(messages.allocate(256)); }};
/// std::jthread consumer{[&] { messages.deallocate(queue.pop(), 256); }};
/// ```
/// One lock is taken in each call, and held while the upstream is called, so that the upstream need not be
/// thread-safe for this resource alone. There are no caches of threads, and construction allocates nothing.
///
/// Complexity: as `unsynchronized_pool_resource`. Thread-safety: any thread, any function, except
/// construction and destruction. A child that is forked may do the same.
class synchronized_pool_resource : public detail::standard_pool_resource<detail::fork_safe<>> {
 public:
  using standard_pool_resource::standard_pool_resource;
};

}  // namespace tidemark::compat
