// SPDX-License-Identifier: Apache-2.0
/// @file
/// Detectors of misuse: trapped rewinds, and allocations from an unexpected resource.
module;

#include <tidemark/diagnose.hpp>

export module tidemark.diagnose;

export import tidemark.core;

export namespace tidemark {

using tidemark::expect_resource;
using tidemark::report_use_after_rewind;

}  // namespace tidemark
