// Reads the front of a GGUF file from a place on: numbers and strings, through one window of the file. Internal to
// gguf.
#pragma once

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/input_file.h"

namespace coprime {

class HeaderReader {
 public:
  explicit HeaderReader(const InputFile& file, uint64_t position = 0) : file_(file), position_(position) {}

  uint64_t position() const { return position_; }
  uint64_t left() const { return file_.bytes() - position_; }

  // Error(kModel) where the file ends before: "... ends within `what`".
  template <class T>
  T scalar(std::string_view what) {
    require(sizeof(T), what);
    T value;
    std::memcpy(&value, window(sizeof(T)), sizeof(T));
    position_ += sizeof(T);
    return value;
  }

  // A length and so many bytes.
  std::string text(std::string_view what, uint64_t max_bytes) {
    const auto length = scalar<uint64_t>(what);
    if (length > left() || length > max_bytes) {
      fail(ErrorKind::kModel, "{}: {} claims {} bytes at byte {}; expected at most {}; not a sound file, or cut short",
           file_.path().string(), what, length, position_, std::min(left(), max_bytes));
    }
    std::string text(length, '\0');
    if (length > kWindowBytes) {
      file_.read(position_, std::as_writable_bytes(std::span(text)));
    } else if (length > 0) {
      std::memcpy(text.data(), window(length), length);
    }
    position_ += length;
    return text;
  }

  void skip(uint64_t bytes, std::string_view what) {
    require(bytes, what);
    position_ += bytes;
  }

 private:
  static constexpr uint64_t kWindowBytes = 256 << 10;

  void require(uint64_t bytes, std::string_view what) const {
    if (bytes <= left()) return;
    fail(ErrorKind::kModel,
         "{}: its {} bytes end within {}, of which {} bytes at byte {} are expected; is it cut short?",
         file_.path().string(), file_.bytes(), what, bytes, position_);
  }

  // `bytes` bytes at the position, which the file has.
  const std::byte* window(uint64_t bytes) {
    if (position_ < start_ || position_ + bytes > start_ + bytes_.size()) {
      bytes_.resize(std::min(kWindowBytes, left()));
      start_ = position_;
      file_.read(start_, bytes_);
    }
    return bytes_.data() + (position_ - start_);
  }

  const InputFile& file_;
  uint64_t position_, start_ = 0;
  std::vector<std::byte> bytes_;
};

}  // namespace coprime
