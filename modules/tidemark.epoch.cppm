// SPDX-License-Identifier: Apache-2.0
/// @file
/// Memory whose use outlives the call that gives it back: reuse by exact size behind fences.
module;

#include <tidemark/byte_cap.hpp>
#include <tidemark/reuse_cache.hpp>
#include <tidemark/reuse_cache_options.hpp>
#include <tidemark/reuse_cache_stats.hpp>
#include <tidemark/reuse_fence.hpp>

export module tidemark.epoch;

export namespace tidemark {

// Reuse by exact size
using tidemark::reuse_cache;
using tidemark::reuse_cache_options;
using tidemark::reuse_cache_stats;
using tidemark::reuse_fence;

// Limits that users set
using tidemark::byte_cap;
using tidemark::byte_cap_from_environment;
using tidemark::parse_byte_cap;

}  // namespace tidemark
