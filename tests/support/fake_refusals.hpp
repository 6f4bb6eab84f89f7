// SPDX-License-Identifier: Apache-2.0
// Which calls a capture that goes on refuses, by whose capture it is and what the calling thread's mode is.
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
  bool in_relaxed_too = false;  ///< also where the calling thread's own mode is relaxed
  std::string source;           ///< where it was seen or is written
};

/// What drivers refuse, as far as it is known; where it is not, the strictest reading. Only a device tells:
/// `./run gpu` asks. Refusals that do not hang on modes are in the calls themselves: waits for the device,
/// and what touches a capturing stream or a captured event.
inline std::vector<fake_refusal> strictest_refusals() {
  char const* const doc = "programming guide, 'Prohibited and Unhandled Operations'";
  char const* const warp = "seen on hardware: warp#1410, cccl#11360";
  char const* const torch = "seen on hardware: pytorch#104555";
  char const* const inferred = "not documented: the strictest reading";
  return {
      {.call = "cuMemAlloc", .source = doc},
      {.call = "cuMemFree", .source = doc},
      {.call = "cuMemAllocManaged", .source = doc},
      {.call = "cuMemHostAlloc", .source = doc},
      {.call = "cuMemFreeHost", .source = doc},
      {.call = "cuMemAddressReserve", .source = inferred},
      {.call = "cuMemAddressFree", .source = inferred},
      {.call = "cuMemCreate", .source = inferred},
      {.call = "cuMemRelease", .source = inferred},
      {.call = "cuMemMap", .source = inferred},
      {.call = "cuMemUnmap", .source = inferred},
      {.call = "cuMemSetAccess", .source = inferred},
      {.call = "cuMemExportToShareableHandle", .source = inferred},
      {.call = "cuMemImportFromShareableHandle", .source = inferred},
      {.call = "cuMemPoolCreate", .source = warp},
      {.call = "cuMemPoolDestroy", .source = inferred},
      {.call = "cuMemPoolSetAttribute", .source = warp},
      {.call = "cuMemPoolSetAccess", .source = inferred},
      {.call = "cuMemPoolTrimTo", .source = warp},
      {.call = "cuStreamCreate", .source = warp},
      {.call = "cuStreamSynchronize", .source = doc},
      {.call = "cuEventQuery", .source = torch},
      {.call = "cuEventSynchronize", .source = torch},
      // Of work beside a capture that is the thread's own they are legal: forks are made of them.
      {.call = "cuEventRecord", .by_own = false, .source = torch},
      {.call = "cuStreamWaitEvent", .by_own = false, .source = torch},
      {.call = "cuGraphExecUpdate", .source = inferred},
      // Whether relaxed mode helps is not known.
      {.call = "cuGraphExecDestroy",
       .in_relaxed_too = true,
       .source = "seen on hardware: pytorch#161037, warp#992, onnxruntime#32081"},
  };
}

}  // namespace tidemark::test
