#include "tokenizer/piece_cache.h"

#include <cstring>
#include <span>

#include "base/hash.h"

namespace coprime {

bool PieceCache::repeat(std::string_view piece, std::vector<int32_t>* ids) {
  if (piece.size() > kMaxBytes) return false;
  if (entries_.empty()) entries_.resize(kEntries);
  slot_ = hash_bytes(std::as_bytes(std::span(piece))) & (kEntries - 1);
  const Entry& entry = entries_[slot_];
  if (entry.length != piece.size() || std::memcmp(entry.text.data(), piece.data(), piece.size()) != 0) return false;
  const size_t at = ids->size();
  ids->resize(at + entry.count);
  std::memcpy(ids->data() + at, ids->data() + entry.begin, entry.count * sizeof(int32_t));
  return true;
}

void PieceCache::remember(std::string_view piece, size_t begin, size_t count) {
  if (piece.size() > kMaxBytes) return;
  Entry& entry = entries_[slot_];
  std::memcpy(entry.text.data(), piece.data(), piece.size());
  entry.length = static_cast<uint32_t>(piece.size());
  entry.count = static_cast<uint32_t>(count);
  entry.begin = begin;
}

}  // namespace coprime
