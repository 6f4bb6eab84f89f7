// SPDX-License-Identifier: Apache-2.0
/// @file
/// Telemetry: adaptors that show, limit and test what memory is asked for.
module;

#include <tidemark/resource_stats.hpp>
#include <tidemark/trace_log.hpp>
#include <tidemark/trace_resource.hpp>
#include <tidemark/trace_slice.hpp>

export module tidemark.telemetry;

export namespace tidemark {

using tidemark::resource_stats;

// Traces
using tidemark::trace_log;
using tidemark::trace_log_options;
using tidemark::trace_resource;
using tidemark::trace_slice;

}  // namespace tidemark
