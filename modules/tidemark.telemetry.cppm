// SPDX-License-Identifier: Apache-2.0
/// @file
/// Telemetry: adaptors that count, limit, trace and check allocations.
export module tidemark.telemetry;

export import tidemark.core;
import tidemark.detail.headers;

export namespace tidemark {

// Traces
using tidemark::trace_log;
using tidemark::trace_log_options;
using tidemark::trace_resource;
using tidemark::trace_slice;

// Adaptors that count and limit
using tidemark::expect_no_upstream;
using tidemark::limit_resource;
using tidemark::observer_list;
using tidemark::statistics_resource;

// Adaptors that record every block
using tidemark::fail_each_allocation;
using tidemark::test_resource;
using tidemark::test_resource_options;
using tidemark::tracking_resource;

}  // namespace tidemark
