// SPDX-License-Identifier: Apache-2.0
/// @file
/// The few macros of tidemark. Macros do not cross `import`: include this header where you need one.
#pragma once

#include <tidemark/core/config.hpp>

/// Keeps a slow path out of the caller's instruction cache.
#if defined(__GNUC__) || defined(__clang__)
#define TIDEMARK_COLD [[gnu::cold, gnu::noinline]]
#else
#define TIDEMARK_COLD
#endif

/// In the attributes of a function that formats as printf does: the places of the format and of its first
/// argument. To MinGW `printf` is that of Microsoft's old library; its own, which we call, knows %zu.
#if defined(__MINGW32__) && !defined(__clang__)
#define TIDEMARK_FORMATS(at, first) gnu::format(gnu_printf, at, first)
#else
#define TIDEMARK_FORMATS(at, first) gnu::format(printf, at, first)
#endif

/// After a parameter, or after the parameters for the object itself: what is returned must not outlive it.
/// Clang warns where it sees that it does (-Wdangling, -Wreturn-stack-address).
#if defined(__clang__)
#define TIDEMARK_LIFETIMEBOUND [[clang::lifetimebound]]
#else
#define TIDEMARK_LIFETIMEBOUND
#endif

/// Between `class` and the name of what coroutines return: clang then takes all their arguments as
/// lifetimebound, and warns where a coroutine outlives its scope. A function that returns one and is none
/// needs [[clang::coro_wrapper]].
#if defined(__clang__) && defined(__has_cpp_attribute)
#if __has_cpp_attribute(clang::coro_lifetimebound)
#define TIDEMARK_COROUTINE [[clang::coro_return_type, clang::coro_lifetimebound]]
#endif
#endif
#if !defined(TIDEMARK_COROUTINE)
#define TIDEMARK_COROUTINE
#endif

/// Between `class` and its name: what it refers to is not its own, so that clang warns, as it does of
/// std::span, where that is gone before it. Without, clang loses sight of a view's memory once the view is in
/// a variable or a std::span.
#if defined(__clang__)
#define TIDEMARK_POINTER [[gsl::Pointer]]
#else
#define TIDEMARK_POINTER
#endif

namespace tidemark::detail {
/// True where the compiler builds the including file for ThreadSanitizer.
#if defined(__SANITIZE_THREAD__)
inline constexpr bool thread_sanitizer_is_on = true;
#elif defined(__has_feature)
inline constexpr bool thread_sanitizer_is_on = __has_feature(thread_sanitizer);
#else
inline constexpr bool thread_sanitizer_is_on = false;
#endif
}  // namespace tidemark::detail
