// From texts to token ids: open addressing, at most half full. The texts are the caller's and outlive the table.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace coprime {

class TextTable {
 public:
  explicit TextTable(size_t capacity);  // no more than `capacity` different texts will be put in

  // False, and nothing changes, if the text is there already.
  bool insert(std::string_view text, int32_t id);
  int32_t find(std::string_view text) const;  // -1 if it is not there

 private:
  struct Entry {
    const char* text = nullptr;  // none: the entry is free
    uint32_t length = 0, hash = 0;
    int32_t id = -1;
  };
  size_t slot_of(std::string_view text, uint32_t hash) const;

  std::vector<Entry> entries_;
};

}  // namespace coprime
