// SPDX-License-Identifier: Apache-2.0
#include "table.hpp"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <stdexcept>
#include <system_error>

namespace tidemark::tools {

std::string printable(std::string_view text, std::size_t max_length) {
  std::string safe{text.substr(0, max_length)};
  for (char& c : safe) c = c >= 0x20 && c < 0x7F ? c : '?';
  return text.size() <= max_length ? safe : safe + "...";
}

std::size_t whole_number(std::string_view text, char const*& reason) {
  constexpr std::size_t max_digits = 20;
  std::size_t value = 0;
  if (text.empty() || text.find_first_not_of("0123456789") != std::string_view::npos) {
    reason = "not a whole number";
    return value;
  }
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.size() > max_digits || error != std::errc{}) reason = "more than 2^64 - 1";
  return value;
}

table::table(std::string const& path, std::string_view header)
    : path_{path}, file_{path, std::ios::binary}, buffer_(max_line_bytes + 1) {
  if (!file_) fail_to_read();
  if (!next_line()) {
    fail("the file is empty" + (header.empty() ? "" : "; it should begin with " + std::string{header}));
  }
  constexpr std::string_view byte_order_mark = "\xEF\xBB\xBF";
  if (header.empty() && text_.starts_with(byte_order_mark)) text_.erase(0, byte_order_mark.size());
  if (!header.empty() && text_ != header) {
    fail("the header is '" + printable(text_) + "', not " + std::string{header});
  }
}

std::vector<std::string_view> table::fields() const {
  std::vector<std::string_view> found;
  std::string_view rest = text_;
  for (std::size_t comma = rest.find(','); comma != std::string_view::npos; comma = rest.find(',')) {
    found.push_back(rest.substr(0, comma));
    rest.remove_prefix(comma + 1);
  }
  found.push_back(rest);
  return found;
}

bool table::next_row(std::span<std::string_view> fields) {
  if (!next_line()) return false;
  if (text_.empty()) fail("the row is empty");
  const auto fields_there = static_cast<std::size_t>(std::ranges::count(text_, ',')) + 1;
  if (fields_there != fields.size()) {
    fail("the row has " + std::to_string(fields_there) + " fields, not " + std::to_string(fields.size()));
  }
  std::string_view rest = text_;
  for (std::string_view& field : fields) {
    field = rest.substr(0, rest.find(','));
    rest.remove_prefix(std::min(rest.size(), field.size() + 1));
  }
  return true;
}

void table::fail_at(std::size_t line, std::string const& reason) const {
  throw std::runtime_error(path_ + ":" + std::to_string(line) + ": " + reason);
}

std::size_t table::number(char const* what, std::string_view text) const {
  char const* reason = nullptr;
  const std::size_t value = whole_number(text, reason);
  if (reason != nullptr) fail(std::string{what} + " is '" + printable(text) + "', " + reason);
  return value;
}

bool table::next_line() {
  ++line_;
  errno = 0;
  const bool found{file_.getline(buffer_.data(), static_cast<std::streamsize>(buffer_.size()))};
  if (file_.bad()) fail_to_read();
  if (!found && !file_.eof()) fail("the line has more than 2^20 bytes");
  const auto taken = static_cast<std::size_t>(file_.gcount());
  text_.assign(buffer_.data(), file_.eof() ? taken : taken - 1);         // the LF is read and not stored
  if (found && !file_.eof() && text_.ends_with('\r')) text_.pop_back();  // the line end is CRLF
  return found;
}

void table::fail_to_read() const {
  throw std::runtime_error(path_ + ": " + std::generic_category().message(errno != 0 ? errno : EIO));
}

}  // namespace tidemark::tools
