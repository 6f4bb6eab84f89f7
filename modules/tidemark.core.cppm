// SPDX-License-Identifier: Apache-2.0
/// @file
/// Parts that every component uses: memory sources, errors, reports of misuse, sizes, and ownership of one
/// block.
export module tidemark.core;

import tidemark.detail.headers;

export namespace tidemark {

// Sizes
using tidemark::GiB;
using tidemark::KiB;
using tidemark::MiB;

// Memory sources
using tidemark::address_space;
using tidemark::basic_borrowed_memory;
using tidemark::basic_upstream_memory;
using tidemark::borrowed_device_memory;
using tidemark::borrowed_memory;
using tidemark::byte_range;
using tidemark::committed_ranges;
using tidemark::huge_page_policy;
using tidemark::memory_registrar;
using tidemark::ordered_space;
using tidemark::registered_memory;
using tidemark::reporting_space;
using tidemark::space_traits;
using tidemark::upstream_device_memory;
using tidemark::upstream_memory;
using tidemark::virtual_memory;
using tidemark::virtual_memory_options;

// Calls of the operating system
using tidemark::default_os_memory;
using tidemark::entropy_seed;
using tidemark::file_descriptor;
using tidemark::os_memory;
using tidemark::set_default_os_memory;
using tidemark::system_memory;

// Errors, misuse and warnings
using tidemark::check_level;
using tidemark::exhaustion_report;
using tidemark::get_violation_handler;
using tidemark::get_warning_handler;
using tidemark::out_of_memory;
using tidemark::set_violation_handler;
using tidemark::set_warning_handler;
using tidemark::violation;
using tidemark::violation_handler;
using tidemark::violation_kind;
using tidemark::warning;
using tidemark::warning_handler;
using tidemark::warning_kind;

// Memory pressure
using tidemark::on_memory_pressure;
using tidemark::pressure_subscription;
using tidemark::signal_memory_pressure;

// Ownership of one block
using tidemark::unique_block;

// Reuse after other work
using tidemark::reuse_fence;

// Statistics
using tidemark::allocation_observer;
using tidemark::allocation_site;
using tidemark::size_histogram;
using tidemark::live_block;
using tidemark::resource_stats;

}  // namespace tidemark
