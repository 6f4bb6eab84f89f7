// SPDX-License-Identifier: Apache-2.0
// A database query: two tables are joined by a hash table, grouped and sorted, and everything else is
// dropped.
#include <cstddef>
#include <cstdint>
#include <forward_list>
#include <map>
#include <memory>
#include <memory_resource>
#include <random>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "program.hpp"

namespace tidemark::bench {
namespace {

struct order {
  std::uint32_t id, customer;
  std::string_view address;
};

struct item {
  std::uint32_t order;
  std::uint32_t cents;
  std::string_view product;
};

class query {
 public:
  explicit query(std::pmr::memory_resource* memory) : orders_{memory}, groups_{memory} {}

  void build(std::vector<order> const& orders) {
    for (order const& each : orders) orders_.emplace(each.id, each);
  }
  void probe(std::vector<item> const& items) {
    for (item const& each : items) {
      const auto [first, last] = orders_.equal_range(each.order);
      for (auto found = first; found != last; ++found) {
        group& of = groups_[found->second.customer];
        of.cents += each.cents;
        of.products.emplace_front(each.product);
      }
    }
  }
  [[nodiscard]] std::uint64_t result() const {
    std::uint64_t sum = 0;
    for (auto const& [customer, of] : groups_) {
      sum = mixed(sum + customer, of.cents);
      for (auto const& product : of.products) sum = mixed(sum, product.size());
    }
    return sum;
  }

 private:
  /// The columns of an order that the query needs, copied from its table.
  struct row {
    using allocator_type = std::pmr::polymorphic_allocator<>;
    row(order const& of, allocator_type memory) : customer{of.customer}, address{of.address, memory} {}
    std::uint32_t customer;
    std::pmr::string address;
  };
  struct group {
    using allocator_type = std::pmr::polymorphic_allocator<>;
    explicit group(allocator_type memory) : products{memory} {}
    std::uint64_t cents = 0;
    std::pmr::forward_list<std::pmr::string> products;
  };

  std::pmr::unordered_multimap<std::uint32_t, row> orders_;
  std::pmr::map<std::uint32_t, group> groups_;
};

class database final : public worker {
 public:
  database(step_memory& memory, extent size)
      : memory_{memory}, orders_(size == extent::full ? 50'000 : 200), items_(2 * orders_.size()) {
    std::mt19937 random{11};
    for (int i = 0; i < 500; ++i)
      products_.push_back("product of the catalogue, number " + std::to_string(i));
    const auto many = static_cast<std::uint32_t>(orders_.size());
    for (std::uint32_t i = 0; i < many; ++i) {
      orders_[i] = {i * 7, static_cast<std::uint32_t>(random() % (many / 4)),
                    products_[i % products_.size()]};
    }
    for (item& each : items_) {
      each = {static_cast<std::uint32_t>(random() % many * 7), static_cast<std::uint32_t>(random() % 10'000),
              products_[random() % products_.size()]};
    }
  }

  std::uint64_t step(unsigned) override {
    bench::step<query> running{memory_};
    running->build(orders_);
    running->probe(items_);
    return running->result();
  }

 private:
  step_memory& memory_;
  std::vector<order> orders_;
  std::vector<item> items_;
  std::vector<std::string> products_;
};

}  // namespace

std::unique_ptr<worker> start_join(step_memory& memory, unsigned, extent size) {
  return std::make_unique<database>(memory, size);
}

}  // namespace tidemark::bench
