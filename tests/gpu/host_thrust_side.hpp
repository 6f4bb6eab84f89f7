// SPDX-License-Identifier: Apache-2.0
// Functions of host_thrust_side.cpp, which is compiled for another device system of Thrust than the .cu files
// beside it.
#pragma once

namespace tidemark::test {

/// The sum of 1 .. n, in a vector of the host, with Thrust's CPP system.
int sum_on_host(int n);

}  // namespace tidemark::test
