// Byte-pair encoding of one piece: the pair of least rank is merged first, the leftmost among equals, in O(n log n).
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/text_table.h"
#include "tokenizer/tokenizer_spec.h"

namespace coprime {

// From a pair of ids to the rank and the result of its merge: open addressing, at most half full.
class MergeTable {
 public:
  struct Entry {
    int32_t left = -1, right = -1, result = -1;
    uint32_t rank = 0;
  };

  explicit MergeTable(std::span<const Merge> merges);  // of a pair that comes twice, the last one counts
  const Entry* find(int32_t left, int32_t right) const {
    for (size_t i = slot(left, right);; i = (i + 1) & mask_) {
      const Entry& entry = entries_[i];
      if (entry.left == left && entry.right == right) return &entry;
      if (entry.left < 0) return nullptr;
    }
  }

 private:
  size_t slot(int32_t left, int32_t right) const {
    const uint64_t key = uint64_t{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right);
    return static_cast<size_t>(key * 0x9e3779b97f4a7c15u >> 32) & mask_;
  }

  std::vector<Entry> entries_;
  size_t mask_ = 0;
};

class Bpe {
 public:
  explicit Bpe(const TokenizerSpec& spec);
  Bpe(const Bpe&) = delete;  // whole_ points into texts_
  Bpe& operator=(const Bpe&) = delete;

  // One caller's room, kept between pieces.
  class Room {
    friend class Bpe;
    struct Symbol {
      int32_t id, previous, next;
      uint32_t rank;   // of its merge with the next symbol; kNoRank: there is none, or this symbol is part of another
      int32_t result;  // of that merge
    };
    static constexpr uint32_t kNoRank = UINT32_MAX;
    std::vector<Symbol> symbols_;
    std::vector<uint64_t> heap_;  // rank, then position; where the symbol has another rank by now, it is void
  };

  // Appends the ids of a piece's bytes (at most INT32_MAX of them). Bytes without a token vanish.
  void encode(std::string_view piece, Room* room, std::vector<int32_t>* ids) const;

 private:
  // Looks the symbol's merge with its next one up; whether there is one.
  bool find_merge(Room* room, int32_t position) const;

  std::array<int32_t, 256> byte_ids_;
  MergeTable merges_;
  std::vector<std::string> texts_;  // both only if the model ignores merges
  std::optional<TextTable> whole_;
};

}  // namespace coprime
