// What a user, a file or a peer can cause: one exception type with a kind, caught in one place (cli) and printed as one
// line. A broken invariant of ours is no Error: see check.h.
#pragma once

#include <fmt/format.h>

#include <stdexcept>
#include <string>
#include <utility>

namespace coprime {

enum class ErrorKind {
  kInternal,  // anything else
  kUsage,     // a flag or request that cannot be served
  kModel,     // a model, or an input file
  kLink,      // a link, or a peer
};

// The process's exit status: 1 anything else, 2 usage, 3 model or input, 4 link or peer.
constexpr int exit_code(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::kUsage:
      return 2;
    case ErrorKind::kModel:
      return 3;
    case ErrorKind::kLink:
      return 4;
    case ErrorKind::kInternal:
      break;
  }
  return 1;
}

// what() is one line: what was found, where, and what to do.
class Error : public std::runtime_error {
 public:
  Error(ErrorKind kind, const std::string& message) : std::runtime_error(message), kind_(kind) {}
  ErrorKind kind() const { return kind_; }

 private:
  ErrorKind kind_;
};

template <class... Args>
[[noreturn]] void fail(ErrorKind kind, fmt::format_string<Args...> format, Args&&... args) {
  throw Error(kind, fmt::format(format, std::forward<Args>(args)...));
}

// The text of errno for messages: "No such file or directory".
std::string errno_text(int error);

}  // namespace coprime
