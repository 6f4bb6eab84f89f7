// SPDX-License-Identifier: Apache-2.0
/// @file
/// All headers of the host, for the modules that export their names. Programs do not import it.
///
/// A compiled interface stores all that its global module fragment includes, as far as the standard library. With the
/// headers in each module, 13 interfaces had 135 MB (decision 97).
module;

// Everything that the headers include from outside: only declarations of tidemark are below.
#include <pthread.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <chrono>
#include <complex>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <forward_list>
#include <functional>
#include <initializer_list>
#include <iterator>
#include <limits>
#include <list>
#include <map>
#include <memory>
#include <memory_resource>
#include <mutex>
#include <new>
#include <optional>
#include <random>
#include <ranges>
#include <set>
#include <source_location>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <tuple>
#include <type_traits>
#include <typeinfo>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>
#include <version>
#if __has_include(<mdspan>)
#include <mdspan>
#endif

#include <tidemark/diagnose/detail/sanitizers.hpp>  // headers of tools
#if TIDEMARK_DLPACK
#include <dlpack/dlpack.h>
#endif

export module tidemark.headers;

#if defined(__clang__)
#pragma clang diagnostic ignored "-Winclude-angled-in-module-purview"
#endif
// `extern "C++"`: the declarations of a program that includes a header.
export extern "C++" {
#include <tidemark/compat.hpp>
#include <tidemark/tidemark.hpp>
}
