#include "tokenizer/text_table.h"

#include <bit>
#include <span>

#include "base/check.h"
#include "base/hash.h"

namespace coprime {
namespace {

uint32_t hash_of(std::string_view text) { return static_cast<uint32_t>(hash_bytes(std::as_bytes(std::span(text)))); }

}  // namespace

TextTable::TextTable(size_t capacity) : entries_(std::bit_ceil(2 * capacity + 2)) {}

// Where the text is, or the free entry where it would be.
size_t TextTable::slot_of(std::string_view text, uint32_t hash) const {
  const size_t mask = entries_.size() - 1;
  for (size_t i = hash & mask;; i = (i + 1) & mask) {
    const Entry& entry = entries_[i];
    if (entry.text == nullptr) return i;
    if (entry.hash == hash && std::string_view(entry.text, entry.length) == text) return i;
  }
}

bool TextTable::insert(std::string_view text, int32_t id) {
  const uint32_t hash = hash_of(text);
  Entry& entry = entries_[slot_of(text, hash)];
  if (entry.text != nullptr) return false;
  COPRIME_CHECK(text.data() != nullptr && text.size() <= UINT32_MAX, "a text of {} bytes", text.size());
  entry = {text.data(), static_cast<uint32_t>(text.size()), hash, id};
  return true;
}

int32_t TextTable::find(std::string_view text) const { return entries_[slot_of(text, hash_of(text))].id; }

}  // namespace coprime
