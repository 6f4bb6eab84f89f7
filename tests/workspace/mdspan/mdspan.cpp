// SPDX-License-Identifier: Apache-2.0
// Views with the standard library's std::mdspan. Compiled with libc++ as C++23, and therefore linked with
// nothing that was compiled with libstdc++. Prints the faults and exits with their number.
#include <tidemark/workspace/tensor_view.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdio>
#include <numeric>
#include <type_traits>
#include <vector>

#ifndef __cpp_lib_mdspan
#error "this is a test of views beside std::mdspan"
#endif

namespace {

using tidemark::column_major;
using tidemark::row_major;
using tidemark::tensor_view;

int wrong = 0;

void expect(bool holds, char const* what) {
  if (holds) return;
  std::printf("%s\n", what);
  ++wrong;
}

template <class Layout, class StandardLayout>
void compare_with_mdspan(char const* layout) {
  std::vector<double> numbers(24);
  std::iota(numbers.begin(), numbers.end(), 0.0);
  tensor_view<double, 3, Layout> const view{numbers.data(), {2, 3, 4}};
  auto const standard = view.mdspan();
  using expected = std::mdspan<double, std::dextents<std::size_t, 3>, StandardLayout>;
  static_assert(std::is_same_v<decltype(standard), expected const>);
  static_assert(!std::is_convertible_v<tensor_view<double, 3, Layout>, expected>,
                "a conversion that forgets the view's life is explicit");
  for (std::size_t i = 0; i != 2; ++i) {
    for (std::size_t j = 0; j != 3; ++j) {
      for (std::size_t k = 0; k != 4; ++k) {
        expect(&standard[i, j, k] == &view(i, j, k), layout);
        expect(&standard[i, j, k] == &view[i, j, k], layout);
      }
    }
  }
  for (std::size_t r = 0; r != 3; ++r) {
    expect(standard.extent(r) == view.extent(r), layout);
    expect(standard.stride(r) == view.stride(r), layout);
  }
  expect(standard.size() == view.size(), layout);
}

void compare_other_ranks() {
  double number = 5;
  expect(tensor_view<double, 0>{&number, {}}.mdspan()[] == 5, "rank 0");
  std::array<float, 3> const few{1, 2, 3};
  expect(tensor_view<float const, 1>{few.data(), {3}}.mdspan()[2] == 3, "rank 1, of what is only read");
}

void use_as_range() {
  std::array<int, 4> numbers{3, 1, 4, 1};
  tensor_view<int, 1> const view{numbers.data(), {4}};
  std::ranges::sort(view);
  std::span<int const> const sorted = view;
  expect(sorted[0] == 1 && sorted[3] == 4, "a view as a range of libc++");
}

}  // namespace

int main() {
  compare_with_mdspan<row_major, std::layout_right>("row_major and layout_right differ");
  compare_with_mdspan<column_major, std::layout_left>("column_major and layout_left differ");
  compare_other_ranks();
  use_as_range();
  return wrong;
}
