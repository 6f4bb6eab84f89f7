// SPDX-License-Identifier: Apache-2.0
/// @file
/// `cuda::status`: the driver's result codes.
#pragma once

// clang-tidy 22 sees only parts of what a module brings, and takes them for all.
namespace tidemark::cuda {  // NOLINT(modernize-concat-nested-namespaces)

/// A result of the driver, with the number of `CUresult`. Only those have names here that tidemark asks for
/// or gives; any other number of the driver's is one too.
enum class status : int {
  success = 0,
  invalid_value = 1,
  out_of_memory = 2,
  not_initialized = 3,
  deinitialized = 4,
  stub_library = 34,  ///< a libcuda without a driver behind it
  no_device = 100,
  invalid_device = 101,
  invalid_context = 201,
  invalid_handle = 400,
  illegal_state = 401,
  not_found = 500,
  not_ready = 600,
  illegal_address = 700,
  not_permitted = 800,
  not_supported = 801,
  capture_unsupported = 900,
  capture_invalidated = 901,
  capture_merge = 902,
  capture_unmatched = 903,
  capture_unjoined = 904,
  capture_isolation = 905,
  capture_implicit = 906,
  captured_event = 907,
  capture_wrong_thread = 908,
  unknown = 999,
};

}  // namespace tidemark::cuda
