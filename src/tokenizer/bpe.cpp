#include "tokenizer/bpe.h"

#include <algorithm>
#include <bit>

#include "base/check.h"
#include "tokenizer/byte_alphabet.h"

namespace coprime {

MergeTable::MergeTable(std::span<const Merge> merges)
    : entries_(std::bit_ceil(2 * merges.size() + 2)), mask_(entries_.size() - 1) {
  for (uint32_t rank = 0; rank < merges.size(); ++rank) {
    const Merge& merge = merges[rank];
    size_t i = slot(merge.left, merge.right);
    while (entries_[i].left >= 0 && (entries_[i].left != merge.left || entries_[i].right != merge.right))
      i = (i + 1) & mask_;
    entries_[i] = {merge.left, merge.right, merge.result, rank};
  }
}

Bpe::Bpe(const TokenizerSpec& spec) : merges_(spec.merges) {
  byte_ids_.fill(-1);
  if (spec.ignore_merges) {
    texts_.reserve(spec.vocab.size());
    whole_.emplace(spec.vocab.size());
  }
  for (const VocabToken& token : spec.vocab) {
    if (!spec.ignore_merges && token.text.size() > 2) continue;  // a letter of the alphabet has two bytes at most
    auto bytes = bytes_of_token(token.text);
    if (!bytes) continue;
    if (bytes->size() == 1) byte_ids_[static_cast<unsigned char>((*bytes)[0])] = token.id;
    if (spec.ignore_merges) whole_->insert(texts_.emplace_back(std::move(*bytes)), token.id);
  }
}

bool Bpe::find_merge(Room* room, int32_t position) const {
  Room::Symbol& left = room->symbols_[static_cast<size_t>(position)];
  left.rank = Room::kNoRank;
  if (left.next < 0) return false;
  const MergeTable::Entry* merge = merges_.find(left.id, room->symbols_[static_cast<size_t>(left.next)].id);
  if (merge == nullptr) return false;
  left.rank = merge->rank;
  left.result = merge->result;
  return true;
}

void Bpe::encode(std::string_view piece, Room* room, std::vector<int32_t>* ids) const {
  if (whole_) {
    if (const int32_t id = whole_->find(piece); id >= 0) return ids->push_back(id);
  }
  COPRIME_CHECK(piece.size() <= INT32_MAX, "a piece of {} bytes", piece.size());
  auto& symbols = room->symbols_;
  auto& heap = room->heap_;
  symbols.clear();
  heap.clear();
  for (const char c : piece) {
    const int32_t id = byte_ids_[static_cast<unsigned char>(c)];
    const auto at = static_cast<int32_t>(symbols.size());
    if (id >= 0) symbols.push_back({id, at - 1, at + 1, Room::kNoRank, -1});
  }
  if (symbols.empty()) return;
  symbols.back().next = -1;

  const auto key = [&](int32_t position) {
    return uint64_t{symbols[static_cast<size_t>(position)].rank} << 32 | static_cast<uint32_t>(position);
  };
  for (int32_t i = 0; i < static_cast<int32_t>(symbols.size()); ++i) {
    if (find_merge(room, i)) heap.push_back(key(i));
  }
  std::ranges::make_heap(heap, std::greater<>());
  const auto offer = [&](int32_t position) {
    if (!find_merge(room, position)) return;
    heap.push_back(key(position));
    std::ranges::push_heap(heap, std::greater<>());
  };
  while (!heap.empty()) {
    std::ranges::pop_heap(heap, std::greater<>());
    const uint64_t best = heap.back();
    heap.pop_back();
    const auto position = static_cast<int32_t>(best & 0xffffffff);
    Room::Symbol& left = symbols[static_cast<size_t>(position)];
    if (left.rank != best >> 32) continue;  // merged since
    Room::Symbol& right = symbols[static_cast<size_t>(left.next)];
    left.id = left.result;
    left.next = right.next;
    right.rank = Room::kNoRank;
    if (left.next >= 0) symbols[static_cast<size_t>(left.next)].previous = position;
    if (left.previous >= 0) offer(left.previous);
    offer(position);
  }
  for (int32_t i = 0; i >= 0; i = symbols[static_cast<size_t>(i)].next)
    ids->push_back(symbols[static_cast<size_t>(i)].id);
}

}  // namespace coprime
