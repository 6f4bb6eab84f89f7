// SPDX-License-Identifier: Apache-2.0
// Approximate time costs of driver calls, so that tests can tell a stall from a cheap call.
#pragma once

#include <algorithm>
#include <array>
#include <string_view>

namespace tidemark::test {

/// The cost of one call, in microseconds.
struct fake_cost {
  std::string_view call;
  double us = 0;
};

/// Measured on an H100 (driver 580.159.04, CUDA 13.0, 2026-11-27): `cuMemCreate` and `cuMemMap` with access
/// take 32 to 59 µs together for handles of 2 to 128 MiB. `cuMemUnmap` and `cuMemRelease` take 30 to 53 µs
/// for handles of up to 32 MiB, and `cuMemAlloc` 34 µs for 1 MiB. Inferred: the shares of two calls in their
/// common time, and all other numbers, which have the right order of magnitude.
///
/// Inferred too: an import maps nothing, but makes a handle like `cuMemCreate`, and an export opens a file.
///
/// The access to a mapping counts with its `cuMemMap`, because one `cuMemSetAccess` covers a whole run. A
/// wait has the cost of an unlisted call. On a device it takes as long as the work.
inline constexpr std::array fake_costs{fake_cost{"cuMemCreate", 20},
                                       fake_cost{"cuMemMap", 23},
                                       fake_cost{"cuMemUnmap", 20},
                                       fake_cost{"cuMemRelease", 20},
                                       fake_cost{"cuMemAlloc", 34},
                                       fake_cost{"cuMemFree", 34},
                                       fake_cost{"cuMemAllocManaged", 100},
                                       fake_cost{"cuMemHostAlloc", 300},
                                       fake_cost{"cuMemFreeHost", 300},
                                       fake_cost{"cuGraphInstantiate", 100},
                                       fake_cost{"cuGraphExecUpdate", 10},
                                       fake_cost{"cuMemExportToShareableHandle", 20},
                                       fake_cost{"cuMemImportFromShareableHandle", 20}};

/// Microseconds of one call, by the name that it has in the driver.
constexpr double modelled_us_of(std::string_view call) {
  auto const* const found = std::ranges::find(fake_costs, call, &fake_cost::call);
  return found == fake_costs.end() ? 1 : found->us;
}

}  // namespace tidemark::test
