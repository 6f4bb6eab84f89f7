// SPDX-License-Identifier: Apache-2.0
/// @file
/// Detectors of misuse: trapped rewinds, and allocations from an unexpected resource.
export module tidemark.diagnose;

export import tidemark.core;
import tidemark.detail.headers;

export namespace tidemark {

using tidemark::expect_resource;
using tidemark::report_use_after_rewind;

}  // namespace tidemark
