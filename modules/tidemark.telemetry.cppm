// SPDX-License-Identifier: Apache-2.0
/// @file
/// Telemetry: adaptors that show, limit and test what memory is asked for.
module;

#include <tidemark/resource_stats.hpp>

export module tidemark.telemetry;

export namespace tidemark {

using tidemark::resource_stats;

}  // namespace tidemark
