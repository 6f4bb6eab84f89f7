// SPDX-License-Identifier: Apache-2.0
// A second process of a test, with a channel for numbers and file descriptors between the two. It is forked
// before the shared memory exists, so that it has no mapping of it.
//   peer_process reader{[](channel& to_test) { process_view view{to_test.receive_file().get()}; ... }};
//   reader.channel().send_file(memory.export_file().get());
//   EXPECT_EQ(reader.result(), "");
#pragma once

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <exception>
#include <optional>
#include <string>
#include <utility>

#include <tidemark/core/file_descriptor.hpp>

namespace tidemark::test {

/// One end of a Unix socket. Receiving waits, and returns nothing once the other end has been closed.
class channel {
 public:
  explicit channel(int socket) noexcept : socket_{socket} {}

  bool send(std::uint64_t number) { return ::send(socket_.get(), &number, sizeof number, MSG_NOSIGNAL) > 0; }
  std::optional<std::uint64_t> receive() {
    std::uint64_t number = 0;
    if (::recv(socket_.get(), &number, sizeof number, 0) != sizeof number) return {};
    return number;
  }
  bool send_file(int file) {
    message one;
    cmsghdr* const control = CMSG_FIRSTHDR(&one.header);
    control->cmsg_level = SOL_SOCKET;
    control->cmsg_type = SCM_RIGHTS;
    control->cmsg_len = CMSG_LEN(sizeof file);
    std::memcpy(CMSG_DATA(control), &file, sizeof file);
    return ::sendmsg(socket_.get(), &one.header, MSG_NOSIGNAL) > 0;
  }
  file_descriptor receive_file() {
    message one;
    if (::recvmsg(socket_.get(), &one.header, MSG_CMSG_CLOEXEC) <= 0) return {};
    int file = -1;
    if (cmsghdr const* const control = CMSG_FIRSTHDR(&one.header)) {
      std::memcpy(&file, CMSG_DATA(control), sizeof file);
    }
    return file_descriptor{file};
  }

 private:
  struct message {
    message() noexcept {
      header.msg_iov = &part;
      header.msg_iovlen = 1;
      header.msg_control = control;
      header.msg_controllen = sizeof control;
    }
    char byte = 0;
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))]{};
    iovec part{&byte, 1};
    msghdr header{};
  };

  file_descriptor socket_;
};

/// A child that runs a function, which returns its finding, or an empty text. A watchdog ends a child that
/// hangs.
class peer_process {
 public:
  static constexpr unsigned watchdog_seconds = 60;

  template <class Body>
  explicit peer_process(Body body) {
    int ends[2], texts[2];
    if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0 || ::pipe(texts) != 0)
      std::abort();
    std::fflush(nullptr);
    process_ = ::fork();
    if (process_ == 0) {
      ::close(ends[0]);
      ::close(texts[0]);
      ::alarm(watchdog_seconds);
      const std::string wrong = run(body, ends[1]);
      if (::write(texts[1], wrong.data(), wrong.size()) < 0) ::_exit(2);
      ::_exit(wrong.empty() ? 0 : 1);
    }
    ::close(ends[1]);
    ::close(texts[1]);
    channel_ = test::channel{ends[0]};
    text_ = file_descriptor{texts[0]};
  }
  peer_process(peer_process const&) = delete;
  peer_process& operator=(peer_process const&) = delete;
  ~peer_process() {
    if (process_ > 0) kill();
  }

  [[nodiscard]] test::channel& channel() noexcept { return channel_; }
  [[nodiscard]] pid_t process() const noexcept { return process_; }

  /// Waits for its end. Empty if it found nothing wrong.
  std::string result() {
    std::string text;
    char part[256];
    for (ssize_t n = 0; (n = ::read(text_.get(), part, sizeof part)) > 0;) {
      text.append(part, static_cast<std::size_t>(n));
    }
    int status = 0;
    if (::waitpid(std::exchange(process_, -1), &status, 0) < 0) return "there is no such process";
    if (WIFSIGNALED(status)) return "it was ended by signal " + std::to_string(WTERMSIG(status));
    return text;
  }
  /// Kills the process at any point, and returns when it has ended.
  std::string kill() {
    ::kill(process_, SIGKILL);
    return result();
  }

 private:
  template <class Body>
  static std::string run(Body& body, int socket) {
    try {
      test::channel to_test{socket};
      return body(to_test);
    } catch (std::exception const& error) {
      return std::string{"it threw: "} + error.what();
    }
  }

  pid_t process_ = -1;
  test::channel channel_{-1};
  file_descriptor text_;
};

inline constexpr char const* killed = "it was ended by signal 9";

}  // namespace tidemark::test
