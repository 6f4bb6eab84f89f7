// SPDX-License-Identifier: Apache-2.0
#include <tidemark/epoch/use_after_epoch.hpp>

#include <cstdlib>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>

#include <tidemark/core/detail/request.hpp>
#include <tidemark/core/violation.hpp>
#include <tidemark/epoch/buffer_view.hpp>
#include <tidemark/epoch/epoch_resource.hpp>

namespace tidemark {
namespace {

std::atomic<use_after_epoch_policy> policy_in_force{use_after_epoch_policy::report};

// Returns a text such as: was reclaimed when epoch 2 "step" ended
std::string fate_of(detail::storage const& storage) {
  if (storage.address == nullptr) return "has no block: it is empty, or was released or moved from";
  const std::optional<detail::ending> how = storage.how_it_ended();
  if (!how) return "was deallocated, or reclaimed by an unknown epoch";
  if (how->depth == 0) return std::string{"was reclaimed when buffer_group \""} + how->name + "\" was closed";
  return "was reclaimed when epoch " + std::to_string(how->depth) + " \"" + how->name + "\" ended";
}

// Throws or reports, according to the policy.
void find(char const* operation, named_operand const& operand) {
  detail::storage const& used = *operand.storage_;
  char const* const role = detail::name_or(operand.role_, "operand");
  const std::string message = std::string{"use-after-epoch: "} + detail::name_or(operation, "use") + ": " +
                              role + " " + fate_of(used);
  if (policy_in_force == use_after_epoch_policy::throw_exception) throw use_after_epoch{message};
  detail::report_violation(violation_kind::use_after_epoch,
                           used.resource != nullptr ? used.resource->name() : role, "%s", message.c_str());
}

}  // namespace

namespace detail {

constinit std::atomic<bool> epoch_detector_state{false};

namespace {
// Runs before main(). A buffer used earlier finds the detector off.
[[maybe_unused]] const bool environment_was_read = []() noexcept {
  char const* const value = std::getenv("TIDEMARK_EPOCH_DEBUG");
  if (value != nullptr && *value != '\0' && std::string_view{value} != "0") epoch_detector_state = true;
  return true;
}();
}  // namespace

void find_reclaimed(char const* operation, std::initializer_list<named_operand> operands) {
  for (named_operand const& each : operands) {
    storage const& used = *each.storage_;
    if (used.address == nullptr || used.is_live()) continue;
    return find(operation, each);
  }
}

void refuse_view(std::size_t offset, std::size_t count, std::size_t size) {
  throw std::out_of_range("buffer: elements " + std::to_string(offset) + " to " +
                          std::to_string(offset + count) + " of " + std::to_string(size));
}

void refuse_element(named_operand const& dead) {
  find("operator[]", dead);
  std::abort();
}

}  // namespace detail

bool set_epoch_detector(bool on) noexcept { return detail::epoch_detector_state.exchange(on); }

use_after_epoch_policy set_use_after_epoch_policy(use_after_epoch_policy policy) noexcept {
  return policy_in_force.exchange(policy);
}

}  // namespace tidemark
