/* SPDX-License-Identifier: Apache-2.0 */
/* A library in C that is handed arrays, and knows of them what DLPack's header says and nothing of tidemark. */
#include <dlpack/dlpack.h>
#include <stddef.h>
#include <stdint.h>

static double element(DLDataType type, char const* at) {
  if (type.lanes != 1) return -1;
  if (type.code == kDLFloat && type.bits == 64) return *(double const*)at;
  if (type.code == kDLFloat && type.bits == 32) return *(float const*)at;
  if (type.code == kDLInt && type.bits == 64) return (double)*(int64_t const*)at;
  if (type.code == kDLInt && type.bits == 32) return *(int32_t const*)at;
  if (type.code == kDLUInt && type.bits == 8) return *(uint8_t const*)at;
  return -1;
}

/* Of the elements from `at` on, along dimension `r` and those behind it. */
static double sum_from(DLTensor const* tensor, int r, char const* at) {
  double sum = 0;
  int64_t i;
  if (r == tensor->ndim) return element(tensor->dtype, at);
  for (i = 0; i < tensor->shape[r]; ++i) {
    sum += sum_from(tensor, r + 1, at + i * tensor->strides[r] * (tensor->dtype.bits / 8));
  }
  return sum;
}

/* The sum of all elements; the tensor is deallocated. A negative number if it is not of the host's memory. */
double consume_sum(DLManagedTensor* managed) {
  DLTensor const* const tensor = &managed->dl_tensor;
  double sum = -1;
  if (tensor->device.device_type == kDLCPU) {
    sum = sum_from(tensor, 0, (char const*)tensor->data + tensor->byte_offset);
  }
  if (managed->deleter != NULL) managed->deleter(managed);
  return sum;
}

/* The number of the element at the indices, counted in elements from the first one. */
int64_t consume_offset(DLTensor const* tensor, int64_t const* index) {
  int64_t offset = 0;
  int r;
  for (r = 0; r < tensor->ndim; ++r) offset += index[r] * tensor->strides[r];
  return offset;
}
