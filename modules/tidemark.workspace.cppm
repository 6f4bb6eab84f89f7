// SPDX-License-Identifier: Apache-2.0
/// @file
/// Workspaces: arrays of numbers and bits that are there for a while, and the views that stand for them.
module;

#include <tidemark/bit_view.hpp>
#include <tidemark/dlpack.hpp>
#include <tidemark/tensor_view.hpp>

export module tidemark.workspace;

export namespace tidemark {

// Views
using tidemark::bit_view;
using tidemark::column_major;
using tidemark::reshape;
using tidemark::row_major;
using tidemark::tensor_view;

// DLPack
using tidemark::dl_cpu;
using tidemark::dl_data_type;
using tidemark::dl_data_type_of;
using tidemark::dl_device;
using tidemark::dl_tensor;

}  // namespace tidemark
