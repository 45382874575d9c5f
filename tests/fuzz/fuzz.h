// What every fuzzer asks of a parser of bytes from elsewhere: it reads them, or throws an Error whose message is one
// line that says something; it never crashes, hangs, or asks for memory that the input does not pay for (the limits of
// scripts/fuzz).
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include "base/error.h"
#include "base/unique_fd.h"

namespace coprime {

[[noreturn]] inline void bad_message(const std::string& text) {
  std::fprintf(stderr, "this is no message for a person: \"%s\"\n", text.c_str());
  std::abort();
}

inline void check_message(const std::string& text) {
  if (text.empty() || text.size() > 4000) bad_message(text);
  for (const char c : text)
    if (static_cast<unsigned char>(c) < 0x20) bad_message(text);
}

// Runs one input through `parse`. `kind`: of the errors that it may throw.
template <class Parse>
int fuzz(ErrorKind kind, const Parse& parse) {
  try {
    parse();
  } catch (const Error& error) {
    check_message(error.what());
    if (error.kind() != kind) {
      std::fprintf(stderr, "an error of another kind: ");
      bad_message(error.what());
    }
  }
  return 0;
}

inline std::string_view text_of(const uint8_t* data, size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}
inline std::span<const std::byte> bytes_of(const uint8_t* data, size_t size) {
  return std::as_bytes(std::span(data, size));
}

// A file in memory that holds the input.
class InputInMemory {
 public:
  InputInMemory() : fd_(::memfd_create("fuzz", MFD_CLOEXEC)), path_("/proc/self/fd/" + std::to_string(fd_.get())) {}
  const std::filesystem::path& hold(const uint8_t* data, size_t size) {
    if (::ftruncate(fd_.get(), 0) != 0 || ::pwrite(fd_.get(), data, size, 0) != static_cast<ssize_t>(size))
      std::abort();
    return path_;
  }

 private:
  UniqueFd fd_;
  std::filesystem::path path_;
};

}  // namespace coprime
