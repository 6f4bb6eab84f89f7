// SPDX-License-Identifier: Apache-2.0
// Headers that nearly every test includes by itself too, compiled once for all, because parsing them
// dominates the compile time of a small test. A test must not rely on this header: programs without it
// (tests/diagnose/nvtx, tests/gpu) include the same support headers.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <complex>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <memory_resource>
#include <mutex>
#include <new>
#include <numeric>
#include <optional>
#include <random>
#include <set>
#include <span>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include <tidemark/cuda.hpp>
#include <tidemark/tidemark.hpp>
