// SPDX-License-Identifier: Apache-2.0
/// @file
/// Macros of tidemark. Macros do not cross `import`: include this header to use them.
#pragma once

#include <tidemark/core/config.hpp>

/// Keeps a slow path out of the caller's instruction cache.
#if defined(__GNUC__) || defined(__clang__)
#define TIDEMARK_COLD [[gnu::cold, gnu::noinline]]
#else
#define TIDEMARK_COLD
#endif

/// Attribute of a printf-like function: positions of the format and of its first argument. MinGW maps
/// `printf` to Microsoft's old library; we call MinGW's own function, which knows %zu.
#if defined(__MINGW32__) && !defined(__clang__)
#define TIDEMARK_FORMATS(at, first) gnu::format(gnu_printf, at, first)
#else
#define TIDEMARK_FORMATS(at, first) gnu::format(printf, at, first)
#endif

/// Follows a parameter, or the parameter list for the object itself: the result must not outlive it. Clang
/// warns about violations that it detects (-Wdangling, -Wreturn-stack-address).
#if defined(__clang__)
#define TIDEMARK_LIFETIMEBOUND [[clang::lifetimebound]]
#else
#define TIDEMARK_LIFETIMEBOUND
#endif

/// Precedes the name of a coroutine's return class. Clang then treats all arguments of the coroutine as
/// lifetimebound, and warns if a coroutine outlives its scope. A function that returns such a class without
/// being a coroutine needs [[clang::coro_wrapper]].
#if defined(__clang__) && defined(__has_cpp_attribute)
#if __has_cpp_attribute(clang::coro_lifetimebound)
#define TIDEMARK_COROUTINE [[clang::coro_return_type, clang::coro_lifetimebound]]
#endif
#endif
#if !defined(TIDEMARK_COROUTINE)
#define TIDEMARK_COROUTINE
#endif

/// Precedes the name of a class that refers to memory of others, as std::span does. Clang then warns if the
/// memory ends first. Without the macro, clang loses track of a view's memory once the view is in a variable
/// or a std::span.
#if defined(__clang__)
#define TIDEMARK_POINTER [[gsl::Pointer]]
#else
#define TIDEMARK_POINTER
#endif

namespace tidemark::detail {
/// True if the compiler builds the including file for ThreadSanitizer.
#if defined(__SANITIZE_THREAD__)
inline constexpr bool thread_sanitizer_is_on = true;
#elif defined(__has_feature)
inline constexpr bool thread_sanitizer_is_on = __has_feature(thread_sanitizer);
#else
inline constexpr bool thread_sanitizer_is_on = false;
#endif
}  // namespace tidemark::detail
