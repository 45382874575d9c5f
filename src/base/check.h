// COPRIME_CHECK(condition, format, args...): a broken invariant of the program aborts with its values.
#pragma once

#include <fmt/format.h>

#include <string>

namespace coprime {

[[noreturn]] void check_failed(const char* file, int line, const char* condition, const std::string& values);

}  // namespace coprime

#define COPRIME_CHECK(condition, ...)                                                       \
  do {                                                                                      \
    if (!(condition)) [[unlikely]]                                                          \
      ::coprime::check_failed(__FILE__, __LINE__, #condition, fmt::format("" __VA_ARGS__)); \
  } while (false)
