// SPDX-License-Identifier: Apache-2.0
/// @file
/// Epochs: the end of an epoch frees all its allocations except those that the program keeps.
#pragma once

#include <tidemark/epoch/buffer.hpp>
#include <tidemark/epoch/buffer_group.hpp>
#include <tidemark/epoch/buffer_view.hpp>
#include <tidemark/epoch/epoch.hpp>
#include <tidemark/epoch/epoch_resource.hpp>
#include <tidemark/epoch/use_after_epoch.hpp>
