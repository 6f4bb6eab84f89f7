// SPDX-License-Identifier: Apache-2.0
/// @file
/// Pools: reuse by size class, on one thread or many, or by exact size behind fences; and what is done when
/// memory gets short.
module;

#include <tidemark/bucket_histogram.hpp>
#include <tidemark/byte_cap.hpp>
#include <tidemark/global_pool.hpp>
#include <tidemark/memory_pressure.hpp>
#include <tidemark/pool.hpp>
#include <tidemark/pool_options.hpp>
#include <tidemark/pool_stats.hpp>
#include <tidemark/pressure_monitor.hpp>
#include <tidemark/reuse_cache.hpp>
#include <tidemark/reuse_cache_options.hpp>
#include <tidemark/reuse_cache_stats.hpp>
#include <tidemark/reuse_fence.hpp>
#include <tidemark/synchronized_pool.hpp>

export module tidemark.pool;

export namespace tidemark {

// Pools
using tidemark::global_pool;
using tidemark::pool;
using tidemark::pool_options;
using tidemark::pool_stats;
using tidemark::pooled_alloc;
using tidemark::pooled_free;
using tidemark::synchronized_pool;

// Reuse by exact size
using tidemark::eviction_order;
using tidemark::reuse_cache;
using tidemark::reuse_cache_options;
using tidemark::reuse_cache_stats;
using tidemark::reuse_fence;
using tidemark::reuse_order;
using tidemark::reuse_relief;

// Limits that users set
using tidemark::byte_cap;
using tidemark::byte_cap_from_environment;
using tidemark::mib_cap_from_environment;
using tidemark::parse_byte_cap;
using tidemark::parse_mib_cap;

// Size classes that fit
using tidemark::bucket_histogram;

// Memory pressure
using tidemark::on_memory_pressure;
using tidemark::pressure_monitor;
using tidemark::pressure_monitor_options;
using tidemark::pressure_subscription;
using tidemark::signal_memory_pressure;

}  // namespace tidemark
