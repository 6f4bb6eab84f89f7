// SPDX-License-Identifier: Apache-2.0
/// @file
/// Memory of captured graphs, whose addresses never change.
#pragma once

#include <tidemark/graph/capture.hpp>
#include <tidemark/graph/capture_switch.hpp>
#include <tidemark/graph/graph_arena.hpp>
#include <tidemark/graph/graph_backend.hpp>
#include <tidemark/graph/graph_errors.hpp>
#include <tidemark/graph/graph_layout.hpp>
#include <tidemark/graph/rehearse.hpp>
