// SPDX-License-Identifier: Apache-2.0
// Each CASE must fail to compile, with a message that matches; without a case the file must compile.
#include <complex>
#include <span>

#include <tidemark/tidemark.hpp>

using namespace tidemark;

void misuse(tensor_view<double, 2>& table, tensor_view<double const, 2>& read, bit_view<2>& bits) {
  (void)table, (void)read, (void)bits;
#if CASE == 1  // message: (no match|no matching|does not match)
  (void)table(1);
#elif CASE == 2   // message: (no match|no matching|does not match)
  (void)table(1, 1.5);
#elif CASE == 3   // message: (read-only|const-qualified|not assignable)
  read(0, 0) = 1;
#elif CASE == 4   // message: (conversion from|no viable conversion)
  tensor_view<double, 2> write = read;
#elif CASE == 5   // message: (conversion from|no viable conversion)
  tensor_view<double, 2, column_major> transposed = table;
#elif CASE == 6   // message: (conversion from|no viable conversion)
  std::span<double> rows = table;  // only rank 1 is a range
#elif CASE == 7   // message: (no match|no matching|does not match)
  (void)table.reshape(2.0, 6);
#elif CASE == 8   // message: layout of a tensor_view is row_major or column_major
  tensor_view<double, 2, int> nonsense;
#elif CASE == 9   // message: (no matching|constraints|does not satisfy)
  tensor_view<double, 2, row_major, int> nonsense;
#elif CASE == 10  // message: (no match|no matching|does not match|unsatisfied|not satisfied)
  bits(3) = true;
#elif CASE == 11  // message: (nodiscard|discard|unused|ignoring)
  table.reshape(12);
#elif CASE == 12  // message: DLPack has codes for bool, integers, float, double
  (void)dl_data_type_of<long double>;
#elif CASE == 13  // message: DLPack has codes for bool, integers, float, double
  (void)dl_data_type_of<std::complex<long double> >;
#elif CASE == 14  // message: DLPack has codes for bool, integers, float, double
  (void)dl_data_type_of<double*>;
#endif
}
