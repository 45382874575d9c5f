// Within one text: where a short piece stood before, so that its ids can be copied from there.
// Invariant: an entry names ids that are in the vector since `remember`; the vector only grows.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

namespace coprime {

class PieceCache {
 public:
  // Appends the ids of a piece that stood before; false if it is not remembered.
  bool repeat(std::string_view piece, std::vector<int32_t>* ids);

  // ids[begin ..] are the piece's, which `repeat` has just not found.
  void remember(std::string_view piece, size_t begin, size_t count);

 private:
  static constexpr size_t kEntries = 4096;  // a power of two
  static constexpr size_t kMaxBytes = 24;
  struct Entry {
    std::array<char, kMaxBytes> text;
    uint32_t length = 0, count = 0;
    size_t begin = 0;
  };
  std::vector<Entry> entries_;  // made when first needed
  size_t slot_ = 0;             // of the piece asked for last
};

}  // namespace coprime
