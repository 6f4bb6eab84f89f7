// SPDX-License-Identifier: Apache-2.0
// A stand-in for the driver's library with one device: the calls that contexts depend on, as strict as the
// real ones. compute-sanitizer reports each call that the driver refuses, so the stand-in counts these.
#include "stand_in_driver.hpp"

#include <cstring>
#include <string_view>

namespace {

using tidemark::test::stand_in_record;

constexpr int success = 0, not_initialized = 3, invalid_context = 201, not_found = 500;

int device_0_context = 0;
thread_local void* current = nullptr;

}  // namespace

extern "C" {

[[gnu::visibility("default")]] stand_in_record stand_in_calls;

static int refuse(int status) {
  ++stand_in_calls.refused_calls;
  return status;
}

static int initialize(unsigned) {
  ++stand_in_calls.initializations;
  return success;
}
static int retain_primary_context(void** context, int) {
  ++stand_in_calls.contexts_retained;
  *context = &device_0_context;
  return success;
}
static int get_current(void** context) {
  if (stand_in_calls.initializations == 0) return refuse(not_initialized);
  *context = current;
  return success;
}
static int set_current(void* context) {
  current = context;
  return success;
}
static int get_device(int* device) {
  if (current == nullptr) return refuse(invalid_context);
  *device = 0;
  return success;
}
static int create_stream(void** stream, unsigned) {
  if (current == nullptr) return refuse(invalid_context);
  ++stand_in_calls.calls_in_context;
  *stream = current;
  return success;
}
static int record_event(void*, void*) {
  if (current == nullptr) return refuse(invalid_context);
  ++stand_in_calls.calls_in_context;
  return success;
}

static int create_memory(unsigned long long* handle, unsigned long long, void const*, unsigned long long) {
  if (stand_in_calls.initializations == 0) return refuse(not_initialized);
  *handle = 1;
  return success;
}

[[gnu::visibility("default")]] int cuGetProcAddress_v2(char const* name, void** function, int,
                                                       unsigned long long, int*) {
  const std::string_view wanted{name};
  const auto provide = [&](auto* found) {
    *function = reinterpret_cast<void*>(found);
    return success;
  };
  if (wanted == "cuInit") return provide(&initialize);
  if (wanted == "cuDevicePrimaryCtxRetain") return provide(&retain_primary_context);
  if (wanted == "cuCtxGetCurrent") return provide(&get_current);
  if (wanted == "cuCtxSetCurrent") return provide(&set_current);
  if (wanted == "cuCtxGetDevice") return provide(&get_device);
  if (wanted == "cuStreamCreate") return provide(&create_stream);
  if (wanted == "cuEventRecord") return provide(&record_event);
  if (wanted == "cuMemCreate") return provide(&create_memory);
  return not_found;
}

}  // extern "C"
