// SPDX-License-Identifier: Apache-2.0
/// @file
/// Epochs: the end of an epoch frees all its allocations except those that the program keeps.
export module tidemark.epoch;

export import tidemark.core;
import tidemark.detail.headers;

export namespace tidemark {

// Epochs
using tidemark::epoch;
using tidemark::epoch_options;
using tidemark::epoch_resource;
using tidemark::epoch_stats;
using tidemark::epoch_summary;
using tidemark::keepable;
using tidemark::with_epoch;

// Handles
using tidemark::buffer;
using tidemark::buffer_view;
using tidemark::buffer_group;
using tidemark::release_then;

// Use after an epoch
using tidemark::epoch_detector;
using tidemark::named_operand;
using tidemark::require_live;
using tidemark::set_epoch_detector;
using tidemark::set_use_after_epoch_policy;
using tidemark::use_after_epoch;
using tidemark::use_after_epoch_policy;

}  // namespace tidemark
