// SPDX-License-Identifier: Apache-2.0
/// @file
/// Adaptors over any memory resource that count, limit, trace and check allocations.
#pragma once

#include <tidemark/telemetry/expect_no_upstream.hpp>
#include <tidemark/telemetry/limit_resource.hpp>
#include <tidemark/telemetry/observer_list.hpp>
#include <tidemark/telemetry/statistics_resource.hpp>
#include <tidemark/telemetry/test_resource.hpp>
#include <tidemark/telemetry/trace_log.hpp>
#include <tidemark/telemetry/trace_resource.hpp>
#include <tidemark/telemetry/tracking_resource.hpp>
