// SPDX-License-Identifier: Apache-2.0
// The calls that an active capture refuses, by the owner of the capture and the mode of the calling thread.
#pragma once

#include <string>
#include <vector>

namespace tidemark::test {

/// A call that an active capture refuses, and that invalidates it. Captures in mode relaxed refuse nothing by
/// this table.
struct fake_refusal {
  std::string call;
  bool by_own = true;           ///< by a capture that the calling thread has begun
  bool by_others = true;        ///< by one in mode global that another thread has begun
  bool in_relaxed_too = false;  ///< even if the calling thread's own mode is relaxed
  std::string source;           ///< driver, device and date of the observation, or a document
};

/// The refusals of a real driver, as `./run gpu` observed them (docs/gpu.md). Calls that are not in the table
/// are allowed in every mode: cuMemAddressReserve, cuMemAddressFree, cuMemCreate, cuMemRelease, cuMemMap,
/// cuMemSetAccess, cuMemUnmap, cuMemExportToShareableHandle, cuMemImportFromShareableHandle, cuMemGetInfo,
/// cuEventCreate, cuStreamCreate, and cuEventRecord and cuStreamWaitEvent on a stream that does not capture.
/// Other rules do not depend on modes and are in the calls themselves: cuCtxSynchronize, which every mode
/// refuses, and work on a capturing stream or a captured event.
inline std::vector<fake_refusal> observed_refusals() {
  char const* const h100 = "H100 80GB, driver 580.159.04, CUDA 13.0, 2026-11-27";
  char const* const inferred = "not documented: the strictest reading";
  return {
      {.call = "cuMemAlloc", .source = h100},
      {.call = "cuMemFree", .source = h100},
      {.call = "cuMemAllocManaged", .source = h100},
      {.call = "cuMemHostAlloc", .source = h100},
      {.call = "cuMemFreeHost", .source = h100},
      {.call = "cuMemPoolCreate", .source = h100},
      {.call = "cuMemPoolDestroy", .source = inferred},
      {.call = "cuMemPoolSetAttribute", .source = h100},
      {.call = "cuMemPoolGetAttribute", .source = inferred},
      {.call = "cuMemPoolSetAccess", .source = h100},
      {.call = "cuMemPoolTrimTo", .source = h100},
      {.call = "cuStreamSynchronize", .source = h100},
      {.call = "cuEventQuery", .source = h100},
      {.call = "cuEventSynchronize", .source = h100},
      {.call = "cuGraphExecUpdate", .source = inferred},
      {.call = "cuGraphExecDestroy", .source = h100},
  };
}

/// A driver that maps no memory on a thread that captures, whatever the thread's mode is.
inline std::vector<fake_refusal> refusals_of_own_mappings() {
  std::vector<fake_refusal> all = observed_refusals();
  for (char const* const call : {"cuMemAddressReserve", "cuMemCreate", "cuMemMap", "cuMemSetAccess"})
    all.push_back(
        {.call = call, .by_others = false, .in_relaxed_too = true, .source = "no driver is known to do so"});
  return all;
}

/// A driver that is stricter than any observed driver. It maps and unmaps memory only outside of captures,
/// and destroys no executable during a capture of any mode.
inline std::vector<fake_refusal> stricter_refusals() {
  char const* const invented = "no driver is known to do so";
  std::vector<fake_refusal> all = observed_refusals();
  for (char const* const call :
       {"cuMemAddressReserve", "cuMemAddressFree", "cuMemCreate", "cuMemRelease", "cuMemMap", "cuMemUnmap",
        "cuMemSetAccess", "cuMemExportToShareableHandle", "cuMemImportFromShareableHandle", "cuStreamCreate"})
    all.push_back({.call = call, .source = invented});
  for (char const* const call : {"cuEventRecord", "cuStreamWaitEvent"})
    all.push_back({.call = call, .by_own = false, .source = invented});
  for (fake_refusal& each : all)
    if (each.call == "cuGraphExecDestroy") each.in_relaxed_too = true;
  return all;
}

}  // namespace tidemark::test
