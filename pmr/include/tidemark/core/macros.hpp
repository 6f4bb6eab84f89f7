// SPDX-License-Identifier: Apache-2.0
/// @file
/// Macros of tidemark. Macros do not cross `import`: include this header to use them.
#pragma once

#include <cstddef>

#include <tidemark/core/config.hpp>

/// Keeps a slow path out of the caller's instruction cache.
#define TIDEMARK_COLD [[gnu::cold, gnu::noinline]]

/// After a parameter: the result must not outlive the argument. After the parameter list: the result must not
/// outlive the object. Clang warns about violations that it detects (-Wdangling, -Wreturn-stack-address).
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

/// Argument of [[nodiscard]] for the class, the constructors and the factories of a scope.
#define TIDEMARK_NAME_SCOPE "name the scope: without a name it ends at once"

/// Rejects the calls of an overload, with a sentence for the user. A requires-expression with such a call is
/// false. The overload has no definition: `TIDEMARK_REJECTS(T*, "write ...") push(int) TIDEMARK_REJECTED;`.
/// Clang prints the sentence as the error; for a deleted function, clang would list all candidates. Other
/// compilers print the declaration of the deleted function, whose return type contains the sentence. The
/// sentence is on one line, because clang prints all lines of the macro.
// clang-format off
#if defined(__clang__)
#define TIDEMARK_REJECTS(Result, sentence)                                                            \
  _Pragma("clang diagnostic push") _Pragma("clang diagnostic ignored \"-Wgcc-compat\"")               \
  __attribute__((diagnose_if(true, sentence, "error"))) _Pragma("clang diagnostic pop") Result
#define TIDEMARK_REJECTED
#else
#define TIDEMARK_REJECTS(Result, sentence) ::tidemark::detail::rejected<sentence>
#define TIDEMARK_REJECTED = delete
#endif

/// `= delete`, with a sentence that clang prints as the error.
#if defined(__clang__) && __clang_major__ >= 19
#define TIDEMARK_DELETED(sentence)                                                                    \
  = _Pragma("clang diagnostic push") _Pragma("clang diagnostic ignored \"-Wc++26-extensions\"")       \
  delete(sentence) _Pragma("clang diagnostic pop")
#else
#define TIDEMARK_DELETED(sentence) = delete
#endif

/// Follows the name of a class in its definition: deletes the copy constructor, with a sentence. GCC prints
/// the second parameter.
#if defined(__clang__)
#define TIDEMARK_NO_COPY(Class, sentence) (Class const&) TIDEMARK_DELETED(sentence)
#else
#define TIDEMARK_NO_COPY(Class, sentence) (Class const&, ::tidemark::detail::rejected<sentence> = {}) = delete
#endif

/// A further parameter of a deleted function template: a sentence that GCC prints.
#if defined(__clang__)
#define TIDEMARK_SENTENCE(text)
#else
#define TIDEMARK_SENTENCE(text) , ::tidemark::detail::sentence = text
#endif
// clang-format on

namespace tidemark::detail {
/// A string literal as a template argument.
template <std::size_t N>
struct sentence {
  consteval sentence(char const (&literal)[N]) {  // NOLINT(google-explicit-constructor)
    for (std::size_t i = 0; i < N; ++i) text[i] = literal[i];
  }
  char text[N]{};
};
/// A type that shows a sentence in the message of a compiler.
template <sentence Text>
struct rejected {};

/// True if the compiler builds the including file for ThreadSanitizer.
#if defined(__SANITIZE_THREAD__)
inline constexpr bool thread_sanitizer_is_on = true;
#elif defined(__has_feature)
inline constexpr bool thread_sanitizer_is_on = __has_feature(thread_sanitizer);
#else
inline constexpr bool thread_sanitizer_is_on = false;
#endif
}  // namespace tidemark::detail
