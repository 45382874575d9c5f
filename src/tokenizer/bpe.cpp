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

bool Bpe::candidate(const Room& room, int32_t position, Room::Candidate* out) const {
  const Room::Symbol& left = room.symbols_[static_cast<size_t>(position)];
  if (left.next < 0) return false;
  const int32_t right = room.symbols_[static_cast<size_t>(left.next)].id;
  const MergeTable::Entry* merge = merges_.find(left.id, right);
  if (merge == nullptr) return false;
  *out = {uint64_t{merge->rank} << 32 | static_cast<uint32_t>(position), left.id, right, merge->result};
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
    if (id >= 0) symbols.push_back({id, at - 1, at + 1});
  }
  if (symbols.empty()) return;
  symbols.back().next = -1;

  Room::Candidate best;
  for (size_t i = 0; i < symbols.size(); ++i) {
    if (candidate(*room, static_cast<int32_t>(i), &best)) heap.push_back(best);
  }
  const auto later = [](const Room::Candidate& a, const Room::Candidate& b) { return a.order > b.order; };
  std::make_heap(heap.begin(), heap.end(), later);
  const auto offer = [&](int32_t position) {
    if (!candidate(*room, position, &best)) return;
    heap.push_back(best);
    std::push_heap(heap.begin(), heap.end(), later);
  };
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), later);
    const Room::Candidate merge = heap.back();
    heap.pop_back();
    const auto position = static_cast<int32_t>(merge.order & 0xffffffff);
    Room::Symbol& left = symbols[static_cast<size_t>(position)];
    if (left.id != merge.left || left.next < 0) continue;  // merged since
    Room::Symbol& right = symbols[static_cast<size_t>(left.next)];
    if (right.id != merge.right) continue;
    left.id = merge.result;
    left.next = right.next;
    right.id = -1;
    if (left.next >= 0) symbols[static_cast<size_t>(left.next)].previous = position;
    if (left.previous >= 0) offer(left.previous);
    offer(position);
  }
  for (int32_t i = 0; i >= 0; i = symbols[static_cast<size_t>(i)].next)
    ids->push_back(symbols[static_cast<size_t>(i)].id);
}

}  // namespace coprime
