// SPDX-License-Identifier: Apache-2.0
/// @file
/// Telemetry: adaptors that show, limit and test what memory is asked for.
module;

#include <tidemark/allocation_site.hpp>
#include <tidemark/expect_no_upstream.hpp>
#include <tidemark/limit_resource.hpp>
#include <tidemark/live_block.hpp>
#include <tidemark/resource_stats.hpp>
#include <tidemark/statistics_resource.hpp>
#include <tidemark/test_resource.hpp>
#include <tidemark/trace_log.hpp>
#include <tidemark/trace_resource.hpp>
#include <tidemark/trace_slice.hpp>
#include <tidemark/tracking_resource.hpp>

export module tidemark.telemetry;

export namespace tidemark {

// The words of all statistics
using tidemark::resource_stats;

// Traces
using tidemark::trace_log;
using tidemark::trace_log_options;
using tidemark::trace_resource;
using tidemark::trace_slice;

// Adaptors that count and limit
using tidemark::expect_no_upstream;
using tidemark::limit_resource;
using tidemark::statistics_resource;

// Adaptors that know every block
using tidemark::allocation_site;
using tidemark::fail_each_allocation;
using tidemark::live_block;
using tidemark::test_resource;
using tidemark::test_resource_options;
using tidemark::tracking_resource;

}  // namespace tidemark
