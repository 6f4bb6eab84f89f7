// SPDX-License-Identifier: Apache-2.0
/// @file
/// Workspaces: memory for a function that runs repeatedly and allocates nothing after its first runs.
#pragma once

#include <tidemark/workspace/bit_view.hpp>
#include <tidemark/workspace/tensor_view.hpp>
#include <tidemark/workspace/workspace.hpp>
#include <tidemark/workspace/workspace_acquisition.hpp>
#include <tidemark/workspace/workspace_options.hpp>

#include <tidemark/workspace/extras/dlpack.hpp>
#include <tidemark/workspace/extras/this_thread_workspace.hpp>
