// SPDX-License-Identifier: Apache-2.0
/// @file
/// Detectors of misuse: trapped rewinds, and allocations from an unexpected resource.
#pragma once

#include <tidemark/diagnose/expect_resource.hpp>
#include <tidemark/diagnose/use_after_rewind.hpp>
